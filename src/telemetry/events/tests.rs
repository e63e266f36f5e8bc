#![allow(clippy::unwrap_used)]

use super::*;
use crate::xds::TypeUrl;

fn warn(place: usize) -> Occurrence {
    Occurrence::warn(Kind::Reload, "cannot use a file").place(place)
}

fn numbers(page: &Page) -> Vec<u64> {
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
    let told: u64 = page.events.iter().map(|event| event.count + event.left_out).sum();
    assert_eq!(told, 10_001, "all are counted");
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
    assert!(ring.after(last + 100, 2, |_| true).events.is_empty());
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
    let told = warn(1).detail("ß".repeat(1000)).of_client(1, &"n".repeat(5000), None);
    assert_eq!(told.detail.unwrap().len(), 400);
    assert_eq!(told.node.unwrap().len(), 400);
    let secret = TypeUrl::of_message("envoy.extensions.transport_sockets.tls.v3.Secret");
    let told = warn(1).of_type(&secret).version(crate::xds::Version(7));
    assert_eq!(told.version, None, "the version of a Secret is a hash of its content");
}
