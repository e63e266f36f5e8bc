//! The memory of sets of names, counted in the size classes of the relay's allocator (ADR 22).
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of a test; the figures are shown"
)]

#[allow(dead_code, reason = "the benches use more")]
use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sluice_benches::authorization::Authorize;
use sluice_benches::first_answer::{CLIENTS, FirstAnswer};
use sluice_benches::hold::Hold;
use sluice_benches::relay::Relay;
use sluice_benches::{ENDPOINTS, name};
use sluice_engine::authorization::Grant;
use sluice_engine::commons::{CommonMap, Commons, MapKey};
use sluice_engine::downstream::SUBSCRIBED_NAME_BYTES;
use sluice_xds::{Request, ResourceName, Response, TypeUrl, Variant};
use tikv_jemalloc_ctl::thread;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The names of a client at the end.
const NAMES: usize = 2_000;

/// The names known to the source: more than the client under test has at any time.
const KNOWN: usize = 2 * NAMES + 1;

/// The bound for each name of a private set, if the source knows the names.
const BYTES_MAX: f64 = 100.0;

/// The bound for each name of a further class with the names and resources of other classes (BOD-3).
const COMMON_BYTES_MAX: f64 = 150.0;

/// The classes, and the names of each.
const CLASSES: usize = 50;
const CLASS_NAMES: usize = 1_000;

/// The bound for what a step of a hold allocates beyond the same step of a small source.
const HOLD_BYTES_MAX: u64 = 4 << 10;

/// The allocated bytes of this thread.
fn allocated() -> u64 {
    let allocated = thread::allocatedp::read().expect("a counter of the allocator").get();
    allocated - thread::deallocatedp::read().expect("a counter of the allocator").get()
}

/// Spreads numbers below `KNOWN` over all of them, without repetition.
fn spread(number: usize) -> usize {
    // A prime that does not divide `KNOWN`.
    number * 7_919 % KNOWN
}

/// Names to subscribe to, and names to give up.
type Step = (Vec<usize>, Vec<usize>);

/// The client under test, and possibly another client with all names.
struct Bench {
    relay: Relay,
    type_url: TypeUrl,
    client: usize,
    /// For each name, whether the client wants the name. Allocated before the count.
    wanted: Vec<bool>,
    before: u64,
}

impl Bench {
    fn new(variant: Variant, are_known: bool) -> Bench {
        let type_url = TypeUrl::of_message(ENDPOINTS);
        let wanted = vec![false; KNOWN];
        let mut bench = Bench { relay: Relay::new(), type_url, client: 0, wanted, before: 0 };
        if are_known {
            bench.relay.join(Variant::Sotw);
            bench.ask(&(0..KNOWN).map(name).collect::<Vec<_>>());
            let response = bench.relay.response(&bench.type_url, 0..KNOWN, 0);
            bench.relay.receive(response);
            bench.answer();
            bench.client = 1;
        }
        bench.relay.join(variant);
        // The first steps free memory of the answers to the other client.
        for number in (0..40).map(spread) {
            bench.step(&[number], &[]);
            bench.step(&[], &[number]);
        }
        bench.before = allocated();
        bench
    }

    fn ask(&mut self, names: &[ResourceName]) {
        let request = self.relay.request(self.client, &self.type_url, names);
        self.take(&request);
    }

    fn take(&mut self, request: &Request) {
        self.relay.take(self.client, request);
        self.relay.settle();
    }

    /// Sends the client everything that is due.
    fn answer(&mut self) {
        let mut encoded = Vec::new();
        while self.relay.send(self.client, &mut encoded) > 0 {}
    }

    /// The client's next request, and the answers.
    fn step(&mut self, subscribe: &[usize], unsubscribe: &[usize]) {
        subscribe.iter().for_each(|number| self.wanted[*number] = true);
        unsubscribe.iter().for_each(|number| self.wanted[*number] = false);
        let added: Vec<_> = subscribe.iter().map(|number| name(*number)).collect();
        let mut request = self.relay.request(self.client, &self.type_url, &added);
        match &mut request {
            Request::Delta(delta) => {
                delta.unsubscribe = unsubscribe.iter().map(|number| name(*number)).collect()
            }
            Request::Sotw(sotw) => sotw.resource_names = self.names().map(name).collect(),
        }
        self.take(&request);
        drop(request);
        self.answer();
        self.accept();
    }

    /// The client's ACK. Until then the relay keeps the content before the answer, too (ADM-7).
    fn accept(&mut self) {
        let mut ack = self.relay.request(self.client, &self.type_url, &[]);
        if let Request::Sotw(sotw) = &mut ack {
            sotw.resource_names = self.names().map(name).collect();
        }
        self.take(&ack);
    }

    fn names(&self) -> impl Iterator<Item = usize> {
        self.wanted.iter().enumerate().filter_map(|(number, wanted)| wanted.then_some(number))
    }

    fn len(&self) -> usize {
        self.names().count()
    }

    fn bytes_a_name(&self) -> f64 {
        (allocated() - self.before) as f64 / self.len() as f64
    }
}

/// The most bytes for each name, after any step with at least half of the names.
fn measure(way: &str, variant: Variant, steps: &[Step]) -> f64 {
    let mut bench = Bench::new(variant, true);
    let mut most: f64 = 0.0;
    for (subscribe, unsubscribe) in steps {
        bench.step(subscribe, unsubscribe);
        if bench.len() >= NAMES / 2 {
            most = most.max(bench.bytes_a_name());
        }
    }
    println!("{way}, {variant:?}: {} names, at most {most:.1} bytes each", bench.len());
    most
}

/// Steps that add `size` names each.
fn added(names: impl Iterator<Item = usize>, size: usize) -> Vec<Step> {
    let names: Vec<_> = names.collect();
    names.chunks(size).map(|step| (step.to_vec(), Vec::new())).collect()
}

#[test]
fn a_set_that_nobody_else_has_takes_at_most_100_bytes_a_name() {
    let mut worst: f64 = 0.0;
    for variant in [Variant::Delta, Variant::Sotw] {
        let mut check = |way, steps: &[Step]| worst = worst.max(measure(way, variant, steps));
        check("at once", &added(0..NAMES, NAMES));
        check("in ten steps", &added((0..NAMES).map(spread), NAMES / 10));
        check("in ten steps, sorted", &added(0..NAMES, NAMES / 10));
        let mut steps = added(0..2 * NAMES, NAMES);
        let odd: Vec<_> = (0..NAMES).map(|number| 2 * number + 1).collect();
        steps.extend(odd.chunks(NAMES / 5).map(|step| (Vec::new(), step.to_vec())));
        check("every other name removed", &steps);
        if variant == Variant::Sotw {
            continue;
        }
        check("one by one", &added((0..NAMES).map(spread), 1));
        check("one by one, sorted", &added(0..NAMES, 1));
        let mut steps = added((0..2 * NAMES).map(spread), NAMES);
        steps.extend((NAMES..2 * NAMES).map(|number| (Vec::new(), vec![spread(number)])));
        check("removed one by one", &steps);
        let mut steps = added((0..NAMES).map(spread), NAMES);
        steps.extend((0..NAMES).map(|number| (vec![spread(NAMES + number)], vec![spread(number)])));
        check("replaced one by one", &steps);
    }
    assert!(worst <= BYTES_MAX, "{worst:.1} bytes a name");
}

/// A private name also costs the text and the entries in all tables, which its connection pays for, and the resource.
#[test]
fn a_name_that_nobody_else_has_takes_no_more_than_its_account() {
    let account = (name(0).allocated() + SUBSCRIBED_NAME_BYTES) as f64;
    for variant in [Variant::Delta, Variant::Sotw] {
        let mut bench = Bench::new(variant, false);
        bench.step(&(0..NAMES).map(spread).collect::<Vec<_>>(), &[]);
        let requested = bench.bytes_a_name();
        let response = bench.relay.response(&bench.type_url, (0..NAMES).map(spread), 0);
        bench.relay.receive(response);
        bench.answer();
        let present = bench.bytes_a_name();
        println!("{variant:?}: requested {requested:.0} of {account:.0}, present {present:.0} bytes a name");
        // The rest is for what the driver has of the name, and for allocations that lie apart.
        assert!(requested <= 0.94 * account, "{requested:.0} of {account:.0} bytes a name");
        assert!(present <= 1_300.0, "{present:.0} bytes a name");
    }
}

/// The bytes that an action allocates. Freed memory counts, too.
fn allocated_by<T>(act: impl FnOnce() -> T) -> u64 {
    let total = || thread::allocatedp::read().expect("a counter of the allocator").get();
    let before = total();
    black_box(act());
    total() - before
}

#[test]
fn a_decision_about_a_name_allocates_nothing() {
    let authorize = Authorize::new(NAMES);
    let grant = authorize.decide();
    assert_eq!(allocated_by(|| assert_eq!(authorize.names(&grant), NAMES)), 0);
    assert_eq!(allocated_by(|| assert_eq!(authorize.foreign_names(&grant), 0)), 0);
}

/// A client whose names are judged costs what another one costs.
#[test]
fn rules_allocate_nothing_for_the_names_of_a_request() {
    for variant in [Variant::Delta, Variant::Sotw] {
        let bytes = |names: usize, is_judged: bool| {
            let authorize = Authorize::new(names);
            let grant = if is_judged { authorize.decide() } else { Grant::everything() };
            let mut relay = Relay::new();
            relay.join_with(variant, grant);
            let request = relay.request(0, &authorize.type_url, &authorize.names);
            allocated_by(|| relay.take(0, &request))
        };
        let (one, all) = (bytes(1, true) - bytes(1, false), bytes(NAMES, true) - bytes(NAMES, false));
        println!(
            "{variant:?}: rules allocate {one} bytes for a request of one name, {all} for {NAMES} names"
        );
        assert_eq!(one, all, "{variant:?}");
    }
}

/// Clients that are sent the same messages share the view of each. A view of its own would take each client some 50 bytes a name.
#[test]
fn first_answers_leave_a_client_little() {
    let [one, two] = [1, 2].map(|messages| {
        let mut clients = FirstAnswer::new(messages);
        let before = allocated();
        black_box(clients.send());
        (allocated() - before) / CLIENTS as u64
    });
    println!("first answers leave a client {one} bytes after one message, {two} after two");
    assert!(one <= 112 && two <= 528, "{one} bytes after one message, {two} after two");
}

/// WAV-4: a plan holds the content of a source as it is, whatever its size. Persistent maps allocate a path to the changed resource, which
/// has at most two nodes more with a thousand times the resources.
#[test]
fn wav_4_a_hold_allocates_no_more_for_more_resources() {
    for (step, way) in ["begin", "cut", "settle"].into_iter().enumerate() {
        let [few, many] = [100, 100_000].map(|clusters| {
            let mut hold = Hold::before(step, clusters);
            allocated_by(|| match step {
                0 => hold.begin(),
                1 => hold.cut(),
                _ => hold.settle(),
            })
        });
        println!("{way}: {few} bytes for 100 clusters, {many} for 100,000");
        assert!(many <= few + HOLD_BYTES_MAX, "{way}: {few} bytes for 100 clusters, {many} for 100,000");
    }
}

/// The copies that all classes share, as the driver keeps them.
#[derive(Default)]
struct Table(RefCell<HashMap<MapKey, Weak<dyn Any + Send + Sync>>>);

impl Commons for Table {
    fn find(&self, key: &MapKey) -> Option<CommonMap> {
        self.0.borrow().get(key).and_then(Weak::upgrade)
    }

    fn add(&self, key: MapKey, map: &CommonMap) {
        self.0.borrow_mut().insert(key, Arc::downgrade(map));
    }
}

/// One class with a client, and its server's answers.
fn class(names: &[ResourceName], commons: &Rc<dyn Commons>, answers: &[Response]) -> Relay {
    let mut relay = Relay::with_commons(commons.clone());
    relay.join(Variant::Delta);
    let type_url = TypeUrl::of_message(ENDPOINTS);
    let own: Vec<_> = names.iter().map(|name| ResourceName::new(name.as_str())).collect();
    let request = relay.request(0, &type_url, &own);
    relay.take(0, &request);
    relay.settle();
    for answer in answers {
        relay.receive(answer.clone());
        while relay.send(0, &mut Vec::new()) > 0 {}
        let ack = relay.request(0, &type_url, &[]);
        relay.take(0, &ack);
        relay.settle();
    }
    // Nothing waits for an answer any more.
    relay.pass(Duration::from_secs(60));
    relay
}

/// BOD-3: a class with the names and resources of another class costs little. The driver has given all classes the same resources.
#[test]
fn bod_3_equal_sets_of_50_classes_take_at_most_150_bytes_a_name_and_class() {
    let type_url = TypeUrl::of_message(ENDPOINTS);
    let names: Vec<_> = (0..CLASS_NAMES).map(name).collect();
    let mut server = Relay::new();
    let mut worst: f64 = 0.0;
    for (way, wanted) in [("wildcard", &[][..]), ("by name", &names)] {
        let all = server.response(&type_url, 0..CLASS_NAMES, 0);
        let changes = (1..=25).map(|number| server.response(&type_url, [number * 7].into_iter(), number));
        for answers in [vec![all.clone()], std::iter::once(all.clone()).chain(changes).collect()] {
            let commons: Rc<dyn Commons> = Rc::new(Table::default());
            let first = class(wanted, &commons, &answers);
            let before = allocated();
            let others: Vec<_> = (1..CLASSES).map(|_| class(wanted, &commons, &answers)).collect();
            let bytes = (allocated() - before) as f64 / (others.len() * CLASS_NAMES) as f64;
            println!("{way}, {} responses: {bytes:.0} bytes a name and class", answers.len());
            worst = worst.max(bytes);
            drop((first, others));
        }
    }
    assert!(worst <= COMMON_BYTES_MAX, "{worst:.0} bytes a name and class");
}
