//! Resources that the server forbids to cache (CCH-1).

use super::*;

const NOW: Time = Time::ZERO;

fn clusters() -> TypeUrl {
    TypeUrl::of_message("envoy.config.cluster.v3.Cluster")
}

fn source(private: bool) -> Source {
    let streams = Attachment::Streams(Box::new(Streams::new(upstream::UpstreamSettings::default())));
    Source::new(1, SourceSettings { private, ..SourceSettings::default() }, streams)
}

fn names(list: &str) -> Collection {
    Collection::Names(Arc::new(NameSet::of(list.split_whitespace().map(ResourceName::new), HashSeed(7))))
}

fn resource(name: &str) -> Resource {
    Resource {
        name: name.into(),
        version: Version(1),
        body: Any { type_url: clusters().shared(), value: Bytes::new() },
        aliases: Box::default(),
        ttl: None,
        do_not_cache: name == "b",
        body_has_name: true,
        metadata: None,
        endpoints: None,
        constraints: None,
    }
}

fn changes(kind: CollectionKind, present: Vec<Resource>) -> Changes {
    Changes {
        present: present.into_iter().map(Arc::new).collect(),
        complete: true,
        ..Changes::new(&clusters(), kind)
    }
}

/// `a` and `b` arrive; the server forbids caching of `b`.
fn arrive(source: &mut Source, kind: CollectionKind) {
    source.handle_changes(changes(kind, ["a", "b"].map(resource).to_vec()), NOW);
}

/// The names that were given up (`*` for the wildcard), and the sessions that were told.
fn given_up(source: &mut Source) -> Vec<(String, Vec<u64>)> {
    let outputs = std::iter::from_fn(|| source.poll_output());
    let told = outputs.filter_map(|output| match output {
        SourceOutput::DoNotCache { names, sessions, .. } => {
            let name = |name: Option<ResourceName>| name.map_or("*".to_owned(), |name| name.to_string());
            let name = names.into_iter().map(name).collect::<Vec<_>>().join(" ");
            Some((name, sessions.into_iter().map(|session| session.0).collect()))
        }
        _ => None,
    });
    told.collect()
}

fn holds(source: &mut Source, name: &str) -> bool {
    let snapshot = source.snapshot();
    let types = snapshot.of(&clusters()).unwrap();
    let named = types.names.entries.get(name).is_some_and(|known| known.resource().is_some());
    named || types.wildcard.members.contains_key(name)
}

#[test]
fn cch_1_a_shared_source_keeps_no_copy_and_tells_who_waits() {
    let mut source = source(false);
    source.watch(SessionId(1), &clusters(), &names("a b"), NOW);
    source.watch(SessionId(2), &clusters(), &names("b"), NOW);
    source.watch(SessionId(3), &clusters(), &names("a"), NOW);
    arrive(&mut source, CollectionKind::Names);
    assert_eq!(given_up(&mut source), [("b".to_owned(), vec![1, 2])]);
    assert!(!holds(&mut source, "b"));
    // The server has answered: a late session would wait forever.
    source.watch(SessionId(4), &clusters(), &names("b a"), NOW);
    assert_eq!(given_up(&mut source), [("b".to_owned(), vec![4])]);
    assert!(holds(&mut source, "a"));
}

#[test]
fn cch_1_who_comes_late_to_a_glob_with_such_a_member_is_told_too() {
    let mut source = source(false);
    let glob = ResourceName::new("xdstp://x/envoy.config.cluster.v3.Cluster/*");
    let globs = Collection::Globs(Arc::new(NameSet::of([glob.clone()], HashSeed(7))));
    source.watch(SessionId(1), &clusters(), &globs, NOW);
    let mut member = resource("xdstp://x/envoy.config.cluster.v3.Cluster/b");
    member.do_not_cache = true;
    source.handle_changes(changes(CollectionKind::Globs, vec![member]), NOW);
    assert_eq!(given_up(&mut source), [(glob.to_string(), vec![1])]);
    source.watch(SessionId(2), &clusters(), &globs, NOW);
    assert_eq!(given_up(&mut source), [(glob.to_string(), vec![2])]);
}

#[test]
fn cch_1_a_wildcard_with_such_a_member_is_never_whole() {
    let mut source = source(false);
    source.watch(SessionId(1), &clusters(), &Collection::Wildcard, NOW);
    arrive(&mut source, CollectionKind::Wildcard);
    assert_eq!(given_up(&mut source), [("*".to_owned(), vec![1])]);
    let snapshot = source.take_snapshot().unwrap();
    let types = snapshot.of(&clusters()).unwrap();
    assert!(!types.wildcard.members.contains_key("b"));
    assert!(!types.wildcard.view.as_ref().unwrap().is_complete());
    source.watch(SessionId(2), &clusters(), &Collection::Wildcard, NOW);
    assert_eq!(given_up(&mut source), [("*".to_owned(), vec![2])]);
}

#[test]
fn cch_1_a_stream_is_told_once_of_all_names_of_a_response() {
    let mut source = source(false);
    source.watch(SessionId(1), &clusters(), &names("b c d"), NOW);
    source.watch(SessionId(2), &clusters(), &names("c d e"), NOW);
    let private = ["b", "c", "d"].map(|name| Resource { do_not_cache: true, ..resource(name) });
    source.handle_changes(changes(CollectionKind::Names, private.to_vec()), NOW);
    assert_eq!(given_up(&mut source), [("b c d".to_owned(), vec![1, 2])]);
    source.watch(SessionId(3), &clusters(), &names("b d x y z"), NOW);
    assert_eq!(given_up(&mut source), [("b d".to_owned(), vec![3])]);
}

/// I4: a session polls between the response and the answer of the private source.
#[test]
fn cch_1_a_member_that_becomes_private_has_not_left_the_wildcard() {
    let mut source = source(false);
    source.watch(SessionId(1), &clusters(), &Collection::Wildcard, NOW);
    let full = |present| Changes { replaces: true, ..changes(CollectionKind::Wildcard, present) };
    let shared = |name| Resource { do_not_cache: false, ..resource(name) };
    source.handle_changes(full(vec![shared("a"), shared("b"), shared("c")]), NOW);
    source.handle_changes(full(vec![shared("a"), resource("b")]), NOW);
    assert_eq!(given_up(&mut source), [("*".to_owned(), vec![1])]);
    let held: Vec<_> = ["a", "b", "c"].into_iter().filter(|name| holds(&mut source, name)).collect();
    assert_eq!(held, ["a", "b"]);
}

#[test]
fn rly_20_a_private_source_takes_it() {
    let mut source = source(true);
    source.watch(SessionId(1), &clusters(), &names("a b"), NOW);
    arrive(&mut source, CollectionKind::Names);
    assert_eq!(given_up(&mut source), []);
    assert!(holds(&mut source, "b"));
}
