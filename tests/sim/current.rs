//! What the reference knows of a server's answers to what a session wants: when the session may return to it, and when it must
//! (I9, RLY-44).

use sluice::xds::Variant;

use super::reference::{Source, Stream, StreamType};
use super::words::{Mask, bit, is_full_state};

/// What a session wants of one type of a server.
#[derive(Clone, Copy, Debug)]
pub struct Wants {
    pub ty: usize,
    pub wildcard: bool,
    pub names: Mask,
}

impl Source {
    /// The server has answered for all of it on its present streams, or was silent for long enough.
    pub fn may_be_current(&self, wants: Wants, now: u64) -> bool {
        let is_silent = |stream: &Stream, said: &StreamType| {
            let is_unsaid = match stream.variant {
                Variant::Sotw => !said.is_rejected,
                Variant::Delta => !said.is_answered,
            };
            let is_over = |(since, signs)| since + self.resource_timeout <= now && stream.signs > signs;
            is_unsaid && said.asked_at.is_some_and(is_over)
        };
        let expired = self.expired(wants.ty);
        self.shapes(wants).all(|(wildcard, names)| {
            self.carriers(wants.ty, wildcard).any(|(stream, said)| {
                // An answer to names that were given up meanwhile settles the type as well, and the reference did not take it.
                let has_left = stream.variant == Variant::Delta && said.is_answered && said.has_left;
                has_left
                    || said.was_silent
                    || is_answered(stream, wants.ty, wildcard, names & !expired)
                    || is_silent(stream, said)
            })
        })
    }

    /// It has answered for all of it beyond doubt.
    pub fn must_be_current(&self, wants: Wants) -> bool {
        self.shapes(wants).all(|(wildcard, names)| {
            let mut carriers = self.carriers(wants.ty, wildcard).peekable();
            carriers.peek().is_some()
                && carriers.all(|(stream, said)| {
                    said.listed & names == names && is_answered(stream, wants.ty, wildcard, names)
                })
        })
    }

    /// Names were given up before the server answered for their type. Whether its silence then says something of names that are asked
    /// for later on the stream, the moment of the next event decides.
    pub fn is_unclear(&self) -> bool {
        let types = self.streams.iter().flatten().flat_map(|stream| &stream.types);
        types.into_iter().any(|said| said.asked && said.has_left && !said.is_answered)
    }

    /// Names whose time to live has run out, which makes them absent without an answer.
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

/// A response that was rejected answers nothing. In SotW each name is answered by itself, in delta all are when the first
/// answers have settled.
fn is_answered(stream: &Stream, ty: usize, wildcard: bool, names: Mask) -> bool {
    let said = &stream.types[ty];
    match stream.variant {
        Variant::Delta => said.is_current && said.is_answered,
        Variant::Sotw if is_full_state(ty) => said.is_good,
        Variant::Sotw if wildcard => said.is_settled() && !said.is_rejected,
        Variant::Sotw => said.is_good && said.unanswered & names == 0,
    }
}
