//! The reference's knowledge of a server's answers to the subscriptions of a session: the times at which the
//! session may, and must, return to the server (I9, RLY-44).

use sluice_xds::Variant;

use super::reference::{Source, Stream, StreamType};
use super::words::{Mask, bit, is_full_state};

/// A session's subscription of one type at a server.
#[derive(Clone, Copy, Debug)]
pub struct Wants {
    pub ty: usize,
    pub wildcard: bool,
    pub names: Mask,
}

impl Source {
    /// The server has answered for all parts on its present streams, or was silent for long enough.
    pub fn may_be_current(&self, wants: Wants, now: u64) -> bool {
        let is_silent = |stream: &Stream, said: &StreamType| {
            let is_unsaid = match stream.variant {
                Variant::Sotw => !said.is_rejected,
                // A rejected response answers nothing, so the silence goes on.
                Variant::Delta => !said.is_answered || said.is_rejected,
            };
            let is_over = |(since, signs)| since + self.resource_timeout <= now && stream.signs > signs;
            is_unsaid && said.asked_at.is_some_and(is_over)
        };
        let expired = self.expired(wants.ty);
        self.shapes(wants).all(|(wildcard, names)| {
            self.has_polled(wants.ty, wildcard)
                || self.carriers(wants.ty, wildcard).any(|(stream, said)| {
                    // An answer to dropped names settles the type as well; the reference did not take such an
                    // answer.
                    let has_left = stream.variant == Variant::Delta && said.is_answered && said.has_left;
                    // A rejected update of a whole wildcard takes nothing back.
                    let was_whole = wildcard && said.is_settled() && !said.is_spoiled;
                    has_left
                        || was_whole
                        || said.was_silent
                        || is_answered(stream, wants.ty, wildcard, names & !expired)
                        || is_silent(stream, said)
                })
        })
    }

    /// The server has answered for all parts beyond doubt.
    pub fn must_be_current(&self, wants: Wants) -> bool {
        self.shapes(wants).all(|(wildcard, names)| {
            if self.polls {
                // That nothing changed is no answer for what ran out of time: the next poll brings it (TTL-8).
                let tracks = if wildcard { &self.members[wants.ty] } else { &self.names[wants.ty] };
                return self.has_polled(wants.ty, wildcard) && !tracks.iter().any(|track| track.has_expired);
            }
            let mut carriers = self.carriers(wants.ty, wildcard).peekable();
            carriers.peek().is_some()
                && carriers.all(|(stream, said)| {
                    said.listed & names == names
                        && !said.was_given_up
                        && is_answered(stream, wants.ty, wildcard, names)
                })
        })
    }

    /// Names were dropped before the server answered for their type. The moment of the next event decides
    /// whether the later silence covers names that are requested afterwards on the stream.
    pub fn is_unclear(&self) -> bool {
        let types = self.streams.iter().flatten().flat_map(|stream| &stream.types);
        types.into_iter().any(|said| said.asked && said.has_left && !said.is_answered)
    }

    /// Names whose time to live has run out: absent without an answer.
    fn expired(&self, ty: usize) -> Mask {
        let tracks = self.names[ty].iter().enumerate();
        tracks.filter(|(_, track)| track.has_expired).fold(0, |mask, (name, _)| mask | bit(name))
    }

    fn shapes(&self, wants: Wants) -> impl Iterator<Item = (bool, Mask)> + use<> {
        let wildcard = wants.wildcard.then_some((true, 0));
        wildcard.into_iter().chain((wants.names != 0).then_some((false, wants.names)))
    }

    fn carriers(&self, ty: usize, wildcard: bool) -> impl Iterator<Item = (&Stream, &StreamType)> {
        let all = self.streams.iter().flatten().map(move |stream| (stream, &stream.types[ty]));
        all.filter(move |(_, said)| said.asked && said.wildcard == wildcard)
    }
}

/// A rejected response answers nothing. In SotW each name is answered separately; in delta all names are
/// answered when the first answers have settled.
fn is_answered(stream: &Stream, ty: usize, wildcard: bool, names: Mask) -> bool {
    let said = &stream.types[ty];
    match stream.variant {
        Variant::Delta => said.is_current && said.is_answered,
        Variant::Sotw if is_full_state(ty) => said.is_good,
        Variant::Sotw if wildcard => said.is_settled() && !said.is_rejected,
        Variant::Sotw => said.is_good && said.unanswered & names == 0,
    }
}
