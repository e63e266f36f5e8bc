//! The names that a complete set waits for (RLY-5, ADR 12).

use std::time::Duration;

use super::bench::{Bench, CDS, ClientId, LDS, SRDS, streams, url};
use crate::collection::CollectionKind;

const SECOND: Duration = Duration::from_secs(1);

impl Bench {
    /// Like [`Bench::drain`], but without errors, which go beside the data (ERR-10).
    fn drain_data(&mut self, client: ClientId) -> String {
        let text = self.drain(client);
        text.split(' ').filter(|word| !word.starts_with('!')).collect::<Vec<_>>().join(" ")
    }

    /// The name that a client waits for, and the duration of the wait.
    fn name_wait(&mut self, client: ClientId, message: &str) -> Option<(String, Duration)> {
        let now = self.now;
        let mut waits = self.clients[client].session.name_waits();
        let (_, wait) = waits.find(|(type_url, _)| **type_url == url(message))?;
        Some((wait.name.to_string(), now.since(wait.since)))
    }

    /// The time until the session's next deadline.
    fn sleeps(&self, client: ClientId) -> Option<Duration> {
        self.clients[client].session.held_until().map(|until| until.since(self.now))
    }
}

#[test]
fn rly_5_a_first_set_waits_one_second_for_a_name_without_a_sign() {
    for message in [CDS, LDS] {
        let mut bench = Bench::cold();
        let client = bench.sotw();
        bench.ask(client, message, "a wrong");
        bench.hear(0);
        bench.says(message, "a=1");
        assert_eq!(bench.poll(client), "");
        assert_eq!(bench.name_wait(client, message), Some(("wrong".to_owned(), Duration::ZERO)));
        assert_eq!(bench.sleeps(client), Some(SECOND));
        bench.advance(SECOND - Duration::from_millis(1));
        assert_eq!(bench.poll(client), "");
        bench.advance(Duration::from_millis(1));
        assert_eq!(bench.drain(client), format!("{} a=1", url(message).short()));
        assert_eq!((bench.name_wait(client, message), bench.sleeps(client)), (None, None));
        bench.says(message, "wrong=1");
        assert_eq!(bench.drain(client), format!("{} a=1 wrong=1", url(message).short()));
    }
}

/// The operator is told of endless waits, but this wait has a time limit.
#[test]
fn rly_5_a_timed_wait_is_not_endless_while_the_source_takes_note_of_other_names() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    bench.ask(client, CDS, "a wrong");
    bench.hear(0);
    bench.says(CDS, "a=1");
    assert_eq!(bench.poll(client), "");
    bench.slow_watches = true;
    bench.ask(client, CDS, "a wrong other");
    assert_eq!(bench.poll(client), "");
    assert!(bench.name_wait(client, CDS).is_some());
    assert!(!bench.clients[client].session.name_waits().any(|(_, wait)| wait.is_endless()));
}

#[test]
fn rly_5_while_the_server_is_silent_a_newcomer_gets_what_is_cached_after_ten_seconds() {
    for is_lost in [false, true] {
        let mut bench = Bench::cold();
        let first = bench.sotw();
        bench.ask(first, CDS, "a");
        bench.says(CDS, "a=1");
        assert_eq!(bench.drain(first), "Cluster a=1");
        if is_lost {
            bench.lose(0);
        }
        let client = bench.sotw();
        bench.ask(client, CDS, "a uncached");
        assert_eq!(bench.poll(client), "");
        bench.advance(SECOND * 10 - Duration::from_millis(1));
        assert_eq!(bench.poll(client), "");
        assert_eq!(bench.sleeps(client), Some(Duration::from_millis(1)));
        bench.advance(Duration::from_millis(1));
        assert_eq!(bench.drain_data(client), "Cluster a=1");
        assert_eq!(bench.sleeps(client), None);
    }
}

#[test]
fn rly_5_the_second_begins_when_the_server_begins_to_answer() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    bench.ask(client, CDS, "a b c");
    bench.advance(SECOND * 5);
    assert_eq!(bench.poll(client), "");
    assert_eq!(bench.sleeps(client), Some(SECOND / 2), "nobody says that the server answers");
    bench.hear(0);
    bench.says(CDS, "a=1 b=1");
    assert_eq!(bench.poll(client), "");
    bench.advance(SECOND / 2);
    assert_eq!(bench.poll(client), "");
    bench.says(CDS, "c=1");
    assert_eq!(bench.drain(client), "Cluster a=1 b=1 c=1");
}

#[test]
fn rly_5_an_update_never_waits_for_a_name_that_was_asked_for_anew() {
    for message in [CDS, LDS, SRDS] {
        let short = url(message).short().to_owned();
        let mut bench = Bench::cold();
        let client = bench.sotw();
        bench.ask(client, message, "a");
        bench.says(message, "a=1");
        assert_eq!(bench.drain(client), format!("{short} a=1"));
        bench.ask(client, message, "a unknown");
        assert_eq!(bench.drain(client), "", "nothing is news");
        assert_eq!(bench.name_wait(client, message), None);
        bench.says(message, "a=2");
        assert_eq!(bench.drain(client), format!("{short} a=2"));
        bench.says(message, "-a");
        assert_eq!(bench.drain(client), short, "it is known to be gone, and the other was never there");
        bench.says(message, "unknown=1");
        assert_eq!(bench.drain(client), format!("{short} unknown=1"));
    }
}

#[test]
fn rly_5_who_comes_with_a_version_is_not_told_of_a_set_with_a_hole() {
    for (word, expected) in [("b=1", "Cluster a=2 b=1"), ("-b", "Cluster a=2")] {
        let mut bench = Bench::cold();
        let client = bench.sotw();
        bench.ask_with(client, CDS, "a b", "", "7", None);
        bench.says(CDS, "a=1");
        assert_eq!(bench.poll(client), "");
        bench.hear(0);
        bench.advance(SECOND * 5);
        assert_eq!(bench.poll(client), "", "the server speaks of the type, and not of the name");
        bench.says(CDS, "a=2");
        assert_eq!(bench.poll(client), "");
        assert_eq!(bench.name_wait(client, CDS), Some(("b".to_owned(), SECOND * 5)));
        assert_eq!(bench.sleeps(client), None, "no time ends it");
        bench.says(CDS, word);
        assert_eq!(bench.drain(client), expected);
        assert_eq!(bench.name_wait(client, CDS), None);
    }
}

#[test]
fn rly_5_a_server_that_is_silent_about_the_type_completes_no_set_of_who_may_have_it() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    bench.ask_with(client, CDS, "a b", "", "7", None);
    bench.says(CDS, "a=1");
    bench.lose(0);
    bench.advance(SECOND * 3600);
    assert_eq!(bench.poll(client), "");
    assert_eq!(bench.name_wait(client, CDS).map(|(name, _)| name).as_deref(), Some("b"));
}

#[test]
fn rly_5_a_name_that_is_given_up_is_not_waited_for() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    bench.ask_with(client, CDS, "a b", "", "7", None);
    bench.says(CDS, "a=1");
    assert_eq!(bench.poll(client), "");
    bench.ask_with(client, CDS, "a", "", "7", None);
    assert_eq!(bench.drain(client), "Cluster a=1");
    // A new request for the name does not wait, either: the client no longer has the name.
    bench.ask(client, CDS, "a b");
    bench.says(CDS, "a=2");
    assert_eq!(bench.drain(client), "Cluster a=2");
}

#[test]
fn rly_5_a_name_that_was_sent_and_given_up_is_new_when_it_is_asked_for_again() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    bench.ask(client, CDS, "a b");
    bench.says(CDS, "a=1 b=1");
    assert_eq!(bench.drain(client), "Cluster a=1 b=1");
    bench.ask(client, CDS, "a");
    bench.advance(SECOND * 60);
    bench.ask(client, CDS, "a b");
    bench.says(CDS, "a=2");
    assert_eq!(bench.drain(client), "Cluster a=2");
    bench.says(CDS, "b=2");
    assert_eq!(bench.drain(client), "Cluster a=2 b=2");
}

#[test]
fn rly_5_what_the_client_was_sent_is_waited_for_at_another_source() {
    let mut bench = Bench::new(vec![streams(), streams()]);
    let client = bench.sotw();
    bench.clients[client].routes.xdstp = 0;
    bench.ask(client, CDS, "a b");
    bench.says(CDS, "a=1 b=1");
    assert_eq!(bench.drain(client), "Cluster a=1 b=1");
    bench.reroute(client, 1);
    bench.changes(1, CDS, CollectionKind::Names, "a=2", false);
    bench.advance(SECOND * 3600);
    assert_eq!(bench.poll(client), "");
    assert_eq!(bench.name_wait(client, CDS).map(|(name, _)| name).as_deref(), Some("b"));
    bench.changes(1, CDS, CollectionKind::Names, "-b", false);
    assert_eq!(bench.drain(client), "Cluster a=2");
}

#[test]
fn rly_5_a_dead_authority_does_not_withhold_the_names_of_another() {
    let mut bench = Bench::new(vec![streams(), streams()]);
    let client = bench.sotw();
    bench.ask(client, CDS, "a xdstp:dead");
    bench.says(CDS, "a=1");
    assert_eq!(bench.poll(client), "");
    bench.lose(1);
    bench.advance(SECOND * 9);
    assert_eq!(bench.drain_data(client), "Cluster a=1");
    bench.says(CDS, "a=2");
    assert_eq!(bench.drain_data(client), "Cluster a=2");
}

#[test]
fn rly_5_names_beside_a_wildcard_are_waited_for_as_others_and_the_wildcard_as_a_whole() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    bench.ask(client, CDS, "* x");
    bench.says_of_all(CDS, "a=1", false);
    bench.advance(SECOND * 60);
    assert_eq!(bench.poll(client), "");
    assert_eq!(bench.name_wait(client, CDS).map(|(name, _)| name).as_deref(), Some("*"));
    bench.says_of_all(CDS, "b=1", true);
    assert_eq!(bench.drain_data(client), "Cluster a=1 b=1");
    // The client has the wildcard's members, even though the client now asks by name.
    bench.ask(client, CDS, "* x a");
    bench.drain_data(client);
    bench.says_of_all(CDS, "-a b=2", true);
    assert_eq!(bench.poll(client), "");
    assert_eq!(bench.name_wait(client, CDS).map(|(name, _)| name).as_deref(), Some("a"));
    bench.says(CDS, "-a");
    assert_eq!(bench.drain_data(client), "Cluster b=2");
}

#[test]
fn sst_14_that_there_is_nothing_is_said_when_every_name_is_known_and_not_before() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    bench.ask(client, CDS, "a b");
    bench.says(CDS, "-a");
    bench.advance(SECOND * 60);
    assert_eq!(bench.poll(client), "");
    bench.says(CDS, "-b");
    assert_eq!(bench.drain(client), "Cluster");
}

#[test]
fn rly_5_what_the_wildcard_brought_is_waited_for_when_the_wildcard_is_given_up_for_its_name() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    bench.ask(client, CDS, "* x");
    bench.says(CDS, "x=1");
    bench.says_of_all(CDS, "a=1 b=1", true);
    assert_eq!(bench.drain(client), "Cluster a=1 b=1 x=1");
    bench.ask(client, CDS, "a x");
    bench.says(CDS, "x=2");
    bench.advance(SECOND * 60);
    assert_eq!(bench.poll(client), "");
    bench.says(CDS, "a=1");
    assert_eq!(bench.drain(client), "Cluster a=1 x=2");
}
