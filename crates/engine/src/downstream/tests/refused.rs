//! Contents that a plan refuses to clients which have something else (WAV-22).

use std::sync::Arc;

use super::bench::{Bench, CDS, ClientId, LDS, RDS, name_of, url, version_of};
use crate::gated::Refused;
use sluice_xds::Variant;

impl Bench {
    /// The first source gives these contents as first answers, and the plan refuses them: `a=2`.
    fn refuse(&mut self, message: &str, list: &str) {
        let contents = list.split(' ').map(|content| {
            let name = content.split('=').next().unwrap();
            (url(message), name_of(message, name), version_of(message, content))
        });
        let refused = Arc::new(Refused::of(contents));
        Arc::make_mut(&mut self.snapshots[0]).refuse(refused);
    }

    /// A client that comes back with clusters in hand.
    fn back(&mut self, variant: Variant, list: &str, held: &[(&str, &str)]) -> ClientId {
        match variant {
            Variant::Delta => self.back_with(CDS, list, held),
            Variant::Sotw => {
                let client = self.sotw();
                self.ask_with(client, CDS, list, "", "of-another-class", None);
                client
            }
        }
    }
}

impl Bench {
    /// A delta client that comes back with resources in hand.
    fn back_with(&mut self, message: &str, list: &str, held: &[(&str, &str)]) -> ClientId {
        let client = self.delta();
        let held: Vec<_> = held.iter().map(|(name, of)| (*name, version_of(message, of))).collect();
        let subscribed: Vec<_> = list.split(' ').map(|name| format!("+{name}")).collect();
        self.change_with(client, message, &subscribed.join(" "), "", &held, None);
        client
    }
}

const GIVEN: [(&str, &str); 3] = [(CDS, "a=2 b=1"), (LDS, "l=1"), (RDS, "r=a.1")];
const MENDED: [(&str, &str); 3] = [(CDS, "a=3 b=1"), (LDS, "l=1"), (RDS, "r=a.1")];

#[test]
fn wav_22_a_client_with_an_older_content_keeps_it() {
    for list in ["*", "a b"] {
        for variant in [Variant::Delta, Variant::Sotw] {
            let mut bench = Bench::files(&GIVEN);
            let client = bench.back(variant, list, &[("a", "a=1")]);
            bench.refuse(CDS, "a=2");
            let given = if variant == Variant::Delta { "Cluster b=1" } else { "" };
            assert_eq!(bench.drain(client), given, "{variant:?} {list}: a complete set waits");
            bench.state(0, &MENDED);
            let given = if variant == Variant::Delta { "Cluster a=3" } else { "Cluster a=3 b=1" };
            assert_eq!(bench.drain(client), given, "{variant:?} {list}");
        }
    }
}

/// DEL-26: the server has the listener, so no other one can take its address.
#[test]
fn wav_22_other_listeners_do_not_wait_for_one_that_is_refused() {
    for (list, names) in [("*", ["l", "m"]), ("xdstp:f/*", ["xdstp:f/l", "xdstp:f/m"])] {
        let [refused, other] = names;
        let mut bench = Bench::files(&[(LDS, &format!("{refused}=2"))]);
        let held = format!("{refused}=1");
        let client = bench.back_with(LDS, list, &[(refused, &held)]);
        bench.refuse(LDS, &format!("{refused}=2"));
        assert_eq!(bench.drain(client), "", "the client keeps its own");
        bench.state(0, &[(LDS, &format!("{refused}=2 {other}=1"))]);
        bench.refuse(LDS, &format!("{refused}=2"));
        assert_eq!(bench.drain(client), format!("Listener {other}=1"), "{list}");
    }
}

/// QUA-5: nothing older is known, so who has nothing is answered. Nothing is taken from a client that has the content.
#[test]
fn wav_22_who_has_nothing_else_is_given_the_content() {
    for list in ["*", "a b"] {
        let mut bench = Bench::files(&GIVEN);
        let (delta, sotw) = (bench.delta(), bench.sotw());
        let had = bench.back(Variant::Delta, list, &[("a", "a=2"), ("b", "b=1")]);
        bench.refuse(CDS, "a=2");
        let subscribed: Vec<_> = list.split(' ').map(|name| format!("+{name}")).collect();
        bench.change(delta, CDS, &subscribed.join(" "));
        bench.ask(sotw, CDS, list);
        bench.refuse(CDS, "a=2");
        assert_eq!(bench.drain(delta), "Cluster a=2 b=1", "{list}");
        assert_eq!(bench.drain(sotw), "Cluster a=2 b=1", "{list}");
        assert_eq!(bench.drain(had), "", "{list}");
    }
}

/// What the plan lets go of goes to those who kept something else, too.
#[test]
fn wav_22_a_content_that_is_refused_no_longer_is_sent() {
    for (variant, rest) in [(Variant::Delta, "Cluster a=2"), (Variant::Sotw, "Cluster a=2 b=1")] {
        let mut bench = Bench::files(&GIVEN);
        let client = bench.back(variant, "*", &[("a", "a=1")]);
        bench.refuse(CDS, "a=2");
        bench.drain(client);
        bench.snapshots[0] = bench.sources[0].snapshot().clone().into();
        assert_eq!(bench.drain(client), rest);
    }
}

/// TIR-1: the plans of a relay judge for themselves, unless the plan holds pushes back from relays, too.
#[test]
fn wav_22_a_relay_is_given_everything_but_by_a_plan_for_relays() {
    for (is_for_relays, given) in [(false, "Cluster a=2 b=1"), (true, "Cluster b=1")] {
        let mut bench = Bench::files(&GIVEN);
        let client = bench.back(Variant::Delta, "*", &[("a", "a=1")]);
        bench.clients[client].session.serve_relay();
        bench.refuse(CDS, "a=2");
        if is_for_relays {
            let refused = bench.snapshots[0].refused().unwrap().of_relays();
            Arc::make_mut(&mut bench.snapshots[0]).refuse(Arc::new(refused));
        }
        assert_eq!(bench.drain(client), given);
    }
}
