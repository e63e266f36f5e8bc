//! Events: the latest occurrences that an operator may ask about, numbered, in a ring of bounded memory
//! (ADM-11).
//!
//! A place that logs a line reports the same occurrence here, by one call of [`tell!`]. The ring needs no
//! throttle of the caller's: within a second, repeated causes share an event, and each kind gets a few
//! events.

mod kind;
mod occurrence;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::wall_now;
pub use kind::{Kind, Severity};
pub use occurrence::Occurrence;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Tells an occurrence as an event, and as a log line with fields. The line is the text of the event; or
/// `+ "…"` continues the text; or `= "…"` is the line's own text:
///
/// ```ignore
/// tell!(events, warn(Reload, "cannot use a file").place(&file);
///     { %file, reason } + "; the last good content stays in force");
/// ```
///
/// With `if throttle.allow(…)`, the line is left out or ends with the number of suppressed lines. `error as
/// warn` gives the line another level.
macro_rules! tell {
    (@line $level:ident { $($field:tt)+ } $text:expr,) => { ::tracing::$level!($($field)+, $text) };
    (@line $level:ident { $($field:tt)+ } $text:expr, + $rest:literal) => {
        ::tracing::$level!($($field)+, concat!($text, $rest))
    };
    (@line $level:ident { $($field:tt)+ } $text:expr, = $line:literal) => {
        ::tracing::$level!($($field)+, $line)
    };
    (@allowed $level:ident [] { $($field:tt)+ } $($text:tt)+) => {
        tell!(@line $level { $($field)+ } $($text)+)
    };
    (@allowed $level:ident [$allowed:expr] { $($field:tt)+ } $($text:tt)+) => {
        if let Some(suppressed) = $allowed {
            tell!(@line $level { $($field)+, suppressed } $($text)+)
        }
    };
    ($events:expr, $severity:ident as $level:ident($kind:ident, $text:expr)
     $(.$part:ident($($value:expr),*))* $(, if $allowed:expr)?; { $($field:tt)+ } $($line:tt)*) => {{
        let occurrence = $crate::telemetry::events::Occurrence::$severity(
            $crate::telemetry::events::Kind::$kind,
            $text,
        );
        $events.add(occurrence$(.$part($($value),*))*);
        tell!(@allowed $level [$($allowed)?] { $($field)+ } $text, $($line)*);
    }};
    ($events:expr, $severity:ident $($rest:tt)+) => { tell!($events, $severity as $severity $($rest)+) };
}
pub(crate) use tell;

/// The number of remembered events: a busy day of a relay, in at most 4 MiB.
pub const EVENTS_MAX: usize = 4096;

/// The number of remembered events of each kind that comes all the time, besides: they push out none of the
/// others.
pub const FREQUENT_MAX: usize = 512;

/// The time in which repeated causes share an event. After it, an event changes no more.
pub const WINDOW: Duration = Duration::from_secs(1);

/// New events of one kind in a window. Further ones are counted: a storm of one kind must not push out the
/// others.
const NEW_MAX: u32 = 32;

/// An event in the ring.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// From 1, without gaps.
    pub number: u64,
    /// The wall clock, for display.
    pub at: SystemTime,
    since: Instant,
    /// How often the cause occurred.
    pub count: u64,
    /// Further occurrences of the kind with other causes, which have no event of their own.
    pub left_out: u64,
    /// The first occurrence.
    pub first: Occurrence,
}

impl Event {
    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Whether the event changes no more.
    pub fn is_settled(&self) -> bool {
        self.age() >= WINDOW
    }
}

/// The ring of events. Cheap to clone; all clones share the ring.
#[derive(Clone, Debug, Default)]
pub struct Events(Arc<Mutex<Ring>>);

#[derive(Debug, Default)]
struct Ring {
    /// By [`shelf`], each in the order of the numbers.
    shelves: [VecDeque<Arc<Event>>; SHELVES],
    /// The number of the latest event.
    latest: u64,
    /// The latest of the events that were dropped.
    dropped: u64,
    kinds: [Option<Allowance>; Kind::ALL.len()],
}

/// The events of one fate: when there are too many, the oldest goes.
const SHELVES: usize = 3;

/// The place of an occurrence among the shelves. Clients come and go all day, and control planes publish all
/// day.
fn shelf(occurrence: &Occurrence) -> (usize, usize) {
    match (occurrence.kind, occurrence.severity) {
        (Kind::Client, Severity::Info) => (0, FREQUENT_MAX),
        (Kind::Change, _) => (1, FREQUENT_MAX),
        _ => (2, EVENTS_MAX),
    }
}

/// The new events of one kind in the current window.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    began: Instant,
    new: u32,
    /// The number of the latest event of the kind.
    last: u64,
}

/// Events after a number.
#[derive(Debug, Default)]
pub struct EventPage {
    pub events: Vec<Arc<Event>>,
    /// A range of numbers, first and last, of which the ring has dropped some already.
    pub gap: Option<(u64, u64)>,
    /// The number up to which the page has looked.
    pub looked_to: u64,
    /// Whether the ring has further events.
    pub has_more: bool,
}

impl Events {
    pub fn add(&self, occurrence: Occurrence) {
        self.0.lock().add(occurrence, Instant::now(), wall_now());
    }

    /// The number of the latest event; 0 without events.
    pub fn latest(&self) -> u64 {
        self.0.lock().latest
    }

    /// At most `max` wanted events after `number`, the oldest first.
    pub fn after(&self, number: u64, max: usize, wants: impl Fn(&Event) -> bool) -> EventPage {
        self.0.lock().after(number, max, wants)
    }
}

impl Ring {
    fn add(&mut self, occurrence: Occurrence, now: Instant, at: SystemTime) {
        let (place, room) = shelf(&occurrence);
        let number = self.latest + 1;
        if let Some(event) = self.recent(place, &occurrence, now) {
            let event = Arc::make_mut(event);
            event.count = event.count.saturating_add(occurrence.count);
            return;
        }
        if let Some(last) = self.fill(occurrence.kind, number, now) {
            if let Some(event) = self.find(last) {
                let event = Arc::make_mut(event);
                event.left_out = event.left_out.saturating_add(occurrence.count);
            }
            return;
        }
        self.latest = number;
        let Some(events) = self.shelves.get_mut(place) else { return };
        if events.len() >= room
            && let Some(oldest) = events.pop_front()
        {
            self.dropped = self.dropped.max(oldest.number);
        }
        let count = occurrence.count;
        let event = Event { number, at, since: now, count, left_out: 0, first: occurrence };
        events.push_back(Arc::new(event));
    }

    /// The event of the current window with the same cause.
    fn recent(&mut self, place: usize, occurrence: &Occurrence, now: Instant) -> Option<&mut Arc<Event>> {
        let is_recent = |event: &&mut Arc<Event>| now.saturating_duration_since(event.since) < WINDOW;
        let mut recent = self.shelves.get_mut(place)?.iter_mut().rev().take_while(is_recent);
        recent.find(|event| occurrence.repeats(&event.first))
    }

    /// Takes one of the new events of a kind. Fails with the number of the latest event of the kind if none
    /// is left.
    fn fill(&mut self, kind: Kind, number: u64, now: Instant) -> Option<u64> {
        let kind = self.kinds.get_mut(kind as usize)?;
        match kind {
            Some(allowance) if now.saturating_duration_since(allowance.began) < WINDOW => {
                if allowance.new == NEW_MAX {
                    return Some(allowance.last);
                }
                allowance.new += 1;
                allowance.last = number;
            }
            _ => *kind = Some(Allowance { began: now, new: 1, last: number }),
        }
        None
    }

    fn find(&mut self, number: u64) -> Option<&mut Arc<Event>> {
        self.shelves.iter_mut().find_map(|events| {
            let place = events.binary_search_by_key(&number, |event| event.number).ok()?;
            events.get_mut(place)
        })
    }

    fn after(&self, number: u64, max: usize, wants: impl Fn(&Event) -> bool) -> EventPage {
        let gap = (number < self.dropped).then(|| (number + 1, self.dropped));
        let mut page = EventPage { gap, looked_to: number, ..EventPage::default() };
        let mut places =
            self.shelves.each_ref().map(|all| all.partition_point(|event| event.number <= number));
        loop {
            let heads = self.shelves.iter().zip(&mut places);
            let heads = heads.filter_map(|(events, place)| Some((events.get(*place)?, place)));
            let Some((event, place)) = heads.min_by_key(|(event, _)| event.number) else { break };
            *place += 1;
            if wants(event) {
                if page.events.len() == max {
                    page.has_more = true;
                    return page;
                }
                page.events.push(event.clone());
            }
            page.looked_to = event.number;
        }
        page.looked_to = number.max(self.latest);
        page
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use sluice_xds::TypeUrl;

    fn warn(place: usize) -> Occurrence {
        Occurrence::warn(Kind::Reload, "cannot use a file").place(place)
    }

    fn numbers(page: &EventPage) -> Vec<u64> {
        page.events.iter().map(|event| event.number).collect()
    }

    /// A ring with this many events, one a second.
    fn filled(count: usize) -> Ring {
        let (mut ring, now) = (Ring::default(), Instant::now());
        for n in 0..count {
            ring.add(warn(n), now + WINDOW * u32::try_from(n).unwrap(), SystemTime::UNIX_EPOCH);
        }
        ring
    }

    #[test]
    fn adm_11_repeated_causes_share_an_event_for_a_second() {
        let (mut ring, now) = (Ring::default(), Instant::now());
        let at = SystemTime::UNIX_EPOCH;
        let nack = |stream, node: &str, words: &str| {
            let nack = Occurrence::warn(Kind::Nack, "a client rejected an update");
            nack.of_type(&TypeUrl::of_message("t")).of_client(stream, node, None).detail(words)
        };
        ring.add(nack(1, "one", "bad"), now, at);
        ring.add(warn(1), now, at);
        ring.add(nack(2, "two", "worse"), now + WINDOW / 2, at);
        ring.add(nack(3, "three", "bad"), now + WINDOW, at);
        let page = ring.after(0, 10, |_| true);
        let seen: Vec<_> = page.events.iter().map(|e| (e.number, e.count, e.first.node.as_deref())).collect();
        assert_eq!(seen, [(1, 2, Some("one")), (2, 1, None), (3, 1, Some("three"))]);
        assert_eq!(page.events[0].first.detail.as_deref(), Some("bad"), "the first words");
    }

    #[test]
    fn adm_11_a_storm_of_one_kind_leaves_room_for_the_others() {
        let (mut ring, now) = (Ring::default(), Instant::now());
        ring.add(Occurrence::info(Kind::Drain, "draining"), now, SystemTime::UNIX_EPOCH);
        for n in 0..10_000 {
            ring.add(warn(n), now, SystemTime::UNIX_EPOCH);
        }
        let page = ring.after(0, usize::MAX, |_| true);
        assert_eq!(page.events.len(), 1 + NEW_MAX as usize);
        assert_eq!(page.events[0].first.kind, Kind::Drain);
        let counted: u64 = page.events.iter().map(|event| event.count + event.left_out).sum();
        assert_eq!(counted, 10_001, "all are counted");
        ring.add(warn(20_000), now + WINDOW, SystemTime::UNIX_EPOCH);
        assert_eq!(ring.latest, 2 + u64::from(NEW_MAX));
    }

    #[test]
    fn adm_11_the_ring_keeps_the_latest_and_tells_the_gap() {
        let ring = filled(EVENTS_MAX + 10);
        let page = ring.after(3, 2, |_| true);
        assert_eq!((numbers(&page), page.gap), (vec![11, 12], Some((4, 10))));
        assert_eq!((page.looked_to, page.has_more), (12, true));
        let page = ring.after(10, 2, |_| true);
        assert_eq!((numbers(&page), page.gap), (vec![11, 12], None));
        let last = u64::try_from(EVENTS_MAX).unwrap() + 10;
        let page = ring.after(last - 1, 2, |_| true);
        assert_eq!((numbers(&page), page.has_more), (vec![last], false));
        assert!(ring.after(last, 2, |_| true).events.is_empty());
        let ahead = ring.after(last + 100, 2, |_| true);
        assert!(ahead.events.is_empty() && ahead.looked_to == last + 100);
    }

    #[test]
    fn adm_11_what_comes_all_day_pushes_nothing_else_out() {
        let (mut ring, now) = (Ring::default(), Instant::now());
        let at = |second: usize| now + WINDOW * u32::try_from(second).unwrap();
        ring.add(Occurrence::info(Kind::Drain, "draining"), now, SystemTime::UNIX_EPOCH);
        ring.add(Occurrence::warn(Kind::Client, "denied"), now, SystemTime::UNIX_EPOCH);
        for n in 0..EVENTS_MAX {
            for event in
                [Occurrence::info(Kind::Client, "opened"), Occurrence::info(Kind::Change, "published")]
            {
                ring.add(event, at(n), SystemTime::UNIX_EPOCH);
            }
        }
        let page = ring.after(0, usize::MAX, |_| true);
        assert_eq!(page.events.len(), 2 + 2 * FREQUENT_MAX);
        assert_eq!(numbers(&page)[..2], [1, 2], "the oldest are here");
        assert!(numbers(&page).is_sorted());
        let first = numbers(&page)[2];
        assert_eq!(page.gap, Some((1, first - 1)));
        assert_eq!(ring.after(first - 1, 1, |_| true).gap, None);
        assert_eq!(page.looked_to, 2 + 2 * u64::try_from(EVENTS_MAX).unwrap());
    }

    #[test]
    fn pages_of_a_filter_join_to_the_whole() {
        let ring = filled(100);
        let (mut after, mut joined) = (0, Vec::new());
        loop {
            let page = ring.after(after, 7, |event| event.number % 3 == 0);
            joined.extend(numbers(&page));
            after = page.looked_to;
            if !page.has_more {
                break;
            }
        }
        assert_eq!(joined, (1..=100).filter(|n| n % 3 == 0).collect::<Vec<_>>());
        assert_eq!(after, 100, "events that are not wanted are not looked at again");
    }

    #[test]
    fn texts_of_peers_are_cut() {
        let event = warn(1).detail("ß".repeat(1000)).of_client(1, &"n".repeat(5000), None);
        assert_eq!(event.detail.unwrap().len(), 400);
        assert_eq!(event.node.unwrap().len(), 400);
        let secret = TypeUrl::of_message("envoy.extensions.transport_sockets.tls.v3.Secret");
        let event = warn(1).of_type(&secret).version(sluice_xds::Version(7));
        assert_eq!(event.version, None, "the version of a Secret is a hash of its content");
    }
}
