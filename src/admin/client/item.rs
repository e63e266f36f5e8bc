//! A client as an item of a list. The item never contains a payload, and of a Secret only the name.

use std::net::SocketAddr;
use std::time::SystemTime;

use serde::Serialize;

use crate::admin::item::{RefusedType, is_false, refused_type, rfc_3339, seconds_since, variant_name};
use crate::admin::query::ClientsQuery;
use crate::driver::api::status::{Lane, SeatStatus, SessionStatus, SessionTypeStatus, Why};
use crate::xds::ResourceName;

/// A downstream stream.
#[derive(Debug, Serialize)]
pub(in crate::admin) struct Client<'a> {
    id: u64,
    node: &'a str,
    cluster: &'a str,
    listener: &'a str,
    peer: Option<SocketAddr>,
    /// The proved identity: a SPIFFE ID, a DNS name, the user of a unix socket, or `anonymous`.
    identity: String,
    /// The relays on the way, the nearest to the client first; absent for other clients (TIR-2).
    #[serde(skip_serializing_if = "Option::is_none")]
    relays: Option<Vec<&'a str>>,
    /// `ADS`, or the service of one type.
    service: String,
    variant: &'static str,
    opened_at: String,
    open_seconds: f64,
    /// The client's places in plans; absent without a plan.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    seats: Vec<Seat<'a>>,
    types: Vec<ClientType<'a>>,
}

#[derive(Debug, Serialize)]
struct Seat<'a> {
    plan: &'a str,
    /// Steps of more than this percentage admit the client (WAV-13).
    percent: f64,
    /// `candidate`, `stable`, or null while the plan holds nothing back.
    lane: Option<&'static str>,
    /// The push of the candidate.
    push: Option<u64>,
}

#[derive(Debug, Serialize)]
struct ClientType<'a> {
    r#type: &'a str,
    state: &'static str,
    /// The reason for a state other than SYNCED.
    why: Option<&'static str>,
    since: String,
    state_seconds: f64,
    /// There is no room for the client's node class.
    #[serde(skip_serializing_if = "is_false")]
    refused: bool,
    /// The server does not serve the type, or ends streams for the type.
    #[serde(skip_serializing_if = "Option::is_none")]
    server_refuses: Option<RefusedType>,
    restored: bool,
    server: Option<&'a str>,
    class: Option<&'a str>,
    /// The deciding rules of `node_classes`.
    rules: Vec<String>,
    /// The type is served by another server than the preferred one.
    fallback: bool,
    /// How long the client's content has been unconfirmed, because the server is unreachable.
    stale_seconds: Option<f64>,
    /// How long the server has been unreachable; `state` is about the client.
    server_lost_seconds: Option<f64>,
    wildcard: bool,
    names: usize,
    nonce: Option<&'a str>,
    unacked_seconds: Option<f64>,
    /// The latest change of the content that the client asks for.
    change: Option<String>,
    /// Present while updates of the type wait for a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits: Option<Wait<'a>>,
    /// Present while the client is not sent a change.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<Held<'a>>,
    /// Absent for Secrets: a version is a hash of the content, and a NACK may quote the content.
    #[serde(flatten)]
    content: Option<ClientContent<'a>>,
}

/// A name whose existence is not known yet.
#[derive(Debug, Serialize)]
struct Wait<'a> {
    name: &'a str,
    server: Option<&'a str>,
    seconds: f64,
}

/// A pending change (ADM-7).
#[derive(Debug, Serialize)]
struct Held<'a> {
    why: &'static str,
    what: Option<&'a str>,
    seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
struct ClientContent<'a> {
    /// The version of the accepted content, and the version of the due content.
    has: Option<String>,
    should: Option<String>,
    version_sent: Option<String>,
    version_acked: Option<String>,
    nack: Option<Nack<'a>>,
}

#[derive(Debug, Serialize)]
struct Nack<'a> {
    version: Option<String>,
    detail: &'a str,
    /// The resources with a name in the text.
    names: Vec<&'a str>,
    at: String,
    seconds: f64,
}

/// The stream with its matching types; `None` if the stream does not match, or none of its types.
pub(in crate::admin) fn client<'a>(
    session: &'a SessionStatus,
    query: &ClientsQuery,
    now: SystemTime,
) -> Option<Client<'a>> {
    let types = query.matching(session, now)?;
    Some(Client {
        id: session.id,
        node: &session.node_id,
        cluster: &session.node_cluster,
        listener: &session.listener,
        peer: session.peer,
        identity: session.identity.to_string(),
        relays: session.relays.as_ref().map(|path| path.ids().collect()),
        service: session.kind.to_string(),
        variant: variant_name(session.kind.variant),
        opened_at: rfc_3339(session.opened_at),
        open_seconds: seconds_since(session.opened_at, now),
        seats: session.seats.iter().map(seat).collect(),
        types: types.into_iter().map(|of| client_type(of, now)).collect(),
    })
}

fn seat(of: &SeatStatus) -> Seat<'_> {
    let (lane, push) = match of.lane {
        None => (None, None),
        Some(Lane::Stable) => (Some("stable"), None),
        Some(Lane::Candidate { push }) => (Some("candidate"), Some(push)),
    };
    Seat { plan: &of.plan, percent: f64::from(of.bucket) / 100.0, lane, push }
}

fn client_type(of: &SessionTypeStatus, now: SystemTime) -> ClientType<'_> {
    let content = (!of.type_url.is_secret()).then(|| ClientContent {
        has: of.has.map(|version| version.to_string()),
        should: of.should.map(|version| version.to_string()),
        version_sent: of.version_sent.map(|version| version.to_string()),
        version_acked: of.version_acked.map(|version| version.to_string()),
        nack: of.nack.as_ref().map(|nack| Nack {
            version: nack.version.map(|version| version.to_string()),
            detail: &nack.detail,
            names: nack.names.iter().map(ResourceName::as_str).collect(),
            at: rfc_3339(nack.at),
            seconds: seconds_since(nack.at, now),
        }),
    });
    ClientType {
        r#type: of.type_url.message(),
        state: of.state.name(),
        why: of.why.map(Why::name),
        since: rfc_3339(of.since),
        state_seconds: seconds_since(of.since, now),
        refused: of.refused,
        server_refuses: of.server_refuses.as_ref().map(|refused| refused_type(refused, now)),
        restored: of.restored,
        server: of.server.as_deref(),
        class: of.class.as_deref(),
        rules: of.rules.iter().map(ToString::to_string).collect(),
        fallback: of.fallback,
        change: of.change.map(|change| change.to_string()),
        stale_seconds: of.stale_since.filter(|_| of.has.is_some()).map(|since| seconds_since(since, now)),
        server_lost_seconds: of.stale_since.map(|since| seconds_since(since, now)),
        wildcard: of.wildcard,
        names: of.names,
        nonce: of.nonce.as_deref(),
        unacked_seconds: of.unacked.map(|unacked| unacked.as_secs_f64()),
        waits: of.waits.as_ref().map(|waits| Wait {
            name: waits.name.as_str(),
            server: waits.server.as_deref(),
            seconds: waits.duration.as_secs_f64(),
        }),
        held: of.held.as_ref().map(|held| Held {
            why: held.why.short(),
            what: held.what.as_deref(),
            seconds: held.duration.map(|duration| duration.as_secs_f64()),
        }),
        content,
    }
}
