//! The keys that the kinds of servers share: connections, and the treatment of a response that removes most
//! resources of a type (`mass_deletion`, FU18).

use super::reader::Map;
use super::units::word;
use crate::client::{ClientSettings, TcpKeepalive};
use sluice_engine::upstream::{Hold, MASS_DELETION_HOLD};
use sluice_setting::{Backoff, Read};

/// Keys for gRPC only.
pub(super) const GRPC_KEYS: &[&str] = &[
    "server_features",
    "wildcard",
    "resource_timeout",
    "resource_timeouts",
    "report_rejections",
    "settings_timeout",
    "stream_open_timeout",
    "streams_per_connection",
    "ping_interval",
];

/// Keys for REST only.
pub(super) const REST_KEYS: &[&str] = &["refresh_delay", "request_timeout"];

/// The keys of a server's connections.
pub(super) fn read_connection(map: &mut Map<'_>) -> ClientSettings {
    let connection = ClientSettings::read(map);
    ClientSettings {
        tcp_keepalive: map.section("tcp_keepalive", TcpKeepalive::read).unwrap_or_default(),
        backoff: map.section("backoff", read_backoff).unwrap_or_default(),
        ..connection
    }
}

fn read_backoff(map: &mut Map<'_>) -> Backoff {
    let backoff = Backoff::read(map);
    if backoff.initial > backoff.max {
        map.contradiction("initial", "longer than `max`");
    }
    backoff
}

#[derive(Clone, Copy)]
enum DeletionPolicy {
    Honour,
    HoldThenHonour,
    HoldUntilConfirmed,
}

const POLICIES: &[(&str, DeletionPolicy)] = &[
    ("honour", DeletionPolicy::Honour),
    ("hold_then_honour", DeletionPolicy::HoldThenHonour),
    ("hold_until_confirmed", DeletionPolicy::HoldUntilConfirmed),
];

/// `None`: the relay obeys at once, as the protocol says.
pub(super) fn read_mass_deletion(map: &mut Map<'_>) -> Option<Hold> {
    let read = |map: &mut Map<'_>| match map.or("policy", DeletionPolicy::Honour, word(POLICIES)) {
        DeletionPolicy::Honour => {
            map.reject_inapplicable(&["hold"], "`policy: honour`");
            None
        }
        DeletionPolicy::HoldThenHonour => Some(Hold::For(map.value(&MASS_DELETION_HOLD))),
        DeletionPolicy::HoldUntilConfirmed => {
            map.reject_inapplicable(&["hold"], "`policy: hold_until_confirmed`");
            Some(Hold::UntilConfirmed)
        }
    };
    map.section("mass_deletion", read).flatten()
}
