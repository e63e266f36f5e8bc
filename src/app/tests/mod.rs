//! Memory, counted in the size classes of the relay's allocator over a whole relay: from the bytes of sockets to the
//! tables of sources.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod classes;
mod clients;
mod reports;

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::Request;
use tikv_jemalloc_ctl::thread;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::servers::{self, Channels};
use super::settings::{relay_settings, server_limits};
use crate::config::Config;
use crate::driver::Relay;
use crate::server::{Listener, Server};
use crate::telemetry::Metrics;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const ADS: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

/// A relay in a thread of its own, so that the counters of the thread are those of the relay.
struct CountedRelay {
    address: SocketAddr,
    metrics: Arc<Metrics>,
    counts: mpsc::UnboundedSender<oneshot::Sender<i64>>,
}

impl CountedRelay {
    async fn start(config: Config) -> CountedRelay {
        let (counts, mut asked) = mpsc::unbounded_channel::<oneshot::Sender<i64>>();
        let (told, address) = oneshot::channel();
        let metrics = Arc::new(Metrics::new());
        let of_relay = metrics.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let lists =
                    servers::lists(&config.servers, 1 << 20, &of_relay, &Channels::default()).unwrap().0;
                let relay = Relay::new(relay_settings(&config, lists, Arc::default(), 1), of_relay.clone());
                let listener = Listener::bind_tcp("main", "127.0.0.1:0".parse().unwrap()).unwrap();
                told.send(listener.address().unwrap()).unwrap();
                let limits = server_limits(&config.limits.server, Duration::ZERO);
                let server = Server::new(Arc::new(relay), limits, of_relay.downstream.clone());
                tokio::spawn(server.serve(vec![listener], pending()));
                while let Some(asker) = asked.recv().await {
                    let allocated = thread::allocatedp::read().unwrap().get() as i64;
                    let _ = asker.send(allocated - thread::deallocatedp::read().unwrap().get() as i64);
                }
            });
        });
        CountedRelay { address: address.await.unwrap(), metrics, counts }
    }

    /// The bytes in use, once they stay the same.
    async fn bytes(&self) -> i64 {
        let mut before = None;
        loop {
            let (asker, answer) = oneshot::channel();
            self.counts.send(asker).unwrap();
            let now = answer.await.unwrap();
            if before.replace(now) == Some(now) {
                return now;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn open(send: &mut SendRequest<Bytes>, path: &str) -> (SendStream<Bytes>, RecvStream) {
    let request = Request::post(format!("http://relay{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let (response, requests) = send.send_request(request.body(()).unwrap(), false).unwrap();
    (requests, response.await.unwrap().into_body())
}
