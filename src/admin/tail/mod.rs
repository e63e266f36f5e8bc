//! `GET /tail`: the requests, responses and states of one client, as they come (ADM-15). `item`: the lines.

mod item;

use std::collections::BTreeMap;

use axum::extract::{Request, State as Shared};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use sluice_admin_api::parameters::TailParameters;
use sluice_admin_api::tail::{TailBegin, TailGap};

use super::item::seconds_since;
use super::list::ITEMS_PER_TURN;
use super::live::{self, Feed, FeedState};
use super::params::{Declined, bad_request, not_found, read};
use super::state::Admin;
use super::types;
use crate::driver::api::status::{ConfigStatus, SessionTypeStatus, Why, names_type};
use crate::driver::api::tail::{Followed, TAILS_MAX, Tail};
use crate::telemetry::Limit;
use sluice_xds::TypeUrl;

/// Streams whose states are written. A node has a few streams, and a poller has a new one for each poll.
const STREAMS_MAX: usize = 64;

/// The longest node id in a query. The relay takes no longer ones from clients either.
const NODE_BYTES_MAX: usize = 4096;

/// A state that lasts for less than this is part of an exchange that the lines show.
const STATE_SECONDS_MIN: f64 = 1.0;

fn parse(uri: &Uri) -> Result<(Followed, Option<String>), Declined> {
    let TailParameters { client, node, r#type } = read(uri)?;
    let followed = match (client, node) {
        (Some(id), None) => {
            let number = id.parse();
            let text = || format!("client is {id:?}; allowed: the number of a stream");
            Followed::Stream(number.map_err(|_| bad_request(text()))?)
        }
        (None, Some(node)) if !node.is_empty() && node.len() <= NODE_BYTES_MAX => Followed::Node(node.into()),
        (None, Some(_)) => {
            return Err(bad_request(format!("node is empty, or longer than {NODE_BYTES_MAX} bytes")));
        }
        (None, None) | (Some(_), Some(_)) => {
            let text = "say either client=NUMBER for one stream, or node=ID for all streams of a node";
            return Err(bad_request(text.to_owned()));
        }
    };
    Ok((followed, r#type))
}

/// `GET /tail?client=|node=&type=`.
pub(super) async fn tail(Shared(admin): Shared<Admin>, request: Request) -> Result<Response, Response> {
    let (followed, type_name) = parse(request.uri())?;
    types::check(&admin, type_name.as_deref()).await.map_err(bad_request)?;
    let Some(tail) = admin.relay.tail(followed, type_name.clone()) else {
        admin.metrics.limit_hit(Limit::AdminStreams);
        let text = format!("{TAILS_MAX} tails are open\n");
        return Err((StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "5")], text).into_response());
    };
    let mut streams = BTreeMap::new();
    match tail.followed() {
        // Looked for after the tail has begun, so that no end is missed.
        Followed::Stream(id) => {
            let none = || not_found(format!("no client \"{id}\"; GET /clients has the ids of open streams"));
            admin.relay.session(*id).ok_or_else(none)?;
            streams.insert(*id, States::new());
        }
        Followed::Node(node) => {
            for (number, session) in admin.relay.sessions().enumerate() {
                if *session.node_id == **node && streams.len() < STREAMS_MAX {
                    streams.insert(session.id, States::new());
                }
                if number % ITEMS_PER_TURN == ITEMS_PER_TURN - 1 {
                    tokio::task::yield_now().await;
                }
            }
        }
    }
    let feed = LiveTail { admin: admin.clone(), tail, type_name, streams, has_begun: false };
    Ok(live::respond(&admin, request.extensions(), feed))
}

/// The states of a stream that were written last, by type.
type States = BTreeMap<TypeUrl, (ConfigStatus, Option<Why>)>;

struct LiveTail {
    admin: Admin,
    tail: Tail,
    type_name: Option<String>,
    streams: BTreeMap<u64, States>,
    has_begun: bool,
}

impl LiveTail {
    fn begin(&self, out: &mut String) {
        let (client, node) = match self.tail.followed() {
            Followed::Stream(id) => (Some(*id), None),
            Followed::Node(node) => (None, Some(node.to_string())),
        };
        let begin = TailBegin { client, node, streams: self.streams.keys().copied().collect() };
        write(out, Some("begin"), &begin);
    }

    /// The states that have changed and that last.
    fn states(&mut self) -> Vec<item::TimedLine> {
        let mut items = Vec::new();
        let now = self.admin.relay.now();
        let (relay, type_name) = (&self.admin.relay, self.type_name.as_deref());
        self.streams.retain(|id, written| {
            let Some(session) = relay.session(*id) else { return false };
            let is_followed =
                |status: &&SessionTypeStatus| type_name.is_none_or(|text| names_type(text, &status.type_url));
            for status in session.types.iter().filter(is_followed) {
                let state = (status.state, status.why);
                let lasts = status.state == ConfigStatus::Error
                    || seconds_since(status.since, now) >= STATE_SECONDS_MIN;
                if lasts && written.get(&status.type_url) != Some(&state) {
                    written.insert(status.type_url.clone(), state);
                    items.push(item::state(*id, status));
                }
            }
            true
        });
        items
    }
}

fn write(out: &mut String, event: Option<&str>, data: &impl Serialize) {
    if let Ok(data) = serde_json::to_string(data) {
        live::message(out, None, event, &data);
    }
}

impl Feed for LiveTail {
    async fn write(&mut self, out: &mut String, _is_last: bool) -> FeedState {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.begin(out);
        }
        let taken = self.tail.take();
        for line in &taken.lines {
            if self.streams.len() < STREAMS_MAX {
                self.streams.entry(line.stream).or_default();
            }
        }
        let mut items: Vec<_> = taken.lines.iter().map(|line| item::line(line)).collect();
        items.extend(self.states());
        items.sort_by_key(|item| item.at);
        for item in items {
            write(out, None, &item.line);
        }
        if taken.left_out > 0 {
            write(out, Some("gap"), &TailGap { left_out: taken.left_out });
        }
        if !taken.is_over {
            return FeedState::Wait;
        }
        live::message(out, None, Some("end"), "{}");
        FeedState::End
    }
}
