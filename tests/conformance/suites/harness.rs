//! ii/xds-test-harness: H1 to H18, and cases from its diary. Each ends with silence: the last ACK gets no
//! answer.

use super::{ABC, ADS, DELTA, Row, SOTW, STREAMS, play};
use crate::support::{Ask, CDS, EDS, FOUR, LDS, RDS, is_full_state};

#[tokio::test]
async fn h_1_delta_names_one_by_one() {
    play(DELTA, &FOUR, async |row| {
        row.set(&ABC);
        let mut client = row.client().await;
        client.want(row.type_url, &["a"]);
        let first = client.take(row.type_url).await;
        client.want(row.type_url, &["a", "b"]);
        let second = client.take(row.type_url).await;
        assert_eq!((first.names(), second.names()), (vec!["a"], vec!["b"]));
        assert_ne!(first.nonce, second.nonce);
        client.quiet().await;
    })
    .await;
}

#[tokio::test]
async fn h_2_delta_one_of_three_changes() {
    play(DELTA, &FOUR, async |row| {
        let mut client = row.holding(&ABC).await;
        let before = client.versions(row.type_url);
        row.set(&[("a", "2")]);
        let answer = client.take(row.type_url).await;
        assert_eq!(answer.names(), ["a"]);
        assert!(!before.values().any(|version| *version == answer.items[0].version));
        client.quiet().await;
    })
    .await;
}

/// The missing name is reported as absent (DEL-12); the harness has this check commented out.
#[tokio::test]
async fn h_3_delta_a_name_that_comes_later() {
    play(DELTA, &FOUR, async |row| {
        row.set(&ABC[..1]);
        let mut client = row.client().await;
        client.want(row.type_url, &["a", "b"]);
        let (mut names, mut removed) = (Vec::new(), Vec::new());
        while names.is_empty() || removed.is_empty() {
            let answer = client.take(row.type_url).await;
            names.extend(answer.names().into_iter().map(str::to_owned));
            removed.extend(answer.removed);
        }
        assert_eq!((names, removed), (vec!["a".to_owned()], vec!["b".to_owned()]));
        row.set(&[("b", "1")]);
        assert_eq!(client.take(row.type_url).await.names(), ["b"]);
        client.quiet().await;
    })
    .await;
}

#[tokio::test]
async fn h_4_delta_removed_and_created_again() {
    play(DELTA, &FOUR, async |row| {
        let mut client = row.holding(&ABC[..2]).await;
        row.remove("b");
        assert_eq!(client.take(row.type_url).await.removed, ["b"]);
        row.set(&[("b", "2")]);
        assert_eq!(client.take(row.type_url).await.texts(), [("b".to_owned(), "2".to_owned())]);
        client.quiet().await;
    })
    .await;
}

#[tokio::test]
async fn h_5_delta_unsubscribed_is_silent() {
    play(DELTA, &FOUR, async |row| {
        let mut client = row.holding(&ABC[..2]).await;
        client.want(row.type_url, &["a"]);
        client.quiet().await;
        row.set(&[("b", "2")]);
        client.want(row.type_url, &[]);
        client.quiet().await;
        row.set(&[("a", "2")]);
        client.quiet().await;
    })
    .await;
}

/// H6 and H15: two types on one stream.
#[tokio::test]
async fn h_6_h_15_each_update_for_its_own_type() {
    play(ADS, &FOUR, async |row| {
        let other = match row.type_url {
            CDS => LDS,
            RDS => EDS,
            EDS => CDS,
            _ => RDS,
        };
        let name = format!("of-{}", FOUR.iter().position(|t| *t == row.type_url).unwrap());
        let origin = &row.bench.origin;
        let mut client = row.client().await;
        for type_url in [row.type_url, other] {
            origin.set(type_url, &name, "1");
            client.want(type_url, &[&name]);
            client.take(type_url).await;
        }
        for type_url in [row.type_url, other] {
            origin.set(type_url, &name, "2");
            assert_eq!(client.take(type_url).await.get(&name).text(), "2");
            client.quiet().await;
        }
    })
    .await;
}

#[tokio::test]
async fn h_7_h_8_h_9_sotw_wildcards_come_in_single_responses() {
    play(SOTW, &[CDS, LDS], async |row| {
        row.set(&ABC);
        let mut client = row.client().await;
        client.want(row.type_url, &[]);
        assert_eq!(client.take(row.type_url).await.names(), ["a", "b", "c"]);
        client.quiet().await;
        row.set(&[("a", "2")]);
        let answer = client.take(row.type_url).await;
        assert_eq!((answer.names(), answer.get("a").text()), (vec!["a", "b", "c"], "2".to_owned()));
        row.set(&[("d", "2")]);
        assert_eq!(client.take(row.type_url).await.names(), ["a", "b", "c", "d"]);
        client.quiet().await;
    })
    .await;
}

#[tokio::test]
async fn h_10_two_of_four() {
    play(STREAMS, &FOUR, async |row| {
        row.set(&[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")]);
        let mut client = row.client().await;
        client.want(row.type_url, &["b", "d"]);
        client.settle(row.type_url, &[("b", "1"), ("d", "1")]).await;
        client.quiet().await;
    })
    .await;
}

#[tokio::test]
async fn h_11_h_12_sotw_one_of_two_changes() {
    play(SOTW, &FOUR, async |row| {
        let mut client = row.holding(&[("b", "1"), ("d", "1")]).await;
        row.set(&[("b", "2")]);
        let answer = client.take(row.type_url).await;
        assert_eq!((answer.names(), answer.get("b").text()), (due(&row, &["b", "d"], "b"), "2".to_owned()));
        client.quiet().await;
    })
    .await;
}

#[tokio::test]
async fn h_13_h_14_sotw_a_name_that_comes_later() {
    play(SOTW, &FOUR, async |row| {
        row.set(&ABC[..1]);
        let mut client = row.client().await;
        client.want(row.type_url, &["a", "z"]);
        assert_eq!(client.take(row.type_url).await.names(), ["a"]);
        client.quiet().await;
        row.set(&[("z", "2")]);
        assert_eq!(client.take(row.type_url).await.names(), due(&row, &["a", "z"], "z"));
        client.quiet().await;
    })
    .await;
}

/// The resources due after a change of one name: all of a full-state type (SST-1), the changed resource of
/// other types (SST-4). A server may repeat the rest; the relay does not.
fn due(row: &Row, all: &[&'static str], changed: &'static str) -> Vec<&'static str> {
    if is_full_state(row.type_url) { all.to_vec() } else { vec![changed] }
}

#[tokio::test]
async fn h_16_h_17_sotw_narrowed_to_one() {
    play(SOTW, &FOUR, async |row| {
        let mut client = row.holding(&ABC).await;
        client.want(row.type_url, &["b"]);
        client.quiet().await;
        row.set(&[("b", "2")]);
        assert_eq!(client.take(row.type_url).await.texts(), [("b".to_owned(), "2".to_owned())]);
        client.quiet().await;
    })
    .await;
}

/// The harness sends `[""]` and means an empty list; by SUB-16 the empty name is a name.
#[tokio::test]
async fn h_18_sotw_the_empty_name_is_no_wildcard() {
    play(SOTW, &FOUR, async |row| {
        let mut client = row.holding(&ABC[..2]).await;
        client.want(row.type_url, &[""]);
        client.quiet_after_empty(row.type_url).await;
        row.set(&[("b", "2")]);
        client.quiet().await;
    })
    .await;
}

/// H19, H20: every request here has no node, except the first of each client; an explicitly empty node is
/// harmless too, and a different node does not change the client (STR-3).
#[tokio::test]
async fn h_19_h_20_later_nodes() {
    play(STREAMS, &FOUR, async |row| {
        let mut client = row.holding(&ABC[..1]).await;
        row.set(&ABC);
        let nodes = [Default::default(), crate::support::client::node("two")];
        for (names, node) in [&["a", "b"][..], &["a", "b", "c"]].into_iter().zip(nodes) {
            let ask = Ask { node: Some(node), ..Ask::of(row.type_url) };
            client.send(if row.is_sotw() {
                ask.names(names).nonce(&client.nonce(row.type_url))
            } else {
                ask.subscribe(&names[names.len() - 1..])
            });
            client.settle(row.type_url, &ABC[..names.len()]).await;
        }
        client.quiet().await;
    })
    .await;
}

/// The first half of H21; for the second half see `str_11_the_version_of_equal_content_is_equal`.
#[tokio::test]
async fn h_21_the_version_changes_with_the_content() {
    play(STREAMS, &[CDS, LDS], async |row| {
        row.set(&ABC);
        let mut client = row.client().await;
        client.want(row.type_url, &["*"]);
        let mut versions = Vec::new();
        for text in ["2", "3", "4"] {
            let answer = client.take(row.type_url).await;
            versions.push(if row.is_sotw() { answer.version } else { answer.get("a").version.clone() });
            row.set(&[("a", text)]);
        }
        versions.dedup();
        assert_eq!(versions.len(), 3, "{versions:?}");
    })
    .await;
}

#[tokio::test]
async fn h_22_sotw_a_stale_ack_gets_no_answer() {
    play(SOTW, &FOUR, async |row| {
        row.set(&ABC[..1]);
        let mut client = row.client().await;
        client.want(row.type_url, &["a"]);
        let first = client.take(row.type_url).await;
        row.set(&[("a", "2")]);
        let second = client.next(row.type_url).await;
        let stale = client.ack_of(&first);
        client.send(stale);
        client.quiet().await;
        client.ack(&second);
        row.set(&[("a", "3")]);
        assert_eq!(client.take(row.type_url).await.get("a").text(), "3");
        client.quiet().await;
    })
    .await;
}

#[tokio::test]
async fn h_23_one_of_a_hundred() {
    play(STREAMS, &[CDS], async |row| {
        let names: Vec<String> = (0..100).map(|number| format!("c-{number:02}")).collect();
        let resources: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
        let mut client = row.holding_all(&resources).await;
        row.set(&[("c-42", "2")]);
        let answer = client.take(row.type_url).await;
        assert_eq!(answer.get("c-42").text(), "2");
        assert_eq!(answer.items.len(), if row.is_sotw() { 100 } else { 1 });
        client.quiet().await;
    })
    .await;
}
