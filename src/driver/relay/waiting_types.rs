//! Types with requests that wait in the relay, for the operator (ADR 66).

use std::time::SystemTime;

use crate::driver::api::status::{ConfigStatus, HeldStatus, SessionTypeStatus, Why};
use crate::driver::ground::clock::Clock;
use crate::engine::Time;
use crate::xds::TypeUrl;

/// Shows these types as waiting, each since its oldest request.
pub(super) fn show(waiting: &[(TypeUrl, Time)], types: &mut Vec<SessionTypeStatus>, clock: &Clock) {
    for (type_url, since) in waiting {
        match types.iter_mut().find(|of| of.type_url == *type_url) {
            Some(of) => of.wait_for_rate(*since, clock),
            None => {
                let mut of = SessionTypeStatus::unknown(type_url.clone(), clock.wall(*since));
                of.wait_for_rate(*since, clock);
                types.push(of);
            }
        }
    }
}

impl SessionTypeStatus {
    /// A type of which no request was taken.
    fn unknown(type_url: TypeUrl, since: SystemTime) -> SessionTypeStatus {
        SessionTypeStatus {
            type_url,
            server: None,
            class: None,
            fallback: false,
            change: None,
            stale_since: None,
            wildcard: false,
            names: 0,
            version_sent: None,
            version_acked: None,
            nonce: None,
            state: ConfigStatus::NotSent,
            why: None,
            since,
            has: None,
            should: None,
            rules: Vec::new(),
            server_refuses: None,
            refused: false,
            restored: false,
            unacked: None,
            waits: None,
            held: None,
            nack: None,
        }
    }

    /// Requests of the type wait in the relay. A rejection alone matters more, and of several requests the oldest counts.
    fn wait_for_rate(&mut self, since: Time, clock: &Clock) {
        if self.why.is_some_and(|why| why <= Why::Rate) {
            return;
        }
        (self.state, self.why, self.since) = (Why::Rate.state(), Some(Why::Rate), clock.wall(since));
        let duration = Some(clock.now().since(since));
        self.held =
            Some(HeldStatus { why: Why::Rate, what: Some("limits.changes_per_second".into()), duration });
    }
}
