//! Clients with a stream per type (RPC-2 to RPC-7).

use tonic::Code;

use crate::bench::Bench;
use crate::support::{Ask, CDS, Client, Downstream, EDS, LDS, RDS, Variant};

/// A client of the CDS service alone that sends raw requests.
async fn of_clusters(bench: &Bench, variant: Variant) -> Client {
    let mut client = bench.client(Downstream::PerType(variant), "one").await;
    client.open_stream(CDS);
    client
}

#[tokio::test]
async fn rpc_6_rpc_7_the_method_says_the_type_and_the_answer_too() {
    for variant in Variant::BOTH {
        let Some(bench) = Bench::relay(Variant::Delta).await else { return };
        bench.origin.set(CDS, "a", "1");
        let mut client = of_clusters(&bench, variant).await;
        client.send_on(CDS, Ask::default());
        let answer = client.next(CDS).await;
        assert_eq!(answer.names(), ["a"]);
    }
}

#[tokio::test]
async fn rpc_6_another_type_ends_the_stream() {
    for variant in Variant::BOTH {
        let Some(bench) = Bench::relay(Variant::Delta).await else { return };
        let mut client = of_clusters(&bench, variant).await;
        client.send_on(CDS, Ask::of(EDS));
        let status = client.ended().await;
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(EDS) && status.message().contains(CDS), "{status:?}");
    }
}

#[tokio::test]
async fn ord_9_a_type_on_its_own_stream_waits_for_no_other() {
    for variant in Variant::BOTH {
        let Some(bench) = Bench::relay(Variant::Delta).await else { return };
        bench.origin.set(CDS, "a", "1");
        bench.origin.set(LDS, "l", "1");
        bench.origin.set(RDS, "r", "1");
        let mut client = bench.client(Downstream::PerType(variant), "one").await;
        client.want(CDS, &["*"]);
        client.next(CDS).await;
        // CDS has an update that the relay may not send, since this client never ACKs.
        bench.origin.set(CDS, "a", "2");
        client.want(LDS, &["*"]);
        client.take(LDS).await;
        client.want(RDS, &["r"]);
        client.take(RDS).await;
        bench.origin.set(RDS, "r", "2");
        assert_eq!(client.take(RDS).await.get("r").text(), "2");
    }
}

#[tokio::test]
async fn streams_of_one_type_are_listed_as_such() {
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    bench.origin.set(CDS, "a", "1");
    let mut client = bench.client(Downstream::PerType(Variant::Delta), "one").await;
    client.want(CDS, &["*"]);
    client.take(CDS).await;
    let (status, clients) = bench.process().get("/clients?node=one").await;
    assert_eq!(status, 200);
    assert!(clients.contains(r#""service":"CDS""#) || clients.contains(r#""service": "CDS""#), "{clients}");
    let (_, metrics) = bench.process().get("/metrics").await;
    assert!(metrics.contains(r#"sluice_downstream_calls_total{method="per_type"} 1"#), "{metrics}");
}
