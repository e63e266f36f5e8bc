//! SUB, NON, SST, ACK: the SotW variant.

use crate::bench::Bench;
use crate::support::{Ask, CDS, EDS, LDS, RDS, SDS, SRDS, Variant, is_full_state};

#[tokio::test]
async fn sub_1_sub_6_each_request_replaces_the_names_and_fewer_names_get_no_answer() {
    let bench = Bench::any().await;
    for type_url in [EDS, CDS] {
        bench.origin.set_many(type_url, &[("a", "1"), ("b", "1")]);
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["a", "b"]);
        client.settle(type_url, &[("a", "1"), ("b", "1")]).await;
        client.want(type_url, &["a"]);
        client.quiet().await;
        bench.origin.set(type_url, "b", "2");
        client.quiet().await;
        bench.origin.set(type_url, "a", "2");
        assert_eq!(client.take(type_url).await.names(), ["a"]);
    }
}

#[tokio::test]
async fn sub_3_non_6_a_name_asked_for_again_is_sent_again() {
    let bench = Bench::any().await;
    for type_url in [EDS, CDS, SDS] {
        bench.origin.set(type_url, "a", "1");
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["a"]);
        client.take(type_url).await;
        client.want(type_url, &[]);
        client.quiet().await;
        // The last nonce of the type, from before the empty list.
        client.want(type_url, &["a"]);
        assert_eq!(client.take(type_url).await.names(), ["a"]);
    }
}

#[tokio::test]
async fn sub_4_a_new_name_is_answered_at_once() {
    let bench = Bench::any().await;
    for type_url in [EDS, CDS] {
        bench.origin.set_many(type_url, &[("a", "1"), ("b", "1")]);
        let mut other = bench.sotw("other").await;
        other.want(type_url, &["a", "b"]);
        other.settle(type_url, &[("a", "1"), ("b", "1")]).await;
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["a"]);
        client.take(type_url).await;
        client.want(type_url, &["a", "b"]);
        let wanted: &[&str] = if is_full_state(type_url) { &["a", "b"] } else { &["b"] };
        assert_eq!(client.take(type_url).await.names(), wanted);
    }
}

#[tokio::test]
async fn sub_5_sst_7_a_missing_name_is_silence_until_it_appears() {
    let bench = Bench::any().await;
    for type_url in [EDS, RDS, SDS] {
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["x"]);
        client.quiet().await;
        bench.origin.set(type_url, "x", "1");
        assert_eq!(client.take(type_url).await.names(), ["x"]);
        client.quiet().await;
    }
}

#[tokio::test]
async fn sub_7_an_ack_gets_no_answer() {
    let bench = Bench::any().await;
    for type_url in [EDS, CDS, LDS, RDS] {
        bench.origin.set(type_url, "a", "1");
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["a"]);
        let answer = client.take(type_url).await;
        client.quiet().await;
        client.ack(&answer);
        client.quiet().await;
    }
}

#[tokio::test]
async fn sub_8_sub_9_sub_14_both_spellings_of_the_wildcard_for_every_type() {
    let bench = Bench::any().await;
    for type_url in [CDS, LDS, EDS, RDS, SRDS, SDS, "type.googleapis.com/acme.Thing"] {
        bench.origin.set_many(type_url, &[("a", "1"), ("b", "1")]);
        for names in [&[][..], &["*"]] {
            let mut client = bench.sotw("one").await;
            client.want(type_url, names);
            assert_eq!(client.take(type_url).await.names(), ["a", "b"], "{type_url} {names:?}");
            client.quiet().await;
        }
    }
}

#[tokio::test]
async fn sub_10_an_empty_list_after_names_is_nothing() {
    let bench = Bench::any().await;
    for type_url in [CDS, EDS] {
        bench.origin.set_many(type_url, &[("a", "1"), ("b", "1")]);
        let mut client = bench.sotw("one").await;
        client.want(type_url, &[]);
        client.take(type_url).await;
        client.want(type_url, &["*", "a"]);
        // A name that is new in the list is answered, although the wildcard delivered the resource before
        // (SUB-3).
        client.take(type_url).await;
        client.quiet_after_optional(type_url).await;
        client.want(type_url, &["a"]);
        client.quiet_after_optional(type_url).await;
        client.want(type_url, &[]);
        client.quiet().await;
        bench.origin.set_many(type_url, &[("a", "2"), ("b", "2")]);
        client.quiet().await;
    }
}

#[tokio::test]
async fn sub_11_names_end_the_legacy_wildcard() {
    let bench = Bench::any().await;
    for type_url in [CDS, EDS] {
        bench.origin.set_many(type_url, &[("a", "1"), ("b", "1")]);
        let mut client = bench.sotw("one").await;
        client.want(type_url, &[]);
        client.take(type_url).await;
        client.want(type_url, &["a"]);
        client.take(type_url).await;
        bench.origin.set(type_url, "b", "2");
        client.quiet().await;
        bench.origin.set(type_url, "a", "2");
        assert_eq!(client.take(type_url).await.names(), ["a"]);
    }
}

#[tokio::test]
async fn sub_12_a_name_beside_the_wildcard_is_delivered_though_the_wildcard_lacks_it() {
    let bench = Bench::any().await;
    for type_url in [CDS, EDS] {
        bench.origin.set_unlisted(type_url, "a", "1");
        bench.origin.set(type_url, "b", "1");
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["*", "a"]);
        client.settle(type_url, &[("a", "1"), ("b", "1")]).await;
    }
}

#[tokio::test]
async fn sub_13_the_wildcard_can_be_left() {
    let bench = Bench::any().await;
    for type_url in [CDS, LDS] {
        bench.origin.set_many(type_url, &[("a", "1"), ("b", "1")]);
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["*", "a"]);
        client.settle(type_url, &[("a", "1"), ("b", "1")]).await;
        client.want(type_url, &["a"]);
        client.quiet_after_optional(type_url).await;
        bench.origin.set(type_url, "a", "2");
        assert_eq!(client.take(type_url).await.names(), ["a"]);
    }
}

/// H18: the harness sends `[""]` and means an empty list.
#[tokio::test]
async fn sub_16_h_18_the_empty_name_is_a_name() {
    let bench = Bench::any().await;
    for type_url in [CDS, EDS, LDS, RDS] {
        bench.origin.set_many(type_url, &[("a", "1"), ("b", "1")]);
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["a", "b"]);
        client.settle(type_url, &[("a", "1"), ("b", "1")]).await;
        client.want(type_url, &[""]);
        client.quiet_after_empty(type_url).await;
        bench.origin.set(type_url, "b", "2");
        client.quiet().await;
    }
}

#[tokio::test]
async fn sub_17_duplicate_names_are_one() {
    let bench = Bench::any().await;
    bench.origin.set(EDS, "a", "1");
    let mut client = bench.sotw("one").await;
    client.want(EDS, &["a", "a"]);
    assert_eq!(client.take(EDS).await.names(), ["a"]);
    client.quiet().await;
}

#[tokio::test]
async fn sub_18_nothing_is_sent_that_was_not_asked_for() {
    let bench = Bench::any().await;
    for type_url in [CDS, EDS] {
        bench.origin.set_many(type_url, &[("a", "1"), ("b", "1")]);
        let mut wide = bench.sotw("wide").await;
        wide.want(type_url, &["*"]);
        wide.settle(type_url, &[("a", "1"), ("b", "1")]).await;
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["a"]);
        assert_eq!(client.take(type_url).await.names(), ["a"]);
        bench.origin.set(type_url, "b", "2");
        wide.settle(type_url, &[("a", "1"), ("b", "2")]).await;
        client.quiet().await;
    }
}

#[tokio::test]
async fn sub_19_one_or_many_names_on_one_or_many_streams() {
    let bench = Bench::any().await;
    bench.origin.set_many(EDS, &[("a", "1"), ("b", "1"), ("c", "1")]);
    let mut one = bench.sotw("one").await;
    let mut two = bench.sotw("one").await;
    one.want(EDS, &["a"]);
    two.want(EDS, &["b", "c"]);
    one.settle(EDS, &[("a", "1")]).await;
    two.settle(EDS, &[("b", "1"), ("c", "1")]).await;
    one.quiet().await;
}

/// NON-1, NON-5: a late ACK of an older response is neither an ACK nor a NACK of the newest. H22: a late ACK
/// gets no answer.
#[tokio::test]
async fn non_1_non_2_non_5_h_22_a_stale_request_is_no_ack_and_gets_no_answer() {
    let bench = Bench::any().await;
    for type_url in [CDS, EDS] {
        bench.origin.set(type_url, "a", "1");
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["a"]);
        let first = client.take(type_url).await;
        bench.origin.set(type_url, "a", "2");
        let second = client.next(type_url).await;
        let stale = client.ack_of(&first);
        client.send(stale);
        client.quiet().await;
        client.ack(&second);
        bench.origin.set(type_url, "a", "3");
        assert_eq!(client.take(type_url).await.get("a").text(), "3");
    }
}

/// After a NACK, Envoy sends subscription changes with the last good nonce.
#[tokio::test]
async fn non_3_names_in_a_stale_request_count() {
    let bench = Bench::any().await;
    for type_url in [CDS, EDS] {
        bench.origin.set_many(type_url, &[("a", "1"), ("b", "1")]);
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["a"]);
        let first = client.take(type_url).await;
        bench.origin.set(type_url, "a", "2");
        let second = client.next(type_url).await;
        client.nack(&second, "no");
        client.send(Ask::of(type_url).names(&["a", "b"]).version(&first.version).nonce(&first.nonce));
        assert_eq!(client.take(type_url).await.get("b").text(), "1");
    }
}

#[tokio::test]
async fn non_4_rly_55_one_update_is_in_flight_and_the_newest_state_follows() {
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    for type_url in [CDS, EDS] {
        bench.origin.set(type_url, "a", "1");
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["a"]);
        client.take(type_url).await;
        bench.origin.set(type_url, "a", "2");
        let second = client.next(type_url).await;
        for text in ["3", "4", "5"] {
            bench.origin.set(type_url, "a", text);
        }
        client.quiet().await;
        client.ack(&second);
        assert_eq!(client.take(type_url).await.get("a").text(), "5");
        client.quiet().await;
    }
}

#[tokio::test]
async fn non_4_new_names_are_answered_beside_an_update_in_flight() {
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    bench.origin.set_many(EDS, &[("a", "1"), ("b", "1")]);
    let mut client = bench.sotw("one").await;
    client.want(EDS, &["a"]);
    client.take(EDS).await;
    bench.origin.set(EDS, "a", "2");
    let second = client.next(EDS).await;
    client.send(Ask::of(EDS).names(&["a", "b"]).nonce(&second.nonce).version(&second.version));
    assert_eq!(client.take(EDS).await.names(), ["b"]);
}

#[tokio::test]
async fn sst_1_sst_2_sst_11_full_state_types_send_everything() {
    let bench = Bench::any().await;
    for type_url in [CDS, LDS, SRDS] {
        bench.origin.set_many(type_url, &[("a", "1"), ("b", "1"), ("c", "1")]);
        let mut wild = bench.sotw("wild").await;
        let mut named = bench.sotw("named").await;
        wild.want(type_url, &["*"]);
        named.want(type_url, &["a", "b", "c"]);
        assert_eq!(wild.take(type_url).await.names(), ["a", "b", "c"]);
        named.settle(type_url, &[("a", "1"), ("b", "1"), ("c", "1")]).await;
        bench.origin.set(type_url, "b", "2");
        for client in [&mut wild, &mut named] {
            let answer = client.take(type_url).await;
            assert_eq!(answer.names(), ["a", "b", "c"]);
            assert_eq!(answer.get("b").text(), "2");
        }
        // SST-5, SST-11: a deletion is a response without the resource.
        bench.origin.remove(type_url, "c");
        for client in [&mut wild, &mut named] {
            assert_eq!(client.take(type_url).await.names(), ["a", "b"]);
            client.quiet().await;
        }
    }
}

#[tokio::test]
async fn sst_3_a_wildcard_of_any_type_sends_everything() {
    let bench = Bench::any().await;
    for type_url in [EDS, RDS, SDS] {
        bench.origin.set_many(type_url, &[("a", "1"), ("b", "1")]);
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["*"]);
        client.take(type_url).await;
        bench.origin.set(type_url, "a", "2");
        assert_eq!(client.take(type_url).await.names(), ["a", "b"], "{type_url}");
    }
}

#[tokio::test]
async fn sst_4_other_types_send_what_changed() {
    let bench = Bench::any().await;
    for type_url in [EDS, RDS, SDS] {
        bench.origin.set_many(type_url, &[("a", "1"), ("b", "1")]);
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["a", "b"]);
        client.settle(type_url, &[("a", "1"), ("b", "1")]).await;
        bench.origin.set(type_url, "b", "2");
        assert_eq!(client.take(type_url).await.names(), ["b"]);
        client.quiet().await;
    }
}

#[tokio::test]
async fn sst_5_an_empty_response_deletes_all() {
    let bench = Bench::any().await;
    for (type_url, names) in [(CDS, &["*"][..]), (LDS, &["a"]), (SRDS, &["*"])] {
        bench.origin.set(type_url, "a", "1");
        let mut client = bench.sotw("one").await;
        client.want(type_url, names);
        client.take(type_url).await;
        bench.origin.remove(type_url, "a");
        assert!(client.take(type_url).await.items.is_empty());
        client.quiet().await;
    }
}

#[tokio::test]
async fn sst_6_rly_34_other_types_know_no_deletion() {
    let bench = Bench::any().await;
    for type_url in [EDS, RDS, SDS] {
        bench.origin.set_many(type_url, &[("a", "1"), ("b", "1")]);
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["a", "b"]);
        client.settle(type_url, &[("a", "1"), ("b", "1")]).await;
        bench.origin.remove(type_url, "a");
        client.quiet().await;
        // A new client does not get the deleted resource.
        let mut newcomer = bench.sotw("two").await;
        newcomer.want(type_url, &["a"]);
        newcomer.quiet().await;
        // A re-created resource is sent.
        bench.origin.set(type_url, "a", "2");
        assert_eq!(client.take(type_url).await.texts(), [("a".to_owned(), "2".to_owned())]);
        assert_eq!(newcomer.take(type_url).await.names(), ["a"]);
    }
}

#[tokio::test]
async fn sst_10_absence_from_a_full_state_response_waits_for_the_answer() {
    let bench = Bench::any().await;
    for type_url in [CDS, LDS] {
        bench.origin.set(type_url, "a", "1");
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["a", "missing"]);
        // The upstream knows the absence at once, and so does the relay.
        client.settle(type_url, &[("a", "1")]).await;
        bench.origin.set(type_url, "missing", "1");
        client.settle(type_url, &[("a", "1"), ("missing", "1")]).await;
        client.quiet().await;
    }
}

/// 6 MiB: named endpoints may be split into several messages, a full-state set may not.
#[tokio::test]
async fn sst_12_sst_13_only_chunkable_types_are_chunked() {
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    let text = "x".repeat(1 << 20);
    let names = ["a", "b", "c", "d", "e", "f"];
    for type_url in [CDS, EDS] {
        let resources: Vec<(&str, &str)> = names.iter().map(|name| (*name, text.as_str())).collect();
        bench.origin.set_many(type_url, &resources);
        let mut client = bench.sotw("one").await;
        client.want(type_url, &names);
        let mut seen = std::collections::BTreeSet::new();
        let mut versions = std::collections::BTreeSet::new();
        while seen.len() < names.len() {
            let answer = client.take(type_url).await;
            if is_full_state(type_url) {
                assert_eq!(answer.names(), names);
            } else {
                assert!(answer.size < 4 << 20, "SST-13: {} bytes", answer.size);
            }
            // RLY-31: a version covers exactly the content of its response.
            assert!(versions.insert(answer.version.clone()), "two chunks of one version");
            seen.extend(answer.names().into_iter().map(str::to_owned));
        }
        client.quiet().await;
    }
}

#[tokio::test]
async fn sst_14_known_emptiness_is_answered_for_full_state_types() {
    let bench = Bench::any().await;
    for type_url in [CDS, LDS, SRDS] {
        for names in [&["*"][..], &[], &["absent"]] {
            let mut client = bench.sotw("one").await;
            client.want(type_url, names);
            assert!(client.take(type_url).await.items.is_empty(), "{type_url} {names:?}");
            client.quiet().await;
        }
    }
}

#[tokio::test]
async fn ack_1_ack_2_an_old_version_without_error_is_an_ack() {
    let bench = Bench::any().await;
    for type_url in [CDS, EDS] {
        bench.origin.set(type_url, "a", "1");
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["a"]);
        let first = client.take(type_url).await;
        bench.origin.set(type_url, "a", "2");
        let second = client.next(type_url).await;
        client.send(Ask::of(type_url).names(&["a"]).version(&first.version).nonce(&second.nonce));
        client.quiet().await;
        bench.origin.set(type_url, "a", "3");
        assert_eq!(client.take(type_url).await.get("a").text(), "3");
        assert!(bench.warnings().is_empty(), "ACK-1: {:?}", bench.warnings());
    }
}

/// ACK-3: for any version in the NACK. ACK-6: for any code, with or without a text.
#[tokio::test]
async fn ack_3_ack_5_ack_6_a_nacked_content_is_not_sent_again() {
    let bench = Bench::any().await;
    for type_url in [CDS, EDS] {
        for (number, message) in ["no", ""].into_iter().enumerate() {
            let good = format!("good-{number}");
            bench.origin.set(type_url, "a", &good);
            let mut client = bench.sotw(&format!("one-{number}")).await;
            client.want(type_url, &["a"]);
            client.settle(type_url, &[("a", good.as_str())]).await;
            bench.origin.set(type_url, "a", "bad");
            let bad = client.next(type_url).await;
            let nack = client.nack_of(&bad, message);
            // C-core advances the version on a NACK.
            client.send(if number == 1 { nack.version(&bad.version) } else { nack });
            client.quiet().await;
            bench.origin.set(type_url, "a", "good again");
            assert_eq!(client.take(type_url).await.get("a").text(), "good again");
            client.quiet().await;
        }
    }
}

#[tokio::test]
async fn ack_7_names_in_a_nack_count() {
    let bench = Bench::any().await;
    for type_url in [CDS, EDS] {
        bench.origin.set_many(type_url, &[("a", "1"), ("b", "1")]);
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["a"]);
        let first = client.next(type_url).await;
        let nack = client.nack_of(&first, "no").names(&["a", "b"]);
        client.send(nack);
        assert_eq!(client.take(type_url).await.get("b").text(), "1");
    }
}

/// ACK-4: a NACK is about one response; other types and other clients are unaffected.
#[tokio::test]
async fn ack_4_a_nack_is_of_one_response_of_one_client() {
    let bench = Bench::any().await;
    bench.origin.set(CDS, "a", "1");
    let mut bad = bench.sotw("bad").await;
    let mut good = bench.sotw("good").await;
    bad.want(CDS, &["*"]);
    good.want(CDS, &["*"]);
    let answer = bad.next(CDS).await;
    bad.nack(&answer, "no");
    good.take(CDS).await;
    bench.origin.set(CDS, "b", "1");
    good.settle(CDS, &[("a", "1"), ("b", "1")]).await;
    bad.settle(CDS, &[("a", "1"), ("b", "1")]).await;
}
