//! The proof of the grouping.

use std::net::SocketAddr;

use serde_json::json;

use super::*;
use crate::driver::api::proof::{
    JoinRefusal, ProofView, ProveRefusal, ProveStatus, Replica, ReplicaComparison, ReplicaDifference,
    ServerProof, ServerSamples, SplitRefusal, SplitStatus,
};
use sluice_engine::Time;
use sluice_proof::proof::{
    BreakerReport, ClassKey, ClassReport, ClassState, Divergence, DivergentName, MemberId, ProofReport,
    ProveOrder, ProveState, SampleReport, SampleResult, SplitReport,
};

impl ProofView for FakeView {
    fn proofs(&self) -> BoxFuture<'_, Vec<ServerProof>> {
        let report = ProofReport {
            classes: vec![class_report()],
            divergences: vec![Arc::new(divergence(CLUSTER, true)), Arc::new(divergence(SECRET, false))],
            gives_way: Some("the relay drains or passes its work on"),
            breaker: Some(BreakerReport {
                reason: "4 classes differ".into(),
                ends_in: Duration::from_secs(600),
            }),
            ..ProofReport::default()
        };
        let (server, list) = ("cp-1".into(), "xds_servers".into());
        let replica = |port: u16, name: &str| Replica {
            address: Some(SocketAddr::from(([10, 0, 0, 1], port))),
            control_plane: Some(name.into()),
        };
        let disagree =
            ReplicaDifference { type_url: TypeUrl::of_message(CLUSTER), names: vec!["cart".into()] };
        let compared = ReplicaComparison {
            at: Time::ZERO,
            class: replica(15_010, "cp-a"),
            other: replica(15_011, "cp-b"),
            disagree: Some(disagree),
        };
        // Another server of the class, whose replicas agree.
        let other = ServerProof {
            server: "cp-0".into(),
            list: "authorities[b]".into(),
            report: ProofReport::default(),
            replicas: [("c0ffee".into(), ReplicaComparison { disagree: None, ..compared.clone() })].into(),
            origin: now(),
        };
        let replicas = [("c0ffee".into(), compared)].into();
        async move { vec![other, ServerProof { server, list, report, replicas, origin: now() }] }.boxed()
    }

    /// The class with the digest `c0ffee` is proved.
    fn prove(&self, order: ProveOrder) -> BoxFuture<'_, Result<u64, ProveRefusal>> {
        let result = match (order.all, order.streams) {
            (true, _) => Err(ProveRefusal::NotProved),
            (false, 64) => Err(ProveRefusal::Busy),
            (false, _) => Ok(7),
        };
        async move { result }.boxed()
    }

    fn splits(&self) -> Vec<SplitStatus> {
        let found_by = Some(("node-100".into(), CLUSTER.into()));
        let by_proof = SplitStatus {
            class: "c0ffee".into(),
            fields: vec!["metadata.LABELS.team".into()],
            tuples: Some(1),
            found_by,
            since: now(),
            holds: Some(Duration::from_secs(3_600)),
        };
        let by_hand = SplitStatus {
            class: "c0de".into(),
            fields: vec!["locality.zone".into()],
            tuples: None,
            found_by: None,
            holds: None,
            ..by_proof.clone()
        };
        vec![by_proof, by_hand]
    }

    fn split_class(&self, _class: &str, by: Vec<Box<str>>) -> Result<(), SplitRefusal> {
        match &*by[0] {
            "metadata.LABELS.team" => Ok(()),
            _ => Err(SplitRefusal::NoField((&*by[0]).into())),
        }
    }

    /// Any class but `c0de` can be joined.
    fn join_classes(&self, classes: &[String]) -> Result<Vec<Arc<str>>, JoinRefusal> {
        match classes.iter().find(|class| *class == "c0de") {
            None => Ok(classes.iter().map(|class| class.as_str().into()).collect()),
            Some(class) => Err(JoinRefusal { class: class.clone(), reason: SplitRefusal::NotSplit }),
        }
    }

    fn prove_state(&self, order: u64) -> BoxFuture<'_, Option<ProveStatus>> {
        let state = ProveState {
            class: "c0ffee".into(),
            replicas: true,
            asked: 3,
            equal: 1,
            differs: 1,
            no_word: 0,
            is_done: true,
            refused: None,
        };
        let status = ProveStatus { state, gives_way: Some("the relay drains or passes its work on") };
        async move { (order == 7).then_some(status) }.boxed()
    }

    /// The second sample is newer, and the third as old as the first.
    fn samples(&self, class: ClassKey) -> BoxFuture<'_, Vec<ServerSamples>> {
        let sample = |seconds, node: &str, result| SampleReport {
            at: Time::ZERO + Duration::from_secs(seconds),
            node_id: node.into(),
            result,
        };
        let samples = vec![
            sample(9, "node-2", SampleResult::Differs),
            sample(5, "node-1", SampleResult::Equal),
            sample(5, "node-3", SampleResult::NoWord),
        ];
        let of_server = ServerSamples { server: "cp-1".into(), samples, origin: now() };
        async move { if &*class == "c0ffee" { vec![of_server] } else { Vec::new() } }.boxed()
    }
}

fn class_report() -> ClassReport {
    ClassReport {
        class: "c0ffee".into(),
        rule: "node_classes[0]".into(),
        state: ClassState::Differs,
        members: 40,
        not_sampled: 1,
        fingerprints: 2,
        samples: 38,
        sampled_members: 37,
        sampled_fingerprints: 2,
        pushes_seen: 3,
        differs: 2,
        at_most: Some(15),
        since: Some(Time::ZERO),
        uncovered: vec![
            ("metadata.LABELS.team".into(), "blue".into()),
            ("metadata.TOKEN".into(), "abc".into()),
        ],
        uncovered_count: 2,
        witnesses: 1,
        restless: vec![(TypeUrl::of_message(CLUSTER), vec!["stamped".into()], 1)],
        ignored: vec![(TypeUrl::of_message(CLUSTER), "alt_stat_name".into())],
        impossible: None,
        split_from: None,
        split: Some(SplitReport {
            parent: "beef".into(),
            type_url: TypeUrl::of_message(CLUSTER),
            member_id: "node-100".into(),
            age: Duration::from_secs(60),
            holds: Duration::from_secs(3_600),
            equal_over: 1,
        }),
        split_waits: None,
        covered_within: Duration::from_secs(14),
        round: Duration::from_secs(400),
        words: "2 of 40 sampled clients differ".to_owned(),
    }
}

fn divergence(message: &str, has_names: bool) -> Divergence {
    let name = |name: &str| DivergentName {
        name: name.into(),
        class_version: Some(Version(1)),
        member_version: None,
        paths: vec!["alt_stat_name".into()],
    };
    Divergence {
        class: "c0ffee".into(),
        rule: "node_classes[0]".into(),
        type_url: TypeUrl::of_message(message),
        names: if has_names { vec![name("payments"), name("cart")] } else { Vec::new() },
        name_count: 2,
        compared: 14,
        member: MemberId(100),
        member_id: "node-100".into(),
        representative_id: "node-101".into(),
        differing_fields: vec!["id".into(), "metadata.LABELS.team".into()],
        explained_by: vec![vec!["metadata.LABELS.team".into()], vec!["metadata.TOKEN".into()]],
        suspect_values: vec![vec!["blue".into()]],
        clients: 2,
        since: Time::ZERO,
    }
}

#[tokio::test]
async fn prf_24_a_class_shows_what_is_proved_and_no_value_of_a_secret_field() {
    let admin = Fixture::start(vec![source("cp-1", SourceState::Connected, false)], false);
    let class = admin.get("/classes").await.json()["classes"][0].clone();
    let proof = &class["proof"];
    assert_eq!(
        (&proof["state"], &proof["samples"], &proof["at_most_percent"]),
        (&"differs".into(), &38.into(), &1.5.into())
    );
    let uncovered = proof["uncovered"].as_array().unwrap();
    assert_eq!(uncovered[0], "metadata.LABELS.team=blue");
    assert!(!uncovered[1].to_string().contains("abc"), "{uncovered:?}");
    assert_eq!(proof["equal_over"], 1);
    assert_eq!(proof["gives_way"], "the relay drains or passes its work on");
    assert_eq!(proof["breaker"], json!({ "reason": "4 classes differ", "ends_in_seconds": 600.0 }));
}

#[tokio::test]
async fn prf_17_divergences_have_an_item_for_each_name_and_none_for_secrets() {
    let admin = Fixture::start(vec![source("cp-1", SourceState::Connected, false)], false);
    let json = admin.get("/classes/divergences?limit=2").await.json();
    let names = |json: &Value| {
        let all = json["divergences"].as_array().unwrap().iter();
        all.map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&json), ["cart", "payments"]);
    let first = &json["divergences"][0];
    assert_eq!(first["differing_fields"], json!(["id", "metadata.LABELS.team"]));
    assert_eq!(
        (&first["class_version"], &first["member_version"]),
        (&Version(1).to_string().into(), &Value::Null)
    );
    let next = json["next"].as_str().unwrap();
    let rest = admin.get(&format!("/classes/divergences?after={next}")).await.json();
    assert_eq!(names(&rest), [""]);
    assert_eq!(
        (&rest["divergences"][0]["count"], &rest["divergences"][0]["compared"]),
        (&2.into(), &14.into())
    );
}

#[tokio::test]
async fn prf_24_the_samples_of_a_class_are_pages_with_the_newest_first() {
    let admin = Fixture::start(vec![source("cp-1", SourceState::Connected, false)], false);
    let nodes = |json: &Value| {
        let all = json["samples"].as_array().unwrap().iter();
        all.map(|one| one["node"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (mut target, mut pages) = ("/classes/c0ff/samples?limit=1".to_owned(), Vec::new());
    loop {
        let json = admin.get(&target).await.json();
        pages.extend(nodes(&json));
        let Some(next) = json["next"].as_str() else { break };
        target = format!("/classes/c0ff/samples?limit=1&after={next}");
    }
    assert_eq!(pages, ["node-2", "node-1", "node-3"]);
    assert_eq!(admin.get("/classes/beef/samples").await.status, 404);
}

#[tokio::test]
async fn prf_24_an_order_names_one_class() {
    let admin = Fixture::start(vec![source("cp-1", SourceState::Connected, false)], false);
    let post = async |query: &str| {
        let request =
            format!("POST /classes/prove?{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let answer = admin.send(&request).await;
        (answer.status, answer.body)
    };
    assert_eq!(post("class=c0ff").await.0, 200);
    assert_eq!(post("class=beef").await.0, 404);
    assert_eq!(post("class=").await.0, 400);
    assert_eq!(post("streams=2").await.0, 400);
    assert_eq!(post("class=c0ffee&streams=65").await.0, 400);
    assert_eq!(post("class=c0ffee&all=1").await.0, 409);
    let (status, words) = post("class=c0ffee&streams=64").await;
    assert_eq!((status, words.contains("too many orders are under way")), (409, true), "{words}");
    let (status, begun) = post("class=c0ffee&replicas=1").await;
    let progress: Value = serde_json::from_str(&begun).unwrap();
    assert_eq!((status, &progress["replicas"]["agree"]), (200, &false.into()), "of all servers: {begun}");
    assert_eq!(progress["gives_way"], "the relay drains or passes its work on");
    assert_eq!(post("class=c0ffee&all=1&replicas=1").await.0, 400);
    assert_eq!(admin.get("/classes/prove/7").await.json()["asked"], 3);
    assert_eq!(admin.get("/classes/prove/8").await.status, 404);
}

#[tokio::test]
async fn prf_32_a_split_and_a_join_name_a_class_and_fields() {
    let admin = Fixture::start(vec![source("cp-1", SourceState::Connected, false)], false);
    let digest = admin.get("/classes").await.json()["classes"][0]["class"].as_str().unwrap().to_owned();
    let post = async |path: &str| {
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let answer = admin.send(&request).await;
        (answer.status, answer.body)
    };
    let split = format!("/classes/split?class={digest}&by=");
    for (path, status, words) in [
        (format!("{split}metadata.LABELS.team"), 200, "holds_until"),
        (format!("{split}metadata.NOTHING"), 409, "no client of the class has the field metadata.NOTHING"),
        (split.clone(), 400, "by: missing"),
        ("/classes/split?by=id".to_owned(), 400, "class: missing"),
        ("/classes/split?class=zzz&by=id".to_owned(), 404, "begins with"),
        (format!("/classes/join?class={digest}"), 200, "class"),
        ("/classes/join?class=".to_owned(), 400, "class: missing"),
        ("/classes/join?class=c0".to_owned(), 400, "the beginning of 2 classes"),
        ("/classes/join?class=c0d".to_owned(), 409, "class c0de: the class was not split"),
        (format!("/classes/join?class={digest},c0de"), 409, "no class was joined"),
        (format!("/classes/join?class={digest},c0,c0de"), 400, "the beginning of 2 classes"),
        (format!("/classes/join?class={digest},"), 400, "class: missing"),
    ] {
        let (found, text) = post(&path).await;
        assert!(found == status && text.contains(words), "{path}: {found} {text}");
    }
}
