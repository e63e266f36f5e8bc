//! How the servers of one list stand in for each other.

use std::time::Duration;

/// Whose rules a server list follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// gRPC's (A71): each client goes down the list when its server is unreachable and it lacks something, and comes back as
    /// soon as a higher server has all that it wants.
    #[default]
    Grpc,
    /// Envoy's: the second server is asked only while the first one has never answered; see
    /// [`upstream`](crate::engine::upstream).
    Envoy,
}

/// Of one server list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub policy: Policy,
    /// `fallback_on_reachability_only` (FBK-17): an unreachable server is left though nothing is lacking.
    pub on_reachability_only: bool,
    /// A higher server that is heard again takes its clients back after this time at the latest, whether or not it has all
    /// that they want by then (RLY-44); so long may a lower one take until it serves as it is (RLY-41).
    pub resolve_timeout: Duration,
    /// A client whose server changed three times within this time stays where it is for as long (FU25).
    pub hold_down: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            policy: Policy::Grpc,
            on_reachability_only: false,
            resolve_timeout: Duration::from_secs(15),
            hold_down: Duration::from_secs(30),
        }
    }
}
