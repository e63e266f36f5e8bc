//! The published changes (ADM-10).

use super::*;
use crate::driver::api::change_name::ChangeName;
use crate::driver::api::changes::{
    ChangeCounts, ChangeFilter, ChangePlace, ChangeRejection, ChangeStatus, ChangedNames, ChangesView,
};

impl ChangesView for FakeView {
    fn changes(&self, filter: ChangeFilter) -> BoxFuture<'_, Vec<ChangeStatus>> {
        let all = self.changes.iter().filter(|change| filter.wants_type(&change.type_url));
        let found = all.filter(|change| filter.after.is_none_or(|after| change.place < after));
        std::future::ready(found.take(filter.limit).cloned().collect()).boxed()
    }

    fn change(&self, name: ChangeName) -> BoxFuture<'_, Option<ChangeStatus>> {
        let found = self.changes.iter().find(|change| change.place.name == name);
        std::future::ready(found.cloned()).boxed()
    }

    fn latest_change(&self) -> Option<ChangeStatus> {
        self.changes.first().cloned()
    }
}

/// Three changes, the latest first. The second is of a Secret.
pub(super) fn some() -> Vec<ChangeStatus> {
    let of = |number: u64, message: &str| ChangeStatus {
        place: ChangePlace { at: number * 10, name: ChangeName { source: 3, number } },
        server: "cp-1".into(),
        list: "xds_servers".into(),
        class: "c0ffee".into(),
        type_url: TypeUrl::of_message(message),
        version: Version(0xabc),
        upstream_version: Some("sniffed-version".into()),
        received_at: SystemTime::UNIX_EPOCH,
        age: Duration::from_secs(4),
        added: ChangedNames { names: vec![ResourceName::new("cart")], count: 21 },
        changed: ChangedNames::default(),
        removed: ChangedNames::default(),
        bytes: 1234,
        counts: ChangeCounts { total: 10, acked: 6, rejected: 1, waiting: 2, superseded: 1 },
        p50: Some(Duration::from_millis(41)),
        p99: None,
        last: None,
        rejections: vec![ChangeRejection { text: "bad".into(), count: 1, clients: vec![(71, "<b>".into())] }],
    };
    vec![of(9, CLUSTER), of(8, SECRET), of(7, CLUSTER)]
}

#[tokio::test]
async fn adm_10_a_change_tells_its_names_its_clients_and_their_words() {
    let admin = Fixture::start(vec![], false);
    let found = admin.get("/changes/c-3-9").await.json();
    for (key, value) in [
        ("id", "\"c-3-9\""),
        ("source", "3"),
        ("server", "\"cp-1\""),
        ("type", "\"envoy.config.cluster.v3.Cluster\""),
        ("version", "\"00000000000000000000000000000abc\""),
        ("upstream_version", "\"sniffed-version\""),
        ("received_at", "\"1970-01-01T00:00:00.000Z\""),
        ("age_seconds", "4.0"),
        ("added", "[\"cart\"]"),
        ("added_count", "21"),
        ("removed", "[]"),
        ("bytes", "1234"),
        ("wanted", "10"),
        ("acked", "6"),
        ("rejected", "1"),
        ("waiting", "2"),
        ("superseded", "1"),
        ("p50_seconds", "0.041"),
        ("p99_seconds", "null"),
        ("rejections", "[{\"clients\":[{\"id\":71,\"node\":\"<b>\"}],\"count\":1,\"text\":\"bad\"}]"),
    ] {
        assert_eq!(found[key].to_string(), value, "{key}");
    }
}

#[tokio::test]
async fn adm_12_no_version_of_a_secret_is_shown() {
    let answer = Fixture::start(vec![], false).get("/changes?type=Secret").await;
    assert_eq!(answer.json()["changes"][0]["id"], "c-3-8");
    assert!(!answer.body.contains("version"), "{}", answer.body);
}

#[tokio::test]
async fn adm_5_pages_join_to_the_whole_list() {
    let admin = Fixture::start(vec![], false);
    let (mut target, mut ids) = ("/changes?limit=2".to_owned(), Vec::new());
    loop {
        let page = admin.get(&target).await.json();
        ids.extend(page["changes"].as_array().unwrap().iter().map(|change| change["id"].to_string()));
        let Some(next) = page["next"].as_str() else { break };
        target = format!("/changes?limit=2&after={next}");
    }
    assert_eq!(ids, ["\"c-3-9\"", "\"c-3-8\"", "\"c-3-7\""]);
}

#[tokio::test]
async fn unknown_changes_types_and_parameters_are_refused_with_the_nearest() {
    let admin = Fixture::start(vec![], false);
    for (target, status, text) in [
        ("/changes/c-3-99", 404, "the latest change is c-3-9"),
        ("/changes/nonsense", 404, "not a name of a change (like c-3-118)"),
        ("/changes?type=Clutser", 400, "similar types: Cluster"),
        ("/changes?sauce=1", 400, "nearest: source"),
        ("/changes?source=x", 400, "source is \"x\""),
        ("/changes?after=c-3-9", 400, "`next` of a page"),
        ("/changes?limit=1001", 400, "up to 1000"),
    ] {
        let answer = admin.get(target).await;
        assert_eq!(answer.status, status, "{target}: {}", answer.body);
        assert!(answer.body.contains(text), "{target}: {}", answer.body);
    }
}
