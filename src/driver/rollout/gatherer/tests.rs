//! The cut of several units, and a source that begins anew.
#![allow(clippy::unwrap_used, clippy::panic)]

use bytes::Bytes;
use tokio::sync::Barrier;
use tokio::time::timeout;

use super::*;
use crate::driver::api::downstream::{OpenStreams, RelayStream};
use crate::driver::ground::checkpoint_writer::{CheckpointWriter, digest_of_relay};
use crate::driver::ground::context::DriverSettings;
use crate::driver::source::handle::{Command, Subscriber};
use crate::driver::stream::state::tests::{peer, relay_with};
use crate::telemetry::wall_now;
use sluice_checkpoint::{Header, Restored};
use sluice_engine::cache::SessionId;
use sluice_engine::collection::Collection;
use sluice_engine::source::{Kept, RestoredType};
use sluice_fleet::rollout::Mode;
use sluice_xds::{
    Any, Code, DeltaRequest, Node, RelayPath, Request, Resource, ResourceName, Status, StreamKind, TypeUrl,
    Variant, Version,
};

const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// A stream with a fatal subscription: the task of the source fails.
struct Fatal;

impl Subscriber for Fatal {
    fn id(&self) -> SessionId {
        panic!("planted")
    }

    fn wake(&self) {}

    fn end(&self, _: Status) {}

    fn node(&self) -> Option<Arc<Node>> {
        None
    }

    fn relays(&self) -> Option<&RelayPath> {
        None
    }

    fn awaited_changes(&self, _: SourceId) -> Vec<u64> {
        Vec::new()
    }

    fn divert(self: Arc<Self>, _: TypeUrl) {}

    fn displaced(self: Arc<Self>, _: SourceId) {}
}

fn cluster() -> Kept {
    let resource = Resource {
        name: "a".into(),
        version: Version(1),
        body: Any { type_url: Arc::from(CLUSTER), value: Bytes::from_static(b"1") },
        aliases: Box::default(),
        ttl: None,
        do_not_cache: false,
        body_has_name: true,
        metadata: None,
        endpoints: None,
        constraints: None,
    };
    Kept { name: "a".into(), resource: Arc::new(resource), server_version: "".into(), left: None }
}

fn has_it(source: &SourceHandle) -> bool {
    let clusters = source.published().stable().of(&TypeUrl::new(CLUSTER)).cloned();
    clusters.is_some_and(|clusters| {
        clusters.names.entries.get(&ResourceName::new("a")).is_some_and(|state| state.resource().is_some())
    })
}

/// WAV-8, FP11: the task of a source fails, and the content is known and held from the begin of the next
/// task.
#[tokio::test(start_paused = true)]
async fn wav_8_a_source_whose_task_failed_begins_anew_from_what_it_served() {
    let mut plan = Plan::new("edge");
    plan.mode = Mode::Enforce;
    let rollouts = vec![Arc::new(plan)];
    let relay = relay_with(|settings| DriverSettings { rollouts, ..settings });
    let ask = async || {
        let stream = relay.open(StreamKind::from(Variant::Delta), peer([10, 0, 0, 1])).unwrap();
        let (node, subscribe) = (Some(Box::<Node>::default()), vec!["a".into()]);
        let request = DeltaRequest { node, type_url: CLUSTER.into(), subscribe, ..DeltaRequest::default() };
        stream.request(Request::Delta(request)).await.unwrap();
        stream
    };
    // The identity of the source, then a source with content.
    drop(ask().await);
    let key = relay.tables.sources.all()[0].key().clone();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(relay.tables.sources.all().is_empty());
    let settings = relay.shared.epoch();
    let identity = CheckpointWriter::identity(&key, settings.lists.find(key.place).unwrap()).unwrap();
    let (at, relay_digest) = (wall_now(), digest_of_relay(&settings.node));
    let header = Header { identity, relay: relay_digest, written_at: at, confirmed_at: at };
    let types = vec![RestoredType { names: vec![cluster()], ..RestoredType::new(TypeUrl::new(CLUSTER)) }];
    relay.shared.durable.inheritance.put(Restored { header, types });
    let stream = ask().await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    let failed = relay.tables.sources.find(&key).unwrap();
    assert!(has_it(&failed) && !failed.has_hold());

    let collection = Collection::Wildcard;
    let fatal = Command::Watch {
        stream: Arc::new(Fatal),
        type_url: TypeUrl::new(CLUSTER),
        collection,
        previous: None,
        seen: 0,
    };
    failed.send(fatal).await;
    let end = std::future::poll_fn(|context| stream.poll_message(context));
    let ended = tokio::time::timeout(Duration::from_millis(500), async {
        let mut end = end.await;
        while let Some(Ok(_)) = end {
            end = std::future::poll_fn(|context| stream.poll_message(context)).await;
        }
        end
    });
    let Ok(Some(Err(status))) = ended.await else { panic!("the stream goes on") };
    assert_eq!(status.code, Code::Internal);

    let anew = relay.tables.sources.find(&key).expect("another source at once");
    assert!(anew.id() != failed.id() && anew.has_hold(), "held before its content is back");
    // A late subscription to the failed task is ended, and not forgotten.
    drop(stream);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(has_it(&anew) && anew.published().lanes.is_some());
    let again = ask().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(relay.tables.sources.find(&key).unwrap().id(), anew.id());
    drop(again);
}

/// Each source answers when all have been asked.
#[tokio::test(start_paused = true)]
async fn wav_4_all_units_are_cut_before_any_is_looked_at() {
    let all_asked = Barrier::new(3);
    let answer = async |has_hold: bool| {
        all_asked.wait().await;
        has_hold.then_some("content")
    };
    let cuts = [(1, true), (2, false), (3, true)].into_iter();
    let cuts = cuts.map(|(unit, has_hold)| (UnitId(unit), answer(has_hold)));
    let cut = timeout(Duration::from_secs(1), together(cuts)).await;
    assert_eq!(cut, Ok(vec![(UnitId(1), "content"), (UnitId(3), "content")]));
}
