//! Isolation between identities (ISO-1 to ISO-3, AUT-11): random clients, rules, restarts and servers, with a canary in
//! each Secret. No client ever reads a canary of another identity, of another id, or of a denied name.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::bench::{Bench, ClientId, SDS, url};
use crate::authorization::{
    Allow, Claimant, Grant, IdentityPattern, Match, Mode, NamePattern, Policy, Rule, RuleVerdict, Template,
    Types,
};
use crate::class::{NameStyle, NodeClass, NodeClasses};
use crate::downstream::{Limits, Regrant};
use crate::source::{Attachment, Files};
use sluice_identity::{Identity, SpiffeId};
use sluice_xds::{DeltaRequest, Node, Request, ResourceName, Variant};

const NAMES: [&str; 8] = ["a/x", "a/y", "b/x", "b/y", "ab/x", "dns/x", "a", "b/../a/x"];
const IDS: [&str; 3] = ["one", "two", "three"];
/// Sources begin anew after this many probes, as after a restart.
const LIFE: usize = 500;

/// A generator of numbers, seeded so that each run is the same.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}

fn identities() -> Vec<Arc<Identity>> {
    let spiffe = |text: &str| Identity::Spiffe(SpiffeId::parse(text).unwrap());
    let all = [
        spiffe("spiffe://one.example/ns/a"),
        spiffe("spiffe://one.example/ns/b"),
        spiffe("spiffe://one.example/ns/ab"),
        spiffe("spiffe://two.example/ns/a"),
        Identity::Dns("a.one.example".into()),
        Identity::Dns("anonymous".into()),
        Identity::Unix { uid: 0 },
        Identity::Anonymous,
    ];
    all.into_iter().map(Arc::new).collect()
}

/// The namespace whose Secrets an identity may read by a policy: the oracle, without patterns or templates.
fn namespace(policy: usize, identity: &Identity) -> Option<&'static str> {
    match identity.key().as_str() {
        "spiffe://one.example/ns/a" if policy != 3 => Some("a"),
        "spiffe://one.example/ns/b" => Some("b"),
        "spiffe://one.example/ns/ab" => Some("ab"),
        "dns:a.one.example" if policy == 1 => Some("dns"),
        _ => None,
    }
}

fn is_allowed(policy: usize, identity: &Identity, name: &str) -> bool {
    if policy == 2 && identity.key() == "spiffe://one.example/ns/a" {
        return name == "a/x";
    }
    namespace(policy, identity)
        .is_some_and(|namespace| name.split_once('/').is_some_and(|(of, _)| of == namespace))
}

fn policies() -> [Policy; 4] {
    let rule = |name: &str, identity: IdentityPattern, prefix: Option<&str>| {
        let pattern = |prefix| {
            let text = Template::parse(prefix, &identity.captures()).unwrap();
            NamePattern { how: Match::Prefix, text }
        };
        let names = prefix.map(|prefix| vec![pattern(prefix)]);
        let allow = names.map(|names| {
            let types = Types::Listed(vec![url(SDS)]);
            RuleVerdict::Allow(vec![Allow { types, names: Some(names), authorities: None, wildcard: false }])
        });
        let verdict = allow.unwrap_or(RuleVerdict::Deny);
        Rule { name: name.into(), listeners: Vec::new(), identity, node: Vec::new(), verdict }
    };
    let spiffe = |text| IdentityPattern::spiffe(text).unwrap();
    let fleet = rule("fleet", spiffe("spiffe://one.example/ns/{ns}"), Some("{ns}/"));
    let dns = rule("dns", IdentityPattern::dns("{a}.one.example").unwrap(), Some("dns/"));
    let a = || spiffe("spiffe://one.example/ns/a");
    let (less_a, no_a) = (rule("less a", a(), Some("a/x")), rule("no a", a(), None));
    [vec![fleet.clone()], vec![fleet.clone(), dns], vec![less_a, fleet.clone()], vec![no_a, fleet]]
        .map(|rules| Policy::new(Mode::Enforce, rules))
}

struct Probe {
    client: ClientId,
    identity: Arc<Identity>,
    id: &'static str,
    variant: Variant,
}

/// Clients of one relay, and two servers for each class.
struct World {
    random: Random,
    bench: Bench,
    sources: BTreeMap<NodeClass, u64>,
    policies: [Policy; 4],
    /// Counts the states of all sources, so that each state is an update.
    state: usize,
    policy: usize,
    live: Vec<Probe>,
    read: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let bench = Bench::new(Vec::new());
        let (sources, live) = (BTreeMap::new(), Vec::new());
        World {
            random: Random(seed),
            bench,
            sources,
            policies: policies(),
            policy: 0,
            state: 0,
            live,
            read: 0,
        }
    }

    /// The first of the two sources of a client's class.
    fn source(&mut self, identity: &Identity, id: &str) -> u64 {
        let metadata = [("ns".to_owned(), sluice_xds::Value::String("a".into()))].into();
        let node = Node { id: id.into(), metadata, ..Node::default() };
        let class =
            NodeClasses::default().classify(Some(&node), identity, &url(SDS), NameStyle::Old).unwrap();
        if let Some(source) = self.sources.get(&class) {
            return *source;
        }
        let first = self.bench.sources.len();
        for server in 0..2 {
            self.bench.add(Attachment::Files(Files::default()));
            self.update(first + server, &format!("{}#{id}#{server}", identity.key()));
        }
        self.sources.insert(class, first as u64);
        first as u64
    }

    /// Puts a new state into a source. The canary has the identity and the id of the first client of the class.
    fn update(&mut self, source: usize, canary: &str) {
        self.state += 1;
        let state: Vec<_> = NAMES.iter().map(|name| format!("{name}={canary}#{}", self.state)).collect();
        self.bench.state(source, &[(SDS, &state.join(" "))]);
    }

    /// The server of a live client changes all of its resources.
    fn change_a_server(&mut self) {
        if !self.live.is_empty() {
            let at = self.random.below(self.live.len());
            let (identity, id) = (self.live[at].identity.clone(), self.live[at].id);
            let (source, server) = (self.source(&identity, id), self.random.below(2));
            self.update(source as usize + server, &format!("{}#{id}#{server}", identity.key()));
        }
    }

    fn grant(&self, identity: &Arc<Identity>) -> Arc<Grant> {
        let claimant = Claimant { listener: "mesh", identity, is_local: false };
        self.policies[self.policy].decide(claimant, None).grant
    }

    fn step(&mut self) {
        match self.random.below(40) {
            0 => self.change_policy(),
            1 | 2 => self.move_a_client(),
            3..=8 => self.change_a_server(),
            9..=22 => self.ask_again(),
            _ => self.join(),
        }
        let clients: Vec<_> = (0..self.live.len()).collect();
        for at in clients {
            if self.random.below(4) == 0 {
                self.read(at);
            }
        }
    }

    fn join(&mut self) {
        if self.live.len() > 12 {
            let at = self.random.below(self.live.len());
            let left = self.live.swap_remove(at);
            self.bench.leave(left.client);
        }
        let identity = self.random.pick(&identities());
        let (id, variant) = (self.random.pick(&IDS), self.random.pick(&[Variant::Sotw, Variant::Delta]));
        let source = self.source(&identity, id);
        let client = self.bench.join_with(variant, Limits::default(), self.grant(&identity));
        self.bench.clients[client].routes.old = source;
        self.bench.clients[client].routes.features.errors_alone = self.random.below(2) == 0;
        self.live.push(Probe { client, identity, id, variant });
        self.ask(self.live.len() - 1);
    }

    fn ask_again(&mut self) {
        if !self.live.is_empty() {
            let at = self.random.below(self.live.len());
            self.ask(at);
        }
    }

    /// Asks for random names, allowed or not.
    fn ask(&mut self, at: usize) {
        let count = 1 + self.random.below(4);
        let names: Vec<_> = (0..count).map(|_| self.random.pick(&NAMES)).collect();
        let Probe { client, identity, variant, .. } = &self.live[at];
        let (client, variant, is_known) = (*client, *variant, namespace(self.policy, identity).is_some());
        if !is_known {
            let names = names.iter().map(|name| ResourceName::new(name)).collect();
            let type_url = url(SDS).as_str().to_owned();
            let request = DeltaRequest { type_url, subscribe: names, ..DeltaRequest::default() };
            let denied = self.bench.try_request(client, Request::Delta(request));
            assert!(denied.is_err(), "a client without any right is denied as a whole");
            self.bench.leave(client);
            self.live.swap_remove(at);
            return;
        }
        match variant {
            Variant::Sotw => self.bench.ask(client, SDS, &names.join(" ")),
            Variant::Delta => self.bench.change(client, SDS, &format!("+{}", names.join(" +"))),
        };
    }

    /// The class's other server serves the client from now on.
    fn move_a_client(&mut self) {
        if !self.live.is_empty() {
            let at = self.random.below(self.live.len());
            let (identity, id, client) =
                (self.live[at].identity.clone(), self.live[at].id, self.live[at].client);
            let source = self.source(&identity, id) + self.random.below(2) as u64;
            self.bench.reroute(client, source);
        }
    }

    /// AUT-12: each open stream is judged again.
    fn change_policy(&mut self) {
        self.policy = self.random.below(self.policies.len());
        let live = std::mem::take(&mut self.live);
        for probe in live {
            let grant = self.grant(&probe.identity);
            match self.bench.clients[probe.client].session.regrant(grant) {
                Regrant::Kept => self.live.push(probe),
                Regrant::Lost(_) | Regrant::Gained => self.bench.leave(probe.client),
            }
        }
    }

    fn read(&mut self, at: usize) {
        let Probe { client, identity, id, .. } = &self.live[at];
        let (own, client) = (format!("{}#{id}#", identity.key()), *client);
        let text = self.bench.drain(client);
        for word in text.split([' ', ';']).filter(|word| word.contains('=')) {
            let (name, canary) = word.split_once('=').unwrap();
            assert!(canary.starts_with(&own), "LEAK of a class: {identity} with id {id} reads {word}");
            assert!(is_allowed(self.policy, identity, name), "LEAK of a name: {identity} reads {word}");
            self.read += 1;
        }
    }
}

fn probe(count: usize) {
    let (mut read, mut probes) = (0, 0);
    while probes < count {
        let mut world = World::new(probes as u64);
        for _ in 0..LIFE {
            world.step();
        }
        (read, probes) = (read + world.read, probes + LIFE);
    }
    assert!(read > count / 20, "the probes read something: {read} of {count}");
}

#[test]
fn iso_3_random_probes_find_no_leak() {
    probe(2_500);
}

#[test]
#[ignore = "takes minutes: tests/run --long"]
fn iso_3_a_million_random_probes_find_no_leak() {
    probe(1_000_000);
}
