//! RLY-15 with rules of the operator about the node of a class: a control plane that looks up its clients as
//! istiod does.

use std::time::Duration;

use crate::bench::Bench;
use crate::support::client::connect;
use crate::support::istiod::{metadata, metadata_of, sidecar};
use crate::support::proto::{Any, Node};
use crate::support::{Ask, CDS, Client, ControlPlane, EDS, Item, NDS, Setup, Variant};

const HEALTH: &str = "type.googleapis.com/istio.v1.HealthInformation";

/// A rule for all proxies of a namespace.
fn rule(keys: &str) -> String {
    format!(
        "node_classes: [{{match: {{names: old}}, split_by: {{metadata: [NAMESPACE]}}, upstream_node: {keys}}}]"
    )
}

const TEMPLATE: &str = "{template: {\
    id: 'router~10.255.0.1~{class}.{node.metadata.NAMESPACE}~{node.metadata.NAMESPACE}.svc.cluster.local', \
    metadata: {NAMESPACE: '{node.metadata.NAMESPACE}', INSTANCE_IPS: 10.255.0.1}}}";

async fn bench(upstream: Variant, keys: &str) -> Option<Bench> {
    let rule = rule(keys);
    Bench::over_istiod(|setup: Setup| setup.upstream(upstream).line(&rule)).await
}

async fn client(bench: &Bench, variant: Variant, node: Node) -> Client {
    Client::on(connect(bench.target()).await, variant, Some(node))
}

/// The nodes that the control plane received, in order, without the features that the relay adds.
fn shown(origin: &ControlPlane) -> Vec<Node> {
    let nodes = origin.log().into_iter().filter_map(|recorded| recorded.ask.node);
    nodes.map(|node| Node { client_features: Vec::new(), ..node }).collect()
}

#[tokio::test]
async fn rly_15_a_template_is_what_the_control_plane_is_told() {
    for upstream in Variant::BOTH {
        let Some(bench) = bench(upstream, TEMPLATE).await else { return };
        bench.origin.set(CDS, "a", "1");
        for (variant, pod) in [(Variant::Sotw, "one"), (Variant::Delta, "two")] {
            let mut client = client(&bench, variant, sidecar(pod, "prod", "10.0.0.7")).await;
            client.want(CDS, &[]);
            client.settle(CDS, &[("a", "1")]).await;
        }
        let shown = shown(&bench.origin);
        let [node] = &shown[..] else { panic!("one class: {shown:?}") };
        let sources = bench.process().sources(&bench.origin.address.to_string()).await;
        let class = sources[0]["class"].as_str().expect("the digest");
        assert_eq!(node.id, format!("router~10.255.0.1~{class}.prod~prod.svc.cluster.local"));
        assert_eq!(metadata_of(node)["NAMESPACE"], "prod");
        assert!(!metadata_of(node).contains_key("NAME"));
    }
}

/// RLY-48: after the member leaves, another member's node takes over; the clients see no change.
#[tokio::test]
async fn rly_15_a_member_is_what_the_control_plane_is_told() {
    for upstream in Variant::BOTH {
        let Some(bench) = bench(upstream, "member").await else { return };
        bench.origin.set_many(CDS, &[("a", "1"), ("b", "1")]);
        bench.origin.set(EDS, "e", "1");
        let mut clients = Vec::new();
        for (variant, pod) in [(Variant::Delta, "one"), (Variant::Delta, "two"), (Variant::Sotw, "three")] {
            let address = format!("10.0.0.{}", clients.len() + 1);
            let mut client = client(&bench, variant, sidecar(pod, "prod", &address)).await;
            client.want(CDS, &[]);
            client.want(EDS, &["e"]);
            client.settle(CDS, &[("a", "1"), ("b", "1")]).await;
            client.settle(EDS, &[("e", "1")]).await;
            clients.push(client);
        }
        assert_eq!(shown(&bench.origin), [sidecar("one", "prod", "10.0.0.1")]);
        drop(clients.remove(0));
        bench.origin.wait_for("another member takes over", |origin| shown(origin).len() == 2).await;
        assert_eq!(shown(&bench.origin)[1], sidecar("three", "prod", "10.0.0.3"));
        bench.origin.wait_for("the old stream is closed", |origin| origin.live_streams() == 1).await;
        let second = |type_url| bench.origin.requests(type_url).into_iter().find(|asked| asked.stream == 2);
        let asked = second(CDS).expect("the new stream restates all").ask;
        match upstream {
            Variant::Delta => assert_eq!(asked.initial.keys().collect::<Vec<_>>(), ["a", "b"]),
            Variant::Sotw => assert!(!asked.version.is_empty()),
        }
        for client in &mut clients {
            client.quiet().await;
        }
        bench.origin.change(|world| {
            world.remove(CDS, "b");
        });
        bench.origin.set(EDS, "e", "2");
        for client in &mut clients {
            client.settle(CDS, &[("a", "1")]).await;
            client.settle(EDS, &[("e", "2")]).await;
        }
        assert_eq!(bench.origin.opened(), 2, "nothing was refused, nothing flaps");
        assert_eq!(bench.warnings(), Vec::<String>::new());
    }
}

/// RLY-11: the pods of a workload share a class. Another kind of proxy, another domain and a field that no list has are kept apart.
#[tokio::test]
async fn rly_11_parts_of_the_id_and_all_metadata_but_some_split_classes() {
    let rule = "node_classes: [{split_by: {id: {separator: '~', parts: [0, 3]}, \
        metadata: {all_but: [NAME, INSTANCE_IPS]}}, upstream_node: member}]";
    let Some(bench) = Bench::over_istiod(|setup: Setup| setup.line(rule)).await else { return };
    bench.origin.set(CDS, "a", "1");
    let first = sidecar("one", "prod", "10.0.0.1");
    let with_field = |pairs: &[(&str, &str)]| {
        let all = metadata_of(&first);
        let all = all.iter().map(|(key, text)| (key.as_str(), text.as_str())).chain(pairs.iter().copied());
        Node { metadata: Some(metadata(&all.collect::<Vec<_>>())), ..first.clone() }
    };
    let with_id = |id: &str| Node { id: id.to_owned(), ..first.clone() };
    let proxies = [
        (first.clone(), 1),
        (sidecar("two", "prod", "10.0.0.2"), 1),
        (with_id("router~10.0.0.3~three.prod~prod.svc.cluster.local"), 2),
        (with_id("sidecar~10.0.0.4~four.prod~prod.svc.other.local"), 3),
        (with_field(&[("OF_A_LATER_VERSION", "1")]), 4),
        (with_field(&[("NAME", "five")]), 4),
    ];
    let mut clients = Vec::new();
    for (node, classes) in proxies {
        let mut client = client(&bench, Variant::Delta, node).await;
        client.want(CDS, &["*"]);
        client.settle(CDS, &[("a", "1")]).await;
        clients.push(client);
        assert_eq!(shown(&bench.origin).len(), classes, "{:?}", shown(&bench.origin));
    }
}

/// Two members of a class, and a server that gives the second another answer: the class is told to be too coarse, with the names and the
/// fields. Names that are the same, and names that somebody asks for just then, are no evidence.
#[tokio::test]
async fn rly_10_another_answer_for_another_member_is_told() {
    let rule = rule("member");
    let Some(bench) = Bench::scripted(|setup| setup.line(&rule)).await else { return };
    let items = |text: &str| vec![Item::new(EDS, "e", text, text), Item::new(EDS, "same", "1", "1")];
    let mut first = client(&bench, Variant::Delta, sidecar("one", "prod", "10.0.0.1")).await;
    first.want(EDS, &["e", "same"]);
    let asked = bench.origin.expect(EDS).await;
    bench.origin.answer(&asked, "1", items("of one"), &[]);
    first.settle(EDS, &[("e", "of one"), ("same", "1")]).await;
    let mut second = client(&bench, Variant::Delta, sidecar("two", "prod", "10.0.0.2")).await;
    second.want(EDS, &["e", "same"]);
    second.settle(EDS, &[("e", "of one"), ("same", "1")]).await;
    drop(first);
    let asked = bench.origin.expect_that(EDS, |ask| ask.node.is_some()).await;
    bench.origin.answer(&asked, "2", items("of two"), &[]);
    second.settle(EDS, &[("e", "of two"), ("same", "1")]).await;
    let warnings = bench.warned_of("answers another client of a class otherwise").await;
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    let differ = "id, metadata.INSTANCE_IPS, metadata.NAME";
    assert!(
        warning.contains(&format!("differ=\"{differ}\"")) && warning.contains("names=\"e\""),
        "{warning}"
    );
    let (_, classes) = bench.process().get("/classes").await;
    let found: serde_json::Value = serde_json::from_str(&classes).expect("JSON");
    let evidence = &found["classes"][0]["evidence"][0];
    assert_eq!((&evidence["names"], &evidence["count"]), (&serde_json::json!(["e"]), &serde_json::json!(1)));
    assert_eq!(evidence["differ"], serde_json::json!(differ.split(", ").collect::<Vec<_>>()));
    assert_eq!(bench.process().metric("sluice_class_evidence_total", &[]).await, 1.0);
    // A push on the same stream is none.
    bench.origin.answer(&asked, "3", items("pushed"), &[]);
    second.settle(EDS, &[("e", "pushed"), ("same", "1")]).await;
    assert_eq!(bench.process().metric("sluice_class_evidence_total", &[]).await, 1.0);
}

/// A member with a node that the server refuses blocks no other member.
#[tokio::test]
async fn rly_15_a_member_that_is_refused_makes_way() {
    let Some(bench) = bench(Variant::Delta, "member").await else { return };
    bench.origin.set(CDS, "a", "1");
    let mut wrong =
        client(&bench, Variant::Delta, Node { id: "wrong".to_owned(), ..sidecar("x", "prod", "10.0.0.1") })
            .await;
    wrong.want(CDS, &[]);
    bench.origin.wait_for("it is refused", |origin| origin.opened() > 0).await;
    let mut right = client(&bench, Variant::Delta, sidecar("one", "prod", "10.0.0.2")).await;
    right.want(CDS, &[]);
    right.settle(CDS, &[("a", "1")]).await;
    wrong.settle(CDS, &[("a", "1")]).await;
}

/// The only member of the wildcard has the empty name, whatever the name's field holds.
#[tokio::test]
async fn wir_9_a_resource_without_a_name_is_a_member_of_its_wildcard() {
    for upstream in Variant::BOTH {
        let Some(bench) = bench(upstream, TEMPLATE).await else { return };
        bench.origin.set(NDS, "", "10.96.0.1");
        let mut clients = Vec::new();
        for variant in Variant::BOTH {
            let mut client = client(&bench, variant, sidecar("one", "prod", "10.0.0.1")).await;
            client.want(NDS, if variant == Variant::Delta { &["*"] } else { &[] });
            client.settle(NDS, &[("", "10.96.0.1")]).await;
            clients.push(client);
        }
        bench.origin.set(NDS, "", "10.96.0.2");
        for client in &mut clients {
            client.settle(NDS, &[("", "10.96.0.2")]).await;
        }
        assert!(bench.origin.requests(NDS).iter().all(|asked| asked.ask.error.is_none()), "NACKed");
    }
}

/// The first field of the only member reads as a text. It is no name, and the member goes bare.
#[tokio::test]
async fn wir_9_a_nameless_member_goes_bare_whatever_its_bytes() {
    let Some(bench) = Bench::scripted(|setup| setup).await else { return };
    let mut client = bench.sotw("one").await;
    client.want(NDS, &[]);
    let asked = bench.origin.expect(NDS).await;
    let body = Any { type_url: NDS.to_owned(), value: b"\x0a\x03abc".to_vec() };
    let item = Item { version: "1".to_owned(), body: Some(body.clone()), ..Item::default() };
    bench.origin.answer(&asked, "1", vec![item], &[]);
    let answer = client.take(NDS).await;
    let bodies: Vec<_> = answer.items.iter().map(|item| item.body.as_ref()).collect();
    assert_eq!(bodies, [Some(&body)]);
}

#[tokio::test]
async fn str_6_reports_go_nowhere_and_hurt_nothing() {
    for variant in Variant::BOTH {
        let Some(bench) = bench(Variant::Delta, TEMPLATE).await else { return };
        bench.origin.set(CDS, "a", "1");
        let mut client = client(&bench, variant, sidecar("one", "prod", "10.0.0.1")).await;
        client.send(Ask::of(HEALTH));
        client.want(CDS, &[]);
        client.settle(CDS, &[("a", "1")]).await;
        client.send(Ask::of(HEALTH).error("unhealthy"));
        client.send(Ask::of(CDS).error("of nothing that was sent"));
        client.quiet().await;
        bench.origin.set(CDS, "a", "2");
        client.settle(CDS, &[("a", "2")]).await;
        bench.process().metric_reaches("sluice_downstream_reports_total", &[], 3.0).await;
        assert!(bench.origin.requests(HEALTH).is_empty());
        let reported = bench.process().json("/clients").await;
        assert_eq!(
            reported["clients"][0]["types"].as_array().map(Vec::len),
            Some(2),
            "CDS and the marker: {reported}"
        );
    }
}

/// A control plane that looks up nodes by id, without an entry for the relay's id.
#[tokio::test]
async fn a_control_plane_that_never_answers_is_named() {
    let Some(bench) = Bench::scripted(|setup| setup).await else { return };
    let mut client = bench.delta("one").await;
    client.want(CDS, &["a"]);
    let node = bench.origin.expect(CDS).await.ask.node.expect("the node upstream");
    let server = bench.origin.address.to_string();
    let source = bench.process().sources(&server).await.remove(0);
    assert_eq!(
        (source["answered"].as_bool(), source["upstream_id"].as_str()),
        (Some(false), Some(&*node.id))
    );
    assert_eq!(node.id, format!("sluice-test/{}", source["class"].as_str().expect("the digest")));
    tokio::time::sleep(Duration::from_secs(9)).await;
    let warnings = bench.warned_of("has answered no request").await;
    assert!(
        warnings.iter().any(|line| line.contains("split_by") && line.contains(&node.id)),
        "{warnings:#?}"
    );
    bench.process().upstream_has(&server, "unanswered", 1).await;
    let source = bench.process().sources(&server).await.remove(0);
    assert_eq!((source["state"].as_str(), source["answered"].as_bool()), (Some("unanswered"), Some(false)));
    let asked = bench.origin.requests(CDS).remove(0);
    bench.origin.answer(&asked, "1", vec![crate::support::Item::new(CDS, "a", "1", "1")], &[]);
    client.settle(CDS, &[("a", "1")]).await;
    bench.process().upstream_has(&server, "connected", 1).await;
}
