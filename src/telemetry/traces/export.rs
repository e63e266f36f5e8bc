//! The thread that sends traces, with a runtime of its own: a collector that hangs keeps no task of the relay
//! waiting (OBS-6).

#![allow(
    clippy::disallowed_types,
    reason = "the main thread waits for the end of the traces after the runtime has ended"
)]

use std::io;
use std::pin::pin;
use std::sync::mpsc as blocking;
use std::thread;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_otlp::{SpanExporter as OtlpExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{mpsc, watch};
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tracing::{info, warn};

use super::exemplars::{Exemplar, Exemplars};
use super::ids::Ids;
use super::{Finished, tree};

/// The changes and acts in one request to the collector.
const BATCH_MAX: usize = 32;

/// The time for one request. Traces that come meanwhile wait in the queue.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// The time for the last request at the end of the process (OBS-7).
const LAST_TIMEOUT: Duration = Duration::from_millis(500);

/// The numbers and marks that the sending leaves.
pub(super) struct ExportOutcome {
    pub(super) dropped: Counter,
    pub(super) ids: Ids,
    pub(super) exemplars: Exemplars,
}

/// Ends the thread.
#[derive(Debug)]
pub struct TraceGuard {
    stop: watch::Sender<bool>,
    is_over: blocking::Receiver<()>,
}

impl TraceGuard {
    /// Sends the last traces, and waits for it at most this long. Call it after the relay's runtime has ended
    /// (OBS-7).
    pub fn wait_at_most(self, limit: Duration) {
        self.stop.send_replace(true);
        // An error: the thread has ended.
        let _ = self.is_over.recv_timeout(limit);
    }
}

pub(super) fn start(
    endpoint: &str,
    instance: &str,
    finished: mpsc::Receiver<Finished>,
    outcome: ExportOutcome,
) -> io::Result<TraceGuard> {
    let (stop, stopped) = watch::channel(false);
    let (over, is_over) = blocking::channel();
    let (endpoint, instance) = (endpoint.to_owned(), instance.to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("traces".into()).spawn(move || {
        runtime.block_on(async {
            match exporter(&endpoint, &instance) {
                Ok(exporter) => {
                    Sender { exporter, endpoint, outcome, is_failing: false }.run(finished, stopped).await
                }
                Err(error) => warn!(endpoint, %error, "cannot send traces"),
            }
        });
        // Without a wait for a request that hangs.
        runtime.shutdown_background();
        drop(over);
    })?;
    Ok(TraceGuard { stop, is_over })
}

fn exporter(endpoint: &str, instance: &str) -> Result<OtlpExporter, opentelemetry_otlp::ExporterBuildError> {
    let builder = OtlpExporter::builder().with_tonic().with_endpoint(endpoint).with_timeout(EXPORT_TIMEOUT);
    let mut exporter = builder.build()?;
    let resource = Resource::builder_empty().with_attributes([
        KeyValue::new("service.name", "sluice"),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", instance.to_owned()),
    ]);
    exporter.set_resource(&resource.build());
    Ok(exporter)
}

struct Sender {
    exporter: OtlpExporter,
    endpoint: String,
    outcome: ExportOutcome,
    /// The last request failed, and the log has it.
    is_failing: bool,
}

impl Sender {
    async fn run(mut self, mut finished: mpsc::Receiver<Finished>, mut stopped: watch::Receiver<bool>) {
        let (mut batch, mut is_hanging) = (Vec::with_capacity(BATCH_MAX), false);
        loop {
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => break,
                count = finished.recv_many(&mut batch, BATCH_MAX) => if count == 0 { break },
            }
            let (spans, exemplars) = self.take(&mut batch);
            let count = spans.len();
            let sent = {
                let mut request = pin!(self.exporter.export(spans));
                tokio::select! {
                    sent = timeout(EXPORT_TIMEOUT, &mut request) => sent,
                    // At the end, the process waits less for a collector that hangs.
                    _ = stopped.wait_for(|stopped| *stopped) => timeout(LAST_TIMEOUT, &mut request).await,
                }
            };
            is_hanging = sent.is_err();
            if matches!(sent, Ok(Ok(()))) {
                self.outcome.exemplars.add(exemplars);
            }
            self.note(sent, count);
        }
        while let Ok(last) = finished.try_recv() {
            batch.push(last);
        }
        let (spans, _) = self.take(&mut batch);
        let count = spans.len();
        let is_wanted = count > 0 && !is_hanging;
        if !is_wanted || !matches!(timeout(LAST_TIMEOUT, self.exporter.export(spans)).await, Ok(Ok(()))) {
            self.outcome.dropped.inc_by(count as u64);
        }
    }

    /// The spans of a batch, and the exemplars once the collector has the spans (OBS-8).
    fn take(&self, batch: &mut Vec<Finished>) -> (Vec<SpanData>, Vec<Exemplar>) {
        let ids = &self.outcome.ids;
        let exemplars = batch.iter().flat_map(|finished| Exemplar::all(finished, ids)).collect();
        let spans = batch.drain(..).flat_map(|finished| tree::spans(&finished, ids)).collect();
        (spans, exemplars)
    }

    /// One WARN at the first failure, one INFO at the end of the failures.
    fn note(&mut self, sent: Result<OTelSdkResult, Elapsed>, count: usize) {
        let error = match sent {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("no answer in time".to_owned()),
        };
        if let Some(error) = &error {
            self.outcome.dropped.inc_by(count as u64);
            if !self.is_failing {
                warn!(
                    endpoint = self.endpoint,
                    error, "cannot send traces; dropping them, and trying again with the next"
                );
            }
        } else if self.is_failing {
            info!(endpoint = self.endpoint, "the collector takes traces again");
        }
        self.is_failing = error.is_some();
    }
}
