//! What the encoder keeps, and for how long.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::driver::handle::{Form, Polled, Relay, RelayStream};
use crate::driver::stream::Stream;
use crate::driver::stream::tests::{hub_of_clusters, peer, wildcard_of};
use crate::driver::views::newest;
use crate::xds::{SotwRequest, StreamKind};

/// What is due on a stream.
fn answer_of(stream: &Stream) -> Answer {
    let state = stream.state();
    let inner = &mut *lock(&state.inner);
    let now = state.shared.clock.now();
    inner.session.poll_answer(&newest(&inner.sources), now).unwrap().1
}

#[tokio::test]
async fn fd_6_what_is_made_again_and_again_is_recorded_once() {
    let (hub, _directory) = hub_of_clusters(&["a"], 10).await;
    let stream = wildcard_of(&hub).await;
    let (answer, encoder) = (answer_of(&stream), &hub.shared.encoder);
    for _ in 0..2000 {
        let encoded = encoder.poll_encode(&answer, false, String::new, true, Waker::noop());
        assert!(encoded.is_ready());
        encoder.clear();
    }
    let made = lock(&encoder.made);
    let records: usize = made.of_source.values().map(Vec::len).sum();
    assert_eq!(records, made.records);
    assert!(records <= SWEEP_MIN, "{records}");
}

/// As of an answer of two sources, one of which moves on.
#[tokio::test]
async fn fd_6_records_of_what_is_gone_are_swept() {
    let (hub, _directory) = hub_of_clusters(&["a"], 10).await;
    let stream = wildcard_of(&hub).await;
    let (answer, encoder) = (answer_of(&stream), &hub.shared.encoder);
    for _ in 0..2000 {
        let encoded = encoder.poll_encode(&answer, false, String::new, true, Waker::noop());
        assert!(encoded.is_ready());
        encoder.clear();
        lock(&encoder.made).encoded.clear();
    }
    let made = lock(&encoder.made);
    let records: usize = made.of_source.values().map(Vec::len).sum();
    assert!(records <= 2 * SWEEP_MIN, "{records}");
}

/// What is made elsewhere is gone before it is looked for.
#[tokio::test]
async fn rst_1_a_document_that_the_cache_cannot_keep_is_given() {
    for form in [Form::Json, Form::Grpc] {
        let (hub, _directory) = hub_of_clusters(&["a"], 2 << 20).await;
        let stream = hub.open(StreamKind::from(Variant::Sotw), peer([127, 0, 0, 1])).unwrap();
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
