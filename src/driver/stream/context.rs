//! The constant facts of a stream, and the reports about the stream: log lines, events and counters.

use std::sync::Arc;

use tracing::warn;

use crate::driver::api::change_name::ChangeName;
use crate::driver::api::downstream::Peer;
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::rate::SharedNames;
use crate::driver::ground::registry::Membership;
use crate::driver::source::class_users::Holder;
use crate::driver::source::table::Sources;
use crate::driver::stream::private_part::shared_source;
use crate::telemetry::Limit;
use crate::telemetry::events::{Kind, Occurrence};
use crate::telemetry::metrics::TypeMetrics;
use sluice_engine::Time;
use sluice_engine::cache::SessionId;
use sluice_engine::downstream::{Answer, ChangeId, NoRoomFor, RequestOutcome, Verdict};
use sluice_xds::{Code, Node, ResourceName, Status, StreamKind, TypeUrl, Version};

/// The characters of a name in a log line.
const NAME_CHARS_MAX: usize = 200;

/// The constant facts of a stream.
#[repr(C)]
pub struct StreamContext {
    pub(crate) shared: Arc<DriverContext>,
    pub(crate) id: u64,
    pub(crate) kind: StreamKind,
    pub(crate) peer: Arc<Peer>,
    pub(crate) opened_at: Time,
    pub(crate) sources: Arc<Sources>,
    /// The table of all streams. The parts of a stream need only the number.
    pub(crate) streams: Arc<dyn Membership>,
}

impl StreamContext {
    /// The stream's id at the sources.
    pub fn session(&self) -> SessionId {
        SessionId(self.id)
    }

    /// The user of the stream's classes, for the bounds.
    pub fn holder(&self) -> Holder {
        Holder::new(&self.peer.identity, self.peer.address, self.peer.connection.number())
    }

    /// The names of all streams of the connection, for their rate.
    pub fn names(&self) -> &SharedNames {
        &self.peer.connection.account().names
    }

    /// Whether the client is a relay: the ACK of a relay means structure (TIR-1).
    pub fn is_relay(&self) -> bool {
        self.peer.relays.is_some()
    }

    /// Reports that the client waits for a limit.
    pub fn note_delay(&self, limit: Limit, node: Option<&Node>) {
        self.shared.metrics.limit_delays(limit, node_id(node), self.peer.address);
    }

    /// Counts an ACK or NACK, and reports the first NACK of a response.
    pub fn note_verdict(&self, outcome: &RequestOutcome, types: &TypeMetrics, node: Option<&Node>) {
        match &outcome.verdict {
            Verdict::Ack { latency } => {
                types.ack();
                if let Some(latency) = latency {
                    types.delivered(*latency);
                }
            }
            Verdict::Nack { status, version, repeated } => {
                types.nack();
                if !repeated {
                    let change = outcome.judged.carried.rejected().first();
                    self.note_nack(&outcome.type_url, *version, change, &status.to_string(), node);
                }
            }
            Verdict::Stale | Verdict::None => {}
        }
    }

    fn note_nack(
        &self,
        type_url: &TypeUrl,
        version: Version,
        change: Option<&ChangeId>,
        words: &str,
        node: Option<&Node>,
    ) {
        let node_id = node_id(node);
        let error = type_url.quote(words);
        let event =
            Occurrence::warn(Kind::Nack, "clients rejected an update; they keep their previous resources");
        let event = event.of_type(type_url).of_client(self.id, node_id, self.peer.address);
        let event = event.version(version).detail(&error);
        let name = |id: &ChangeId| ChangeName { source: shared_source(id.source).0, number: id.number };
        let change = change.map(|id| name(id).to_string());
        // A rejected change always has a trace (OBS-5).
        let trace_id = change.as_deref().and_then(|change| self.shared.metrics.traces.trace_id(change));
        let generation = self.shared.settings().generation;
        let event = event.traced(generation, trace_id.as_deref());
        self.shared.metrics.events.add(match &change {
            Some(change) => event.change(change),
            None => event,
        });
        if let Some(suppressed) = self.shared.throttle.allow("nack") {
            let version = (!type_url.is_secret()).then_some(tracing::field::display(version));
            warn!(node = node_id, stream = self.id, %type_url, version, change, generation, trace_id, %error, suppressed,
                "a client rejected an update (NACK); it keeps its previous resources");
        }
    }

    /// Logs a name without any server. Only the client's operators can fix the name, and other names
    /// are served as usual (NAM-5).
    pub fn note_refused_name(&self, outcome: &RequestOutcome, node: Option<&Node>) {
        if let Some((name, reason)) = &outcome.refused
            && let Some(suppressed) = self.shared.throttle.allow("refused name")
        {
            let name: String = name.as_str().chars().take(NAME_CHARS_MAX).collect();
            warn!(node = node_id(node), stream = self.id, type_url = %outcome.type_url, name, %reason, suppressed,
                "a client asked for a name that cannot be served; answering that the name does not exist");
        }
    }

    /// Reports resources left out of an answer (RLY-23).
    pub fn note_left_out(&self, type_url: &TypeUrl, count: usize) {
        self.shared.metrics.of_type(type_url).left_out(count);
        if let Some(suppressed) = self.shared.throttle.allow("resources left out") {
            warn!(stream = self.id, %type_url, count, suppressed, "left resources out of an answer: in the \
                state-of-the-world variant they need a wrapper, and the client lacks the feature \
                xds.config.resource-in-sotw");
        }
    }

    /// Reports names, sent unasked, for which the stream has no room.
    pub fn note_unasked_left_out(&self, type_url: &TypeUrl, names: usize, reason: NoRoomFor) {
        let limit = match reason {
            NoRoomFor::Names => Limit::NamesPerStream,
            NoRoomFor::Memory => Limit::ConnectionBytes,
        };
        self.shared.metrics.limit_hit(limit);
        if let Some(suppressed) = self.shared.throttle.allow("unasked names left out") {
            warn!(stream = self.id, %type_url, names, limit = limit.name(), suppressed, "a client is sent resources that it \
                did not ask for, and its names would pass limits.{}; leaving these resources out", limit.name());
        }
    }

    /// Reports a message above gRPC's default limit. A full-state set cannot be split, nor can a single
    /// resource in any variant, and many clients refuse such messages (SST-12, SST-13, RLY-75). They end the
    /// stream, open another, and are sent the same again.
    #[cold]
    pub fn note_large(&self, answer: &Answer, name: Option<&ResourceName>, bytes: usize) {
        self.shared.metrics.limit_hit(Limit::FullStateBytes);
        let type_url = &answer.type_url;
        if answer.full {
            if let Some(suppressed) = self.shared.throttle.allow("full state over 4 MiB") {
                warn!(%type_url, bytes, suppressed, "a complete set is larger than 4 MiB, gRPC's default limit, and \
                    cannot be split in the state-of-the-world variant; clients with this limit need delta");
            }
        } else if let Some(suppressed) = self.shared.throttle.allow("resource over 4 MiB") {
            let name: String = name.map_or("", ResourceName::as_str).chars().take(NAME_CHARS_MAX).collect();
            warn!(%type_url, name, bytes, suppressed, "a resource is larger than 4 MiB, gRPC's default limit for a \
                message; clients with this limit refuse it, end their stream and come again");
        }
    }

    /// Reports that the sources of another configuration cannot be used.
    pub fn note_stay(&self, status: &Status) {
        if let Some(suppressed) = self.shared.throttle.allow("refused classes of a reload") {
            warn!(listener = %self.peer.listener, stream = self.id, error = %status.message, suppressed,
                "a client stays with its former sources, because the sources of the new configuration cannot be used");
        }
    }

    /// Reports that the next server of a list cannot be used.
    pub fn note_refused_move(&self, status: &Status) {
        if let Some(suppressed) = self.shared.throttle.allow("refused moves") {
            warn!(listener = %self.peer.listener, stream = self.id, error = %status.message, suppressed,
                "a client stays with a server that cannot serve it, because the next server of its list cannot be used");
        }
    }

    /// Reports a stream without a usable server, and returns the stream's status.
    pub fn unavailable(&self) -> Status {
        if let Some(suppressed) = self.shared.throttle.allow("unavailable streams") {
            warn!(listener = %self.peer.listener, stream = self.id, suppressed, "no server is reachable, \
                and nothing is cached for a client; ending its stream, so that it can use its next server");
        }
        Status::new(
            Code::Unavailable,
            "no control plane is reachable, and nothing is cached for this request",
        )
    }

    /// Logs an update that waits until a server has answered about a name (RLY-5, ADR 12).
    pub fn note_name_wait(&self, type_url: &TypeUrl, name: &ResourceName, server: &str, node: Option<&Node>) {
        let Some(suppressed) = self.shared.throttle.allow("clients kept waiting") else { return };
        let name: String = name.as_str().chars().take(NAME_CHARS_MAX).collect();
        warn!(node = node_id(node), stream = self.id, %type_url, name, %server, suppressed,
            "a client gets no update of a type: the server has not said whether a resource exists that the \
                client may have");
    }
}

/// The id of a node for reports.
pub(crate) fn node_id(node: Option<&Node>) -> &str {
    node.map_or("", |node| &node.id)
}
