//! The decision about a stream, and its denials (AUT-1 to AUT-13).

use std::sync::Arc;

use tracing::{debug, warn};

use crate::driver::ground::registry::lock;
use crate::driver::source::handle::Subscriber;
use crate::driver::stream::state::{Inner, StreamState};
use crate::engine::authorization::{Decision, Denial, Denials, Grant, Mode};
use crate::engine::downstream::Regrant;
use crate::telemetry::events::{Kind, Occurrence};
use crate::xds::{Code, Node, Status};

impl StreamState {
    /// Judges the stream at its first request, and when its dynamic parameters have changed (AUT-5). Every method passes
    /// here: before, the session has a grant of nothing (AUT-1).
    ///
    /// # Errors
    /// The status with which the stream must end.
    pub(crate) fn admit(&self, inner: &mut Inner) -> Result<(), Status> {
        let grant = self.decide(inner).map_err(|denial| denial.status(&self.peer.identity))?;
        inner.is_admitted = true;
        self.regrant(inner, grant).map_or(Ok(()), Err)
    }

    /// Judges the stream by a policy that has come into force (AUT-12). Returns whether the stream has ended.
    pub(crate) fn judge_again(&self) -> bool {
        let end = {
            let inner = &mut *lock(&self.inner);
            // A stream without a request is judged at its first request.
            if !inner.is_admitted || inner.end.is_some() {
                return false;
            }
            match self.decide(inner) {
                Ok(grant) => self.regrant(inner, grant),
                Err(denial) => Some(denial.status(&self.peer.identity)),
            }
        };
        let ends = end.is_some();
        if let Some(status) = end {
            // Until its end, the stream may ask for nothing more.
            lock(&self.inner).session.revoke();
            self.end(status);
        }
        ends
    }

    fn decide(&self, inner: &Inner) -> Result<Arc<Grant>, Denial> {
        let policy = self.shared.policy();
        let Decision { grant, denial, rule } = policy.decide(self.peer.claimant(), inner.node.as_deref());
        let Some(denial) = denial else { return Ok(grant) };
        let name = rule.and_then(|index| policy.rules().get(index)).map(|rule| &*rule.name);
        self.note_denials(&Denials { first: denial.clone(), count: 1 }, name, inner.node.as_deref());
        match policy.mode() {
            Some(Mode::Report) | None => Ok(grant),
            Some(Mode::Enforce) => Err(denial),
        }
    }

    /// Puts a grant in force. Returns the status with which the stream must end, if it must.
    fn regrant(&self, inner: &mut Inner, grant: Arc<Grant>) -> Option<Status> {
        let rule = grant.clone();
        match inner.session.regrant(grant) {
            Regrant::Kept => None,
            Regrant::Lost(denial) => {
                let status = denial.status(&self.peer.identity);
                self.note_denials(&Denials { first: denial, count: 1 }, rule.rule(), inner.node.as_deref());
                Some(status)
            }
            Regrant::Gained => {
                let text = "a name that was denied before is allowed now; the client can ask again";
                Some(Status::new(Code::Unavailable, text))
            }
        }
    }

    /// Counts and logs the denials of a request.
    pub(crate) fn note_denials(&self, denials: &Denials, rule: Option<&str>, node: Option<&Node>) {
        let (denial, count) = (&denials.first, denials.count);
        self.shared.metrics.downstream.denied(denial.what(), count);
        let (identity, listener) = (&self.peer.identity, &*self.peer.listener);
        let node = node.map_or("", |node| node.id.as_str());
        let peer = self.peer.address.map(tracing::field::display);
        let reason = denial.status(identity).message;
        let rule = rule.unwrap_or("none");
        if !self.shared.denial_log.is_first(identity) {
            debug!(%identity, listener, peer, node, stream = self.id, rule, count, reason, "a client was denied");
            return;
        }
        let is_report = self.shared.policy().mode() == Some(Mode::Report);
        let text = match is_report {
            true => "authorization would deny a client",
            false => "authorization denied a client",
        };
        let event = Occurrence::warn(Kind::Client, text).of_client(self.id, node, self.peer.address);
        self.shared.metrics.events.add(event.at_listener(&self.peer.listener).detail(&reason));
        if is_report {
            warn!(%identity, listener, peer, node, stream = self.id, rule, count, reason,
                "authorization would deny a client; `mode: report` serves it all the same. Further denials of this \
                identity are only counted");
        } else {
            warn!(%identity, listener, peer, node, stream = self.id, rule, count, reason,
                "authorization denied a client; further denials of this identity are only counted");
        }
    }
}
