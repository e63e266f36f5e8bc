//! Resources that the server of a client sends unasked: DEL-17.

use std::time::Duration;

use super::bench::{Bench, ClientId, names, resources, url, version_of};
use crate::collection::{Collection, CollectionKind};
use crate::downstream::{Adopted, Limits, NoRoomFor, SourceId, Watch};
use crate::source::SourceSettings;
use crate::upstream::{Cause, Changes, UpstreamSettings};
use sluice_xds::Variant;

const ADDRESS: &str = "istio.workload.Address";
const SECOND: Duration = Duration::from_secs(1);

impl Bench {
    /// The source of one client.
    fn of_one() -> Bench {
        let mut bench = Bench::cold();
        let defaults = SourceSettings { tells_reach: true, linger: SECOND, ..SourceSettings::default() };
        let settings = SourceSettings { unasked_names: Some(100), ..defaults };
        bench.sources[0].configure(settings, Some(&UpstreamSettings::default()), bench.now);
        bench
    }

    /// The control plane answers, and sends the resources of `unasked` beside.
    fn sends_beside(&mut self, list: &str, unasked: &str) {
        let absent = list.split_whitespace().filter_map(|word| word.strip_prefix('-'));
        let present = resources(ADDRESS, &format!("{list} {unasked}"));
        let unasked = resources(ADDRESS, unasked).iter().map(|resource| resource.name.clone()).collect();
        let changes = Changes {
            present,
            unasked,
            absent: absent.map(|name| (name.into(), Cause::Removed)).collect(),
            ..Changes::new(&url(ADDRESS), CollectionKind::Names)
        };
        self.sources[0].handle_changes(changes, self.now);
        self.settle();
    }

    fn owes(&self, client: ClientId) -> bool {
        let latest = |id: SourceId| self.snapshots.get(id.0 as usize).cloned();
        self.clients[client].session.look(&latest, self.now).is_due
    }

    /// The driver's answer to a look, as before each poll. Fails if nothing is due.
    fn adopt(&mut self, client: ClientId) -> Adopted {
        self.adopt_if(client, true)
    }

    fn adopt_if(&mut self, client: ClientId, has_room: bool) -> Adopted {
        assert!(self.owes(client), "an adoption is due");
        let snapshots = self.snapshots.clone();
        let latest = |id: SourceId| snapshots.get(id.0 as usize).cloned();
        let mut routes = self.clients[client].routes;
        let mut charge = |bytes: usize| bytes > 0 && has_room;
        let adopted = self.clients[client].session.adopt(&latest, &mut routes, &mut charge);
        for watch in &adopted.watches {
            let Watch::Watch { collection: Collection::Names(names), .. } = watch else { panic!() };
            let held = self.held(client, ADDRESS);
            let new: Vec<_> = names.iter().filter(|name| !held.wanted.contains(*name)).cloned().collect();
            held.want_delta(&new, &[], false);
            held.wanted = names.iter().cloned().collect();
        }
        self.clients[client].on_the_way.extend(adopted.watches.iter().cloned());
        self.deliver(client, usize::MAX);
        assert!(!self.owes(client), "an adoption is whole");
        adopted
    }

    fn names_len(&self, client: ClientId) -> usize {
        self.clients[client].session.names_len()
    }
}

fn begun() -> (Bench, ClientId) {
    let mut bench = Bench::of_one();
    let client = bench.delta();
    bench.change(client, ADDRESS, "+vip");
    (bench, client)
}

#[test]
fn del_17_what_comes_unasked_is_a_part_of_the_answer() {
    let (mut bench, client) = begun();
    bench.sends_beside("vip=1", "a=1 b=1");
    assert_eq!(bench.drain(client), "", "the answer waits for the names");
    bench.adopt(client);
    assert_eq!(bench.drain(client), "Address a=1 b=1 vip=1");
    bench.sends_beside("a=2", "");
    assert_eq!(bench.drain(client), "Address a=2");
    bench.sends_beside("vip=2", "c=1");
    bench.adopt(client);
    assert_eq!(bench.drain(client), "Address c=1 vip=2");
    bench.advance(60 * SECOND);
    bench.sends_beside("b=2 c=2", "");
    assert_eq!(bench.drain(client), "Address b=2 c=2", "the names stay as long as the stream");
    assert_eq!(bench.idle, [""; 0]);
}

/// Pods come and go under new names, and a stream may last for months.
#[test]
fn del_17_a_name_that_is_gone_is_given_up_and_may_return() {
    let (mut bench, client) = begun();
    bench.sends_beside("vip=1", "a=1 b=1");
    bench.adopt(client);
    bench.drain(client);
    bench.sends_beside("-b", "");
    assert_eq!((bench.names_len(client), bench.owes(client)), (3, false));
    assert_eq!(bench.drain(client), "Address -b");
    assert!(!bench.clients[client].session.is_sated(0), "the driver has to look once more");
    bench.adopt(client);
    assert_eq!((bench.names_len(client), bench.drain(client)), (2, String::new()));
    // The server brings it back before the subscription has ended, and after.
    bench.sends_beside("b=2", "");
    bench.adopt(client);
    assert_eq!(bench.drain(client), "Address b=2");
    bench.sends_beside("-b", "");
    bench.drain(client);
    bench.adopt(client);
    bench.advance(2 * SECOND);
    let known = &bench.snapshots[0].of(&url(ADDRESS)).unwrap().names.entries;
    assert_eq!(known.keys().cloned().collect::<Vec<_>>(), names("a vip"));
    bench.sends_beside("", "b=3");
    bench.adopt(client);
    assert_eq!(bench.drain(client), "Address b=3");
    // A name that the client stated stays, whatever becomes of its resource.
    bench.change(client, ADDRESS, "+a");
    assert_eq!(bench.drain(client), "Address a=1", "DEL-11");
    bench.sends_beside("-a", "");
    assert_eq!((bench.drain(client), bench.owes(client)), ("Address -a".to_owned(), false));
}

#[test]
fn del_17_the_client_may_give_such_a_name_up() {
    let (mut bench, client) = begun();
    bench.sends_beside("vip=1", "a=1 b=1");
    bench.adopt(client);
    bench.drain(client);
    bench.change(client, ADDRESS, "-a");
    bench.sends_beside("a=2 b=2", "");
    assert_eq!((bench.owes(client), bench.drain(client)), (false, "Address b=2".to_owned()));
    bench.advance(2 * SECOND);
    assert_eq!((bench.owes(client), bench.names_len(client)), (false, 2));
}

/// An old stream that nobody has ended yet, the stream that takes its place, and one right after the end of both.
#[test]
fn del_17_each_stream_of_the_client_is_given_them() {
    let (mut bench, first) = begun();
    bench.sends_beside("vip=1", "a=1");
    bench.adopt(first);
    bench.drain(first);
    let second = bench.delta();
    bench.change(second, ADDRESS, "+vip");
    assert_eq!(bench.drain(second), "");
    bench.adopt(second);
    assert_eq!(bench.drain(second), "Address a=1 vip=1");
    bench.sends_beside("a=2", "");
    assert_eq!((bench.drain(first), bench.drain(second)), ("Address a=2".into(), "Address a=2".into()));
    bench.leave(first);
    bench.leave(second);
    let third = bench.delta();
    bench.change(third, ADDRESS, "+vip");
    bench.adopt(third);
    assert_eq!(bench.drain(third), "Address a=2 vip=1");
    // A wildcard, and the state of the world, have names of another kind.
    let (wildcard, sotw) = (bench.delta(), bench.sotw());
    bench.change(wildcard, ADDRESS, "");
    bench.ask(sotw, ADDRESS, "vip");
    assert_eq!((bench.owes(wildcard), bench.owes(sotw)), (false, false));
    assert_eq!(bench.drain(sotw), "Address vip=1");
}

#[test]
fn del_17_names_that_nobody_adopts_go() {
    let (mut bench, client) = begun();
    bench.sends_beside("vip=1", "a=1");
    bench.leave(client);
    bench.advance(5 * SECOND);
    let known = |bench: &Bench| {
        let types = bench.snapshots[0].of(&url(ADDRESS));
        types.map_or(0, |types| types.names.entries.len())
    };
    assert_eq!(known(&bench), 1, "sessions have some time");
    bench.advance(6 * SECOND);
    assert_eq!((known(&bench), bench.sources[0].lingering_bytes()), (0, 0));
}

/// Nothing but the further names is hurt.
#[test]
fn del_17_the_names_count_against_the_limits() {
    let mut bench = Bench::of_one();
    let limits = Limits { names_per_stream: 2, ..Limits::default() };
    let client = bench.join(Variant::Delta, limits);
    bench.change(client, ADDRESS, "+vip");
    bench.sends_beside("vip=1", "a=1 b=1 c=1");
    assert_eq!(bench.adopt(client).left_out, [(url(ADDRESS), 2, NoRoomFor::Names)]);
    assert_eq!(bench.drain(client), "Address a=1 vip=1");
    bench.sends_beside("a=2 b=2", "");
    assert_eq!(bench.drain(client), "Address a=2");

    let (mut bench, client) = begun();
    let before = bench.clients[client].session.names_bytes();
    bench.sends_beside("vip=1", "a=1 b=1 c=1");
    assert_eq!(bench.adopt_if(client, false).left_out, [(url(ADDRESS), 3, NoRoomFor::Memory)]);
    assert_eq!(bench.drain(client), "Address vip=1");
    assert_eq!(bench.clients[client].session.names_bytes(), before);
    bench.sends_beside("", "d=1");
    bench.adopt(client);
    assert_eq!(bench.drain(client), "Address d=1");
    assert!(bench.clients[client].session.names_bytes() > before + 500);
}

/// ztunnel states what it has by the versions alone, beside a wildcard that the same request gives up.
#[test]
fn del_17_a_first_request_names_by_its_versions() {
    let mut bench = Bench::of_one();
    let client = bench.delta();
    let versions = [("a", version_of(ADDRESS, "a=1")), ("vip", version_of(ADDRESS, "vip=1"))];
    bench.change_with(client, ADDRESS, "+* -*", "", &versions, None);
    assert_eq!(bench.names_len(client), 2);
    bench.held(client, ADDRESS).wanted = names("a vip").into_iter().collect();
    bench.held(client, ADDRESS).resources.insert("a".into(), "1".to_owned());
    bench.sends_beside("a=1 vip=2", "b=1");
    bench.adopt(client);
    assert_eq!(bench.drain(client), "Address b=1 vip=2");
    bench.sends_beside("-a", "");
    assert_eq!(bench.drain(client), "Address -a");
    // The wildcard, and types whose clients name what they have.
    let wildcard = bench.delta();
    bench.change_with(wildcard, ADDRESS, "", "", &versions, None);
    bench.change_with(wildcard, super::bench::EDS, "+x", "", &[("y", version_of(ADDRESS, "y=1"))], None);
    assert_eq!(bench.names_len(wildcard), 1);
}
