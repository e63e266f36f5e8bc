//! One stream of a client: the times and the words of its answers (LRS-19 to LRS-21, RLY-66).

use std::time::Duration;

use bytes::Bytes;

use crate::codec::{skips_first_cluster, takes_all_clusters, write_answer_for};
use crate::report::LoadReport;
use crate::wish::{Client, Clusters, INTERVAL_MIN, INTERVAL_UNSTATED, Wish, clusters_for, grown};
use sluice_engine::Time;

/// The longest wait of a client for the first word of a server (LRS-19).
const FIRST_WAIT: Duration = Duration::from_secs(3);
/// Lists shrink at most once in so many intervals (LRS-19).
const SHRINK_INTERVALS: u32 = 10;
/// A client with so many silent intervals has nothing to report (LRS-4). An answer restarts no timer of
/// importance, and without the answer the client might never report a new cluster.
const SILENT_INTERVALS: u32 = 3;
/// The largest share of an interval to leave out, in thousandths (LRS-20).
const SHORTENED_MAX: u64 = 100;

/// The wish as it is now, for one client.
#[derive(Clone, Copy)]
pub struct Asking<'a> {
    /// `None`: no server has spoken.
    pub wish: Option<&'a Wish>,
    /// Another number whenever the wish, or an answer of `client`, may have changed.
    pub number: u64,
    pub client: &'a dyn Client,
}

/// The latest answer.
#[derive(Clone, Debug)]
struct Answered {
    /// The wish as the client was asked, with the unshortened interval.
    wish: Wish,
    at: Time,
    /// The time of the latest answer with exactly the wish.
    exact_at: Time,
    number: u64,
    behind: Behind,
    /// The list is made of the clusters of the client's classes, which change without a word of a server.
    is_made: bool,
    /// The latest look at the wish.
    looked_at: Time,
}

/// How the latest answer differs from the wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    No,
    /// The next answer is due at the next good moment.
    Due,
    /// Names too many, for a while.
    Shrinks,
}

/// The bytes of an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Volume {
    since: Time,
    bytes: usize,
}

/// A stream of a client.
#[derive(Clone, Debug)]
pub struct Reporter {
    takes_all: bool,
    /// The client never reports the first cluster of a list.
    skips_first: bool,
    /// The share of the interval to leave out, in thousandths.
    shortened: u64,
    /// The latest message; `None` before the first.
    heard_at: Option<Time>,
    /// The client has just reported, so the client's timer has just begun anew.
    has_just_reported: bool,
    answered: Option<Answered>,
    volume: Volume,
}

impl Reporter {
    /// `random` spreads the reports of many new streams (LRS-20).
    pub fn new(random: u64, now: Time) -> Reporter {
        Reporter {
            takes_all: false,
            skips_first: false,
            shortened: random % (SHORTENED_MAX + 1),
            heard_at: None,
            has_just_reported: false,
            answered: None,
            volume: Volume { since: now, bytes: 0 },
        }
    }

    /// Bytes arrived. False: more than `bytes_max` in an interval, so the stream has to end.
    pub fn arrived(&mut self, bytes: usize, bytes_max: usize, now: Time) -> bool {
        if now.since(self.volume.since) >= self.interval() {
            self.volume = Volume { since: now, bytes: 0 };
        }
        self.volume.bytes = self.volume.bytes.saturating_add(bytes);
        self.volume.bytes <= bytes_max
    }

    /// A message was read to the end, and counted. [`Reporter::poll_answer`] comes next.
    pub fn reported(&mut self, report: &LoadReport<'_>, now: Time) {
        if self.heard_at.is_none() {
            self.takes_all = report.node.is_some_and(takes_all_clusters);
            self.skips_first = report.node.is_some_and(skips_first_cluster);
        }
        self.heard_at = Some(now);
        self.has_just_reported = true;
    }

    /// The client's interval.
    fn interval(&self) -> Duration {
        let wished = self.answered.as_ref().map_or(INTERVAL_UNSTATED, |answered| answered.wish.interval);
        self.shorten(wished)
    }

    fn shorten(&self, interval: Duration) -> Duration {
        let micros = interval.as_micros() as u64;
        let shorter = micros - micros / 1_000 * self.shortened;
        Duration::from_micros(shorter).max(INTERVAL_MIN)
    }

    /// The message to send now, if any. The caller asks after each report, after each change of the wish, and
    /// at [`Reporter::poll_timeout`].
    pub fn poll_answer(&mut self, asking: Asking<'_>, now: Time) -> Option<Bytes> {
        // LRS-1: not before the first request.
        let heard_at = self.heard_at?;
        let has_just_reported = std::mem::take(&mut self.has_just_reported);
        let Some(answered) = &mut self.answered else {
            let is_late = now.since(heard_at) >= FIRST_WAIT;
            let unstated = Wish::all();
            let wish = asking.wish.or(is_late.then_some(&unstated))?;
            let clusters = clusters_for(&wish.clusters, self.takes_all, asking.client);
            let is_made = self.is_made(wish, asking.client);
            return Some(self.answer(Wish { clusters, ..wish.clone() }, is_made, None, asking.number, now));
        };
        answered.looked_at = now;
        if answered.number == asking.number && answered.behind == Behind::No {
            return None;
        }
        let Some(wish) = asking.wish else {
            // The client has changed to a class with a silent server: the latest answer stands.
            answered.behind = Behind::No;
            return None;
        };
        if answered.number != asking.number {
            (answered.number, answered.behind) = (asking.number, Behind::Due);
        }
        // The lists come later: they may have thousands of names, and a wish may change each second.
        if !self.may_answer(wish, heard_at, has_just_reported, now) {
            return None;
        }
        let is_made = self.is_made(wish, asking.client);
        let answered = self.answered.as_mut()?;
        let clusters = clusters_for(&wish.clusters, self.takes_all, asking.client);
        let may_shrink = now.since(answered.exact_at) >= answered.wish.interval * SHRINK_INTERVALS;
        // LRS-21: an empty wish has a long interval. A client that kept its names would keep this interval,
        // and hear late that the server is back.
        let may_shrink = may_shrink || wish.asks_for_nothing();
        let next = Wish {
            clusters: grown(&answered.wish.clusters, &clusters, may_shrink, asking.client),
            ..wish.clone()
        };
        let is_exact = next.clusters == clusters;
        answered.is_made = is_made;
        if next == answered.wish {
            answered.behind = if is_exact { Behind::No } else { Behind::Shrinks };
            return None;
        }
        let exact_at = (!is_exact).then_some(answered.exact_at);
        Some(self.answer(next, is_made, exact_at, asking.number, now))
    }

    /// LRS-19: each answer restarts the client's timer, so an answer follows a report, and never sooner than
    /// an interval after the answer before.
    fn may_answer(&self, wish: &Wish, heard_at: Time, has_just_reported: bool, now: Time) -> bool {
        let Some(answered) = &self.answered else { return false };
        let interval = self.interval();
        // A much shorter interval ends well before the running one does, so the answer delays no report.
        let ends_at = heard_at.max(answered.at) + interval;
        let is_sooner = now + self.shorten(wish.interval) * 2 < ends_at && now >= answered.at + INTERVAL_MIN;
        let is_silent = now.since(heard_at) >= interval * SILENT_INTERVALS;
        let is_good = (has_just_reported || is_silent) && now.since(answered.at) >= interval;
        // A client that was asked for nothing counts nothing, so an answer delays no report.
        is_good || answered.wish.asks_for_nothing() || is_sooner
    }

    /// Whether the client's list is made of the clusters of its classes.
    fn is_made(&self, wish: &Wish, client: &dyn Client) -> bool {
        wish.clusters == Clusters::All && !(self.takes_all && client.may_have_all())
    }

    /// `exact_at`: the time of the latest answer with exactly the wish; `None`: now.
    fn answer(&mut self, wish: Wish, is_made: bool, exact_at: Option<Time>, number: u64, now: Time) -> Bytes {
        let shorter = Wish { interval: self.shorten(wish.interval), ..wish.clone() };
        let behind = if exact_at.is_some() { Behind::Shrinks } else { Behind::No };
        let exact_at = exact_at.unwrap_or(now);
        self.answered = Some(Answered { wish, at: now, exact_at, number, behind, is_made, looked_at: now });
        write_answer_for(&shorter, self.skips_first)
    }

    /// The next time for [`Reporter::poll_answer`].
    pub fn poll_timeout(&self) -> Option<Time> {
        let heard_at = self.heard_at?;
        let Some(answered) = &self.answered else { return Some(heard_at + FIRST_WAIT) };
        let interval = self.interval();
        let free_at = (heard_at + interval * SILENT_INTERVALS).max(answered.at + interval);
        match answered.behind {
            // LRS-4: a silent client hears of new clusters by a look, since a wake for each update of a class
            // would be work on the way of the update.
            Behind::No => answered.is_made.then(|| {
                let nothing = answered.wish.asks_for_nothing();
                let looked_at = heard_at.max(answered.looked_at);
                looked_at + interval * if nothing { 1 } else { SILENT_INTERVALS }
            }),
            Behind::Due => Some(free_at),
            Behind::Shrinks => {
                Some(free_at.max(answered.exact_at + answered.wish.interval * SHRINK_INTERVALS))
            }
        }
    }

    /// Whether the client understands `send_all_clusters`.
    pub fn takes_all(&self) -> bool {
        self.takes_all
    }

    /// Whether the client was asked for all clusters, for operators.
    pub fn is_asked_for_all(&self) -> bool {
        self.answered.as_ref().is_some_and(|answered| answered.wish.clusters == Clusters::All)
    }
}

#[cfg(test)]
mod tests;
