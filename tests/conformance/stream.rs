//! STR: streams, nodes, nonces, versions; and rules for every message (RPC, TYP, WIR).

use prost::Message;
use tonic::Code;

use crate::bench::Bench;
use crate::support::client::{connect, node};
use crate::support::proto::{Any, Body};
use crate::support::{Ask, CDS, Client, EDS, FOUR, LDS, RDS, SDS, Variant, judge};

#[tokio::test]
async fn str_1_types_are_independent() {
    for variant in judge::variants() {
        let bench = Bench::any().await;
        bench.origin.set(CDS, "a", "1");
        bench.origin.set(EDS, "a", "1");
        let mut client = bench.client(variant, "one").await;
        client.want(CDS, &["a"]);
        let clusters = client.next(CDS).await;
        client.nack(&clusters, "no");
        client.want(EDS, &["a"]);
        client.take(EDS).await;
        bench.origin.set(EDS, "a", "2");
        assert_eq!(client.take(EDS).await.get("a").text(), "2");
        client.quiet().await;
    }
}

#[tokio::test]
async fn str_2_str_3_the_node_counts_in_the_first_message_and_may_come_again() {
    for variant in judge::variants() {
        let bench = Bench::any().await;
        for type_url in [CDS, EDS, RDS] {
            bench.origin.set(type_url, "a", "1");
        }
        let mut client = bench.client(variant, "one").await;
        client.want(CDS, &["a"]);
        client.take(CDS).await;
        client.want(EDS, &["a"]);
        client.take(EDS).await;
        // A different node in a later request is neither an error nor a change of the client (H20).
        let ask = Ask { node: Some(node("two")), ..Ask::of(RDS) };
        client.send(if variant == Variant::Sotw { ask.names(&["a"]) } else { ask.subscribe(&["a"]) });
        client.take(RDS).await;
        client.quiet().await;
    }
}

#[tokio::test]
async fn str_4_a_first_message_without_node_is_served_or_refused_but_not_ignored() {
    for variant in judge::variants() {
        let bench = Bench::any().await;
        bench.origin.set(CDS, "a", "1");
        let mut client = Client::on(connect(bench.target()).await, variant, None);
        client.want(CDS, &["a"]);
        match client.event().await {
            crate::support::client::Event::Answer(answer) => assert_eq!(answer.names(), ["a"]),
            crate::support::client::Event::End(status) => assert_eq!(status.code(), Code::InvalidArgument),
        }
    }
}

#[tokio::test]
async fn str_5_a_nonce_of_another_stream_means_nothing() {
    for variant in judge::variants() {
        let bench = Bench::any().await;
        bench.origin.set(EDS, "a", "1");
        let mut first = bench.client(variant, "one").await;
        first.want(EDS, &["a"]);
        let answer = first.take(EDS).await;
        let mut second = bench.client(variant, "two").await;
        let ask = Ask::of(EDS).nonce(&answer.nonce);
        second.send(if variant == Variant::Sotw { ask.names(&["a"]) } else { ask.subscribe(&["a"]) });
        assert_eq!(second.take(EDS).await.names(), ["a"]);
    }
}

#[tokio::test]
async fn str_6_str_9_a_first_request_with_an_old_nonce_and_version_is_initial() {
    let bench = Bench::any().await;
    for (number, type_url) in FOUR.into_iter().enumerate() {
        bench.origin.set(type_url, "a", "1");
        let mut client = bench.sotw(&format!("client-{number}")).await;
        client.send(Ask::of(type_url).names(&["a"]).nonce("old").version("older"));
        assert_eq!(client.take(type_url).await.names(), ["a"]);
        client.quiet().await;
    }
}

/// Envoy opens a stream with the NACK that was waiting as the former stream ended, without a nonce.
#[tokio::test]
async fn str_6_a_first_request_with_an_error_subscribes() {
    let bench = Bench::any().await;
    for variant in judge::variants() {
        for (number, type_url) in FOUR.into_iter().enumerate() {
            bench.origin.set(type_url, "a", "1");
            for names in [&["a"][..], &[]] {
                let wildcard = names.is_empty();
                if wildcard && ![CDS, LDS].contains(&type_url) {
                    continue;
                }
                let mut client = bench.client(variant, &format!("client-{number}-{wildcard}")).await;
                let ask = Ask::of(type_url).error("of the former stream");
                client.send(match variant {
                    Variant::Sotw => ask.names(names).version("older"),
                    Variant::Delta => ask.subscribe(names),
                });
                assert_eq!(client.take(type_url).await.names(), ["a"]);
                client.quiet().await;
            }
        }
    }
}

#[tokio::test]
async fn str_7_str_11_the_version_changes_with_any_resource_in_it() {
    let bench = Bench::any().await;
    bench.origin.set_many(CDS, &[("a", "1"), ("b", "1")]);
    let mut client = bench.sotw("one").await;
    client.want(CDS, &["*"]);
    let first = client.take(CDS).await;
    bench.origin.set(CDS, "b", "2");
    let second = client.take(CDS).await;
    bench.origin.remove(CDS, "a");
    let third = client.take(CDS).await;
    assert_ne!(first.version, second.version);
    assert_ne!(second.version, third.version);
}

/// H21: the version changes only with the content. A relay's version is a hash of the content, whatever the
/// upstream's version is.
#[tokio::test]
async fn str_11_the_version_of_equal_content_is_equal() {
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    bench.origin.set(CDS, "a", "1");
    let mut client = bench.sotw("one").await;
    client.want(CDS, &["*"]);
    let first = client.take(CDS).await;
    bench.origin.set(CDS, "a", "2");
    let second = client.take(CDS).await;
    bench.origin.set(CDS, "a", "1");
    let third = client.take(CDS).await;
    assert_ne!(first.version, second.version);
    assert_eq!(first.version, third.version);
}

#[tokio::test]
async fn str_10_a_reconnect_with_the_current_version_resends_named_sets() {
    let bench = Bench::any().await;
    for type_url in [CDS, EDS] {
        bench.origin.set_many(type_url, &[("x", "1"), ("y", "1")]);
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["x", "y"]);
        client.settle(type_url, &[("x", "1"), ("y", "1")]).await;
        // The version of the last response, on a new stream.
        let mut probe = bench.sotw("two").await;
        probe.want(type_url, &["x", "y"]);
        let version = probe.take(type_url).await.version;
        drop(client);
        let mut again = bench.sotw("one").await;
        again.send(Ask::of(type_url).names(&["x", "y"]).version(&version));
        again.settle(type_url, &[("x", "1"), ("y", "1")]).await;
    }
}

#[tokio::test]
async fn str_10_a_reconnect_with_the_current_version_of_a_wildcard_may_be_silent() {
    let bench = Bench::any().await;
    bench.origin.set(CDS, "x", "1");
    let mut client = bench.sotw("one").await;
    client.want(CDS, &[]);
    let version = client.take(CDS).await.version;
    let mut again = bench.sotw("one").await;
    again.send(Ask::of(CDS).version(&version));
    bench.origin.set(CDS, "x", "2");
    again.settle(CDS, &[("x", "2")]).await;
}

#[tokio::test]
async fn str_12_kal_6_streams_of_one_node_id_live_side_by_side() {
    for variant in judge::variants() {
        let bench = Bench::any().await;
        bench.origin.set(EDS, "a", "1");
        let channel = connect(bench.target()).await;
        let mut clients: Vec<Client> =
            (0..3).map(|_| Client::on(channel.clone(), variant, Some(node("same")))).collect();
        clients.push(bench.client(variant, "same").await);
        for client in &mut clients {
            client.want(EDS, &["a"]);
            client.take(EDS).await;
        }
        bench.origin.set(EDS, "a", "2");
        for client in &mut clients {
            assert_eq!(client.take(EDS).await.get("a").text(), "2");
        }
    }
}

#[tokio::test]
async fn str_13_half_close_ends_with_ok() {
    for variant in Variant::BOTH {
        let Some(bench) = Bench::relay(Variant::Delta).await else { return };
        bench.origin.set(CDS, "a", "1");
        let mut client = bench.client(variant, "one").await;
        client.want(CDS, &["a"]);
        client.take(CDS).await;
        client.half_close();
        assert_eq!(client.ended().await.code(), Code::Ok);
    }
}

#[tokio::test]
async fn str_14_sub_2_the_newest_of_quick_requests_wins() {
    let bench = Bench::any().await;
    bench.origin.set_many(EDS, &[("a", "1"), ("b", "1"), ("c", "1")]);
    let mut client = bench.sotw("one").await;
    for names in [&["a"][..], &["a", "b"], &["a", "b", "c"]] {
        client.send(Ask::of(EDS).names(names));
    }
    client.settle(EDS, &[("a", "1"), ("b", "1"), ("c", "1")]).await;
    for names in [&["a", "b"][..], &["b"], &["c"]] {
        client.want(EDS, names);
    }
    client.settle(EDS, &[("c", "1")]).await;
    client.quiet_after_optional(EDS).await;
    bench.origin.set_many(EDS, &[("a", "2"), ("b", "2")]);
    client.quiet().await;
}

#[tokio::test]
async fn rpc_5_a_request_without_type_ends_the_stream() {
    for variant in Variant::BOTH {
        let Some(bench) = Bench::relay(Variant::Delta).await else { return };
        let mut client = bench.client(variant, "one").await;
        client.send(Ask::of(""));
        assert_eq!(client.ended().await.code(), Code::InvalidArgument);
    }
}

#[tokio::test]
async fn typ_1_an_unknown_type_is_served_untouched() {
    let type_url = "type.googleapis.com/istio.workload.Address";
    for upstream in Variant::BOTH {
        for variant in Variant::BOTH {
            let Some(bench) = Bench::relay(upstream).await else { return };
            // No protobuf message at all: the relay may not decode the bytes.
            let named = Body { name: "a".to_owned(), ..Body::default() };
            let mut value = named.encode_to_vec();
            value.extend([0x82, 0xf1, 0x04, 0x02, b'h', b'i']);
            let body = Any { type_url: type_url.to_owned(), value };
            bench.origin.change(|world| world.set(type_url, "a", body.clone(), true));
            let mut client = bench.client(variant, "one").await;
            client.want(type_url, &["a"]);
            assert_eq!(client.take(type_url).await.get("a").body, Some(body));
        }
    }
}

/// TYP-6: a cluster whose fields break every bound of protoc-gen-validate. TYP-7: an unknown field, and
/// fields in an order that no encoder writes. TYP-8: the two schemas of one message.
#[tokio::test]
async fn typ_6_typ_7_typ_8_bytes_pass_untouched() {
    let collection = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpointCollection";
    let cases: [(&str, &[u8]); 3] = [
        // connect_timeout { seconds: -1 } before name "a", lb_policy 99, alt_stat_name twice.
        (
            CDS,
            b"\x22\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x0a\x01a\x30\x63\xe2\x01\x00\xe2\x01\x00",
        ),
        (EDS, b"\xfa\xf0\x04\x03xyz\x0a\x01a"),
        (collection, b"\x0a\x02\x12\x00\x0a\x02\x12\x00"),
    ];
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    for (type_url, value) in cases {
        let body = Any { type_url: type_url.to_owned(), value: value.to_vec() };
        bench.origin.change(|world| world.set(type_url, "a", body.clone(), true));
        let mut client = bench.delta("one").await;
        client.want(type_url, &["a"]);
        assert_eq!(client.take(type_url).await.get("a").body, Some(body.clone()), "{type_url}");
        if type_url != collection {
            let mut client = bench.sotw("one").await;
            client.want(type_url, &["a"]);
            assert_eq!(client.take(type_url).await.items[0].body, Some(body), "{type_url}");
        }
    }
}

#[tokio::test]
async fn wir_2_other_bytes_under_an_unchanged_version_get_a_new_one() {
    for upstream in Variant::BOTH {
        let Some(bench) = Bench::scripted(|setup| setup.upstream(upstream)).await else { return };
        let mut client = bench.delta("one").await;
        client.want(CDS, &["a"]);
        let asked = bench.origin.expect(CDS).await;
        bench.origin.answer(&asked, "v", vec![crate::support::Item::new(CDS, "a", "v", "1")], &[]);
        let first = client.take(CDS).await;
        bench.origin.answer(&asked, "v", vec![crate::support::Item::new(CDS, "a", "v", "2")], &[]);
        let second = client.take(CDS).await;
        assert_eq!(second.get("a").text(), "2");
        assert_ne!(first.get("a").version, second.get("a").version);
    }
}

/// `Answer::assert_well_formed` asserts WIR-3, WIR-4 and WIR-5 for every response; this test has one response
/// of each variant.
#[tokio::test]
async fn wir_6_the_relay_names_itself() {
    for variant in judge::variants() {
        let bench = Bench::any().await;
        bench.origin.set(SDS, "a", "1");
        let mut client = bench.client(variant, "one").await;
        client.want(SDS, &["a"]);
        let answer = client.take(SDS).await;
        assert!(!answer.control_plane.is_empty(), "WIR-6: {answer:?}");
    }
}

/// Wrapped and bare elements in one SotW response from the upstream are both indexed (WIR-7), and reach
/// clients bare (WIR-8).
#[tokio::test]
async fn wir_7_wir_8_wrapped_elements_are_unwrapped() {
    use crate::support::proto::Resource;
    use crate::support::words::body;
    for variant in Variant::BOTH {
        let Some(bench) = Bench::scripted(|setup| setup.upstream(Variant::Sotw)).await else { return };
        let mut client = bench.client(variant, "one").await;
        client.want(LDS, &["a", "b"]);
        let asked = bench.origin.expect(LDS).await;
        let wrapper = Resource {
            version: "7".to_owned(),
            resource: Some(body(LDS, "a", "wrapped")),
            name: "a".to_owned(),
            ..Resource::default()
        };
        let wrapped = Any {
            type_url: "type.googleapis.com/envoy.service.discovery.v3.Resource".to_owned(),
            value: wrapper.encode_to_vec(),
        };
        let items = vec![
            crate::support::Item { name: "a".to_owned(), body: Some(wrapped), ..Default::default() },
            crate::support::Item::new(LDS, "b", "", "bare"),
        ];
        bench.origin.answer(&asked, "1", items, &[]);
        client.settle(LDS, &[("a", "wrapped"), ("b", "bare")]).await;
    }
}
