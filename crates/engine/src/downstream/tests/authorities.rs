//! Names of several groups in one subscription: the source of each name, and each source's part of a
//! change.

use super::bench::{CDS, EDS};
use crate::Time;
use crate::authority::{Authorities, Authority, AuthorityId, NameGroup};
use crate::authorization::Grant;
use crate::collection::{Collection, CollectionKey, HashSeed};
use crate::downstream::Router;
use crate::downstream::{Limits, Session, SourceId, Watch};
use sluice_xds::{DeltaRequest, Request, ResourceName, SotwRequest, Status, TypeUrl, Variant};

/// Old-style names go to source 0, authorities to 1 and 2, and all others to 9. A private name goes to the source
/// with a number higher by 100.
#[derive(Default)]
struct Routes {
    authorities: Authorities,
    /// Names; `*` is the wildcard.
    private: Vec<&'static str>,
    /// An authority that another configuration lacks.
    lacks: Option<AuthorityId>,
}

impl Router for Routes {
    fn group_of(&self, _: &TypeUrl, name: Option<&ResourceName>) -> NameGroup {
        let authority = name.map_or(Authority::None, |name| self.authorities.authority_of(name));
        let name = name.map_or("*".to_owned(), |name| name.as_str().replace(EDS, "t"));
        NameGroup { authority, private: self.private.contains(&name.as_str()) }
    }

    fn source(&mut self, _: &TypeUrl, group: NameGroup, _server: u16) -> Result<SourceId, Status> {
        let source = match group.authority {
            Authority::None | Authority::Listed(_) | Authority::Any => 0,
            Authority::Configured(id) if self.lacks == Some(id) => 9,
            Authority::Configured(id) => {
                if id == AuthorityId::of("a") {
                    1
                } else {
                    2
                }
            }
            Authority::Unknown => 9,
        };
        Ok(SourceId(source + if group.private { 100 } else { 0 }))
    }

    fn legacy_wildcard(&self, _: &TypeUrl) -> Result<bool, Status> {
        Ok(true)
    }
}

struct Bench {
    session: Session,
    routes: Routes,
    variant: Variant,
}

impl Bench {
    fn new(variant: Variant) -> Bench {
        let session = Session::new(variant, Limits::default(), HashSeed(7), 1, Grant::everything());
        let routes = Routes { authorities: Authorities::new(["a", ""]), ..Routes::default() };
        Bench { session, routes, variant }
    }

    /// In SotW, the names are the complete list. In delta, names are added, or removed with a leading `-`. In names
    /// of authorities, `t` stands for the type.
    fn ask(&mut self, type_url: &str, words: &str) -> String {
        let words = &words.replace("/t/", &format!("/{type_url}/"));
        let type_url = TypeUrl::of_message(type_url).as_str().to_owned();
        let (minus, plus): (Vec<&str>, _) = words.split_whitespace().partition(|word| word.starts_with('-'));
        let names = |words: &[&str]| {
            words.iter().map(|word| ResourceName::new(word.trim_start_matches('-'))).collect()
        };
        let request = match self.variant {
            Variant::Sotw => Request::Sotw(SotwRequest {
                type_url,
                resource_names: names(&plus),
                ..SotwRequest::default()
            }),
            Variant::Delta => Request::Delta(DeltaRequest {
                type_url,
                subscribe: names(&plus),
                unsubscribe: names(&minus),
                ..DeltaRequest::default()
            }),
        };
        let taken = self.session.request(&request, &mut self.routes, Time::ZERO).unwrap();
        told(taken.watches)
    }

    fn divert(&mut self, type_url: &str) -> String {
        told(self.session.divert(&TypeUrl::of_message(type_url), &mut self.routes).unwrap())
    }
}

/// `0: a b` for each source with new subscriptions, `0: -` for a source without subscriptions.
fn told(watches: Vec<Watch>) -> String {
    let line = |watch| match watch {
        Watch::Watch { source, collection: Collection::Wildcard, .. } => format!("{}: *", source.0),
        Watch::Watch { source, collection: Collection::Globs(names) | Collection::Names(names), .. } => {
            let names: Vec<_> = names.iter().map(ResourceName::as_str).collect();
            let names = [CDS, EDS].iter().fold(names.join(" "), |text, message| text.replace(message, "t"));
            format!("{}: {names}", source.0)
        }
        Watch::Unwatch { source, key: CollectionKey::WILDCARD, .. } => format!("{}: -*", source.0),
        Watch::Unwatch { source, .. } => format!("{}: -", source.0),
    };
    watches.into_iter().map(line).collect::<Vec<_>>().join(", ")
}

/// Authorities are told in the order of their ids, which is nobody's concern.
fn sorted(told: &str) -> String {
    let mut lines: Vec<_> = told.split(", ").collect();
    lines.sort_unstable();
    lines.join(", ")
}

#[test]
fn fed_3_nam_3_nam_4_each_authority_is_asked_for_its_names() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::new(variant);
        let told = bench.ask(EDS, "x xdstp://a/t/1 xdstp:///t/1 xdstp://b/t/1 y");
        assert_eq!(sorted(&told), "0: x y, 1: xdstp://a/t/1, 2: xdstp:///t/1, 9: xdstp://b/t/1");
        assert!([0, 1, 2, 9].iter().all(|source| bench.session.uses(SourceId(*source))));
    }
}

#[test]
fn fed_7_only_the_authority_of_what_changed_is_told() {
    let mut bench = Bench::new(Variant::Sotw);
    bench.ask(EDS, "x xdstp://a/t/1");
    assert_eq!(bench.ask(EDS, "x xdstp://a/t/1 xdstp://a/t/2"), "1: xdstp://a/t/1 xdstp://a/t/2");
    assert_eq!(sorted(&bench.ask(EDS, "xdstp:///t/1")), "0: -, 1: -, 2: xdstp:///t/1");
    assert!(
        !bench.session.uses(SourceId(0)) && !bench.session.uses(SourceId(1)),
        "what was left is not kept"
    );
    let mut bench = Bench::new(Variant::Delta);
    bench.ask(EDS, "x xdstp://a/t/1");
    assert_eq!(sorted(&bench.ask(EDS, "xdstp:///t/1 -xdstp://a/t/1")), "1: -, 2: xdstp:///t/1");
    assert_eq!(bench.ask(EDS, "-x -xdstp://b/t/1"), "0: -");
}

/// A wildcard belongs to no authority.
#[test]
fn nam_3_a_wildcard_goes_to_the_default_list() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::new(variant);
        assert_eq!(bench.ask(CDS, "* xdstp://a/t/1"), "1: xdstp://a/t/1, 0: *");
    }
}

/// Names of all unknown authorities have one source. Names of an authority that is about to go are asked for there, too.
#[test]
fn rel_6_fed_3_names_that_are_given_up_leave_those_of_another_unknown_authority() {
    let mut bench = Bench::new(Variant::Delta);
    bench.ask(EDS, "xdstp://b/t/1 xdstp://a/t/1");
    bench.routes.lacks = Some(AuthorityId::of("a"));
    let moved = told(bench.session.reroute(&mut bench.routes).unwrap());
    assert_eq!(moved, "1: -, 9: xdstp://a/t/1");
    assert_eq!(bench.ask(EDS, "-xdstp://a/t/1"), "9: xdstp://b/t/1");
    assert_eq!(bench.ask(EDS, "-xdstp://b/t/1"), "9: -");
}

/// Private names leave the shared source, and a client that asks later goes to its own source at once.
#[test]
fn cch_1_rly_20_names_move_to_a_source_of_their_own() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::new(variant);
        bench.ask(EDS, "x y xdstp://a/t/1");
        bench.routes.private = vec!["x", "xdstp://a/t/1"];
        assert_eq!(bench.divert(EDS), "0: y, 100: x, 1: -, 101: xdstp://a/t/1");
        assert_eq!(bench.divert(EDS), "", "it is there already");
        assert_eq!(bench.divert(CDS), "", "nothing is wanted of this type");
        // A moved name stays at its source, even if the name is no longer private.
        bench.routes.private = Vec::new();
        assert_eq!(bench.divert(EDS), "");
        let mut late = Bench::new(variant);
        late.routes.private = vec!["x"];
        assert_eq!(late.ask(EDS, "x y"), "0: y, 100: x");
    }
}

/// A name that is given up or requested again before its move is found at its present source.
#[test]
fn cch_1_a_name_is_found_in_the_group_in_which_it_was_asked_for() {
    let mut bench = Bench::new(Variant::Delta);
    bench.ask(EDS, "x y");
    bench.routes.private = vec!["x", "y"];
    assert_eq!(bench.ask(EDS, "-x"), "0: y");
    assert_eq!(bench.ask(EDS, "y"), "", "nothing changes by asking again");
    assert_eq!(bench.divert(EDS), "0: -, 100: y");
    assert_eq!(bench.ask(EDS, "-y"), "100: -");
}

#[test]
fn cch_1_a_wildcard_moves_as_a_whole() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::new(variant);
        bench.ask(CDS, "* x");
        bench.routes.private = vec!["*"];
        assert_eq!(bench.divert(CDS), "0: -*, 100: *");
        assert_eq!(bench.divert(CDS), "");
        let gone = if variant == Variant::Sotw { "x" } else { "-*" };
        assert_eq!(bench.ask(CDS, gone), "100: -*");
    }
}
