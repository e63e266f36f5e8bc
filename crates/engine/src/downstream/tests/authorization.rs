//! Denied types, wildcards and names (AUT-8 to AUT-12).

use std::sync::Arc;

use super::bench::{Bench, CDS, EDS, LDS, url};
use crate::authorization::{
    Allow, Claimant, Denial, Denials, Grant, IdentityPattern, Match, Mode, NamePattern, Policy, Rule,
    RuleVerdict, Template, Types,
};
use crate::downstream::{Limits, Regrant};
use sluice_identity::{Identity, SpiffeId};
use sluice_xds::{Code, DeltaRequest, Request, ResourceName, SotwRequest, Variant};

fn listed(message: &str, prefix: &str) -> Allow {
    let names = vec![NamePattern { how: Match::Prefix, text: Template::literal(prefix) }];
    Allow { types: Types::Listed(vec![url(message)]), names: Some(names), authorities: None, wildcard: false }
}

fn whole(message: &str) -> Allow {
    Allow { types: Types::Listed(vec![url(message)]), names: None, authorities: None, wildcard: true }
}

fn grant_in(mode: Mode, allow: Vec<Allow>, who: &str) -> Arc<Grant> {
    let rule = Rule {
        name: "test".into(),
        listeners: Vec::new(),
        identity: IdentityPattern::Any,
        node: Vec::new(),
        verdict: RuleVerdict::Allow(allow),
    };
    let identity = Arc::new(Identity::Spiffe(SpiffeId::parse(who).unwrap()));
    let claimant = Claimant { listener: "mesh", identity: &identity, is_local: false };
    Policy::new(mode, vec![rule]).decide(claimant, None).grant
}

fn grant(allow: Vec<Allow>) -> Arc<Grant> {
    grant_in(Mode::Enforce, allow, "spiffe://d/a")
}

fn only_names_with(prefix: &str) -> Arc<Grant> {
    grant(vec![listed(EDS, prefix), listed(CDS, prefix)])
}

fn subscribe(message: &str, names: &[&str]) -> Request {
    let subscribe = names.iter().map(|name| ResourceName::new(name)).collect();
    Request::Delta(DeltaRequest {
        type_url: url(message).as_str().into(),
        subscribe,
        ..DeltaRequest::default()
    })
}

fn list(message: &str, names: &[&str]) -> Request {
    let resource_names = names.iter().map(|name| ResourceName::new(name)).collect();
    Request::Sotw(SotwRequest {
        type_url: url(message).as_str().into(),
        resource_names,
        ..SotwRequest::default()
    })
}

#[test]
fn aut_1_a_session_without_a_decision_denies_everything() {
    for (variant, request) in [(Variant::Delta, subscribe(EDS, &["a"])), (Variant::Sotw, list(EDS, &["a"]))] {
        let mut bench = Bench::files(&[(EDS, "a=1")]);
        let client = bench.join_with(variant, Limits::default(), Grant::nothing());
        assert_eq!(bench.try_request(client, request).unwrap_err().code, Code::PermissionDenied);
        assert!(bench.clients[client].session.subscriptions().iter().all(|s| s.parts.is_empty()));
    }
}

#[test]
fn aut_8_a_denied_name_belongs_to_nobody() {
    let mut bench = Bench::files(&[(EDS, "mine-1=1 theirs-1=1")]);
    let client = bench.join_with(Variant::Delta, Limits::default(), only_names_with("mine-"));
    let taken = bench.change(client, EDS, "+mine-1 +theirs-1 +theirs-2");
    assert_eq!(taken.refused, None, "no name is malformed");
    let names = bench.clients[client].session.subscriptions()[0].parts[0].names().unwrap().clone();
    assert_eq!(names.iter().map(ResourceName::as_str).collect::<Vec<_>>(), ["mine-1"], "never watched");
    let errors = "!theirs-1:PERMISSION_DENIED !theirs-2:PERMISSION_DENIED";
    assert_eq!(
        bench.drain(client),
        format!("ClusterLoadAssignment mine-1=1 -theirs-1 -theirs-2; ClusterLoadAssignment {errors}")
    );
    let first = Denial::Name(url(EDS), "theirs-1".into());
    assert_eq!(bench.clients[client].session.take_denials(), Some(Denials { first, count: 2 }));
    // The content of the denied name changes, and appears: nothing reaches the client.
    bench.state(0, &[(EDS, "mine-1=1 theirs-1=2 theirs-2=1")]);
    assert_eq!(bench.drain(client), "");
    // Another type's names, and giving a denied name up.
    bench.change(client, EDS, "-theirs-1 +mine-2");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment -mine-2");
}

#[test]
fn aut_8_sotw_leaves_denied_names_out() {
    let mut bench = Bench::files(&[(EDS, "mine-1=1 theirs-1=1")]);
    let client = bench.join_with(Variant::Sotw, Limits::default(), only_names_with("mine-"));
    bench.ask(client, EDS, "mine-1 theirs-1 theirs-2");
    let errors = "!theirs-1:PERMISSION_DENIED !theirs-2:PERMISSION_DENIED";
    assert_eq!(bench.drain(client), format!("ClusterLoadAssignment mine-1=1 {errors}"));
    bench.state(0, &[(EDS, "mine-1=2 theirs-1=2")]);
    assert_eq!(bench.drain(client), "ClusterLoadAssignment mine-1=2");
    bench.ask(client, EDS, "mine-1 theirs-1 theirs-2");
    assert_eq!(bench.drain(client), "");
}

/// An existing and a missing name get equal answers, and the answer's content follows from the request alone.
#[test]
fn aut_8_a_denial_tells_nothing_of_existence() {
    for variant in [Variant::Delta, Variant::Sotw] {
        let ask = |state: &str| {
            let mut bench = Bench::files(&[(EDS, state)]);
            let client = bench.join_with(variant, Limits::default(), only_names_with("mine-"));
            bench.clients[client].routes.features.errors_alone = true;
            match variant {
                Variant::Delta => bench.change(client, EDS, "+theirs-1"),
                Variant::Sotw => bench.ask(client, EDS, "theirs-1"),
            };
            bench.drain(client)
        };
        assert_eq!(ask("theirs-1=1"), ask("other=1"));
        assert!(ask("other=1").contains("!theirs-1:PERMISSION_DENIED"));
    }
}

/// ISO-3: a reason names its client, so clients of other identities get other bodies.
#[test]
fn iso_3_an_answer_with_a_denial_is_shared_within_an_identity_only() {
    let mut bench = Bench::files(&[(EDS, "mine-1=1")]);
    for who in ["spiffe://d/a", "spiffe://d/b", "spiffe://d/a"] {
        let grant = grant_in(Mode::Enforce, vec![listed(EDS, "mine-")], who);
        let client = bench.join_with(Variant::Delta, Limits::default(), grant);
        bench.change(client, EDS, "+theirs-1 +mine-1");
        assert!(bench.drain(client).contains("!theirs-1:PERMISSION_DENIED"));
    }
    assert_eq!(bench.composed.len(), 2);
}

#[test]
fn aut_9_a_denial_never_deletes() {
    let denied = |variant, grant: Arc<Grant>, request: Request| {
        let mut bench =
            Bench::files(&[(EDS, "mine-1=1 theirs-1=1"), (CDS, "mine-1=1 theirs-1=1"), (LDS, "l=1")]);
        let client = bench.join_with(variant, Limits::default(), grant);
        let status = bench.try_request(client, request).err()?;
        assert_eq!(status.code, Code::PermissionDenied);
        let denials = bench.clients[client].session.take_denials().unwrap();
        Some((denials.first.what(), status.message.to_string()))
    };
    let mine = || only_names_with("mine-");
    let says = |what, text: &str| Some((what, format!("spiffe://d/a may not ask for {text}")));
    let cds = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    let eds = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
    let lds = "type.googleapis.com/envoy.config.listener.v3.Listener";
    // A denied type, also for an empty first request.
    assert_eq!(denied(Variant::Delta, mine(), subscribe(LDS, &["l"])), says("type", lds));
    assert_eq!(denied(Variant::Sotw, mine(), list(LDS, &[])), says("type", lds));
    // A denied wildcard, explicit and implicit.
    let all_of = |url: &str| format!("all resources of {url}");
    assert_eq!(denied(Variant::Delta, mine(), subscribe(CDS, &[])), says("wildcard", &all_of(cds)));
    assert_eq!(
        denied(Variant::Delta, mine(), subscribe(CDS, &["mine-1", "*"])),
        says("wildcard", &all_of(cds))
    );
    assert_eq!(denied(Variant::Sotw, mine(), list(CDS, &[])), says("wildcard", &all_of(cds)));
    assert_eq!(denied(Variant::Sotw, mine(), list(CDS, &["*"])), says("wildcard", &all_of(cds)));
    // A denied name of a full-state type in SotW, where leaving it out would delete it.
    let name = |url: &str| format!("theirs-1 of {url}");
    assert_eq!(denied(Variant::Sotw, mine(), list(CDS, &["mine-1", "theirs-1"])), says("name", &name(cds)));
    assert_eq!(denied(Variant::Sotw, mine(), list(EDS, &["mine-1", "theirs-1"])), None);
    assert_eq!(denied(Variant::Delta, mine(), subscribe(CDS, &["mine-1", "theirs-1"])), None);
    // A denied name that the client presents, in any spelling.
    let presented = |name: &str| {
        let Request::Delta(request) = subscribe(CDS, &["mine-1", "theirs-1"]) else { panic!() };
        let initial_resource_versions = vec![(ResourceName::new(name), "1".to_owned())];
        Request::Delta(DeltaRequest { initial_resource_versions, ..request })
    };
    assert_eq!(denied(Variant::Delta, mine(), presented("theirs-1")), says("name", &name(cds)));
    assert_eq!(denied(Variant::Delta, mine(), presented("mine-1")), None);
    // Names beside a wildcard of any type: the complete set would delete.
    let with_wildcard = || {
        let authorities = Some(Vec::new());
        grant(vec![Allow { authorities, ..whole(EDS) }])
    };
    let theirs = format!("xdstp://b/{EDS}/x");
    let text = format!("{theirs} of {eds}");
    assert_eq!(denied(Variant::Sotw, with_wildcard(), list(EDS, &["*", &theirs])), says("name", &text));
    assert_eq!(denied(Variant::Sotw, with_wildcard(), list(EDS, &["*", "a"])), None);
}

/// DEL-22: a name that the client holds as a member of the wildcard would be removed.
#[test]
fn aut_9_a_denied_name_that_the_wildcard_has_brought_ends_the_stream() {
    let theirs = format!("xdstp://b/{CDS}/x");
    let mut bench = Bench::files(&[(CDS, &format!("a=1 {theirs}=1"))]);
    let grant = grant(vec![Allow { authorities: Some(Vec::new()), ..whole(CDS) }]);
    let client = bench.join_with(Variant::Delta, Limits::default(), grant);
    bench.change(client, CDS, "");
    let members = bench.drain(client);
    let denied = bench.try_request(client, subscribe(CDS, &[&theirs]));
    match members.contains(&theirs) {
        true => assert_eq!(denied.unwrap_err().code, Code::PermissionDenied),
        false => assert!(denied.is_ok()),
    }
}

#[test]
fn aut_12_a_narrowed_policy_ends_streams_and_removes_nothing() {
    let mut bench = Bench::files(&[(EDS, "mine-1=1 theirs-1=1"), (CDS, "c=1")]);
    let client = bench.join_with(Variant::Delta, Limits::default(), grant(vec![whole(EDS), whole(CDS)]));
    bench.change(client, EDS, "+mine-1 +theirs-1");
    bench.change(client, CDS, "");
    bench.drain(client);
    let session = &mut bench.clients[client].session;
    let mut regrant = |allow: Vec<Allow>| session.regrant(grant(allow));
    assert_eq!(regrant(vec![whole(EDS), whole(CDS), whole(LDS)]), Regrant::Kept);
    let lost = Denial::Name(url(EDS), "theirs-1".into());
    assert_eq!(regrant(vec![listed(EDS, "mine-"), whole(CDS)]), Regrant::Lost(lost));
    assert_eq!(regrant(vec![whole(EDS), listed(CDS, "c")]), Regrant::Lost(Denial::Wildcard(url(CDS))));
    assert_eq!(regrant(vec![whole(CDS)]), Regrant::Lost(Denial::Type(url(EDS))));
    bench.check(client, EDS, "mine-1=1 theirs-1=1");
    assert_eq!(bench.drain(client), "");
    bench.clients[client].session.revoke();
    let status = bench.try_request(client, subscribe(LDS, &["l"])).unwrap_err();
    assert_eq!(status.code, Code::PermissionDenied, "a stream at its end asks for nothing more");
}

#[test]
fn aut_12_a_name_that_becomes_allowed_is_noticed() {
    let mut bench = Bench::files(&[(EDS, "mine-1=1 theirs-1=1")]);
    let client = bench.join_with(Variant::Delta, Limits::default(), only_names_with("mine-"));
    bench.change(client, EDS, "+mine-1 +theirs-1");
    bench.drain(client);
    let session = &mut bench.clients[client].session;
    assert_eq!(session.regrant(only_names_with("mine")), Regrant::Kept);
    assert_eq!(session.regrant(grant(vec![whole(EDS)])), Regrant::Gained);
}

#[test]
fn aut_15_a_report_denies_nothing_and_tells_each_denial() {
    let mut bench = Bench::files(&[(EDS, "mine-1=1 theirs-1=1"), (CDS, "c=1"), (LDS, "l=1")]);
    let reported =
        || grant_in(Mode::Report, vec![listed(EDS, "mine-"), listed(CDS, "mine-")], "spiffe://d/a");
    let client = bench.join_with(Variant::Delta, Limits::default(), reported());
    bench.change(client, EDS, "+mine-1 +theirs-1 +theirs-2");
    let first = Denial::Name(url(EDS), "theirs-1".into());
    assert_eq!(bench.clients[client].session.take_denials(), Some(Denials { first, count: 2 }));
    assert_eq!(bench.drain(client), "ClusterLoadAssignment mine-1=1 theirs-1=1 -theirs-2");
    assert_eq!(bench.clients[client].session.take_denials(), None, "an ACK is no denial");
    bench.change(client, CDS, "");
    let first = Denial::Wildcard(url(CDS));
    assert_eq!(bench.clients[client].session.take_denials(), Some(Denials { first, count: 1 }));
    bench.change(client, LDS, "");
    let first = Denial::Type(url(LDS));
    assert_eq!(bench.clients[client].session.take_denials(), Some(Denials { first, count: 1 }));
    assert_eq!(bench.drain(client), "Cluster c=1; Listener l=1");
    let sotw = bench.join_with(Variant::Sotw, Limits::default(), reported());
    bench.ask(sotw, EDS, "mine-1 theirs-1");
    assert_eq!(bench.clients[sotw].session.take_denials().map(|denials| denials.count), Some(1));
    assert_eq!(bench.drain(sotw), "ClusterLoadAssignment mine-1=1 theirs-1=1");
}
