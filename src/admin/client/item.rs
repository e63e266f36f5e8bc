//! A client as an item of a list. The item never contains a payload, and of a Secret only the name.

use std::time::SystemTime;

use sluice_admin_api::Text;
use sluice_admin_api::clients::{
    Client, ClientContent, ClientType, HeldChange, Nack, NameCount, NameWait, PlanSeat,
};

use crate::admin::item::{names, refused_type, rfc_3339, seconds_since, variant_name};
use crate::admin::query::ClientsQuery;
use crate::driver::api::status::{Lane, SeatStatus, SessionStatus, SessionTypeStatus, Why};

/// The stream with its matching types; `None` if the stream does not match, or none of its types.
pub(in crate::admin) fn client<'a>(
    session: &'a SessionStatus,
    query: &ClientsQuery,
    now: SystemTime,
) -> Option<Client<'a>> {
    let types = query.matching(session, now)?;
    let item = |status| client_type(status, NameCount { names: status.names }, now);
    Some(with_types(session, types.into_iter().map(item).collect(), now))
}

/// The stream with these types.
pub(super) fn with_types<'a, N>(
    session: &'a SessionStatus,
    types: Vec<ClientType<'a, N>>,
    now: SystemTime,
) -> Client<'a, N> {
    Client {
        id: session.id,
        node: Text::Borrowed(&session.node_id),
        cluster: Text::Borrowed(&session.node_cluster),
        listener: Text::Borrowed(&session.listener),
        peer: session.peer,
        identity: session.identity.to_string(),
        relays: session.relays.as_ref().map(|path| path.ids().map(Text::Borrowed).collect()),
        service: session.kind.to_string(),
        variant: Text::Borrowed(variant_name(session.kind.variant)),
        opened_at: rfc_3339(session.opened_at),
        open_seconds: seconds_since(session.opened_at, now),
        seats: session.seats.iter().map(seat).collect(),
        types,
    }
}

fn seat(seat: &SeatStatus) -> PlanSeat<'_> {
    let (lane, push) = match seat.lane {
        None => (None, None),
        Some(Lane::Stable) => (Some("stable"), None),
        Some(Lane::Candidate { push }) => (Some("candidate"), Some(push)),
    };
    let percent = f64::from(seat.bucket) / 100.0;
    PlanSeat { plan: Text::Borrowed(&seat.plan), percent, lane: lane.map(Text::Borrowed), push }
}

/// A type of a stream, with its names as a number or as a page.
pub(super) fn client_type<N>(status: &SessionTypeStatus, names: N, now: SystemTime) -> ClientType<'_, N> {
    ClientType {
        r#type: Text::Borrowed(status.type_url.message()),
        state: Text::Borrowed(status.state.name()),
        why: status.why.map(Why::name).map(Text::Borrowed),
        since: rfc_3339(status.since),
        state_seconds: seconds_since(status.since, now),
        refused: status.refused,
        server_refuses: status.server_refuses.as_ref().map(|refused| refused_type(refused, now)),
        restored: status.restored,
        server: status.server.as_deref().map(Text::Borrowed),
        class: status.class.as_deref().map(Text::Borrowed),
        rules: status.rules.iter().map(ToString::to_string).collect(),
        fallback: status.fallback,
        change: status.change.map(|change| change.to_string()),
        stale_seconds: status
            .stale_since
            .filter(|_| status.has.is_some())
            .map(|since| seconds_since(since, now)),
        server_lost_seconds: status.stale_since.map(|since| seconds_since(since, now)),
        wildcard: status.wildcard,
        names,
        nonce: status.nonce.as_deref().map(Text::Borrowed),
        unacked_seconds: status.unacked.map(|unacked| unacked.as_secs_f64()),
        waits: status.waits.as_ref().map(|waits| NameWait {
            name: Text::Borrowed(waits.name.as_str()),
            server: waits.server.as_deref().map(Text::Borrowed),
            seconds: waits.duration.as_secs_f64(),
        }),
        held: status.held.as_ref().map(|held| HeldChange {
            why: Text::Borrowed(held.why.short()),
            what: held.what.as_deref().map(Text::Borrowed),
            seconds: held.duration.map(|duration| duration.as_secs_f64()),
        }),
        content: (!status.type_url.is_secret()).then(|| content(status, now)),
    }
}

fn content(status: &SessionTypeStatus, now: SystemTime) -> ClientContent<'_> {
    ClientContent {
        has: status.has.map(|version| version.to_string()),
        should: status.should.map(|version| version.to_string()),
        version_sent: status.version_sent.map(|version| version.to_string()),
        version_acked: status.version_acked.map(|version| version.to_string()),
        nack: status.nack.as_ref().map(|nack| Nack {
            version: nack.version.map(|version| version.to_string()),
            detail: Text::Borrowed(&nack.detail),
            names: names(&nack.names),
            at: rfc_3339(nack.at),
            seconds: seconds_since(nack.at, now),
        }),
    }
}
