//! howardjohn/xds-conformance: C1 to C6. And the answers to polls, which no public suite checks.

use super::{ABC, ADS, REST, play};
use crate::support::{CDS, EDS, FOUR, LDS, RDS, SDS, SILENCE, SRDS};

const RTDS: &str = "type.googleapis.com/envoy.service.runtime.v3.Runtime";

#[tokio::test]
async fn c_1_a_stream_can_be_opened_and_stays() {
    play(ADS, &[CDS], async |row| {
        let mut client = row.client().await;
        client.silence(SILENCE).await;
        client.quiet().await;
    })
    .await;
}

/// C2 to C6 (CNF-2): one request without names.
#[tokio::test]
async fn c_2_to_c_6_a_request_without_names_is_a_wildcard_of_every_type() {
    play(ADS, &[CDS, LDS, RDS, EDS, SDS, SRDS], async |row| {
        row.set(&[("a", "1")]);
        let mut client = row.bench.client(row.kind, "sidecar~1.1.1.1~id~domain").await;
        client.want(row.type_url, &[]);
        assert_eq!(client.take(row.type_url).await.names(), ["a"]);
    })
    .await;
}

/// A type without resources at the server is answered too, after the server has said so (DEL-25, SST-7).
#[tokio::test]
async fn c_2_to_c_6_the_wildcard_of_nothing_is_answered() {
    play(ADS, &[RTDS], async |row| {
        let mut client = row.client().await;
        client.want(row.type_url, &[]);
        assert!(client.any().await.items.is_empty());
    })
    .await;
}

/// RST-3, RST-12: each answer is the whole set.
#[tokio::test]
async fn rest_each_answer_is_the_whole_set() {
    play(REST, &FOUR, async |row| {
        let mut client = row.holding(&ABC[..2]).await;
        row.set(&[("a", "2")]);
        client.settle(row.type_url, &[("a", "2"), ("b", "1")]).await;
        row.remove("b");
        client.settle(row.type_url, &[("a", "2")]).await;
        row.set(&[("b", "3")]);
        client.settle(row.type_url, &[("a", "2"), ("b", "3")]).await;
    })
    .await;
}

/// RST-4: a poll with the current version gets no new answer.
#[tokio::test]
async fn rest_no_news_is_no_answer() {
    play(REST, &FOUR, async |row| {
        let mut client = row.holding(&ABC[..2]).await;
        client.silence(SILENCE).await;
        row.set(&[("c", "1")]);
        client.silence(SILENCE).await;
    })
    .await;
}
