//! Glob collections: NAM-14 to NAM-17, DEL-32, SUB-21.

use std::collections::{BTreeMap, BTreeSet};

use super::bench::{Bench, CDS, EDS, RDS, version_of};

const LEDS: &str = "envoy.config.endpoint.v3.LbEndpoint";

#[test]
fn nam_14_a_glob_has_the_members_one_level_below_with_its_context() {
    let mut bench = Bench::files(&[(
        LEDS,
        "xdstp:foo/a=1 xdstp:foo/a/b=1 xdstp:foo/c?k=v=1 xdstp:bar/a=1 foo/a=1 xdstp:foo=1",
    )]);
    let client = bench.delta();
    bench.change(client, LEDS, "+xdstp:foo/*");
    assert_eq!(bench.drain(client), "LbEndpoint xdstp:foo/a=1");
    bench.change(client, LEDS, "+xdstp:foo/*?k=v");
    assert_eq!(bench.drain(client), "LbEndpoint xdstp:foo/c?k=v=1");
    bench.change(client, LEDS, "+xdstp:* +xdstp:bar/*");
    assert_eq!(bench.drain(client), "LbEndpoint xdstp:bar/a=1 xdstp:foo=1");
    assert_eq!(bench.clients[client].session.subscriptions()[0].parts.len(), 1, "one part for all globs");
}

#[test]
fn nam_14_a_glob_of_plain_names_is_a_name() {
    let mut bench = Bench::files(&[(CDS, "foo/*=1 foo/a=1")]);
    let client = bench.delta();
    bench.change(client, CDS, "+foo/*");
    assert_eq!(bench.drain(client), "Cluster foo/*=1");
}

#[test]
fn nam_16_members_come_and_go_under_their_own_names() {
    let mut bench = Bench::files(&[(LEDS, "xdstp:f/a=1 xdstp:f/b=1 xdstp:g/a=1")]);
    let client = bench.delta();
    bench.change(client, LEDS, "+xdstp:f/*");
    assert_eq!(bench.drain(client), "LbEndpoint xdstp:f/a=1 xdstp:f/b=1");
    bench.state(0, &[(LEDS, "xdstp:f/a=2 xdstp:f/b=1 xdstp:g/a=2")]);
    assert_eq!(bench.drain(client), "LbEndpoint xdstp:f/a=2");
    bench.state(0, &[(LEDS, "xdstp:f/a=2 xdstp:f/c=1")]);
    assert_eq!(bench.drain(client), "LbEndpoint xdstp:f/c=1 -xdstp:f/b");
    // An empty collection is told under its own name, once.
    bench.state(0, &[]);
    assert_eq!(bench.drain(client), "LbEndpoint -xdstp:f/* -xdstp:f/a -xdstp:f/c");
    bench.state(0, &[(LEDS, "xdstp:f/a=3")]);
    assert_eq!(bench.drain(client), "LbEndpoint xdstp:f/a=3");
}

#[test]
fn nam_16_an_absent_collection_is_told_under_its_name() {
    let mut bench = Bench::files(&[]);
    let client = bench.delta();
    bench.change(client, LEDS, "+xdstp:f/* +xdstp:g/*");
    assert_eq!(bench.drain(client), "LbEndpoint -xdstp:f/* -xdstp:g/*");
    // DEL-11, DEL-23: the absence is told again only after a new request.
    bench.state(0, &[(LEDS, "xdstp:h/a=1")]);
    assert_eq!(bench.drain(client), "");
    bench.change(client, LEDS, "+xdstp:f/*");
    assert_eq!(bench.drain(client), "LbEndpoint -xdstp:f/*");
}

#[test]
fn rly_2_a_glob_is_told_empty_only_when_it_is_known_to_be() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, LEDS, "+xdstp:f/* +xdstp:g/*");
    assert_eq!(bench.drain(client), "");
    bench.says_of_globs(LEDS, "xdstp:f/a=1", "");
    assert_eq!(bench.drain(client), "LbEndpoint xdstp:f/a=1");
    bench.says_of_globs(LEDS, "", "xdstp:g/*");
    assert_eq!(bench.drain(client), "LbEndpoint -xdstp:g/*");
    bench.says_of_globs(LEDS, "-xdstp:f/a", "");
    assert_eq!(bench.drain(client), "");
    bench.says_of_globs(LEDS, "", "xdstp:f/*");
    assert_eq!(bench.drain(client), "LbEndpoint -xdstp:f/* -xdstp:f/a");
}

#[test]
fn rly_13_members_prove_nothing_of_names_nor_names_of_members() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, LEDS, "+xdstp:f/* +xdstp:f/b");
    bench.says(LEDS, "xdstp:f/b=1");
    assert_eq!(bench.drain(client), "LbEndpoint xdstp:f/b=1");
    bench.says_of_globs(LEDS, "xdstp:f/a=1", "xdstp:f/*");
    // DEL-22: the name is not a member, but the client asks for the name itself.
    assert_eq!(bench.drain(client), "LbEndpoint xdstp:f/a=1");
    let other = bench.delta();
    bench.change(other, LEDS, "+xdstp:f/*");
    assert_eq!(bench.drain(other), "LbEndpoint xdstp:f/a=1");
}

#[test]
fn nam_17_a_member_given_up_beside_its_glob_is_answered() {
    let mut bench = Bench::files(&[(LEDS, "xdstp:f/a=1")]);
    let client = bench.delta();
    bench.change(client, LEDS, "+xdstp:f/* +xdstp:f/a +xdstp:f/x +xdstp:g/a");
    assert_eq!(bench.drain(client), "LbEndpoint xdstp:f/a=1 -xdstp:f/x -xdstp:g/a");
    // DEL-19: the answer is the resource or its absence. DEL-18: no answer without a glob for the name.
    bench.change(client, LEDS, "-xdstp:f/a");
    assert_eq!(bench.drain(client), "LbEndpoint xdstp:f/a=1");
    bench.change(client, LEDS, "-xdstp:f/x");
    assert_eq!(bench.drain(client), "LbEndpoint -xdstp:f/x");
    bench.change(client, LEDS, "-xdstp:g/a");
    assert_eq!(bench.drain(client), "");
    // The client gives up the glob and the name in one request, so no subscription is left for an answer.
    bench.change(client, LEDS, "+xdstp:f/a");
    bench.drain(client);
    bench.change(client, LEDS, "-xdstp:f/a -xdstp:f/*");
    assert_eq!(bench.drain(client), "");
}

#[test]
fn nam_17_a_glob_given_up_beside_a_member_takes_nothing_of_it() {
    let mut bench = Bench::files(&[(LEDS, "xdstp:f/a=1 xdstp:f/b=1 xdstp:g/a=1")]);
    let client = bench.delta();
    bench.change(client, LEDS, "+xdstp:f/* +xdstp:g/* +xdstp:f/a");
    bench.drain(client);
    bench.change(client, LEDS, "-xdstp:f/*");
    assert_eq!(bench.drain(client), "");
    bench.state(0, &[(LEDS, "xdstp:f/a=2 xdstp:g/a=1")]);
    assert_eq!(bench.drain(client), "LbEndpoint xdstp:f/a=2");
    bench.state(0, &[(LEDS, "xdstp:g/a=1")]);
    assert_eq!(bench.drain(client), "LbEndpoint -xdstp:f/a");
}

#[test]
fn del_11_a_glob_asked_for_again_is_sent_again() {
    let mut bench = Bench::files(&[(LEDS, "xdstp:f/a=1 xdstp:g/a=1")]);
    let client = bench.delta();
    bench.change(client, LEDS, "+xdstp:f/* +xdstp:g/*");
    bench.drain(client);
    bench.change(client, LEDS, "+xdstp:f/*");
    assert_eq!(bench.drain(client), "LbEndpoint xdstp:f/a=1");
    bench.change(client, LEDS, "-xdstp:f/*");
    bench.change(client, LEDS, "+xdstp:f/*");
    assert_eq!(bench.drain(client), "LbEndpoint xdstp:f/a=1");
}

#[test]
fn del_32_presented_members_are_compared_once_the_glob_is_known() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    let held = |name| (name, version_of(LEDS, &format!("{name}=1")));
    let held: Vec<_> = ["xdstp:f/a", "xdstp:f/b", "xdstp:f/c", "xdstp:g/a", "xdstp:h/a"].map(held).into();
    bench.change_with(client, LEDS, "+xdstp:f/* +xdstp:g/*", "", &held, None);
    assert_eq!(bench.drain(client), "");
    // DEL-29 and DEL-33: equal resources are not sent, and removals wait for the complete glob.
    bench.says_of_globs(LEDS, "xdstp:f/a=1 xdstp:f/b=2", "");
    assert_eq!(bench.drain(client), "LbEndpoint xdstp:f/b=2");
    // DEL-30: only this glob's members are removed. DEL-31: names outside the subscription are ignored.
    bench.says_of_globs(LEDS, "", "xdstp:f/*");
    assert_eq!(bench.drain(client), "LbEndpoint -xdstp:f/c");
    bench.says_of_globs(LEDS, "", "xdstp:g/*");
    assert_eq!(bench.drain(client), "LbEndpoint -xdstp:g/* -xdstp:g/a");
}

#[test]
fn nam_8_members_are_told_as_the_client_spelled_their_glob() {
    let mut bench = Bench::files(&[(LEDS, "xdstp:f/a?x=1&y=2=1")]);
    let (one, other) = (bench.delta(), bench.delta());
    bench.change(one, LEDS, "+xdstp:f/*?x=1&y=2");
    bench.change(other, LEDS, "+xdstp:f/*?y=2&x=1");
    assert_eq!(bench.drain(one), "LbEndpoint xdstp:f/a?x=1&y=2=1");
    assert_eq!(bench.drain(other), "LbEndpoint xdstp:f/a?y=2&x=1=1");
    bench.state(0, &[]);
    assert_eq!(bench.drain(one), "LbEndpoint -xdstp:f/*?x=1&y=2 -xdstp:f/a?x=1&y=2");
    assert_eq!(bench.drain(other), "LbEndpoint -xdstp:f/*?y=2&x=1 -xdstp:f/a?y=2&x=1");
}

#[test]
fn sub_21_a_glob_in_sotw_has_its_members_too() {
    let mut bench = Bench::files(&[(CDS, "xdstp:f/a=1 xdstp:f/b=1 c=1"), (LEDS, "xdstp:f/a=1 xdstp:f/b=1")]);
    let client = bench.sotw();
    bench.ask(client, CDS, "xdstp:f/* c");
    assert_eq!(bench.drain(client), "Cluster c=1 xdstp:f/a=1 xdstp:f/b=1");
    bench.state(0, &[(CDS, "xdstp:f/a=1 c=1"), (LEDS, "xdstp:f/a=1 xdstp:f/b=2")]);
    assert_eq!(bench.drain(client), "Cluster c=1 xdstp:f/a=1");
    // A resource without its name inside needs the wrapper (WIR-9).
    bench.clients[client].routes.features.wrapper = true;
    bench.ask(client, LEDS, "xdstp:f/*");
    assert_eq!(bench.drain(client), "LbEndpoint xdstp:f/a=1 xdstp:f/b=2");
}

#[test]
fn sub_21_a_complete_set_waits_for_the_glob() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    bench.ask(client, CDS, "xdstp:f/* c");
    bench.says(CDS, "c=1");
    bench.says_of_globs(CDS, "xdstp:f/a=1", "");
    assert_eq!(bench.drain(client), "");
    bench.says_of_globs(CDS, "", "xdstp:f/*");
    assert_eq!(bench.drain(client), "Cluster c=1 xdstp:f/a=1");
}

#[test]
fn rly_60_a_glob_lingers_and_is_freed() {
    let mut bench = Bench::files(&[(LEDS, "xdstp:f/a=1 xdstp:g/a=1")]);
    let (one, other) = (bench.delta(), bench.delta());
    bench.change(one, LEDS, "+xdstp:f/* +xdstp:g/*");
    bench.change(other, LEDS, "+xdstp:f/*");
    bench.drain(one);
    bench.drain(other);
    bench.leave(one);
    assert!(bench.sources[0].lingering_bytes() > 0);
    bench.advance(std::time::Duration::from_secs(31));
    assert_eq!(bench.sources[0].lingering_bytes(), 0);
    bench.state(0, &[(LEDS, "xdstp:f/a=2 xdstp:g/a=2")]);
    assert_eq!(bench.drain(other), "LbEndpoint xdstp:f/a=2");
    bench.leave(other);
    bench.advance(std::time::Duration::from_secs(31));
    assert!(bench.sources[0].is_idle());
}

/// The subscriptions and resources of a delta client, in the notation of the tests.
#[derive(Default)]
struct Model {
    wanted: BTreeSet<String>,
    held: BTreeMap<String, String>,
}

impl Model {
    fn covers(&self, name: &str) -> bool {
        let glob = format!("{}*", &name[..=name.rfind('/').unwrap()]);
        ["*", name, glob.as_str()].iter().any(|wanted| self.wanted.contains(*wanted))
    }

    fn want(&mut self, sign: char, name: &str) {
        if sign == '+' {
            self.wanted.insert(name.to_owned());
            return;
        }
        self.wanted.remove(name);
        let held: Vec<_> = self.held.keys().filter(|held| !self.covers(held)).cloned().collect();
        held.iter().for_each(|name| drop(self.held.remove(name)));
    }

    /// Applies responses. `update`: the client requested nothing, so every resource must be new or changed.
    fn take(&mut self, transcript: &str, update: bool) {
        for word in transcript.split([' ', ';']).filter(|word| word.contains("xdstp:")) {
            if let Some(name) = word.strip_prefix('-') {
                let had = self.held.remove(name).is_some();
                assert!(had || !update || name.ends_with('*'), "{name} was not held: {transcript}");
            } else {
                let (name, content) = word.rsplit_once('=').unwrap();
                let old = self.held.insert(name.to_owned(), content.to_owned());
                assert!(!update || old.as_deref() != Some(content), "{name} is no news: {transcript}");
            }
        }
    }
}

#[test]
fn nam_17_every_client_comes_to_hold_what_it_covers() {
    const NAMES: [&str; 4] = ["xdstp:f/a", "xdstp:f/b", "xdstp:g/a", "xdstp:g/b"];
    const WANTS: [&str; 8] =
        ["xdstp:f/a", "xdstp:f/b", "xdstp:g/a", "xdstp:f/*", "xdstp:g/*", "xdstp:h/*", "*", "xdstp:f/*"];
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(100);
    for seed in 0..cases {
        let mut random: u64 = seed;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from((random >> 33) % below).unwrap()
        };
        let mut bench = Bench::files(&[]);
        let mut client = bench.delta();
        bench.change(client, LEDS, "+* -*");
        let (mut state, mut model) = (BTreeMap::new(), Model::default());
        for step in 0..40 {
            let mut update = false;
            match next(8) {
                0..4 => {
                    let (first, second) = (WANTS[next(8)], WANTS[next(8)]);
                    let signs = if next(2) == 0 { ['+', '-'] } else { ['-', '+'] };
                    let both = next(3) == 0 && first != second;
                    let mut words = vec![format!("{}{first}", signs[0])];
                    words.extend(both.then(|| format!("{}{second}", signs[1])));
                    bench.change(client, LEDS, &words.join(" "));
                    words.sort();
                    for word in &words {
                        model.want(word.chars().next().unwrap(), &word[1..]);
                    }
                }
                4..7 => {
                    update = true;
                    for _ in 0..=next(2) {
                        let name = NAMES[next(4)];
                        if next(3) == 0 {
                            state.remove(name)
                        } else {
                            state.insert(name, next(3))
                        };
                    }
                    let list: Vec<_> =
                        state.iter().map(|(name, content)| format!("{name}={content}")).collect();
                    bench.state(0, &[(LEDS, &list.join(" "))]);
                }
                _ => {
                    bench.leave(client);
                    client = bench.delta();
                    let list: Vec<_> = model.wanted.iter().map(|name| format!("+{name}")).collect();
                    let list = if list.is_empty() { "+* -*".to_owned() } else { list.join(" ") };
                    let versions = model.held.iter().map(|(name, content)| {
                        (name.as_str(), version_of(LEDS, &format!("{name}={content}")))
                    });
                    let versions: Vec<_> = versions.collect();
                    bench.change_with(client, LEDS, &list, "", &versions, None);
                }
            }
            model.take(&bench.drain(client), update);
            let due: BTreeMap<_, _> = state
                .iter()
                .filter(|(name, _)| model.covers(name))
                .map(|(name, content)| ((*name).to_owned(), content.to_string()))
                .collect();
            assert_eq!(model.held, due, "seed {seed}, step {step}, asking for {:?}", model.wanted);
        }
    }
}

#[test]
fn nam_17_a_name_that_stays_when_its_glob_goes_is_not_sent_again() {
    let mut bench = Bench::files(&[(LEDS, "xdstp:f/a=1 xdstp:f/b=1")]);
    let client = bench.delta();
    bench.change(client, LEDS, "+xdstp:f/* +xdstp:f/a");
    assert_eq!(bench.drain(client), "LbEndpoint xdstp:f/a=1 xdstp:f/b=1");
    bench.change(client, LEDS, "-xdstp:f/*");
    assert_eq!(bench.drain(client), "");
}

/// The name is absent by itself, and has last bytes from before. The glob has other content.
#[test]
fn nam_17_a_name_without_content_goes_with_its_glob() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, EDS, "+xdstp:f/* +xdstp:f/a");
    bench.change(client, RDS, "+r");
    bench.says_of_globs(EDS, "xdstp:f/a=2", "xdstp:f/*");
    bench.says(EDS, "xdstp:f/a=1");
    bench.says(RDS, "r=1");
    bench.drain(client);
    bench.says(EDS, "-xdstp:f/a");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment xdstp:f/a=2");
    bench.change(client, EDS, "-xdstp:f/*");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment -xdstp:f/a");
}

/// The glob never had the newest content of the name, and the removal rests.
#[test]
fn i2_rly_51_a_name_given_up_beside_its_glob_is_not_sent_in_an_older_state() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, EDS, "+xdstp:f/* +xdstp:f/a");
    bench.change(client, RDS, "+r");
    bench.says_of_globs(EDS, "xdstp:f/a=1", "xdstp:f/*");
    bench.says(RDS, "r=1");
    bench.says(EDS, "xdstp:f/a=2");
    bench.drain(client);
    bench.change(client, EDS, "-xdstp:f/a");
    bench.says_of_globs(EDS, "-xdstp:f/a", "");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment -xdstp:f/* -xdstp:f/a");
}

/// The name was there before, and has gone by itself.
#[test]
fn i2_rly_51_a_name_whose_glob_is_given_up_is_not_sent_in_an_older_state() {
    let mut bench = Bench::cold();
    let other = bench.delta();
    bench.change(other, EDS, "+xdstp:f/a");
    bench.change(other, RDS, "+r");
    bench.says(EDS, "xdstp:f/a=1");
    bench.says(RDS, "r=1");
    bench.drain(other);
    let client = bench.delta();
    bench.change(client, RDS, "+r");
    bench.change(client, EDS, "+xdstp:f/*");
    bench.says_of_globs(EDS, "xdstp:f/a=2", "xdstp:f/*");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment xdstp:f/a=2");
    bench.says(EDS, "-xdstp:f/a");
    bench.change(client, EDS, "+xdstp:f/a");
    bench.change(client, EDS, "-xdstp:f/*");
    assert_eq!(bench.drain(client), "RouteConfiguration r=1; ClusterLoadAssignment -xdstp:f/a");
}

/// Another server, or the same one, was further when the client had its former stream.
#[test]
fn i2_rly_51_what_a_client_presents_and_asks_for_again_is_not_sent_in_an_older_state() {
    let mut bench = Bench::cold();
    let other = bench.delta();
    bench.change(other, EDS, "+a");
    bench.change(other, RDS, "+r");
    bench.says(EDS, "a=1");
    bench.says(RDS, "r=1");
    bench.drain(other);
    bench.says(EDS, "-a");
    let client = bench.delta();
    bench.change(client, RDS, "+r");
    bench.drain(client);
    let held = [("a", version_of(EDS, "a=2"))];
    bench.change_with(client, EDS, "+a", "", &held, None);
    bench.change(client, EDS, "+a");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment -a");
}
