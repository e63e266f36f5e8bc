//! Lost and returned servers: the state of a source, and one log line at each change.

use std::num::NonZeroU64;
use std::time::Duration;

use tracing::{info, warn};

use super::{OutageKind, Report};
use crate::driver::api::status::SourceState;
use crate::telemetry::events::{Kind, Occurrence, tell};
use sluice_engine::Time;
use sluice_engine::source::StreamIndex;
use sluice_xds::{Code, Status, TypeUrl};

impl Report {
    /// RLY-25: the server is reachable, but does not serve this type.
    pub(super) fn not_served(&mut self, stream: StreamIndex, type_url: &TypeUrl, status: &Status, now: Time) {
        tell!(self, warn(UpstreamLost, "the upstream does not serve a type").of_type(type_url).detail(status),
            if self.allow(&format!("not served {type_url}"));
            { server = %self.server_uri, list = %self.list, class = %self.class.digest, %type_url, error = %status }
            + " that clients ask for; retrying now and then");
        self.closed(stream, now);
    }

    /// The stream has ended, because it has no subscriptions or because it is renewed.
    pub fn closed(&mut self, stream: StreamIndex, now: Time) {
        let was_lost = self.contact.health.is_any_lost();
        self.contact.health.closed(stream);
        if was_lost {
            self.refresh(now);
        }
    }

    /// A source is in backoff once none of its streams is up.
    pub(super) fn back_off(&mut self, stream: StreamIndex, delay: Duration, now: Time) {
        if self.contact.health.is_any_up() {
            return;
        }
        let state = self.contact.backoff(stream, delay);
        self.enter(state, now);
    }

    /// Notes the type of a lost stream, where each type has its own, and whether the server was lost with the
    /// stream.
    pub fn note_lost_type(&mut self, lost_type: Option<(TypeUrl, bool)>) {
        self.contact.lost_type = lost_type;
    }

    /// Whether a loss is logged: one line at the change, not one for each attempt. Returns the number of
    /// suppressed lines, and the type if only one type is lost.
    pub(super) fn loss_to_log(
        &mut self,
        cause: &str,
        kind: OutageKind,
        type_url: Option<TypeUrl>,
    ) -> Option<(Option<NonZeroU64>, Option<TypeUrl>)> {
        if !self.contact.is_news(kind, type_url.as_ref()) {
            return None;
        }
        let of_type = type_url.as_ref().map(|type_url| format!("{cause} {type_url}"));
        let suppressed = self.allow(of_type.as_deref().unwrap_or(cause))?;
        Some((suppressed, type_url))
    }

    pub(super) fn unreachable(&mut self, stream: StreamIndex, status: &Status, now: Time) {
        self.contact.failures += 1;
        self.contact.last_error = Some(status.clone());
        self.lose(stream, now);
        if let Some(lived) = self.contact.health.ended_by_server(stream) {
            return self.ends_streams(status, lived, now);
        }
        let type_url =
            self.contact.lost_type.take().and_then(|(type_url, is_whole)| (!is_whole).then_some(type_url));
        if let Some((suppressed, type_url)) =
            self.loss_to_log("unreachable", OutageKind::Unreachable, type_url)
        {
            let text = match self.contact.has_content() {
                true => "the upstream is unreachable; serving cached configuration",
                false => "the upstream is unreachable; nothing is cached",
            };
            self.tell_loss(text, status, type_url.as_ref());
            let type_url = type_url.map(tracing::field::display);
            warn!(server = %self.server_uri, list = %self.list, class = %self.class.digest, type_url, error = %status,
                suppressed, "{text}; retrying");
        }
        self.back_off(stream, Duration::ZERO, now);
    }

    fn tell_loss(&self, text: &'static str, status: &Status, type_url: Option<&TypeUrl>) {
        let event = Occurrence::warn(Kind::UpstreamLost, text).detail(status);
        self.add(match type_url {
            Some(type_url) => event.of_type(type_url),
            None => event,
        });
    }

    /// The server is reachable, and ended the stream. For an operator, this differs from a failed connection.
    pub(super) fn ends_streams(&mut self, status: &Status, lived: Duration, now: Time) {
        let type_url = self.contact.lost_type.take().map(|(type_url, _)| type_url);
        if let Some((suppressed, type_url)) =
            self.loss_to_log("ends streams", OutageKind::EndsStreams, type_url)
        {
            let (text, meanwhile) = match self.contact.has_content() {
                true => (
                    "the upstream ends streams; serving cached configuration",
                    "serving cached configuration",
                ),
                false => ("the upstream ends streams; nothing is cached", "nothing is cached"),
            };
            self.tell_loss(text, status, type_url.as_ref());
            let type_url = type_url.map(tracing::field::display);
            // Servers parse nodes in their own ways, and refuse others with this code.
            let remedy = match status.code == Code::InvalidArgument && !self.contact.answered {
                true => ". If it refuses the node of this class, set `upstream_node` in `node_classes`",
                false => "",
            };
            let node = (!remedy.is_empty()).then(|| tracing::field::display(&self.shown));
            warn!(server = %self.server_uri, list = %self.list, class = %self.class.digest, type_url, error = %status, node,
                after = ?lived, suppressed, "the upstream accepts connections but ends the stream; {meanwhile}; \
                    retrying{remedy}");
        }
        if !self.contact.health.is_any_up() {
            let (failures, delay) = (self.contact.failures, self.contact.delay());
            self.enter(SourceState::EndsStreams { failures, delay, lived }, now);
        }
    }

    /// A stream is open. If the server ended the previous stream, an open stream alone proves nothing.
    pub(super) fn opened(&mut self, stream: StreamIndex, now: Time) {
        if !(matches!(self.contact.state, SourceState::EndsStreams { .. })
            && self.contact.health.is_lost(stream))
        {
            self.enter(SourceState::Connected, now);
        }
    }

    /// Records a report about a stream; see `Health::reported`.
    pub fn reported(&mut self, stream: StreamIndex, is_ended_by_server: bool, now: Time) {
        self.contact.health.reported(stream, is_ended_by_server, now);
    }

    /// From now on, nothing confirms the served resources.
    pub(super) fn lose(&mut self, stream: StreamIndex, now: Time) {
        self.contact.health.unreachable(stream);
        self.contact.stale_since.get_or_insert(now);
        self.metrics.stale(true);
    }

    /// The server answered on a stream. The served resources are fresh again, unless another stream is lost.
    pub(super) fn heard(&mut self, stream: StreamIndex, now: Time) {
        self.contact.health.answered(stream);
        let state = if self.contact.is_mute { SourceState::Unanswered } else { SourceState::Connected };
        self.enter(state, now);
        self.refresh(now);
    }

    /// The server has sent a response.
    pub(super) fn answers(&mut self, now: Time) {
        self.contact.answered = true;
        if std::mem::take(&mut self.contact.is_mute) {
            tell!(self, info(UpstreamBack, "the upstream answers");
                { server = %self.server_uri, list = %self.list, class = %self.class.digest });
            self.enter(SourceState::Connected, now);
        }
    }

    /// A stream is open, and the server sends nothing. Without this line, neither an error nor an answer
    /// would tell the operator.
    pub(super) fn unanswered(&mut self, now: Time) {
        if self.contact.answered {
            return;
        }
        self.enter(SourceState::Unanswered, now);
        if std::mem::replace(&mut self.contact.is_mute, true) {
            return;
        }
        tell!(self, warn(UpstreamLost, "the upstream has answered no request for 10 s"), if self.allow("unanswered");
            { server = %self.server_uri, list = %self.list, class = %self.class.digest, node = %self.shown }
            + "; it may have nothing for a node with this id. If it selects by node id, set `split_by: {{ id: true }}` in \
                `node_classes`, or set `upstream_node`");
    }

    pub(super) fn refresh(&mut self, now: Time) {
        if self.contact.health.is_any_lost() {
            return;
        }
        self.contact.failures = 0;
        self.contact.last_error = None;
        self.metrics.stale(self.contact.restored.is_some());
        self.contact.warned_of.clear();
        let since = self.contact.stale_since.take();
        if self.contact.warned.take().is_some()
            && let Some(suppressed) = self.allow("answers again")
        {
            let outage = since.map(|since| now.since(since));
            let event = Occurrence::info(Kind::UpstreamBack, "the upstream answers again");
            self.add(match outage {
                Some(outage) => event.detail(format_args!("after {outage:.1?}")),
                None => event,
            });
            let outage = outage.map(tracing::field::debug);
            info!(server = %self.server_uri, list = %self.list, class = %self.class.digest, outage, suppressed,
                "the upstream answers again");
        }
    }

    pub(super) fn enter(&mut self, state: SourceState, now: Time) {
        self.contact.enter(state, now);
        self.metrics.state(state);
    }
}
