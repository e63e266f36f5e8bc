//! Fair shares of a class's room (LRS-18): what hostile clients make neither evicts nor blocks the rows of others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use sluice_engine::Time;
use sluice_load_reports::codec::write_answer;
use sluice_load_reports::counters::{Counters, Gauges, Group};
use sluice_load_reports::report::{ClusterStats, LoadReport, LocalityStats};
use sluice_load_reports::{ClassLoad, Clusters, Departure, Destination, LoadLimits, Output, StreamId, Wish};
use sluice_setting::Backoff;

const ROWS: usize = 1_000;

fn at(seconds: u64) -> Time {
    Time::from_micros(seconds * 1_000_000)
}

/// A class with room for 1,000 entries, and a server that takes a report each 10 s.
struct Class {
    load: ClassLoad,
    now: u64,
    made: u64,
}

impl Class {
    fn new(load_rows_per_stream: usize) -> Class {
        let destination = Destination::Server { node: Bytes::new(), backoff: Backoff::default() };
        let limits = LoadLimits { load_rows: ROWS, load_rows_per_stream, ..LoadLimits::default() };
        let load = ClassLoad::new(destination, limits, at(0));
        let mut class = Class { load, now: 0, made: 0 };
        class.come(0, 0);
        class.load.answered(&write_answer(&Wish::new(Clusters::All, Duration::from_secs(10), false)), at(0));
        class
    }

    fn come(&mut self, stream: u64, connection: u64) {
        self.load.arrive(StreamId(stream), Group::Others, Departure::default(), at(self.now));
        self.load.join(StreamId(stream), connection);
    }

    /// A report with a request in a row of each cluster: two entries.
    fn report(&mut self, stream: u64, names: &[String]) {
        let counters = Counters { success: 1, ..Counters::default() };
        let gauges = Gauges { in_progress: 1, active_connections: 0 };
        let rows = || vec![LocalityStats { counters, gauges, ..LocalityStats::default() }];
        let clusters =
            names.iter().map(|name| ClusterStats { name, localities: rows(), ..Default::default() });
        let report = LoadReport { clusters: clusters.collect(), ..LoadReport::default() };
        self.load.report(StreamId(stream), &report, |_| true);
        assert!(self.load.entries() <= ROWS);
    }

    /// Names that no report had before.
    fn new_names(&mut self, count: u64) -> Vec<String> {
        self.made += count;
        (self.made - count..self.made).map(|number| format!("new-{number}")).collect()
    }

    fn interval(&mut self) {
        self.now += 10;
        self.load.handle_timeout(at(self.now));
        while let Some(output) = self.load.poll_output() {
            if matches!(output, Output::Send(_)) {
                self.load.written(at(self.now));
            }
        }
        let accounts = self.load.accounts();
        let fates = accounts.delivered + accounts.pending + accounts.unconfirmed + accounts.left_out;
        assert_eq!(accounts.read, fates);
    }

    fn rows_of(&self, names: &[String]) -> usize {
        let rows: BTreeSet<&str> = self.load.rows().map(|row| row.cluster).collect();
        names.iter().filter(|name| rows.contains(name.as_str())).count()
    }
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number}")).collect()
}

#[test]
fn lrs_18_a_stream_with_ever_new_names_never_has_more_than_its_bound() {
    let mut class = Class::new(200);
    class.come(1, 1);
    let early = names("early", 50);
    for _ in 0..40 {
        let hostile = class.new_names(150);
        class.report(0, &hostile);
        class.report(1, &early);
        assert!(class.load.entries() <= 300, "{} entries", class.load.entries());
        assert_eq!(class.rows_of(&early), 50);
        class.interval();
    }
}

#[test]
fn lrs_18_streams_of_one_connection_leave_room_for_those_of_another() {
    let mut class = Class::new(400);
    for stream in 0..20 {
        class.come(stream, 0);
    }
    class.come(100, 100);
    let honest = names("honest", 150);
    for round in 0..8 {
        for stream in 0..20 {
            let hostile = class.new_names(100);
            class.report(stream, &hostile);
        }
        // The last eighth of the room is for those who hold little.
        assert!(class.load.entries() > 800, "{} entries", class.load.entries());
        class.report(100, &honest);
        // An eighth of the room in each interval.
        assert!(class.rows_of(&honest) >= [62, 124, 150][round.min(2)], "{}", class.rows_of(&honest));
        class.interval();
    }
}

/// Each client has its share, and clients with the same names need one share together.
#[test]
fn lrs_18_many_hostile_connections_leave_room_for_names_that_several_clients_share() {
    let mut class = Class::new(400);
    for stream in 0..20 {
        class.come(stream, stream);
    }
    let honest = names("honest", 100);
    (100..110).for_each(|stream| class.come(stream, stream));
    for round in 0..8 {
        for stream in 0..20 {
            let hostile = class.new_names(100);
            class.report(stream, &hostile);
        }
        (100..110).for_each(|stream| class.report(stream, &honest));
        assert!(class.rows_of(&honest) >= [50, 80, 100][round.min(2)], "{}", class.rows_of(&honest));
        class.interval();
    }
}

/// A client with names of its own has a larger share than the first of ten with the same names.
#[test]
fn lrs_18_the_first_of_many_clients_with_the_same_names_does_not_pay_for_all() {
    let mut class = Class::new(600);
    (1..11).for_each(|stream| class.come(stream, stream));
    let honest = names("honest", 280);
    for _ in 0..5 {
        (1..11).for_each(|stream| class.report(stream, &honest));
        let hostile = class.new_names(300);
        class.report(0, &hostile);
        class.come(11, 11);
        let late = class.new_names(30);
        class.report(11, &late);
        assert_eq!(class.rows_of(&honest), 280);
        class.load.close(StreamId(11));
        class.interval();
    }
    assert!(class.load.left_out().counters.success > 300);
}

/// Connections that come, fill the table, and go.
#[test]
fn lrs_18_names_of_streams_that_are_gone_block_nobody() {
    let mut class = Class::new(400);
    let honest = names("honest", 150);
    class.come(1_000, 1_000);
    for round in 1..20 {
        for stream in 0..5 {
            let id = round * 10 + stream;
            class.come(id, id);
            let hostile = class.new_names(200);
            class.report(id, &hostile);
            class.load.close(StreamId(id));
        }
        class.report(1_000, &honest);
        assert!(
            class.rows_of(&honest) >= [62, 62, 124, 150][round.min(3) as usize],
            "{}",
            class.rows_of(&honest)
        );
        class.interval();
    }
}

#[test]
fn lrs_18_a_class_with_less_room_than_before_cuts_its_largest_clients() {
    let mut class = Class::new(400);
    (1..3).for_each(|stream| class.come(stream, stream));
    let (small, large) = (names("small", 15), names("large", 200));
    class.report(1, &small);
    class.report(2, &large);
    assert_eq!((class.rows_of(&small), class.rows_of(&large)), (15, 200));
    class.load.set_room(100, 1_000);
    assert!(class.load.entries() <= 100, "{} entries", class.load.entries());
    assert_eq!(class.rows_of(&small), 15);
    assert!(class.load.left_out().counters.success > 150);
    class.load.set_room(usize::MAX, 1_000);
    class.report(2, &large);
    assert_eq!(class.rows_of(&large), 200);
    class.interval();
}

/// Tallies judge a push until the next observation begins.
#[test]
fn lrs_24_endless_names_of_a_client_drop_no_evidence_of_others() {
    let mut class = Class::new(400);
    class.come(1, 1);
    let quiet = names("quiet", 20);
    class.load.observe(at(0));
    for round in 0..12 {
        match round {
            0 | 1 => class.report(1, &quiet),
            2 => class.load.close(StreamId(1)),
            _ => {}
        }
        let hostile = class.new_names(300);
        class.report(0, &hostile);
        class.interval();
    }
    let voices: BTreeMap<_, _> = class.load.voices().collect();
    assert!(quiet.iter().all(|name| voices.get(&**name).is_some_and(|tally| tally.others.success == 1)));
    class.load.observe(at(class.now));
    for _ in 0..4 {
        let hostile = class.new_names(300);
        class.report(0, &hostile);
        class.interval();
    }
    assert_eq!(class.rows_of(&quiet), 0);
}

/// Other classes have the rest of the room of all.
#[test]
fn lrs_18_a_class_takes_what_other_classes_leave_and_cuts_nobody_for_it() {
    let mut class = Class::new(400);
    class.come(1, 1);
    let (early, late) = (names("early", 100), names("late", 100));
    class.report(0, &early);
    class.load.set_room(usize::MAX, 10);
    class.report(1, &late);
    assert_eq!((class.rows_of(&early), class.rows_of(&late)), (100, 5));
    class.load.set_room(usize::MAX, 0);
    class.report(1, &late);
    assert_eq!((class.rows_of(&early), class.rows_of(&late)), (100, 5));
}

/// A usual gauge takes two bytes, and a gauge of zero none.
#[test]
fn lrs_15_the_gauges_of_a_stream_are_small() {
    let mut class = Class::new(1_000);
    class.report(0, &names("c", 300));
    assert_eq!(class.load.gauge_bytes(StreamId(0)), 600);
    class.report(0, &names("c", 100));
    assert_eq!(class.load.gauge_bytes(StreamId(0)), 600);
    let idle = LoadReport {
        clusters: vec![ClusterStats { name: "c-0", ..Default::default() }],
        ..Default::default()
    };
    class.load.report(StreamId(0), &idle, |_| true);
    assert_eq!(class.load.gauge_bytes(StreamId(0)), 598);
}
