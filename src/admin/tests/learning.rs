//! Rules learned from the connected clients.

use super::*;
use crate::driver::api::study::{CheckedRules, LearnOrder, LearnRefusal, LearnState, StudyView};
use sluice_admin_api::learning::{
    CoarsePair, CoarseRule, CoarserEndpoints, DecisiveField, EndpointGrouping, Grouping, LearnedRule,
    LeftOut, NodePair, PersonalType, RefusedNode, RefusedNodes, StudiedField, StudyReport,
};
use sluice_admin_api::proofs::RestlessNames;

impl StudyView for FakeView {
    /// The server `cp-1` can be asked, and the directory `file` cannot.
    fn learn(&self, order: LearnOrder) -> Result<u64, LearnRefusal> {
        match order.server.as_deref() {
            Some("file") => Err(LearnRefusal::NotAsked("a directory tells all clients the same")),
            Some("busy") => Err(LearnRefusal::Busy(7)),
            Some("cp-1") | None => Ok(match order.check {
                None => 7,
                Some(CheckedRules::InForce) => 8,
                Some(CheckedRules::Of(_)) => 9,
            }),
            Some(_) => Err(LearnRefusal::NoServer(vec!["cp-1".into(), "file".into()])),
        }
    }

    fn learn_state(&self, order: u64) -> Option<LearnState> {
        let result = match order {
            7 => Some(Ok(Arc::new(report()))),
            8 => Some(Err("the server refuses the nodes".into())),
            9 => None,
            _ => return None,
        };
        Some(LearnState { server: "cp-1".into(), nodes: 40, asked: 39, result })
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn grouping() -> Grouping {
    Grouping {
        types: texts(&[CLUSTER]),
        answers: 2,
        minimum: vec![DecisiveField {
            field: "metadata.team".to_owned(),
            values: 2,
            counterexamples: 12,
            decisive: true,
            example: Some(NodePair {
                nodes: texts(&["node-1", "node-2"]),
                values: vec![Some("blue".to_owned()), None],
            }),
        }],
        closure: texts(&["cluster"]),
        split: texts(&["cluster", "metadata.team"]),
        classes: 2,
    }
}

fn report() -> StudyReport {
    StudyReport {
        server: "cp-1".to_owned(),
        end: "complete".to_owned(),
        reason: "the server answered no node".to_owned(),
        entries: 41,
        left_out: vec![LeftOut {
            reason: "no_id".to_owned(),
            why: "the node has no id".to_owned(),
            count: 1,
            places: texts(&["stream 7"]),
        }],
        nodes: 40,
        asked: 39,
        fingerprints: 3,
        streams: 2,
        shared: Some(grouping()),
        endpoints: Some(EndpointGrouping {
            finer: Some(grouping()),
            coarser: Some(CoarserEndpoints {
                types: texts(&["endpoints"]),
                minimum: texts(&["cluster"]),
                classes: 1,
            }),
        }),
        personal: vec![PersonalType {
            r#type: CLUSTER.to_owned(),
            explained_by: Some("id".to_owned()),
            derived: true,
            example: Some(texts(&["node-1", "node-2"])),
        }],
        restless: vec![RestlessNames { r#type: CLUSTER.to_owned(), count: 1, names: texts(&["stamp"]) }],
        refused: RefusedNodes {
            count: 1,
            nodes: vec![RefusedNode { node: "node-3".to_owned(), status: "PERMISSION_DENIED".to_owned() }],
        },
        fields: vec![StudiedField { field: "id".to_owned(), values: 40, unique: true }],
        rules: vec![LearnedRule {
            types: Vec::new(),
            personal: false,
            classes: 2,
            clients: vec![20, 20],
            largest: vec![texts(&["metadata.team=blue"])],
        }],
        check: Some(vec![CoarseRule {
            rule: "node_classes[0]".to_owned(),
            r#type: CLUSTER.to_owned(),
            classes: 1,
            explained_by: texts(&["metadata.team"]),
            pairs: vec![CoarsePair {
                nodes: texts(&["node-1", "node-2"]),
                names: texts(&["payments"]),
                count: 1,
                differ: texts(&["metadata.team"]),
            }],
        }]),
        yaml: "node_classes: []\n".to_owned(),
    }
}

#[tokio::test]
async fn lrn_2_an_order_names_a_server_and_its_bounds_and_shows_no_value_of_a_node() {
    let admin = Fixture::start(vec![source("cp-1", SourceState::Connected, false)], false);
    let post = async |query: &str, body: &str| {
        let length = body.len();
        let request = format!(
            "POST /classes/learn?{query} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\nConnection: \
             close\r\n\r\n{body}"
        );
        let answer = admin.send(&request).await;
        (answer.status, answer.body)
    };
    let (status, body) = post("", "").await;
    assert_eq!((status, body.contains("blue"), body.contains("\"order\":7")), (200, false, true), "{body}");
    for query in
        ["streams=0", "streams=65", "per_minute=6001", "for=2d", "types=eds", "types=sds", "types=", "x=1"]
    {
        assert_eq!(post(query, "").await.0, 400, "{query}");
    }
    let (status, body) = post("server=other", "").await;
    assert_eq!((status, body.as_str()), (400, "server: the configuration has cp-1, file only\n"));
    assert_eq!(post("server=file", "").await.0, 409);
    assert!(post("server=busy", "").await.1.contains("GET /classes/learn/7"));
    assert!(post("check=1", "").await.1.contains("\"order\":8"));
    assert!(post("check=1", "node_classes: []").await.1.contains("\"order\":9"));
    assert_eq!(post("check=1", "broken").await, (400, "1:1: no key\n".to_owned()));
    assert_eq!(post("", "node_classes: []").await.0, 400);
}

#[tokio::test]
async fn lrn_2_the_findings_come_with_the_end_of_an_order() {
    let admin = Fixture::start(vec![source("cp-1", SourceState::Connected, false)], false);
    let progress = async |order: u64| admin.get(&format!("/classes/learn/{order}")).await;
    assert_eq!(progress(7).await.json()["report"]["shared"]["minimum"][0]["example"]["values"][0], "blue");
    let refused = progress(8).await.json();
    assert_eq!(
        (&refused["refused"], &refused["done"]),
        (&"the server refuses the nodes".into(), &true.into())
    );
    let open = progress(9).await.json();
    assert_eq!((&open["asked"], &open["done"], &open["report"]), (&39.into(), &false.into(), &Value::Null));
    assert_eq!((progress(10).await.status, admin.get("/classes/learn/x").await.status), (404, 400));
}
