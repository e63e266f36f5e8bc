//! When the content of a source was last confirmed, over all tiers of relays (ADR 101).
//!
//! A control plane that can be heard confirms the content all the time: without news it says nothing for
//! hours. A relay that can be heard confirms only its own content, which may be old. So it tells the age of
//! the last word of its own server, and what this source serves is as old as that word, and the time since.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Time;
use super::time::ReceivedAt;
use sluice_xds::LastWord;

/// When a server last confirmed some content, the oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confirmed {
    #[default]
    Never,
    At(ReceivedAt),
    /// The server can be heard.
    Now,
}

impl Confirmed {
    /// The confirmation of several contents together: the oldest. A content that was never confirmed is not
    /// served to anybody, and counts only if there is no other.
    pub fn of_all(contents: impl IntoIterator<Item = Confirmed>) -> Confirmed {
        contents.into_iter().filter(|content| *content != Confirmed::Never).min().unwrap_or_default()
    }

    /// The age, for a relay below.
    pub fn word(self, now: Time) -> LastWord {
        LastWord(match self {
            Confirmed::Never => None,
            Confirmed::At(at) => Some(at.age(now)),
            Confirmed::Now => Some(Duration::ZERO),
        })
    }
}

/// The last words of the relay above, by the numbers of the streams of a source.
#[derive(Debug, Default)]
pub struct LastWords(BTreeMap<usize, WordsOfStream>);

#[derive(Debug, Default)]
struct WordsOfStream {
    /// The server of the open stream tells last words.
    is_told: bool,
    /// By the latest word with an age. It stands while the stream is lost, and until another one has a word.
    confirmed: Confirmed,
}

impl LastWords {
    /// A stream is open. Whether its server tells last words is not known yet.
    pub fn opened(&mut self, stream: usize) {
        if let Some(words) = self.0.get_mut(&stream) {
            words.is_told = false;
        }
    }

    /// The server of a stream tells last words.
    pub fn tells(&mut self, stream: usize) {
        self.0.entry(stream).or_default().is_told = true;
    }

    /// A stream has a response. A server that answers without having told words is no relay that tells them:
    /// it may be a control plane in the place of a relay.
    pub fn answered(&mut self, stream: usize) {
        if self.0.get(&stream).is_some_and(|words| !words.is_told) {
            self.0.remove(&stream);
        }
    }

    /// The relay above tells the age of its last word. A relay that knows nothing after a restart has nothing
    /// to give either: the content here stays as old as it is.
    pub fn hear(&mut self, stream: usize, LastWord(age): LastWord, now: Time) {
        if let Some(age) = age {
            let confirmed = Confirmed::At(ReceivedAt::before(now, age));
            self.0.insert(stream, WordsOfStream { is_told: true, confirmed });
        }
    }

    /// Nothing is asked on the stream any more.
    pub fn closed(&mut self, stream: usize) {
        self.0.remove(&stream);
    }

    /// When the content was last confirmed. `server`: by the server itself.
    pub fn confirmed(&self, server: Confirmed) -> Confirmed {
        self.0.values().map(|words| words.confirmed).fold(server, Confirmed::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Time {
        Time::ZERO + SECOND * seconds
    }

    fn age(words: &LastWords, server: Confirmed, now: Time) -> Option<u64> {
        words.confirmed(server).word(now).0.map(|age| age.as_secs())
    }

    #[test]
    fn tir_2_a_quiet_control_plane_that_is_heard_is_never_old() {
        let words = LastWords::default();
        assert_eq!(age(&words, Confirmed::Now, at(36_000)), Some(0));
        assert_eq!(age(&words, Confirmed::At(at(100).into()), at(130)), Some(30), "lost");
        assert_eq!(age(&words, Confirmed::Never, at(130)), None);
    }

    #[test]
    fn tir_2_the_ages_of_tiers_add_up_and_fall_when_the_top_is_back() {
        let mut leaf = LastWords::default();
        leaf.opened(0);
        leaf.tells(0);
        assert_eq!(age(&leaf, Confirmed::Now, at(1)), None, "no word yet");
        // The root told the middle relay an age of 40 s, 4 s before the word of the middle relay.
        let mut middle = LastWords::default();
        middle.tells(0);
        middle.hear(0, LastWord(Some(SECOND * 40)), at(6));
        leaf.hear(0, middle.confirmed(Confirmed::Now).word(at(10)), at(10));
        assert_eq!(age(&leaf, Confirmed::Now, at(13)), Some(47), "also a word from before the start counts");
        middle.hear(0, LastWord(Some(Duration::ZERO)), at(14));
        leaf.hear(0, middle.confirmed(Confirmed::Now).word(at(15)), at(15));
        assert_eq!(age(&leaf, Confirmed::Now, at(16)), Some(2));
        assert_eq!(
            age(&leaf, Confirmed::At(at(1).into()), at(16)),
            Some(15),
            "not confirmed since a restart"
        );
    }

    #[test]
    fn tir_2_a_word_stands_until_the_next_server_has_one() {
        let mut words = LastWords::default();
        words.tells(0);
        words.hear(0, LastWord(Some(SECOND)), at(10));
        words.opened(0);
        words.tells(0);
        words.hear(0, LastWord(None), at(60));
        assert_eq!(age(&words, Confirmed::Now, at(61)), Some(52), "a relay without content confirms nothing");
        words.answered(0);
        assert_eq!(age(&words, Confirmed::Now, at(61)), Some(52), "an answer is no word");
        words.hear(1, LastWord(Some(Duration::ZERO)), at(61));
        assert_eq!(age(&words, Confirmed::Now, at(61)), Some(52), "the oldest of several streams");
        words.closed(1);
        // The same address leads to a control plane now.
        words.opened(0);
        assert_eq!(age(&words, Confirmed::Now, at(62)), Some(53));
        words.answered(0);
        assert_eq!(age(&words, Confirmed::Now, at(63)), Some(0));
    }

    #[test]
    fn tir_2_contents_together_are_as_old_as_the_oldest() {
        let lost = Confirmed::At(at(5).into());
        assert_eq!(Confirmed::of_all([Confirmed::Now, lost, Confirmed::Never]), lost);
        assert_eq!(Confirmed::of_all([Confirmed::Never]), Confirmed::Never);
        assert_eq!(Confirmed::of_all([Confirmed::Now, Confirmed::Never]), Confirmed::Now);
    }
}
