//! Responses to clients with dynamic parameters: DYN-2, DYN-5 to DYN-7.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::bench::{Bench, CDS, EDS, RDS, url};
use crate::collection::CollectionKind;
use crate::downstream::Chunk;
use crate::downstream::SourceId;
use crate::upstream::{Cause, Changes};
use sluice_xds::{
    Any, Code, Constraint, Constraints, DeltaRequest, Parameters, Request, Resource, ResourceName,
    SotwRequest, Variant, Version,
};

/// `x` with the parameter `env=…`.
fn located(env: &str) -> ResourceName {
    ResourceName::located("x", &Parameters::from([("env".to_owned(), env.to_owned())]))
}

type Behind<'a> = Option<(&'a str, u128)>;

/// The control plane answers for `x` with each of these parameters: the key of a constraint (`-` for none) and a
/// content, or no resource.
fn says(bench: &mut Bench, message: &str, news: &[(&str, Behind)]) {
    let mut changes = changes(message);
    news.iter().for_each(|(env, behind)| add(&mut changes, message, located(env), *behind));
    bench.sources[0].handle_changes(changes, bench.now);
    bench.settle();
}

fn says_of(bench: &mut Bench, message: &str, name: ResourceName, behind: Behind) {
    let mut changes = changes(message);
    add(&mut changes, message, name, behind);
    bench.sources[0].handle_changes(changes, bench.now);
    bench.settle();
}

fn changes(message: &str) -> Changes {
    Changes {
        type_url: url(message),
        kind: CollectionKind::Names,
        present: Vec::new(),
        by_alias: Vec::new(),
        unasked: Vec::new(),
        absent: Vec::new(),
        refreshed: Vec::new(),
        replaces: false,
        complete: false,
        settled: Vec::new(),
    }
}

fn add(changes: &mut Changes, message: &str, name: ResourceName, behind: Behind) {
    let Some((key, content)) = behind else { return changes.absent.push((name, Cause::Removed)) };
    let constraints = Constraints::new(Constraint::Exists(key.into()), Bytes::new());
    changes.present.push(Arc::new(Resource {
        name,
        version: Version(content),
        body: Any { type_url: url(message).shared(), value: Bytes::new() },
        aliases: Box::default(),
        ttl: None,
        do_not_cache: false,
        body_has_name: true,
        metadata: None,
        endpoints: None,
        constraints: (key != "-").then(|| Arc::new(constraints)),
    }));
}

/// Polls and ACKs the next response: `x[key]=content@ttl`, `~x[key]` for a heartbeat, `-x[key]`, `!x:code`.
fn next(bench: &mut Bench, client: usize, message: &str) -> String {
    let (answer, composition, nonce) = loop {
        let snapshots = bench.snapshots.clone();
        let latest = |id: SourceId| snapshots.get(id.0 as usize).cloned();
        let session = &mut bench.clients[client].session;
        let Some((index, answer)) = session.poll_answer(&latest, bench.now) else { return String::new() };
        let composition = answer.compose().spelled(&answer).with_plain_names(&answer);
        let version = composition.chunks.first().map(|chunk| chunk.version).unwrap_or_default();
        let (count, targets) = (composition.chunks.len(), &composition.targets);
        if let Some(nonce) = session.commit(
            index,
            &answer,
            count,
            version,
            &composition.endpoints,
            targets,
            &composition.told_names,
            bench.now,
        ) {
            break (answer, composition, session.nonce_text(nonce));
        }
    };
    let (response_nonce, type_url) = (nonce, url(message).as_str().to_owned());
    let ack = match answer.variant {
        Variant::Delta => {
            Request::Delta(DeltaRequest { type_url, response_nonce, ..DeltaRequest::default() })
        }
        Variant::Sotw => {
            let resource_names =
                answer.parts.iter().flat_map(|part| part.collection.names()).flat_map(|n| n.iter());
            let resource_names = resource_names.cloned().collect();
            let request = SotwRequest { type_url, response_nonce, resource_names, ..SotwRequest::default() };
            Request::Sotw(request)
        }
    };
    bench.request(client, ack);
    show(&composition.chunks[0])
}

fn show(chunk: &Chunk) -> String {
    let mut text = String::new();
    let told =
        |constraints: Option<&Arc<Constraints>>| constraints.map(|c| format!("[{c}]")).unwrap_or_default();
    let ttl = |resource: &Resource| {
        let ttl = chunk.ttls.get(&*resource.variant_name());
        ttl.map(|ttl| format!("@{}", ttl.as_secs())).unwrap_or_default()
    };
    for resource in &chunk.resources {
        let constraints = told(resource.constraints.as_ref());
        write!(text, "{}{constraints}={}{} ", resource.name, { resource.version.0 }, ttl(resource)).unwrap();
    }
    for resource in &chunk.beats {
        write!(text, "~{}{}{} ", resource.name, told(resource.constraints.as_ref()), ttl(resource)).unwrap();
    }
    chunk.removed.iter().for_each(|name| write!(text, "-{name} ").unwrap());
    for (name, constraints) in &chunk.removed_variants {
        write!(text, "-{name}{} ", told(Some(constraints))).unwrap();
    }
    chunk.errors.iter().for_each(|(name, error)| write!(text, "!{name}:{} ", error.code.name()).unwrap());
    text.trim_end().to_owned()
}

fn subscribe(bench: &mut Bench, client: usize, message: &str, names: &[ResourceName]) {
    let request = DeltaRequest {
        type_url: url(message).as_str().to_owned(),
        subscribe: names.to_vec(),
        ..DeltaRequest::default()
    };
    bench.request(client, Request::Delta(request));
}

#[test]
fn dyn_5_what_takes_the_place_of_a_variant_removes_it_in_the_same_message() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    subscribe(&mut bench, client, EDS, &[located("a")]);
    says(&mut bench, EDS, &[("a", Some(("k", 1)))]);
    assert_eq!(next(&mut bench, client, EDS), "x[k]=1");
    says(&mut bench, EDS, &[("a", Some(("k", 2)))]);
    assert_eq!(next(&mut bench, client, EDS), "x[k]=2", "the same variant");
    says(&mut bench, EDS, &[("a", Some(("l", 3)))]);
    assert_eq!(next(&mut bench, client, EDS), "x[l]=3 -x[k]");
    // WIR-4: a resource without constraints is removed by its name.
    says(&mut bench, EDS, &[("a", Some(("-", 4)))]);
    assert_eq!(next(&mut bench, client, EDS), "x=4 -x[l]");
    says(&mut bench, EDS, &[("a", Some(("k", 5)))]);
    assert_eq!(next(&mut bench, client, EDS), "x[k]=5 -x");
    says(&mut bench, EDS, &[("a", None)]);
    assert_eq!(next(&mut bench, client, EDS), "-x[k]");
    assert_eq!(next(&mut bench, client, EDS), "");
}

#[test]
fn dyn_5_who_slept_through_variants_is_told_of_the_one_that_it_holds() {
    let mut bench = Bench::cold();
    let (client, other) = (bench.delta(), bench.delta());
    subscribe(&mut bench, client, EDS, &[located("a")]);
    subscribe(&mut bench, other, EDS, &[located("a")]);
    for (content, key) in (1..).zip(["k", "l", "m"]) {
        says(&mut bench, EDS, &[("a", Some((key, content)))]);
        let told = next(&mut bench, other, EDS);
        if key == "k" {
            assert_eq!(next(&mut bench, client, EDS), told);
        }
    }
    assert_eq!(next(&mut bench, client, EDS), "x[m]=3 -x[k]");
}

#[test]
fn dyn_7_what_several_names_share_is_told_once_and_removed_with_the_last() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    subscribe(&mut bench, client, EDS, &[located("a"), located("b")]);
    says(&mut bench, EDS, &[("a", Some(("k", 1))), ("b", Some(("k", 1)))]);
    assert_eq!(next(&mut bench, client, EDS), "x[k]=1");
    says(&mut bench, EDS, &[("a", Some(("l", 2)))]);
    assert_eq!(next(&mut bench, client, EDS), "x[l]=2");
    says(&mut bench, EDS, &[("b", None)]);
    assert_eq!(next(&mut bench, client, EDS), "-x[k]");
    subscribe(&mut bench, client, EDS, &[located("c")]);
    says(&mut bench, EDS, &[("c", None)]);
    assert_eq!(next(&mut bench, client, EDS), "-x", "DEL-12: there is none for these parameters");
}

#[test]
fn nam_8_it_is_told_in_the_clients_own_spelling() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    let parameters = Parameters::from([("env".to_owned(), "a".to_owned())]);
    let name = |context: &str| format!("xdstp://-/{EDS}/x?{context}");
    subscribe(&mut bench, client, EDS, &[ResourceName::located(&name("b=2&a=1"), &parameters)]);
    let says = |bench: &mut Bench, key: &str, content: u128| {
        says_of(bench, EDS, ResourceName::located(&name("a=1&b=2"), &parameters), Some((key, content)));
    };
    says(&mut bench, "k", 1);
    assert_eq!(next(&mut bench, client, EDS), format!("{}[k]=1", name("b=2&a=1")));
    says(&mut bench, "l", 2);
    assert_eq!(next(&mut bench, client, EDS), format!("{0}[l]=2 -{0}[k]", name("b=2&a=1")));
}

#[test]
fn dyn_7_a_full_state_response_has_each_variant_once() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    let request = SotwRequest {
        type_url: url(CDS).as_str().to_owned(),
        resource_names: vec![located("a"), located("b"), located("c")],
        ..SotwRequest::default()
    };
    bench.request(client, Request::Sotw(request));
    let all = [("a", Some(("k", 1))), ("b", Some(("k", 1))), ("c", Some(("l", 2)))];
    says(&mut bench, CDS, &all);
    assert_eq!(next(&mut bench, client, CDS), "x[k]=1 x[l]=2");
    says(&mut bench, CDS, &[("c", None)]);
    assert_eq!(next(&mut bench, client, CDS), "x[k]=1");
}

#[test]
fn dyn_7_equal_places_share_an_answer_and_others_do_not() {
    let mut bench = Bench::cold();
    let clients = [bench.delta(), bench.delta(), bench.delta()];
    for client in clients {
        subscribe(&mut bench, client, EDS, &[located("a")]);
    }
    says(&mut bench, EDS, &[("a", Some(("k", 1)))]);
    for client in &clients[..2] {
        next(&mut bench, *client, EDS);
    }
    says(&mut bench, EDS, &[("a", Some(("l", 2)))]);
    let snapshots = bench.snapshots.clone();
    let latest = |id: SourceId| snapshots.get(id.0 as usize).cloned();
    let keys = clients.map(|client| {
        let session = &mut bench.clients[client].session;
        session.poll_answer(&latest, bench.now).unwrap().1.key()
    });
    assert_eq!(keys[0], keys[1]);
    assert_ne!(keys[0], keys[2]);
}

#[test]
fn dyn_6_rly_51_a_withheld_removal_is_told_with_the_constraints_of_what_the_client_holds() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    subscribe(&mut bench, client, CDS, &[located("a")]);
    subscribe(&mut bench, client, RDS, &["r".into()]);
    says(&mut bench, CDS, &[("a", Some(("k", 1)))]);
    bench.says(RDS, "r=1");
    assert_eq!(next(&mut bench, client, CDS), "x[k]=1");
    assert!(next(&mut bench, client, RDS).starts_with("r="));
    // The client never saw the variants in between, and is not told of their removal.
    says(&mut bench, CDS, &[("a", Some(("l", 2)))]);
    says(&mut bench, CDS, &[("a", None)]);
    bench.says(RDS, "r=2");
    assert!(next(&mut bench, client, RDS).starts_with("r="));
    assert_eq!(next(&mut bench, client, CDS), "");
    bench.advance(std::time::Duration::from_millis(25));
    assert_eq!(next(&mut bench, client, CDS), "-x[k]");
    assert_eq!(next(&mut bench, client, CDS), "");
}

#[test]
fn dyn_1_err_2_err_9_an_error_of_the_name_is_told_to_those_who_ask_with_parameters() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    subscribe(&mut bench, client, EDS, &[located("a"), located("b"), "xy".into()]);
    says(&mut bench, EDS, &[("a", Some(("k", 1)))]);
    assert_eq!(next(&mut bench, client, EDS), "x[k]=1");
    bench.fails(EDS, "x", Code::Unavailable);
    assert_eq!(next(&mut bench, client, EDS), "!x:UNAVAILABLE", "once, for both names");
    says(&mut bench, EDS, &[("b", Some(("l", 2)))]);
    assert_eq!(next(&mut bench, client, EDS), "x[l]=2");
    assert_eq!(next(&mut bench, client, EDS), "");
}

#[test]
fn dyn_1_ttl_4_a_variant_is_refreshed_under_its_constraints() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.clients[client].routes.features.ttl = true;
    subscribe(&mut bench, client, EDS, &[located("a"), located("b")]);
    let mut news = changes(EDS);
    for (env, key, content, ttl) in [("a", "k", 1, 30), ("b", "l", 2, 60)] {
        add(&mut news, EDS, located(env), Some((key, content)));
        let resource = news.present.last_mut().and_then(Arc::get_mut).unwrap();
        resource.ttl = Some(Duration::from_secs(ttl));
    }
    bench.sources[0].handle_changes(news, bench.now);
    bench.settle();
    assert_eq!(next(&mut bench, client, EDS), "x[k]=1@30 x[l]=2@60");
    bench.advance(Duration::from_secs(10));
    let beat = Changes { refreshed: vec![(located("a"), None)], ..changes(EDS) };
    bench.sources[0].handle_changes(beat, bench.now);
    bench.settle();
    assert_eq!(next(&mut bench, client, EDS), "~x[k]@30");
    bench.advance(Duration::from_secs(31));
    assert_eq!(next(&mut bench, client, EDS), "-x[k]");
}
