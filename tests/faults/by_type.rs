//! Server lists with a connection per type: RLY-25, RLY-40 (ADR 18).

use std::time::Duration;

use tonic::Code;

use crate::site::quick;
use crate::support::client::Event;
use crate::support::control_plane::eventually;
use crate::support::{Attachment, CDS, Client, ControlPlane, EDS, Relay, Variant};

async fn server(name: &str) -> ControlPlane {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "c", name);
    origin.set_many(EDS, &[("a", name), ("b", name)]);
    origin
}

/// Reads responses of all types until the client has these resources of one type. No existing resource is
/// removed in between.
async fn comes_to(client: &mut Client, type_url: &str, wanted: &[(&str, &str)]) {
    let wanted: Vec<(String, String)> =
        wanted.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    while client.holds(type_url).into_iter().collect::<Vec<_>>() != wanted {
        match client.event_within(Duration::from_secs(10)).await {
            Event::Answer(answer) => {
                assert!(answer.removed.is_empty(), "I4: {answer:?}");
                client.ack(&answer);
            }
            end => panic!("{end:?} while {wanted:?} was due"),
        }
    }
}

/// The log and the list of sources name the lost type, and no other.
async fn is_reported(relay: &Relay, server: &str, type_url: &str) {
    eventually("a line with the type", || async {
        relay.log_lines("WARN").iter().any(|line| line.contains(&format!("type_url={type_url}")))
    })
    .await;
    let sources = relay.sources(server).await;
    let types: Vec<_> =
        sources.iter().flat_map(|of| of["types"].as_array().cloned().unwrap_or_default()).collect();
    let lost: Vec<_> = types.iter().filter(|of| of["lost"]["error"].is_string()).collect();
    let names: Vec<_> = lost.iter().filter_map(|of| of["type"].as_str()).collect();
    assert!(matches!(names[..], [name] if type_url.ends_with(name)), "{types:?}");
}

/// A failing service, in the way of each transport: one type goes to the next server, the other type stays.
#[tokio::test]
async fn rly_25_rly_40_a_type_whose_service_is_broken_goes_to_the_next_server_alone() {
    for upstream in
        [Attachment::PerType(Variant::Delta), Attachment::PerType(Variant::Sotw), Attachment::Rest]
    {
        let (first, second) = (server("first").await, server("second").await);
        let setup = quick(first.server_uri(upstream)).upstream(upstream);
        let relay = Relay::start(setup.next_server(second.server_uri(upstream))).await;
        let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
        client.want(CDS, &["*"]);
        client.want(EDS, &["a"]);
        comes_to(&mut client, CDS, &[("c", "first")]).await;
        comes_to(&mut client, EDS, &[("a", "first")]).await;

        first.fail_type(Some(EDS));
        first.close_streams(Code::Unavailable);
        relay.is_stale(&first.server_uri(upstream)).await;
        is_reported(&relay, &first.server_uri(upstream), EDS).await;
        first.set(CDS, "c", "still first");
        comes_to(&mut client, CDS, &[("c", "still first")]).await;
        assert!(second.log().is_empty(), "FBK-1: all is cached");

        client.want(EDS, &["a", "b"]);
        comes_to(&mut client, EDS, &[("a", "second"), ("b", "second")]).await;
        first.set(CDS, "c", "first again");
        comes_to(&mut client, CDS, &[("c", "first again")]).await;
        assert!(second.requests(CDS).is_empty(), "{upstream:?}");

        first.fail_type(None);
        comes_to(&mut client, EDS, &[("a", "first"), ("b", "first")]).await;
    }
}
