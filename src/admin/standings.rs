//! `GET /versions?type=`: the clients of a type by their answer to its newest content, for each source (TRU-1).
//!
//! As with the versions of one resource, a walk over the streams answers each request (TRU-2), and "accepted" is the
//! client's word, not proof that the client uses the content (TRU-5).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use super::list::ITEMS_PER_TURN;
use super::state::Admin;
use crate::driver::api::clients::ClientState;
use crate::driver::api::status::SourceStatus;
use crate::xds::TypeUrl;

/// Units in an answer. Classes with many clients are few; classes by node id are as many as the clients.
const UNITS_MAX: usize = 1_000;

#[derive(Debug, Serialize)]
pub(super) struct Answer {
    r#type: String,
    /// The sources that several clients share: those with most rejections first.
    units: Vec<Unit>,
    /// Units without room.
    more: usize,
}

#[derive(Debug, Serialize)]
struct Unit {
    source: u64,
    server: String,
    list: String,
    class: String,
    /// The streams that ask for the type: the sum of the next five.
    clients: u64,
    accepted: u64,
    /// Not sent yet, or sent less than 60 s ago.
    pending: u64,
    rejected: u64,
    /// Sent, and unanswered for 60 s.
    silent: u64,
    /// There is nothing for the client.
    unaffected: u64,
    /// Streams that ended within 60 s of a response of the type, in the last ten minutes, without a word.
    lost: u64,
}

impl Unit {
    fn new(status: &SourceStatus) -> Unit {
        Unit {
            source: status.id,
            server: status.server.to_string(),
            list: status.list.to_string(),
            class: status.class.digest.to_string(),
            clients: 0,
            accepted: 0,
            pending: 0,
            rejected: 0,
            silent: 0,
            unaffected: 0,
            lost: 0,
        }
    }

    fn add(&mut self, state: ClientState) {
        self.clients += 1;
        *match state {
            // The newest content is never that of an earlier push.
            ClientState::Accepted | ClientState::Overtaken => &mut self.accepted,
            ClientState::Pending => &mut self.pending,
            ClientState::Rejected => &mut self.rejected,
            ClientState::Silent => &mut self.silent,
            ClientState::Unaffected => &mut self.unaffected,
        } += 1;
    }
}

pub(super) async fn answer(admin: &Admin, type_url: &TypeUrl) -> Answer {
    // A private source has one client, whose state `/clients` has.
    let shared = admin.relay.sources().into_iter().filter(|source| source.stream.is_none());
    let mut units: BTreeMap<u64, Unit> = shared.map(|source| (source.id, Unit::new(&source))).collect();
    for (number, client) in admin.relay.type_states().enumerate() {
        for of in client.types.iter().filter(|of| of.type_url == *type_url) {
            if let Some(unit) = units.get_mut(&of.source) {
                unit.add(of.state);
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
    Answer { r#type: type_url.message().to_owned(), units, more }
}
