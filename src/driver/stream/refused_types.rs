//! Streams with types whose class has no room (RLY-14). Only these types are not served.

use std::sync::Arc;

use crate::driver::ground::registry::lock;
use crate::driver::ground::servers::Place;
use crate::driver::source::handle::Subscriber;
use crate::driver::stream::refusal::{GRACE, RETRY};
use crate::driver::stream::routes::Routes;
use crate::driver::stream::state::{Inner, StreamState};
use crate::engine::Time;
use crate::engine::downstream::SourceId;

impl StreamState {
    /// Searches for room when a search is due, and ends a stream without any served type. Returns when to look
    /// again.
    pub(crate) fn follow_refusal(&self, inner: &mut Inner, now: Time) -> Option<Time> {
        let refusal = inner.refusal.as_mut()?;
        let is_refused = |source: SourceId| {
            let handle = inner.sources.iter().find(|(id, _)| *id == source);
            handle.is_some_and(|(_, handle)| handle.key().place == Place::REFUSED)
        };
        let parts = || inner.session.subscriptions().iter().flat_map(|subscription| &subscription.parts);
        let Some(refused) = parts().map(|part| part.source()).find(|source| is_refused(*source)) else {
            // There was room, or the client has dropped the type.
            inner.refusal = None;
            return None;
        };
        if refusal.retry_at <= now {
            refusal.retry_at = now + RETRY;
            if let Some(held) = self.hold_open() {
                held.state().clone().look_for_room(refused);
            }
        }
        let retry_at = refusal.retry_at;
        if parts().any(|part| !is_refused(part.source())) {
            return Some(retry_at);
        }
        let end_at = refusal.since + GRACE;
        if end_at <= now {
            let status = refusal.status.clone();
            inner.end.get_or_insert_with(|| Box::new(status));
        }
        Some(end_at.min(retry_at).max(now))
    }

    /// Asks again for a place for the types of this source.
    pub(crate) fn look_for_room(self: Arc<Self>, source: SourceId) {
        // Keeps the stream open until all sources are told. Otherwise nothing would remove a stream entering
        // a source after the end.
        let Some(held) = self.hold_open() else { return };
        tokio::spawn(async move {
            let _held = held;
            let _order = self.lock_watch_order().await;
            let left = {
                let inner = &mut *lock(&self.inner);
                let mut routes = Routes {
                    stream: &self,
                    settings: &inner.routing,
                    node: inner.node.as_deref(),
                    sources: &mut inner.sources,
                    refusal: Some(&mut inner.refusal),
                };
                let left = inner.session.leave(source, &mut routes);
                left.map(|watches| [watches, self.keep_moving(inner)].concat())
            };
            match left {
                Ok(watches) => self.send_watches(watches).await,
                Err(status) => self.end(status),
            }
            self.wake();
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;
    use std::time::Duration;

    use crate::driver::api::downstream::{OpenStreams, Peer, RelayStream};
    use crate::driver::api::status::StatusView;
    use crate::driver::ground::context::DriverSettings;
    use crate::driver::ground::limits::RelayLimits;
    use crate::driver::ground::servers::Place;
    use crate::driver::relay::Relay;
    use crate::driver::stream::handle::tests::{peer, relay, relay_with};
    use crate::driver::stream::state::Stream;
    use crate::engine::authority::Authority;
    use crate::identity::Identity;
    use crate::identity::spiffe::SpiffeId;
    use crate::telemetry::Limit;
    use crate::xds::{DeltaRequest, Node, Request, StreamKind, TypeUrl, Variant};

    const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";

    /// Opens a stream that asks for a type with this node.
    async fn asks(relay: &Relay, peer: &Peer, type_url: &str, id: &str, cluster: &str) -> Stream {
        let stream = relay.open(StreamKind::from(Variant::Delta), peer.clone()).unwrap();
        let node = Node { id: id.into(), cluster: cluster.into(), ..Node::default() };
        ask(&stream, type_url, Some(node)).await;
        stream
    }

    async fn ask(stream: &Stream, type_url: &str, node: Option<Node>) {
        let request = DeltaRequest {
            node: node.map(Box::new),
            type_url: type_url.into(),
            subscribe: vec!["a".into()],
            ..DeltaRequest::default()
        };
        stream.request(Request::Delta(request)).await.unwrap();
    }

    /// Polls a stream until the stream ends, as its connection would.
    fn serve(stream: &Stream) -> tokio::task::JoinHandle<()> {
        let stream = stream.clone();
        tokio::spawn(async move {
            while let Some(Ok(_)) = std::future::poll_fn(|context| stream.poll_message(context)).await {}
        })
    }

    /// The server of the relay.
    fn place(relay: &Relay) -> Place {
        relay.shared.settings().lists.route(&TypeUrl::new(CLUSTER), Authority::None).at(0).place()
    }

    /// The nodes whose clusters are refused.
    fn refused(relay: &Relay) -> Vec<String> {
        let cluster = TypeUrl::new(CLUSTER);
        let is_refused = |session: &crate::driver::api::status::SessionStatus| {
            session.types.iter().any(|of| of.refused && of.type_url == cluster)
        };
        relay.sessions().filter(is_refused).map(|session| session.node_cluster.to_string()).collect()
    }

    /// RLY-21: by default, there are as many classes for Secrets as clients, each with an identity and an id of its own. They
    /// count apart: all other types of the fleet have one class.
    #[tokio::test(start_paused = true)]
    async fn a_fleet_of_5000_has_secrets_of_its_own() {
        let relay = relay_with(|settings| DriverSettings { limits: RelayLimits::default(), ..settings });
        let mut streams = Vec::new();
        for number in 0..5_000 {
            let id = SpiffeId::parse(&format!("spiffe://prod.example/envoy-{number}")).unwrap();
            let envoy = Peer { identity: Arc::new(Identity::Spiffe(id)), ..peer([10, 0, 0, 1]) };
            streams.push(asks(&relay, &envoy, SECRET, &format!("envoy-{number}"), "fleet").await);
            ask(&streams[number], CLUSTER, None).await;
        }
        assert_eq!(relay.refusals(), []);
        let used = |for_secrets| relay.tables.sources.used_classes(place(&relay), for_secrets);
        assert_eq!((used(true), used(false)), (5_000, 1));
        assert_eq!(relay.tables.sources.all().len(), 5_001);
    }

    /// I19, RLY-14: connections of one address invent classes. By default each has its share of them; with a limit as large as
    /// their number, they would take all classes of the server.
    #[tokio::test(start_paused = true)]
    async fn twelve_connections_with_90_classes_each_keep_no_newcomer_out() {
        let default = RelayLimits::default();
        for (limit, of_connection) in
            [(Limit::NodeClassesPerConnection, default.node_classes_per_connection), (Limit::NodeClasses, 90)]
        {
            let limits = RelayLimits { node_classes_per_connection: of_connection, ..default.clone() };
            let relay = relay_with(|settings| DriverSettings { limits, ..settings });
            let (mut hogs, mut tasks) = (Vec::new(), Vec::new());
            for connection in 0..12 {
                let hog = peer([10, 0, 0, 1]);
                for number in 0..90 {
                    let invented = format!("invented-{connection}-{number}");
                    hogs.push(asks(&relay, &hog, CLUSTER, "hog", &invented).await);
                    ask(&hogs[hogs.len() - 1], SECRET, None).await;
                    tasks.push(serve(&hogs[hogs.len() - 1]));
                }
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
            let in_use = (12 * of_connection).min(default.node_classes);
            assert_eq!(relay.tables.sources.used_classes(place(&relay), false), in_use, "{limit:?}");
            assert_eq!(refused(&relay).len(), 12 * 90 - in_use, "{limit:?}");
            assert!(tasks.iter().all(|task| !task.is_finished()), "{limit:?}: the type, and not the stream");

            let mut honest = Vec::new();
            for number in 0..8 {
                let newcomer = peer([10, 0, 0, 2]);
                honest.push(asks(&relay, &newcomer, CLUSTER, "honest", &format!("honest-{number}")).await);
                tasks.push(serve(&honest[number]));
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(refused(&relay).iter().all(|cluster| cluster.starts_with("invented")), "{limit:?}");
            let told = relay.shared.metrics.events.after(0, usize::MAX, |event| event.first.limit.is_some());
            let [warning] = told.events.as_slice() else { unreachable!("one warning: {told:?}") };
            assert_eq!((warning.first.limit, warning.count), (Some(limit.name()), 1));
            assert!(warning.first.detail.as_ref().unwrap().starts_with("cluster has "), "{warning:?}");
        }
    }

    /// RLY-14: a refused type is served once there is room, and a displaced type is refused.
    #[tokio::test(start_paused = true)]
    async fn a_refused_type_waits_for_room() {
        let relay = relay();
        let (hog, mut tasks) = (peer([10, 0, 0, 1]), Vec::new());
        let mut hogs = Vec::new();
        for number in 0..10 {
            let id = format!("hog-{number}");
            let stream = asks(&relay, &hog, CLUSTER, &id, &id).await;
            // Secrets are served regardless of the clusters.
            ask(&stream, SECRET, None).await;
            tasks.push(serve(&stream));
            hogs.push(stream);
        }
        assert!(refused(&relay).is_empty());
        let late = asks(&relay, &peer([10, 0, 0, 2]), CLUSTER, "late", "late").await;
        tasks.push(serve(&late));
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(refused(&relay), ["hog-9"]);
        assert_eq!(
            relay.tables.sources.all().len(),
            10 + 10 + 1,
            "classes, Secrets, and the source of refused types"
        );
        assert!(tasks.iter().all(|task| !task.is_finished()));

        drop(hogs.remove(0));
        tasks.remove(0).abort();
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(refused(&relay), Vec::<String>::new());
        let hit = relay.refusals();
        assert_eq!(hit.iter().map(|of| of.node_id.as_str()).collect::<Vec<_>>(), ["hog-9"]);
        drop((hogs, late));
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(relay.tables.sources.all().len(), 0, "nothing is left behind");
    }
}
