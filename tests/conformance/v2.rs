//! Clients of the v2 API, where a listener serves it (RPC-3, TYP-3 to TYP-5).

use tonic::Code;

use crate::bench::Bench;
use crate::support::{Ask, CDS, Downstream, Variant};

const CDS_V2: &str = "type.googleapis.com/envoy.api.v2.Cluster";
const SDS_V2: &str = "type.googleapis.com/envoy.api.v2.auth.Secret";

#[tokio::test]
async fn typ_4_a_type_is_answered_as_it_was_asked_for_whatever_the_method() {
    for kind in [Downstream::V2(Variant::Sotw), Downstream::V2(Variant::Delta), Variant::Delta.into()] {
        let Some(bench) = Bench::relay(Variant::Delta).await else { return };
        bench.origin.set(CDS, "of-v3", "1");
        bench.origin.set(CDS_V2, "of-v2", "2");
        let mut client = bench.client(kind, "one").await;
        client.want(CDS, &["of-v3"]);
        assert_eq!(client.take(CDS).await.texts(), [("of-v3".to_owned(), "1".to_owned())]);
        client.want(CDS_V2, &["of-v2"]);
        let answer = client.take(CDS_V2).await;
        assert_eq!(answer.texts(), [("of-v2".to_owned(), "2".to_owned())]);
        assert_eq!(
            answer.get("of-v2").body.as_ref().unwrap().type_url,
            CDS_V2,
            "bytes and types pass untouched"
        );
    }
}

#[tokio::test]
async fn typ_3_secrets_of_v2_have_a_lower_case_package() {
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    bench.origin.set(SDS_V2, "s", "1");
    let mut client = bench.client(Downstream::V2(Variant::Sotw), "one").await;
    client.want(SDS_V2, &["s"]);
    assert_eq!(client.take(SDS_V2).await.names(), ["s"]);
}

#[tokio::test]
async fn typ_5_v2_is_off_unless_the_listener_turns_it_on() {
    let off = |setup: crate::support::Setup| crate::support::Setup { listener: String::new(), ..setup };
    let Some(bench) = Bench::with(off).await else { return };
    let mut client = bench.client(Downstream::V2(Variant::Sotw), "one").await;
    let status = client.ended().await;
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("`v2: true`"), "{status:?}");

    let mut client = bench.sotw("two").await;
    client.send(Ask::of(CDS_V2));
    let status = client.ended().await;
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("`v2: true`"), "{status:?}");
}
