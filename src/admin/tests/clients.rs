//! The endpoints about clients: pages, orders, and single clients.

use super::*;

/// All items of a list, page by page, as text.
async fn pages(admin: &Fixture, target: &str) -> Vec<String> {
    let (mut all, mut next) = (Vec::new(), String::new());
    loop {
        let page = admin.get(&format!("{target}{next}")).await;
        let (items, end) = page.body.rsplit_once("\n],").unwrap();
        all.extend(items.lines().skip(1).map(|item| item.trim_end_matches(',').to_owned()));
        let end: Value = serde_json::from_str(&format!("{{{end}")).unwrap();
        assert_eq!(end["truncated"], !end["next"].is_null());
        match end["next"].as_str() {
            Some(cursor) => next = format!("&after={cursor}"),
            None => return all,
        }
    }
}

/// ADM-5: at 100,000 rows the pages join to exactly the dump, which is there in both forms.
#[tokio::test]
async fn adm_5_pages_join_to_the_dump() {
    let admin = Fixture::of_clients(100_000);
    let joined = pages(&admin, "/clients?type=Cluster&limit=1000").await;
    assert_eq!(joined.len(), 100_000);
    let request = get_request("/clients?type=Cluster");
    let lines = admin.send(&request.replacen("\r\n", "\r\nAccept: application/x-ndjson\r\n", 1)).await;
    assert!(lines.head.contains("content-type: application/x-ndjson"), "{}", lines.head);
    assert!(joined.iter().eq(lines.body.lines()));
}

#[tokio::test]
async fn adm_5_all_lists_have_pages() {
    let sources = ["cp-1", "cp-2", "cp-3"].map(|server| source(server, SourceState::Connected, false));
    let admin = Fixture::start(sources.to_vec(), false);
    for (target, count) in
        [("/sources?", 3), ("/resources?", 10), ("/refused?", 5), ("/clients?state=ERROR&", SESSIONS / 100)]
    {
        let all = pages(&admin, &format!("{target}limit=2")).await;
        assert_eq!(all.len(), count, "{target}");
        assert_eq!(all, pages(&admin, &format!("{target}limit=all")).await, "{target}");
    }
}

#[tokio::test]
async fn adm_5_clients_are_sorted_page_by_page() {
    let admin = Fixture::of_clients(3_000);
    for (sort, key) in [("behind", "since"), ("opened", "opened_at")] {
        let all = pages(&admin, &format!("/clients?type=Cluster&sort={sort}&limit=700")).await;
        let all: Vec<Value> = all.iter().map(|item| serde_json::from_str(item).unwrap()).collect();
        let ids: std::collections::BTreeSet<_> = all.iter().map(|of| of["id"].as_u64().unwrap()).collect();
        assert_eq!((all.len(), ids.len()), (3_000, 3_000), "{sort}");
        let keys = all.iter().map(|of| if key == "since" { &of["types"][0][key] } else { &of[key] });
        let keys: Vec<_> = keys.map(|time| time.as_str().unwrap()).collect();
        match sort {
            // Every hundredth client is behind.
            "behind" => {
                assert!(
                    keys[..30].is_sorted() && all[..30].iter().all(|of| of["types"][0]["why"] == "rejected")
                );
                assert!(all[30..].iter().all(|of| of["types"][0]["why"].is_null()));
            }
            _ => assert!(keys.iter().rev().is_sorted()),
        }
    }
    let other = admin.get("/clients?sort=behind&limit=1").await.json()["next"].as_str().unwrap().to_owned();
    assert_eq!(
        admin.get(&format!("/clients?after={other}")).await.status,
        400,
        "the cursor of another order"
    );
}

#[tokio::test]
async fn clients_are_found_by_each_filter() {
    let admin = Fixture::start(vec![], false);
    for (query, count) in [
        ("q=NODE-999", 11),
        ("q=127.0.0.1:4000&node=node-3", 1),
        ("q=edge&node=node-3", 1),
        ("q=nothing", 0),
        ("why=rejected", SESSIONS / 100),
        ("why=unacked", 0),
        ("server=cp-1&node=node-3", 1),
        ("server=cp-2", 0),
        ("class=c0ffee&node=node-3", 1),
        ("class=other", 0),
        ("listener=main&node=node-3", 1),
        ("listener=other", 0),
        ("behind_for=60s", SESSIONS / 100),
        ("behind_for=40000d", 0),
    ] {
        let list = admin.get(&format!("/clients?limit=all&{query}")).await.json();
        assert_eq!(list["count"], count, "{query}");
    }
}

/// ADM-7: a row tells the reason, the age, and the two versions.
#[tokio::test]
async fn adm_7_one_client_is_shown_name_by_name() {
    let admin = Fixture::start(vec![], false);
    let client = admin.get("/clients/100?type=Cluster&names=1").await.json();
    let of = &client["types"][0];
    assert_eq!((&of["state"], &of["why"]), (&Value::from("ERROR"), &Value::from("rejected")));
    assert_eq!(of["has"], Version(0xabc).to_string());
    assert_eq!(of["should"], Version(0xdef).to_string());
    assert_eq!(of["rules"], serde_json::json!(["node_classes[1] (default)"]));
    let states: Vec<_> = of["names"].as_array().unwrap().iter().map(|name| &name["why"]).collect();
    let null = Value::Null;
    let expected = ["rejected", "unacked", "held:withheld", "unknown"].map(Value::from);
    assert_eq!(states, [&null].into_iter().chain(&expected).collect::<Vec<_>>());
    assert_eq!(of["names"][1]["nack"], "sniffed-detail", "the text names b");
    assert!(of["names"][0].get("nack").is_none());
    assert_eq!(of["names"][4]["has"], "unknown");

    let first = admin.get("/clients/100?names=1&limit=3").await.json();
    let rest = admin
        .get(&format!("/clients/100?names=1&limit=100&after={}", first["next"].as_str().unwrap()))
        .await
        .json();
    let names = |page: &Value, index: usize| {
        let names = page["types"][index]["names"].as_array().unwrap();
        names.iter().map(|name| name["name"].as_str().unwrap().to_owned()).collect::<String>()
    };
    assert_eq!([names(&first, 0), names(&first, 1)], ["abc", ""]);
    assert_eq!([names(&rest, 0), names(&rest, 1)], ["de", "abcde"]);
    assert_eq!(rest["next"], Value::Null);

    assert_eq!(admin.get("/clients/100").await.json()["types"][0]["names"], 0, "the count");
    for (target, status) in [("/clients/99999", 404), ("/clients/x", 404), ("/clients/1?type=Listener", 404)]
    {
        assert_eq!(admin.get(target).await.status, status, "{target}");
    }
    assert_eq!(admin.get("/clients/1?type=Clustre").await.status, 400);
}

/// A client names itself as it likes: the name is text.
#[tokio::test]
async fn a_secret_of_one_client_is_a_name() {
    let admin = Fixture::start(vec![], false);
    let body = admin.get("/clients/100?type=Secret&names=1").await.body;
    for hidden in ["abc", "sniffed", "version", "\"has\"", "\"should\"", "\"nack\""] {
        assert!(!body.contains(hidden), "{hidden} in {body}");
    }
}
