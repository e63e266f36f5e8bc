//! Messages and ACKs after which the driver looks for no answer: none may be due.

use std::sync::{Arc, Weak};

use sluice_engine::downstream::SourceId;
use sluice_engine::snapshot::Snapshot;
use sluice_xds::TypeUrl;

use super::relay::StreamSlot;
use super::world::{Invariant, World};

/// The last look for an answer of a stream.
#[derive(Default)]
pub struct LastLook {
    pub found_some: bool,
    /// The snapshots of all sources. Weak, because the judge counts those that live.
    seen: Vec<Weak<Snapshot>>,
}

impl World {
    /// A source wakes the streams before their next look.
    pub fn note_news(&self, stream: &mut StreamSlot) {
        if self.has_news(stream) {
            stream.session.note_news();
            stream.last_look.seen = self.slots.iter().map(|slot| Arc::downgrade(&slot.snapshot)).collect();
        }
    }

    fn has_news(&self, stream: &StreamSlot) -> bool {
        let seen = &stream.last_look.seen;
        let mut both = self.slots.iter().zip(seen);
        self.slots.len() != seen.len()
            || both.any(|(slot, seen)| seen.as_ptr() != Arc::as_ptr(&slot.snapshot))
    }

    pub fn judge_calm(&mut self, stream: &mut StreamSlot, acked: &TypeUrl) {
        if stream.is_polled || stream.last_look.found_some || self.has_news(stream) {
            return;
        }
        self.judge_quiet(stream, "an ACK of", acked);
    }

    pub fn judge_sated(&mut self, stream: &mut StreamSlot, sent: &TypeUrl) {
        self.judge_quiet(stream, "the last message of", sent);
    }

    fn judge_quiet(&mut self, stream: &mut StreamSlot, what: &str, of: &TypeUrl) {
        let (slots, time) = (&self.slots, self.time());
        let latest = |id: SourceId| slots.get(id.0 as usize).map(|slot| slot.snapshot.clone());
        if let Some((_, answer)) = stream.session.poll_answer(&latest, time) {
            let who = self.show_stream(stream);
            self.fail(Invariant::NoLostUpdate, || {
                format!("{what} {of} on {who} is to leave nothing due, and {} is", answer.type_url)
            });
        }
    }
}
