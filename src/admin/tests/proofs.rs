//! The proof of the grouping.

use super::*;
use crate::driver::api::proof::{ProofView, ProveRefusal, ServerProof};
use sluice_engine::Time;
use sluice_proof::proof::{
    ClassReport, ClassState, Divergence, DivergentName, MemberId, ProofReport, ProveOrder, ProveState,
};

impl ProofView for FakeView {
    fn proofs(&self) -> BoxFuture<'_, Vec<ServerProof>> {
        let report = ProofReport {
            classes: vec![class_report()],
            divergences: vec![Arc::new(divergence(CLUSTER, true)), Arc::new(divergence(SECRET, false))],
            ..ProofReport::default()
        };
        let (server, list) = ("cp-1".into(), "xds_servers".into());
        async move { vec![ServerProof { server, list, report, origin: now() }] }.boxed()
    }

    /// The class with the digest `c0ffee` is proved.
    fn prove(&self, order: ProveOrder) -> BoxFuture<'_, Result<u64, ProveRefusal>> {
        async move { if order.all { Err(ProveRefusal::NotProved) } else { Ok(7) } }.boxed()
    }

    fn prove_state(&self, order: u64) -> BoxFuture<'_, Option<ProveState>> {
        let state = ProveState {
            class: "c0ffee".into(),
            asked: 3,
            equal: 1,
            differs: 1,
            no_word: 0,
            is_done: false,
            refused: None,
        };
        async move { (order == 7).then_some(state) }.boxed()
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
    let next = json["next"].as_str().unwrap();
    let rest = admin.get(&format!("/classes/divergences?after={next}")).await.json();
    assert_eq!(names(&rest), [""]);
    assert_eq!(
        (&rest["divergences"][0]["count"], &rest["divergences"][0]["compared"]),
        (&2.into(), &14.into())
    );
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
    assert_eq!(admin.get("/classes/prove/7").await.json()["asked"], 3);
    assert_eq!(admin.get("/classes/prove/8").await.status, 404);
}
