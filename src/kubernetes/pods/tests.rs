//! The table of facts, by Pods and Nodes as the API server shows them.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::*;

fn pod(name: &str, addresses: &[&str], node: &str, app: &str) -> Pod {
    let addresses: Vec<Json> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
    let pod = json!({
        "metadata": { "name": name, "namespace": "prod", "labels": { "app": app } },
        "spec": { "nodeName": node, "serviceAccountName": "sa" },
        "status": { "phase": "Running", "podIP": addresses.first().map(|address| address["ip"].clone()).unwrap_or("".into()), "podIPs": addresses },
    });
    serde_json::from_value(pod).unwrap()
}

fn with(pod: Pod, change: impl FnOnce(&mut Pod)) -> Pod {
    let mut pod = pod;
    change(&mut pod);
    pod
}

fn node(name: &str, labels: &[(&str, &str)]) -> Node {
    let labels: BTreeMap<_, _> = labels.iter().copied().collect();
    serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels } })).unwrap()
}

fn zone(name: &str, zone: &str) -> Node {
    node(name, &[("topology.kubernetes.io/zone", zone)])
}

/// The label `app` and the zone of an entry.
fn app_and_zone(pods: &Pods, key: &str) -> Option<String> {
    let facts = pods.table.get(key)?;
    let text = |path: &[&str]| {
        let path: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
        Value::at(facts, &path).map(|value| value.to_string().replace('"', "")).unwrap_or("-".to_owned())
    };
    Some(format!("{} {}", text(&["labels", "app"]), text(&["zone"])))
}

#[test]
fn rly_11_a_pod_has_its_facts_by_name_and_by_each_address() {
    let mut pods = Pods::new(true);
    pods.put_node(node(
        "n1",
        &[
            ("topology.kubernetes.io/region", "r"),
            ("topology.kubernetes.io/zone", "z1"),
            ("topology.istio.io/subzone", "s"),
            ("other", "x"),
        ],
    ));
    pods.put_pod(pod("web-1", &["10.0.0.1", "2001:DB8::1"], "n1", "web"));
    for key in ["web-1.prod", "10.0.0.1", "2001:db8::1"] {
        assert_eq!(app_and_zone(&pods, key).as_deref(), Some("web z1"), "{key}");
    }
    let text = |text: &str| Value::String(text.to_owned());
    let expected: Fields = [
        ("labels", Value::Struct([("app".to_owned(), text("web"))].into())),
        ("namespace", text("prod")),
        ("region", text("r")),
        ("service_account", text("sa")),
        ("sub_zone", text("s")),
        ("zone", text("z1")),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    assert_eq!(**pods.table.get("10.0.0.1").unwrap(), expected);
    let table = pods.take_change().unwrap();
    assert_eq!(table.len(), 3);
    // Nothing new: the same again, and another field of the Node.
    pods.put_pod(pod("web-1", &["10.0.0.1", "2001:db8::1"], "n1", "web"));
    assert!(pods.take_change().is_none());
    pods.remove_pod("web-1.prod");
    assert!(pods.take_change().unwrap().is_empty());
    assert_eq!(
        (table.len(), pods.bytes(), pods.at.len(), pods.on.len()),
        (3, 0, 0, 0),
        "a table that is in use stays"
    );
}

/// Two Pods on Nodes that nobody knows may be in two zones.
#[test]
fn rly_11_a_pod_without_a_known_place_has_no_facts() {
    let mut pods = Pods::new(true);
    pods.put_pod(pod("a", &["10.0.0.1"], "n1", "web"));
    assert_eq!((app_and_zone(&pods, "a.prod"), app_and_zone(&pods, "10.0.0.1")), (None, None));
    pods.put_node(zone("n1", "z1"));
    assert_eq!(app_and_zone(&pods, "10.0.0.1").as_deref(), Some("web z1"));
    pods.put_node(zone("n1", "z2"));
    assert_eq!(app_and_zone(&pods, "a.prod").as_deref(), Some("web z2"));
    pods.remove_node("n1");
    assert_eq!((app_and_zone(&pods, "a.prod"), app_and_zone(&pods, "10.0.0.1")), (None, None));

    let mut pods = Pods::new(false);
    pods.put_node(zone("n1", "z1"));
    pods.put_pod(pod("a", &["10.0.0.1"], "n1", "web"));
    assert_eq!(app_and_zone(&pods, "10.0.0.1").as_deref(), Some("web -"), "places are not asked for");
}

#[test]
fn rly_11_old_labels_give_the_place_where_there_are_no_others() {
    for (labels, expected) in [
        (&[("failure-domain.beta.kubernetes.io/zone", "old")][..], "web old"),
        (
            &[("failure-domain.beta.kubernetes.io/zone", "old"), ("topology.kubernetes.io/zone", "z1")],
            "web z1",
        ),
        (&[("topology.kubernetes.io/zone", "")], "web -"),
        (&[], "web -"),
    ] {
        let mut pods = Pods::new(true);
        pods.put_node(node("n1", labels));
        pods.put_pod(pod("a", &["10.0.0.1"], "n1", "web"));
        assert_eq!(app_and_zone(&pods, "a.prod").as_deref(), Some(expected), "{labels:?}");
    }
}

/// An address goes from a Pod that ends to another one, and for a moment the server shows both.
#[test]
fn rly_11_an_address_of_two_pods_has_no_facts() {
    let mut pods = Pods::new(false);
    pods.put_pod(pod("a", &["10.0.0.1"], "n1", "one"));
    pods.put_pod(pod("b", &["10.0.0.1"], "n1", "two"));
    assert_eq!(app_and_zone(&pods, "10.0.0.1"), None);
    assert_eq!(app_and_zone(&pods, "a.prod").as_deref(), Some("one -"));
    assert_eq!(app_and_zone(&pods, "b.prod").as_deref(), Some("two -"));
    pods.put_pod(with(pod("a", &["10.0.0.1"], "n1", "one"), |pod| pod.status.phase = "Succeeded".into()));
    assert_eq!(
        (app_and_zone(&pods, "10.0.0.1").as_deref(), app_and_zone(&pods, "a.prod")),
        (Some("two -"), None)
    );
    pods.put_pod(pod("b", &["10.0.0.2"], "n1", "two"));
    assert_eq!(
        (app_and_zone(&pods, "10.0.0.1"), app_and_zone(&pods, "10.0.0.2").as_deref()),
        (None, Some("two -"))
    );
}

#[test]
fn rly_11_pods_that_no_proxy_can_state_have_no_entry() {
    let whole = || pod("a", &["10.0.0.1"], "n1", "web");
    let mut pods = Pods::new(false);
    pods.put_pod(with(whole(), |pod| pod.spec.node_name.clear()));
    pods.put_pod(with(whole(), |pod| pod.status.phase = "Failed".into()));
    assert!(pods.table.is_empty());
    // In the network of its Node, the address is that of many.
    pods.put_pod(with(whole(), |pod| pod.spec.host_network = true));
    assert_eq!(
        (app_and_zone(&pods, "10.0.0.1"), app_and_zone(&pods, "a.prod").as_deref()),
        (None, Some("web -"))
    );
    // The name of one Pod reads as the address of another.
    let mut pods = Pods::new(false);
    pods.put_pod(pod("victim", &["10.1.1.5"], "n1", "bank"));
    let hostile = with(pod("10.1.1", &["10.9.9.9"], "n1", "evil"), |pod| pod.metadata.namespace = "5".into());
    pods.put_pod(hostile);
    assert_eq!(app_and_zone(&pods, "10.1.1.5").as_deref(), Some("bank -"));
    pods.remove_pod("10.1.1.5");
    assert_eq!(app_and_zone(&pods, "10.1.1.5").as_deref(), Some("bank -"));
}

#[test]
fn rly_11_a_list_removes_what_it_lacks() {
    let mut pods = Pods::new(true);
    for number in 1..=3 {
        pods.put_node(zone(&format!("n{number}"), "z"));
        pods.put_pod(pod(
            &format!("p{number}"),
            &[&format!("10.0.0.{number}")],
            &format!("n{number}"),
            "web",
        ));
    }
    pods.keep_pods(&["p1.prod".into(), "p2.prod".into()].into());
    pods.keep_nodes(&["n2".into(), "n3".into()].into());
    let have_facts: Vec<bool> =
        (1..=3).map(|number| app_and_zone(&pods, &format!("p{number}.prod")).is_some()).collect();
    assert_eq!(have_facts, [false, true, false]);
}

#[test]
fn rly_11_equal_contents_are_kept_once() {
    let mut pods = Pods::new(true);
    pods.put_node(zone("n1", "z1"));
    for number in 0..1000 {
        pods.put_pod(pod(&format!("p{number}"), &[], "n1", "web"));
    }
    assert_eq!((pods.table.len(), pods.table.distinct(), pods.contents.len()), (1000, 1, 2));
    for number in 0..1000 {
        pods.put_pod(pod(&format!("p{number}"), &[], "n1", &format!("app-{number}")));
    }
    for number in 0..1000 {
        pods.remove_pod(&format!("p{number}.prod"));
    }
    assert!(pods.take_change().unwrap().is_empty());
    assert_eq!(pods.contents.len(), 0, "contents of nobody are forgotten");
}

/// A Pod with labels for half of the room of one Pod, and different from all others.
fn large(name: &str, number: usize) -> Pod {
    pod(name, &[], "n1", &format!("{number}{}", "x".repeat(LABELS_MAX / 2)))
}

#[test]
fn rly_11_pods_beyond_the_room_have_no_facts_and_are_counted() {
    let mut pods = Pods { room: 8 << 20, ..Pods::new(false) };
    let mut count = 0;
    while pods.refused() == 0 {
        pods.put_pod(large(&format!("p{count}"), count));
        count += 1;
    }
    // The facts with and without the place are one content here.
    assert!((200..=pods.room / (LABELS_MAX / 2)).contains(&count), "{count}");
    assert!(pods.bytes() <= pods.room && !pods.has_room());
    let last = format!("p{}.prod", count - 1);
    assert_eq!((app_and_zone(&pods, &last), pods.table.len()), (None, count - 1));
    // Nothing is kept of the Pods without room, however often they change.
    let before = pods.bytes();
    for number in 0..50 {
        pods.put_pod(large(&format!("p{}", count - 1), count + number));
    }
    assert_eq!((pods.bytes(), pods.refused(), pods.contents.len()), (before, 1, count - 1));
    (0..count / 5).for_each(|number| pods.remove_pod(&format!("p{number}.prod")));
    assert!(pods.has_room());
    pods.put_pod(large(&format!("p{}", count - 1), count));
    assert_eq!(pods.refused(), 0);
    assert!(app_and_zone(&pods, &last).is_some());
}

/// The author of one Pod takes no room from others.
#[test]
fn rly_11_a_pod_with_too_many_labels_has_no_facts() {
    let mut pods = Pods::new(false);
    pods.put_pod(pod("a", &["10.0.0.1"], "n1", &"x".repeat(LABELS_MAX)));
    assert_eq!((pods.refused(), pods.table.len(), pods.contents.len()), (1, 0, 0));
    pods.put_pod(pod("a", &["10.0.0.1"], "n1", "web"));
    assert_eq!((pods.refused(), app_and_zone(&pods, "10.0.0.1").as_deref()), (0, Some("web -")));
}

/// An address has facts only while one Pod alone has it, also beside Pods without facts of their own.
#[test]
fn rly_11_pods_without_facts_hold_their_addresses() {
    let mut pods = Pods::new(false);
    pods.put_pod(pod("old", &["10.0.0.1"], "n1", "web"));
    pods.put_pod(pod("next", &["10.0.0.1"], "n2", &"x".repeat(LABELS_MAX)));
    assert_eq!(app_and_zone(&pods, "10.0.0.1"), None, "the address of a Pod without room");
    pods.remove_pod("next.prod");
    assert_eq!(app_and_zone(&pods, "10.0.0.1").as_deref(), Some("web -"));
    pods.put_pod(with(pod("agent", &["10.0.0.1"], "n2", "agent"), |pod| pod.spec.host_network = true));
    assert_eq!(app_and_zone(&pods, "10.0.0.1"), None, "the address of a Node");
    assert_eq!(app_and_zone(&pods, "agent.prod").as_deref(), Some("agent -"));
}
