//! Scenarios without a public suite (N).

use super::{ABC, DELTA, SOTW, STREAMS, play};
use crate::bench::Bench;
use crate::support::{Ask, CDS, Client, EDS, FOUR, Item, Variant};

/// N1 in small: the load tests have ten thousand clients.
#[tokio::test]
async fn n_1_one_change_is_read_once_and_told_to_all() {
    for variant in Variant::BOTH {
        let Some(bench) = Bench::scripted(|setup| setup).await else { return };
        let mut clients: Vec<Client> = Vec::new();
        for number in 0..100 {
            let mut client = bench.client(variant, &format!("client-{number}")).await;
            client.want(EDS, &["a"]);
            clients.push(client);
        }
        let asked = bench.origin.expect(EDS).await;
        for text in ["1", "2"] {
            bench.origin.answer(&asked, text, vec![Item::new(EDS, "a", text, text)], &[]);
            for client in &mut clients {
                assert_eq!(client.take(EDS).await.texts(), [("a".to_owned(), text.to_owned())]);
            }
        }
        let subscriptions = bench.origin.requests(EDS).into_iter().filter(|r| !r.ask.subscribe.is_empty());
        assert_eq!((bench.origin.opened(), subscriptions.count()), (1, 1));
    }
}

/// N2: a client that joins while an answer is in flight gets the answer once, without a new upstream request.
#[tokio::test]
async fn n_2_joining_while_the_answer_is_under_way() {
    for variant in Variant::BOTH {
        let Some(bench) = Bench::scripted(|setup| setup).await else { return };
        let mut first = bench.client(variant, "first").await;
        first.want(EDS, &["a"]);
        let asked = bench.origin.expect(EDS).await;
        let mut second = bench.client(variant, "second").await;
        second.want(EDS, &["a"]);
        bench.origin.answer(&asked, "1", vec![Item::new(EDS, "a", "1", "1")], &[]);
        for client in [&mut first, &mut second] {
            assert_eq!(client.take(EDS).await.names(), ["a"]);
            client.quiet().await;
        }
        let subscriptions = bench.origin.requests(EDS).into_iter().filter(|r| !r.ask.subscribe.is_empty());
        assert_eq!(subscriptions.count(), 1);
    }
}

/// N4: clients of every kind end in the same state.
#[tokio::test]
async fn n_4_sotw_and_delta_end_alike() {
    play(STREAMS, &[CDS, EDS], async |row| {
        let mut one = row.holding(&ABC).await;
        let mut clients = Vec::new();
        for kind in STREAMS {
            let mut client = row.bench.client(*kind, "other").await;
            client.want(row.type_url, &["a", "b", "c"]);
            client.settle(row.type_url, &ABC).await;
            clients.push(client);
        }
        row.set(&[("a", "2"), ("c", "3")]);
        let wanted = [("a", "2"), ("b", "1"), ("c", "3")];
        one.settle(row.type_url, &wanted).await;
        for client in &mut clients {
            client.settle(row.type_url, &wanted).await;
        }
    })
    .await;
}

/// N5: a stale nonce; delta subscriptions count whatever the nonce (DEL-2).
#[tokio::test]
async fn n_5_delta_a_change_with_a_stale_nonce_counts() {
    play(DELTA, &FOUR, async |row| {
        row.set(&ABC);
        let mut client = row.client().await;
        client.want(row.type_url, &["a"]);
        let first = client.take(row.type_url).await;
        row.set(&[("a", "2")]);
        client.take(row.type_url).await;
        for (name, nonce) in [("b", first.nonce.as_str()), ("c", "never given")] {
            client.send(Ask::of(row.type_url).subscribe(&[name]).nonce(nonce));
            assert_eq!(client.take(row.type_url).await.names(), [name]);
        }
        client.quiet().await;
    })
    .await;
}

/// N6: new names in a request with a stale nonce are delivered (NON-3).
#[tokio::test]
async fn n_6_sotw_new_names_with_a_stale_nonce_count() {
    play(SOTW, &FOUR, async |row| {
        row.set(&ABC[..2]);
        let mut client = row.client().await;
        client.want(row.type_url, &["a"]);
        let first = client.take(row.type_url).await;
        row.set(&[("a", "2")]);
        client.take(row.type_url).await;
        let stale = Ask::of(row.type_url).names(&["a", "b"]).version(&first.version).nonce(&first.nonce);
        client.send(stale);
        client.settle(row.type_url, &[("a", "2"), ("b", "1")]).await;
    })
    .await;
}

/// N11: a name is left and requested again before the answer to either request.
#[tokio::test]
async fn n_11_left_and_back_within_one_round_trip() {
    play(STREAMS, &FOUR, async |row| {
        let mut client = row.holding(&ABC[..2]).await;
        client.want(row.type_url, &["a"]);
        client.want(row.type_url, &["a", "b"]);
        client.settle(row.type_url, &ABC[..2]).await;
        row.set(&[("b", "2")]);
        client.settle(row.type_url, &[("a", "1"), ("b", "2")]).await;
        client.quiet().await;
    })
    .await;
}

/// N13: one client NACKs, all others continue.
#[tokio::test]
async fn n_13_one_nack_holds_nobody_else() {
    play(STREAMS, &[CDS, EDS], async |row| {
        let mut refuses = row.holding(&ABC[..1]).await;
        let mut others = Vec::new();
        for number in 0..5 {
            let mut client = row.bench.client(row.kind, &format!("other-{number}")).await;
            client.want(row.type_url, &["a"]);
            client.settle(row.type_url, &ABC[..1]).await;
            others.push(client);
        }
        row.set(&[("a", "2")]);
        let bad = refuses.next(row.type_url).await;
        refuses.nack(&bad, "no");
        for text in ["2", "3"] {
            row.set(&[("a", text)]);
            for client in &mut others {
                client.settle(row.type_url, &[("a", text)]).await;
            }
        }
        refuses.settle(row.type_url, &[("a", "3")]).await;
    })
    .await;
}

/// N16: half-close after the requests ends the stream with OK (STR-13).
#[tokio::test]
async fn n_16_half_close() {
    play(STREAMS, &[CDS, EDS], async |row| {
        let mut client = row.holding(&ABC[..1]).await;
        client.half_close();
        assert_eq!(client.ended().await.code(), tonic::Code::Ok);
    })
    .await;
}
