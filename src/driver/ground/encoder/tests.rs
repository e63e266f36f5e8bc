//! The lifetime of encoded bodies.

#![allow(clippy::unwrap_used, clippy::panic)]

use super::made::{Made, SWEEP_MIN};
use super::*;
use crate::driver::api::downstream::{Codec, OpenStreams, Polled, RelayStream};
use crate::driver::ground::encoder::private_body::PrivateBody;
use crate::driver::stream::own_sources::newest;
use crate::driver::stream::state::Stream;
use crate::driver::stream::state::tests::{peer, relay_of_clusters, wildcard_of, write_clusters};
use sluice_xds::{DeltaRequest, Request, SotwRequest, StreamKind};

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// The answer that is due on a stream.
fn answer_of(stream: &Stream) -> Answer {
    let state = stream.state();
    let inner = &mut *state.inner.lock();
    let now = state.context.shared.clock.now();
    inner.session.poll_answer(&newest(&inner.placement.sources), now).unwrap().1
}

/// A document for everybody.
fn json_of(encoder: &Arc<Encoder>, answer: &Answer) -> Poll<Result<Bytes, Status>> {
    let caller = DocumentCaller { waker: Waker::noop(), presence: &Arc::default() };
    encoder.poll_json(answer, Version(1), Sharing::Shared, Maker::default, true, &caller)
}

#[tokio::test]
async fn fd_6_repeated_encodings_leave_one_record() {
    let (relay, _directory) = relay_of_clusters(&["a"], 10).await;
    let stream = wildcard_of(&relay).await;
    let (answer, encoder) = (answer_of(&stream), &relay.shared.content.encoder);
    for _ in 0..2000 {
        let encoded = encoder.poll_encode(&answer, Sharing::Shared, Maker::default, true, Waker::noop());
        assert!(encoded.is_ready());
        encoder.clear();
    }
    let made = encoder.made.lock();
    let records: usize = made.of_source.values().map(|source| source.records.len()).sum();
    assert_eq!(records, made.records);
    assert!(records <= SWEEP_MIN, "{records}");
}

/// As with an answer of two sources while one source changes.
#[tokio::test]
async fn fd_6_records_of_dropped_bodies_are_swept() {
    let (relay, _directory) = relay_of_clusters(&["a"], 10).await;
    let stream = wildcard_of(&relay).await;
    let (answer, encoder) = (answer_of(&stream), &relay.shared.content.encoder);
    for _ in 0..2000 {
        let encoded = encoder.poll_encode(&answer, Sharing::Shared, Maker::default, true, Waker::noop());
        assert!(encoded.is_ready());
        encoder.clear();
        encoder.made.lock().live.clear();
    }
    let made = encoder.made.lock();
    let records: usize = made.of_source.values().map(|source| source.records.len()).sum();
    assert!(records <= 2 * SWEEP_MIN, "{records}");
}

/// A worker has other connections to serve. A body may be large for a single stream, or as the rest of a set
/// that the client has.
#[tokio::test]
async fn fd6_large_bodies_are_made_elsewhere_shared_or_private() {
    let set: Vec<_> = (0..40).map(|n| format!("cluster-{n}")).collect();
    let names: Vec<_> = set.iter().map(String::as_str).collect();
    let (relay, directory) = relay_of_clusters(&names, 10_000).await;
    let stream = wildcard_of(&relay).await;
    let (answer, encoder) = (answer_of(&stream), &relay.shared.content.encoder);
    let mut private_body = PrivateBody::default();
    let mut alone = |answer: &Answer| {
        encoder.poll_encode(answer, Sharing::Private(&mut private_body), Maker::default, true, Waker::noop())
    };
    assert!(alone(&answer).is_pending());
    let made = loop {
        if let Poll::Ready(made) = alone(&answer) {
            break made;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(made.messages[0].body.len() > 400_000 && encoder.find(&answer.key()).is_none());
    let mut private_body = PrivateBody::default();
    let json = encoder.poll_json(
        &answer,
        Version(1),
        Sharing::Private(&mut private_body),
        Maker::default,
        true,
        &DocumentCaller { waker: Waker::noop(), presence: &Arc::default() },
    );
    assert!(json.is_pending());

    // First a single resource of the client's set changes, then all resources.
    for (nonce, changed, is_large) in [(1, 1, false), (2, 40, true)] {
        std::future::poll_fn(|context| stream.poll_message(context)).await.unwrap().unwrap();
        let nonce = stream.state().inner.lock().session.nonce_text(nonce);
        let ack = DeltaRequest { type_url: CDS.into(), response_nonce: nonce, ..DeltaRequest::default() };
        stream.request(Request::Delta(ack)).await.unwrap();
        let bytes = |at| if at < changed { 10_001 + changed } else { 10_000 };
        let resources: Vec<_> = (0..).zip(&names).map(|(at, name)| (*name, bytes(at) as usize)).collect();
        write_clusters(&directory, &resources);
        while !stream.state().has_something_to_say() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let answer = answer_of(&stream);
        let encoded = encoder.poll_encode(&answer, Sharing::Shared, Maker::default, true, Waker::noop());
        assert_eq!(encoded.is_pending(), is_large, "{changed} resources");
    }
}

/// Unused bodies are evicted without a further request.
#[tokio::test]
async fn fd_6_what_nobody_asks_for_goes_by_itself() {
    let (relay, _directory) = relay_of_clusters(&["a"], 10).await;
    let stream = wildcard_of(&relay).await;
    let answer = answer_of(&stream);
    let metrics = Arc::new(Metrics::new());
    let encoder = Arc::new(Encoder::with_idle(1 << 20, Duration::from_millis(1), metrics.clone()));
    let json = json_of(&encoder, &answer);
    assert!(json.map(|json| json.is_ok()) == Poll::Ready(true));
    let encoded = encoder.poll_encode(&answer, Sharing::Shared, Maker::default, true, Waker::noop());
    assert!(encoded.is_ready());
    drop(encoded);
    let is_kept = || !metrics.encode().unwrap().contains("sluice_encoding_cache_bytes 0\n");
    assert!(is_kept());
    // The caches read a clock of their own.
    for _ in 0..1000 {
        encoder.tidy();
        if !is_kept() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("kept for ever");
}

/// A source that has moved on leaves nothing of its former state: neither messages nor documents.
#[tokio::test]
async fn fd_6_bodies_go_when_their_source_moves_on() {
    let (relay, _directory) = relay_of_clusters(&["a"], 10).await;
    let stream = wildcard_of(&relay).await;
    let answer = answer_of(&stream);
    let metrics = Arc::new(Metrics::new());
    let encoder = Arc::new(Encoder::new(1 << 20, metrics.clone()));
    let json = json_of(&encoder, &answer);
    assert!(json.map(|json| json.is_ok()) == Poll::Ready(true));
    let encoded = encoder.poll_encode(&answer, Sharing::Shared, Maker::default, true, Waker::noop());
    assert!(encoded.is_ready());
    drop(encoded);
    encoder.move_on(answer.parts[0].view.id().source(), &Published::default());
    let is_kept = || !metrics.encode().unwrap().contains("sluice_encoding_cache_bytes 0\n");
    // The caches free an entry once no thread of the process reads any cache. Another test may be reading
    // one.
    for _ in 0..1000 {
        if !is_kept() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        encoder.tidy();
    }
    panic!("kept for ever");
}

/// The place of a key has the body for the streams that come next, and keeps nothing alive.
#[tokio::test]
async fn the_body_of_the_moment_is_found_without_the_cache() {
    let (relay, _directory) = relay_of_clusters(&["a"], 10).await;
    let answer = answer_of(&wildcard_of(&relay).await);
    let (encoder, recent) = (&relay.shared.content.encoder, RecentBodies::default());
    let Poll::Ready(body) =
        encoder.poll_encode(&answer, Sharing::Shared, Maker::default, true, Waker::noop())
    else {
        panic!("a small body is made at once")
    };
    let (key, other) = (answer.key(), Answer { full: !answer.full, ..answer.clone() }.key());
    let finds = |key: &AnswerKey| (0..1000).filter(|_| recent.find(key).is_some()).count();
    assert_eq!(finds(&key), 0);
    recent.note(&key, &body);
    assert!((880..=985).contains(&finds(&key)), "every sixteenth asks the cache");
    assert_eq!(finds(&other), 0, "another body with the same place");
    recent.note(&other, &body);
    assert_eq!(finds(&key), 0, "the newest has the place");
    assert!(finds(&other) > 0);
    encoder.clear();
    encoder.made.lock().live.clear();
    let weak = Arc::downgrade(&body);
    drop(body);
    // The cache frees an entry once no thread of the process reads any cache.
    while weak.upgrade().is_some() {
        encoder.tidy();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(finds(&other), 0);
}

/// Clients with names of their own come one after the other. Each has a body, and causes a snapshot.
#[tokio::test]
async fn fd_6_a_snapshot_costs_a_few_looks_however_many_bodies_there_are() {
    let (relay, _directory) = relay_of_clusters(&["a"], 10).await;
    let answer = answer_of(&wildcard_of(&relay).await);
    let (mut made, body) = (Made::<u32, ()>::default(), Arc::default());
    (0..1000).for_each(|key| made.add(key, &answer, &body));
    let source = answer.parts[0].view.id().source();
    let mut gone = (0..16).map(|_| made.move_on(source, &Published::default()).len());
    assert!(gone.by_ref().take(15).all(|gone| gone == 0));
    assert_eq!(gone.next(), Some(1000), "all go at once, and not long after");
}

/// A body from another thread is gone before the lookup.
#[tokio::test]
async fn rst_1_a_document_that_the_cache_cannot_keep_is_given() {
    for form in [Codec::Json, Codec::Grpc] {
        let (relay, _directory) = relay_of_clusters(&["a"], 2 << 20).await;
        let stream = relay.open(StreamKind::from(Variant::Sotw), peer([127, 0, 0, 1])).unwrap();
        let request = SotwRequest {
            node: Some(Box::default()),
            type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".into(),
            ..SotwRequest::default()
        };
        let polled = stream.poll_once(request, form, Duration::from_secs(10));
        let polled = tokio::time::timeout(Duration::from_secs(30), polled).await.unwrap().unwrap();
        let Polled::Set { shared, .. } = polled else { panic!("the client has nothing") };
        assert!(shared.len() > 2 << 20);
    }
}

/// Another budget holds for the next body. A body in use is still found.
#[tokio::test]
async fn rel_5_the_caches_have_the_size_in_force() {
    let (relay, _directory) = relay_of_clusters(&["a"], 10).await;
    let stream = wildcard_of(&relay).await;
    let (answer, encoder) = (answer_of(&stream), &relay.shared.content.encoder);
    let poll = || encoder.poll_encode(&answer, Sharing::Shared, Maker::default, true, Waker::noop());
    let Poll::Ready(in_use) = poll() else { panic!("a small body is made at once") };
    encoder.configure(1);
    assert!(poll().map(|body| Arc::ptr_eq(&body, &in_use)) == Poll::Ready(true));
    drop(in_use);
    let weak = || match poll() {
        Poll::Ready(body) => Arc::downgrade(&body),
        Poll::Pending => panic!("a small body is made at once"),
    };
    let body = weak();
    // The cache frees a body some turns after its removal.
    let freed = async {
        while body.upgrade().is_some() {
            encoder.tidy();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(10), freed).await.is_ok(), "nothing fits into a byte");
    encoder.configure(1 << 20);
    let body = weak();
    encoder.tidy();
    assert!(body.upgrade().is_some());
}
