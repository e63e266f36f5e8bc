//! The load that clients report.

use super::*;
use crate::driver::api::load::{
    ClassLoadStatus, LoadLinkStatus, LoadRow, LoadWishStatus, LoadsView, RowOrder, RowQuery,
};
use sluice_engine::Time;
use sluice_load_reports::Accounts;
use sluice_load_reports::counters::{Gauges, PerGroup, Tally};
use sluice_load_reports::report::Place;
use sluice_load_reports::table::RowView;
use sluice_xds::Locality;

impl LoadsView for FakeView {
    fn loads(&self) -> Vec<ClassLoadStatus> {
        vec![load(2, "beef", false), load(1, "c0ffee", true), load(3, "c0ffee", false)]
    }

    fn load_rows(&self, number: u64, query: &RowQuery<'_>) -> Vec<LoadRow> {
        let rows = [("cart", 90, 10), ("pay", 10 * number, 0), ("idle", 0, 0)];
        query.first(rows.into_iter().map(view)).into_iter().map(row).collect()
    }
}

fn load(number: u64, class: &str, is_reported: bool) -> ClassLoadStatus {
    let wish = LoadWishStatus {
        clusters: Some(vec!["cart".into(), "pay".into()]),
        interval: Duration::from_secs(10),
        has_endpoints: false,
    };
    ClassLoadStatus {
        number,
        list: "xds_servers".into(),
        server: "cp-1".into(),
        class: class.into(),
        is_reported,
        link: LoadLinkStatus {
            state: if is_reported { "open" } else { "local" },
            since: now(),
            lacks_service: false,
            error: None,
        },
        wish: is_reported.then_some(wish),
        reporters: 3,
        observed: PerGroup::default(),
        since: now(),
        accounts: Accounts { read: 120, delivered: 100, in_doubt: 20, ..Accounts::default() },
        left_out: Default::default(),
        oddities: Default::default(),
        row_count: 3,
    }
}

fn view((cluster, success, error): (&str, u64, u64)) -> RowView<'_> {
    RowView {
        cluster,
        service: "",
        place: Place { region: "eu", zone: "a", sub_zone: "" },
        priority: 0,
        tallies: PerGroup {
            admitted: Tally { success: 0, error },
            others: Tally { success, error: 0 },
            unjudged: Tally::default(),
        },
        since: Time::default(),
        gauges: Gauges { in_progress: 2, active_connections: 1 },
    }
}

fn row(view: RowView<'_>) -> LoadRow {
    LoadRow {
        cluster: view.cluster.into(),
        service: view.service.into(),
        locality: Locality::from(&view.place),
        priority: view.priority,
        tallies: view.tallies,
        since: now(),
        gauges: view.gauges,
    }
}

async fn clusters(admin: &Fixture, target: &str) -> Vec<String> {
    let answer = admin.get(target).await.json();
    let rows = answer["load"].as_array().unwrap();
    rows.iter()
        .map(|row| format!("{} {}", row["class"].as_str().unwrap(), row["cluster"].as_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn lrs_25_rows_come_by_name_in_pages_or_the_worst_first() {
    let admin = Fixture::of_clients(1);
    let all = ["beef cart", "beef idle", "beef pay", "c0ffee cart", "c0ffee idle", "c0ffee pay"];
    assert_eq!(clusters(&admin, "/load?limit=6").await, all);
    let first = admin.get("/load?limit=4").await.json();
    assert_eq!((first["count"].as_u64(), first["truncated"].as_bool()), (Some(4), Some(true)));
    let next = format!("/load?limit=2&after={}", first["next"].as_str().unwrap());
    assert_eq!(clusters(&admin, &next).await, all[4..6]);
    let worst = ["beef cart", "c0ffee cart", "c0ffee cart", "c0ffee pay"];
    assert_eq!(clusters(&admin, "/load?sort=errors&limit=4").await, worst);
    assert_eq!(clusters(&admin, "/load?cluster=pay&class=c0").await, ["c0ffee pay"; 2]);
    assert!(clusters(&admin, "/load?server=cp-2").await.is_empty());
}

/// A class has very many rows, and no reader gets more of them at a time than a page has.
#[tokio::test]
async fn lrs_25_the_rows_of_a_page_are_the_first_in_the_order_wherever_they_are() {
    let names: Vec<String> =
        (0..10_000u64).map(|number| format!("c{:05}", number * 7_919 % 10_000)).collect();
    let rows = || names.iter().zip(0..).map(|(name, number)| view((name, 100, number)));
    for count in [1, 3, 1_000] {
        let after = ([&*names[9], "", "eu", "a", ""], 0);
        let order = RowOrder::Name { after: Some(after) };
        let first = RowQuery { cluster: None, order, count }.first(rows());
        let mut sorted = names.clone();
        sorted.sort_unstable();
        let begin = sorted.iter().position(|name| *name == names[9]).unwrap() + 1;
        let expected: Vec<&str> = sorted[begin..].iter().take(count).map(String::as_str).collect();
        assert_eq!(first.iter().map(|row| row.cluster).collect::<Vec<_>>(), expected);
        let worst = RowQuery { cluster: None, order: RowOrder::Errors, count }.first(rows());
        let expected: Vec<&str> = names.iter().rev().take(count).map(String::as_str).collect();
        assert_eq!(worst.iter().map(|row| row.cluster).collect::<Vec<_>>(), expected);
    }
}

/// A reload changes the use of reports, and the former load lingers.
#[tokio::test]
async fn lrs_25_two_loads_of_a_class_come_whole_in_pages() {
    let admin = Fixture::of_clients(1);
    for (target, key) in [("/load", "load"), ("/load/classes", "classes")] {
        let (mut count, mut after) = (0, String::new());
        loop {
            let page = admin.get(&format!("{target}?limit=1{after}")).await.json();
            count += page[key].as_array().unwrap().len();
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!(count, if key == "load" { 9 } else { 3 }, "{target}");
    }
}

#[tokio::test]
async fn lrs_25_the_worst_rows_have_one_page() {
    let admin = Fixture::of_clients(1);
    let next = admin.get("/load?limit=1").await.json()["next"].as_str().unwrap().to_owned();
    for target in ["/load?sort=errors&limit=all", &format!("/load?sort=errors&after={next}")] {
        let answer = admin.get(target).await;
        assert_eq!(answer.status, 400, "{target}");
        assert!(answer.body.contains("sort=errors has one page"), "{target}: {}", answer.body);
    }
    assert_eq!(admin.get("/load?sort=worst").await.status, 400);
}
