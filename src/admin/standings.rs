//! `GET /versions?type=`: the clients of a type by their answer to its newest content, for each source
//! (TRU-1).
//!
//! As with the versions of one resource, a walk over the streams answers each request (TRU-2), and "accepted"
//! is the client's word, not proof that the client uses the content (TRU-5).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use sluice_admin_api::names::{TypeVerdicts, UnitVerdicts};

use super::list::ITEMS_PER_TURN;
use super::state::Admin;
use crate::driver::api::clients::ClientState;
use crate::driver::api::status::SourceStatus;
use sluice_xds::TypeUrl;

/// Units in an answer. Classes with many clients are few; classes by node id are as many as the clients.
const UNITS_MAX: usize = 1_000;

fn unit(source: &SourceStatus) -> UnitVerdicts {
    UnitVerdicts {
        source: source.id,
        server: source.server.to_string(),
        list: source.list.to_string(),
        class: source.class.digest.to_string(),
        ..UnitVerdicts::default()
    }
}

fn count(unit: &mut UnitVerdicts, state: ClientState) {
    unit.clients += 1;
    *match state {
        // The newest content is never that of an earlier push.
        ClientState::Accepted | ClientState::Overtaken => &mut unit.accepted,
        ClientState::Pending => &mut unit.pending,
        ClientState::Rejected => &mut unit.rejected,
        ClientState::Silent => &mut unit.silent,
        ClientState::Unaffected => &mut unit.unaffected,
    } += 1;
}

pub(super) async fn answer(admin: &Admin, type_url: &TypeUrl) -> TypeVerdicts {
    // A private source has one client, whose state `/clients` has.
    let shared = admin.relay.sources().into_iter().filter(|source| source.stream.is_none());
    let mut units: BTreeMap<u64, UnitVerdicts> = shared.map(|source| (source.id, unit(&source))).collect();
    for (number, client) in admin.relay.type_states().enumerate() {
        for status in client.types.iter().filter(|status| status.type_url == *type_url) {
            if let Some(unit) = units.get_mut(&status.source) {
                count(unit, status.state);
            }
        }
        if number % ITEMS_PER_TURN == ITEMS_PER_TURN - 1 {
            tokio::task::yield_now().await;
        }
    }
    for (source, lost) in admin.relay.lost_streams(type_url) {
        if let Some(unit) = units.get_mut(&source) {
            unit.lost = lost;
        }
    }
    let mut units: Vec<_> = units.into_values().filter(|unit| unit.clients + unit.lost > 0).collect();
    units.sort_by_key(|unit| (Reverse((unit.rejected, unit.lost, unit.silent, unit.clients)), unit.source));
    let more = units.len().saturating_sub(UNITS_MAX);
    units.truncate(UNITS_MAX);
    TypeVerdicts { r#type: type_url.message().to_owned(), units, more }
}
