//! The policy of failover among the servers of one list.

use std::time::Duration;

use crate::setting::{Setting, hours, ms, seconds, time};

/// A recovered higher server takes its clients back after at most this time, even with resources missing
/// (RLY-44). A lower server serves after the same time, even with resources missing (RLY-41). 15 s is gRPC's
/// own resource timer.
pub const RESOLVE_TIMEOUT: Setting<Duration> =
    Setting::new("resolve_timeout", seconds(15), time(ms(100)..=seconds(600)));

/// A client whose server changed three times within this time stays with its server for as long (FU25). Zero:
/// never.
pub const HOLD_DOWN: Setting<Duration> = Setting::new("hold_down", seconds(30), time(ms(0)..=hours(1)));

/// The rules that a server list follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// gRPC's rules (A71): each client goes down the list when its server is unreachable and a resource is
    /// missing, and comes back as soon as a higher server has all its resources.
    #[default]
    Grpc,
    /// Envoy's rules: the second server is used only while the first server has never answered; see
    /// [`upstream`](crate::engine::upstream).
    Envoy,
}

/// The settings of one server list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FallbackSettings {
    pub policy: Policy,
    /// `fallback_on_reachability_only` (FBK-17): clients leave an unreachable server even without missing
    /// resources.
    pub on_reachability_only: bool,
    /// See [`RESOLVE_TIMEOUT`].
    pub resolve_timeout: Duration,
    /// See [`HOLD_DOWN`].
    pub hold_down: Duration,
}

impl Default for FallbackSettings {
    fn default() -> Self {
        FallbackSettings {
            policy: Policy::Grpc,
            on_reachability_only: false,
            resolve_timeout: RESOLVE_TIMEOUT.default,
            hold_down: HOLD_DOWN.default,
        }
    }
}
