//! Timers, and the invariants of the machine.

use crate::engine::Time;
use crate::engine::upstream::api::{Cause, Changes, Event, Output, UpstreamSettings};
use crate::engine::upstream::names::Names;
use crate::engine::upstream::type_request::{TypeRequest, Want};
use crate::xds::{ResourceName, TypeUrl};

use crate::engine::upstream::machine::{Phase, Upstream};

impl Upstream {
    pub(super) fn sign_of_life(&mut self) {
        if let Phase::Open(stream) = &mut self.phase {
            stream.signs += 1;
            stream.is_probing = false;
        }
    }

    pub(super) fn run_timers(&mut self, now: Time) {
        let Phase::Open(stream) = &self.phase else { return };
        let mut is_unproven = false;
        for (type_url, subscription) in &mut self.subscriptions {
            let has_spoken = subscription.has_spoken();
            match &mut subscription.want {
                Want::Names(names) if !stream.is_receiving => {
                    // A transient error makes no absence, whichever names the server leaves out (TMR-5).
                    // Marks make none either.
                    let spoken = has_spoken || self.settings.timeout_is_transient || stream.has_marks;
                    let mut out = names.run_out(now, stream.signs, spoken);
                    is_unproven |= names.has_unproven();
                    // With marks the server may be a relay that does not know the name either, so silence
                    // proves no absence. Names with parameters are different: no response reports the lack of
                    // a matching variant.
                    out.retain(|name| !stream.has_marks || name.is_located());
                    self.outputs.extend(expired(&self.settings, type_url, names, out));
                }
                Want::Names(_) | Want::Globs(_) | Want::Wildcard(_) | Want::Nothing => {}
            }
            if !stream.is_receiving {
                is_unproven |= subscription.said.silence.run_out(now, stream.signs);
            }
            subscription.each_settling(|settling| settling.pass(now));
        }
        self.settle_answers(now);
        // Runs after the names: timers that expired in a silence restart if the silence is found to be an
        // answer now.
        is_unproven |= self.end_silence(now);
        if let Phase::Open(stream) = &mut self.phase
            && is_unproven
            && !std::mem::replace(&mut stream.is_probing, true)
        {
            self.outputs.push_back(Output::Probe);
        }
    }

    pub(super) fn check_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let is_open = matches!(self.phase, Phase::Open(_));
        let is_closed = matches!(self.phase, Phase::Closed);
        let wants_nothing = self.subscriptions.values().all(TypeRequest::wants_nothing);
        debug_assert_eq!(
            is_closed || self.idle_until.is_some(),
            wants_nothing,
            "a stream is there, or on its way, while something is wanted"
        );
        debug_assert!(!is_closed || self.subscriptions.is_empty(), "nothing is kept when nothing is wanted");
        for (type_url, subscription) in &self.subscriptions {
            debug_assert_eq!(*type_url, subscription.type_url);
            subscription.check_invariants(is_open);
        }
    }
}

/// TMR-5: the new state of the names with expired timers.
pub(super) fn expired(
    settings: &UpstreamSettings,
    type_url: &TypeUrl,
    names: &mut Names,
    out: Vec<ResourceName>,
) -> Option<Output> {
    if out.is_empty() {
        return None;
    }
    if settings.timeout_is_transient {
        return Some(Output::Event(Event::Timeout { type_url: type_url.clone(), names: out }));
    }
    for name in &out {
        names.set_absent(name);
    }
    Some(Output::Changes(Changes::of_names(type_url, out, Cause::Timeout)))
}
