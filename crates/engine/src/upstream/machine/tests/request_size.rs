//! Requests that would be longer than the server accepts (ADR 53).

use std::collections::BTreeSet;

use super::script::{Script, check, delta, sotw};
use super::*;

/// Room for some ten names of four letters.
fn short(settings: UpstreamSettings) -> UpstreamSettings {
    UpstreamSettings { request_bytes_max: 420, ..settings }
}

fn names(count: usize) -> String {
    (0..count).map(|number| format!(" n{number:03}")).collect()
}

fn requests(outputs: Vec<Output>) -> Vec<Request> {
    let sent = outputs.into_iter().filter_map(|output| match output {
        Output::Send { request, .. } => Some(request),
        _ => None,
    });
    sent.collect()
}

fn deltas(outputs: Vec<Output>) -> Vec<sluice_xds::DeltaRequest> {
    let delta = |request| if let Request::Delta(request) = request { Some(request) } else { None };
    requests(outputs).into_iter().filter_map(delta).collect()
}

/// The bytes of the texts of a request.
fn texts(request: &sluice_xds::DeltaRequest) -> usize {
    let names = request.subscribe.iter().chain(&request.unsubscribe).map(|name| name.as_str().len());
    let claims =
        request.initial_resource_versions.iter().map(|(name, version)| name.as_str().len() + version.len());
    names.chain(claims).sum()
}

#[test]
fn fu_33_a_long_delta_request_is_split() {
    let mut script = Script::new(short(delta()));
    script.raw(&format!("+ EDS{}", names(50)));
    let sent = deltas(script.raw("opened"));
    assert!(sent.len() >= 5, "{} requests", sent.len());
    let all: Vec<_> = sent.iter().flat_map(|request| request.subscribe.clone()).collect();
    assert_eq!(all.len(), 50, "no name twice");
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 50);
    assert!(sent.iter().all(|request| texts(request) < 420 && !request.subscribe.is_empty()));
    // The same for later changes, in both directions.
    script.raw("after 1s");
    let mut outputs = script.raw(&format!("- EDS{}", names(40)));
    outputs.extend(script.raw("after 1s"));
    let sent = deltas(outputs);
    let left: usize = sent.iter().map(|request| request.unsubscribe.len()).sum();
    assert!(left == 40 && sent.len() >= 4, "{left} names in {} requests", sent.len());
}

/// Asks for 50 names, at a server that takes its time. The first part is on its way.
fn written_in_part() -> (Script, Vec<ResourceName>) {
    let mut script = Script::new(short(delta()));
    script.raw("far");
    script.raw(&format!("+ EDS{}", names(50)));
    let outputs = script.raw("opened");
    assert_eq!(outputs.iter().filter(|output| **output == Output::Flush).count(), 1);
    let [first] = &deltas(outputs)[..] else { panic!("one request") };
    (script, first.subscribe.clone())
}

#[test]
fn fu_33_a_part_waits_until_the_transport_has_taken_the_part_before() {
    let (mut script, mut asked) = written_in_part();
    // Nothing else goes before the rest, and no timer waits for it.
    script.raw("+ CDS c");
    assert!(deltas(script.raw("after 20s")).is_empty());
    let mut parts = 1;
    loop {
        let sent = deltas(script.raw("flushed"));
        if sent.is_empty() {
            break;
        }
        parts += 1;
        asked.extend(sent.into_iter().flat_map(|request| request.subscribe));
    }
    assert!(parts >= 5, "{parts}");
    assert_eq!((asked.len(), asked.iter().collect::<BTreeSet<_>>().len()), (51, 51));
}

/// ACK-8: an answer waits for no part.
#[test]
fn fu_33_an_answer_takes_nothing_along_while_a_part_is_on_its_way() {
    let (mut script, _) = written_in_part();
    let [answer] = &deltas(script.raw("EDS - x n000=1"))[..] else { panic!("an answer") };
    assert_eq!((answer.response_nonce.as_str(), answer.subscribe.len()), ("x", 0));
    assert_eq!(deltas(script.raw("flushed")).len(), 1);
}

/// What a client gives up before it was asked for costs no request.
#[test]
fn fu_33_a_name_that_waits_is_given_up_without_a_word() {
    let (mut script, asked) = written_in_part();
    script.raw(&format!("- EDS{}", names(49)));
    let rest: Vec<_> = (0..5).flat_map(|_| deltas(script.raw("flushed"))).collect();
    let left: Vec<_> = rest.iter().flat_map(|request| request.unsubscribe.clone()).collect();
    let entered: Vec<_> = rest.into_iter().flat_map(|request| request.subscribe).collect();
    assert_eq!((left, entered), (asked, vec!["n049".into()]));
}

/// A client that asks for more and more names does not keep those of others waiting.
#[test]
fn fu_33_names_that_wait_go_before_names_that_came_later() {
    let (mut script, _) = written_in_part();
    let mut parts = Vec::new();
    for round in 0..8 {
        let later: String = (0..20).map(|number| format!(" a{round}{number:02}")).collect();
        script.raw(&format!("+ EDS{later}"));
        parts.extend(deltas(script.raw("flushed")).into_iter().map(|request| request.subscribe));
    }
    let has = |part: &Vec<ResourceName>, letter| part.iter().any(|name| name.as_str().starts_with(letter));
    let last = parts.iter().rposition(|part| has(part, 'n')).expect("the earlier names go");
    let first = parts.iter().position(|part| has(part, 'a')).expect("the later names go");
    assert!(last <= first && last < 5, "{last} {first}");
}

/// RLY-59: the server sees that a name was left before it is asked for again.
#[test]
fn fu_33_a_name_that_comes_back_leaves_before_all_that_wait() {
    let mut script = Script::new(short(delta()));
    script.raw(&format!("+ EDS{}", names(50)));
    script.raw("opened");
    script.raw("after 1s");
    script.raw("far");
    let sent = deltas(script.raw(&format!("- EDS{}", names(40))));
    assert_eq!(sent.len(), 1, "the first part");
    assert!(!sent[0].unsubscribe.contains(&"n039".into()));
    let [leaving] = &deltas(script.raw("+ EDS n039"))[..] else { panic!("the name alone") };
    assert_eq!((leaving.unsubscribe.as_slice(), leaving.subscribe.len()), (&["n039".into()][..], 0));
    let rest: Vec<_> = (0..8).flat_map(|_| deltas(script.raw("flushed"))).collect();
    assert!(rest.iter().any(|request| request.subscribe == ["n039".into()]));
    let left: usize = rest.iter().map(|request| request.unsubscribe.len()).sum();
    assert_eq!(left + sent[0].unsubscribe.len(), 39);
}

/// Claims stand in the first request of the type, each with its name. Names without a claim are sent again.
#[test]
fn fu_33_claims_that_find_no_room_are_left_out() {
    let mut script = Script::new(short(delta()));
    script.raw(&format!("+ EDS{}", names(30)));
    script.raw("opened");
    let all: String = (0..30).map(|number| format!(" n{number:03}=1")).collect();
    script.raw(&format!("EDS - x{all}"));
    script.raw("closed OK");
    script.raw("after 1s");
    let sent = deltas(script.raw("opened"));
    let (first, later) = sent.split_first().unwrap();
    assert!(!first.initial_resource_versions.is_empty());
    let claims_its_names = |(name, _): &(ResourceName, String)| first.subscribe.contains(name);
    assert!(first.initial_resource_versions.iter().all(claims_its_names));
    assert!(later.iter().all(|request| request.initial_resource_versions.is_empty()));
    let asked: usize = sent.iter().map(|request| request.subscribe.len()).sum();
    assert_eq!(asked, 30);
}

#[test]
fn fu_33_members_without_a_claim_are_gone_unless_they_come_again() {
    let mut script = Script::new(short(delta()));
    script.raw("+ CDS *");
    script.raw("opened");
    let all: String = (0..30).map(|number| format!(" n{number:03}=1")).collect();
    script.raw(&format!("CDS - x{all}"));
    script.raw("closed OK");
    script.raw("after 1s");
    let sent = deltas(script.raw("opened"));
    assert_eq!(sent.len(), 1);
    let claimed = sent[0].initial_resource_versions.len();
    assert!(claimed > 3 && claimed < 30, "{claimed} claims");
    let rest: String = (claimed..29).map(|number| format!(" n{number:03}=1")).collect();
    let outputs = script.raw(&format!("CDS - y{rest}"));
    let gone = outputs.iter().flat_map(|output| match output {
        Output::Changes(changes) => changes.absent.clone(),
        _ => Vec::new(),
    });
    let gone: Vec<_> = gone.collect();
    assert_eq!(gone, [(ResourceName::from("n029"), Cause::Omitted)]);
}

#[test]
fn fu_33_a_long_sotw_request_leaves_names_out_and_says_so() {
    // The reserve of a request with all names, and room for some ten.
    let settings = UpstreamSettings { nack_text_max: 0, request_bytes_max: 1024 + 128 + 210, ..sotw() };
    let mut script = Script::new(settings);
    script.raw(&format!("+ EDS{}", names(20)));
    let outputs = script.run("opened");
    assert!(outputs.iter().any(|line| line.starts_with("too long EDS ")), "{outputs:?}");
    // The ACK has the same names, and no second event follows.
    let outputs = script.raw("EDS v1 n1 n000=1");
    assert!(!outputs.iter().any(|output| matches!(output, Output::Event(Event::RequestTooLong { .. }))));
    let listed = |outputs| match requests(outputs).pop() {
        Some(Request::Sotw(request)) => request.resource_names,
        _ => Vec::new(),
    };
    let acked = listed(outputs);
    assert!(acked.len() > 5 && acked.len() < 20, "{acked:?}");
    // Names that stay out are not absent.
    let out = script.raw("after 60s");
    let is_absent = |output: &Output| matches!(output, Output::Changes(changes) if changes.absent.iter().any(|(name, _)| !acked.contains(name)));
    assert!(!out.iter().any(is_absent), "{out:?}");
    // When names leave, others find room.
    let mut outputs = script.raw(&format!("- EDS{}", names(10)));
    outputs.extend(script.raw("after 1s"));
    let now = listed(outputs);
    assert_eq!(now.len(), 10, "{now:?}");
}

#[test]
fn fu_33_the_node_takes_room_in_the_first_request() {
    let settings = UpstreamSettings { node_bytes: 200, ..short(delta()) };
    let mut script = Script::new(settings);
    script.raw(&format!("+ EDS{}", names(20)));
    let sent = deltas(script.raw("opened"));
    assert!(sent[0].subscribe.len() < sent[1].subscribe.len(), "{sent:?}");
}

#[test]
fn fu_33_a_request_that_fits_is_as_ever() {
    check(
        UpstreamSettings { request_bytes_max: 1000, ..delta() },
        "
        > + CDS a b
        open Delta
        > opened
        send+node CDS n= +a +b
        ",
    );
}
