//! What a stream leaves behind.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::client::RestServer;
use crate::driver::handle::{ConnectionCut, Relay, WhenUnavailable};
use crate::driver::hub::Hub;
use crate::driver::servers::{Attach, Server, ServerLists};
use crate::driver::shared::Settings;
use crate::engine::class::NodeClasses;
use crate::engine::downstream::Limits;
use crate::engine::realm::Space;
use crate::engine::{fallback, source, upstream};
use crate::telemetry::Metrics;
use crate::xds::DeltaRequest;
use crate::xds::Variant;

/// A relay whose server is never reached.
pub(in crate::driver) fn hub() -> Hub {
    let metrics = Arc::new(Metrics::new());
    let client = metrics.of_server("nowhere").client().clone();
    let server = RestServer::new("127.0.0.1", 1, "", crate::client::Settings::default(), client);
    let attach = Attach::Rest { server, settings: upstream::Settings::default() };
    let settings = Settings {
        lists: ServerLists::new(
            vec![Arc::new(Server { uri: "nowhere".into(), attach })],
            fallback::Settings::default(),
        ),
        source: source::Settings::default(),
        classes: NodeClasses::default(),
        classes_max: 10,
        classes_per_connection_max: 10,
        secret_classes_max: 10_000,
        private_sources_max: 10,
        node: Node::default(),
        stream: Limits::default(),
        changes_per_second: 100,
        changes_burst: 100,
        first_answers_per_second: 100,
        first_answers_burst: 100,
        checkpoint: None,
        encoded_bytes_max: 1 << 20,
    };
    Hub::new(settings, metrics)
}

/// A connection of its own from this address.
pub(in crate::driver) fn peer(address: [u8; 4]) -> Peer {
    Peer {
        listener: "main".into(),
        address: Some((address, 4000).into()),
        connection: ConnectionCut::default(),
        when_unavailable: WhenUnavailable::Hold,
    }
}

/// A client's stream may end while it is being moved: nobody would say farewell to the source that it moves to.
#[tokio::test(start_paused = true)]
async fn cch_1_a_stream_that_ended_is_moved_nowhere() {
    for ends_first in [true, false] {
        let hub = hub();
        let kind = StreamKind::from(Variant::Delta);
        let stream = hub.open(kind, peer([127, 0, 0, 1])).unwrap();
        let endpoints = TypeUrl::of_message("envoy.config.endpoint.v3.ClusterLoadAssignment");
        let request = DeltaRequest {
            node: Some(Box::default()),
            type_url: endpoints.as_str().into(),
            subscribe: vec!["e".into()],
            ..DeltaRequest::default()
        };
        stream.request(Request::Delta(request)).await.unwrap();
        let list = hub.shared.settings.lists.route(&endpoints, Space::Old);
        hub.shared.uncached.add(list, &endpoints, Some(&"e".into()));
        let state = stream.state().clone();
        if ends_first {
            drop(stream);
            Subscriber::divert(state, endpoints);
        } else {
            Subscriber::divert(state, endpoints);
            drop(stream);
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        let left: Vec<_> = hub.tables.sources.all().iter().map(|source| source.key().owner).collect();
        assert_eq!(left, [], "ends first: {ends_first}");
        assert_eq!(hub.tables.streams.len(), 0);
    }
}
