//! The new process takes over from the predecessor (HND-3).

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::{AdoptedConnections, Ways};
use crate::admin::PredecessorStatus;
use crate::driver::api::estate::{Bequest, ClassHead};
use crate::driver::{Heritage, Relay};
use crate::handover::message::{Draining, Hello, Offer};
use crate::handover::{Channel, HandoverFault, HandoverMessage, memory};
use crate::telemetry::Metrics;
use crate::telemetry::events::tell;

/// The time for the control planes to connect, before clients come. Servers in an outage must not hold up an
/// upgrade.
const UPSTREAM_MAX: Duration = Duration::from_secs(5);

/// The last clients of the predecessor come back within a backoff.
const GRACE: Duration = Duration::from_secs(10);

/// A predecessor after the offer of sockets and lock.
pub(in crate::app) struct Predecessor {
    channel: Channel,
    offer: Offer,
    lock: Option<File>,
    heritage: Heritage,
    /// Only the predecessor may write the checkpoint before the hand-over.
    no_writes: Option<OwnedMutexGuard<()>>,
}

impl Predecessor {
    /// Introduces the new process, and puts the offered sockets into the pool. The configuration must be
    /// valid. Blocks.
    ///
    /// # Errors
    /// The predecessor has gone, or speaks another protocol.
    pub fn greet(
        channel: Channel,
        timeout: Duration,
        pool: &mut AdoptedConnections,
    ) -> Result<Predecessor, HandoverFault> {
        channel.wait_at_most(Some(timeout))?;
        channel.send(&HandoverMessage::Hello(Hello::of_this_build()), &[])?;
        let (offer, descriptors) = match channel.receive()? {
            (HandoverMessage::Offer(offer), descriptors) => (offer, descriptors),
            (other, _) => return Err(other.instead_of("offer")),
        };
        offer.is_understood()?;
        let mut descriptors = descriptors.into_iter();
        for head in &offer.sockets {
            let socket = descriptors.next().ok_or(HandoverFault::NoDescriptor)?;
            pool.add(head.name.clone(), Some(head.address.clone()), socket, head.is_lent);
        }
        let lock = match &offer.lock {
            Some(_) => Some(File::from(descriptors.next().ok_or(HandoverFault::NoDescriptor)?)),
            None => None,
        };
        info!(
            pid = offer.pid,
            version = offer.version,
            sockets = offer.sockets.len(),
            "taking over from a predecessor"
        );
        Ok(Predecessor { channel, offer, lock, heritage: Heritage::default(), no_writes: None })
    }

    /// Takes the lock of the checkpoint over, before anything is read from there.
    pub async fn pass_lock(&mut self, relay: &Relay) {
        self.no_writes = relay.pause_checkpoint().await;
        if let Some(lock) = self.lock.take()
            && !relay.inherit_lock(lock)
        {
            info!("the checkpoint of the predecessor is in another directory");
        }
    }

    /// Reads the state of all sources, and starts them.
    ///
    /// # Errors
    /// The predecessor has gone.
    pub async fn inherit(&mut self, relay: &Relay) -> Result<(), HandoverFault> {
        let (begun, mut resources, mut cold) = (Instant::now(), 0, 0);
        for number in 0..self.offer.sources {
            let (head, state) = self.next_source().await?;
            match relay.inherit(&mut self.heritage, &head, &state).await {
                Ok(Bequest::Kept { resources: of_source } | Bequest::Waits { resources: of_source }) => {
                    resources += of_source;
                }
                Ok(Bequest::Unwanted) => cold += 1,
                Err(error) => {
                    cold += 1;
                    warn!(%error, "cannot use the state of a source; it starts cold");
                }
            }
            self.channel.send(&HandoverMessage::Taken { number }, &[])?;
        }
        let (sources, took) = (self.offer.sources, begun.elapsed());
        info!(sources, cold, resources, ?took, "took the state of the predecessor over");
        let connecting = relay.open_inherited(&self.heritage, UPSTREAM_MAX).await;
        if connecting > 0 {
            warn!(
                sources = connecting,
                "control planes are still connecting; serving the state of the predecessor"
            );
        }
        Ok(())
    }

    async fn next_source(&self) -> Result<(ClassHead, Vec<u8>), HandoverFault> {
        blocking(&self.channel, |channel| {
            let (source, descriptors) = match channel.receive()? {
                (HandoverMessage::Source(source), descriptors) => (source, descriptors),
                (other, _) => return Err(other.instead_of("source")),
            };
            let memory: OwnedFd = descriptors.into_iter().next().ok_or(HandoverFault::NoDescriptor)?;
            let head = ClassHead {
                node: source.node,
                attributes: source.attributes,
                identity: source.identity,
                identity_metadata: source.identity_metadata,
                is_for_secrets: source.is_for_secrets,
            };
            Ok((head, memory::read(memory)?))
        })
        .await
    }

    /// Says `ready`, and waits for the word. Listeners accept from then on.
    ///
    /// # Errors
    /// The predecessor has gone, or serves on.
    pub async fn take_over(&mut self, ways: &Ways, relay: &Relay) -> Result<()> {
        let accepted = blocking(&self.channel, |channel| {
            channel.send(&HandoverMessage::Ready, &[])?;
            match channel.receive()? {
                // Earlier builds pass no plans, or plans alone.
                (HandoverMessage::Accept, states) => states.into_iter().map(memory::read).collect(),
                (other, _) => Err(other.instead_of("accept")),
            }
        });
        let decisions: Vec<Vec<u8>> =
            accepted.await.map_err(std::io::Error::other).context("the predecessor serves on")?;
        // Before the first client.
        relay.begin_decisions(&decisions);
        ways.resume();
        self.no_writes = None;
        // From here on the new process serves, whatever becomes of the predecessor.
        let ended = blocking(&self.channel, |channel| {
            channel.send(&HandoverMessage::Accepting, &[])?;
            channel.receive().map(|_done| ())
        });
        if let Err(fault) = ended.await {
            warn!(%fault, "the predecessor ended during the hand-over");
        }
        Ok(())
    }

    /// The predecessor, for operators.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn following(&self) -> std::io::Result<Arc<Following>> {
        let status = PredecessorStatus {
            pid: self.offer.pid,
            version: self.offer.version.clone(),
            streams: 0,
            connections: 0,
            seconds_left: 0.0,
        };
        Ok(Arc::new(Following { status: Mutex::new(Some(status)), channel: self.channel.another()? }))
    }

    /// Follows the predecessor's drain until the end, then lets the inherited state go.
    pub fn follow(self, followed: Arc<Following>, relay: Relay, metrics: Arc<Metrics>) {
        let heritage = self.heritage;
        tokio::spawn(async move {
            let (of_thread, metrics_of_thread) = (followed.clone(), metrics.clone());
            let watched = spawn_blocking(move || of_thread.watch(&metrics_of_thread)).await;
            // A panic ends the watch, too.
            let _ = watched;
            metrics.handover.predecessor_streams(0);
            let pid = followed.status.lock().take().map(|status| status.pid);
            tell!(metrics.events, info(Handover, "the predecessor has ended"); { pid });
            sleep(GRACE).await;
            relay.end_inheritance(heritage);
        });
    }
}

/// The predecessor during the drain.
pub(in crate::app) struct Following {
    status: Mutex<Option<PredecessorStatus>>,
    channel: Channel,
}

impl Following {
    pub fn status(&self) -> Option<PredecessorStatus> {
        self.status.lock().clone()
    }

    /// Asks the predecessor to end all streams at once.
    pub fn end(&self) {
        // The predecessor may have ended meanwhile.
        let _ = self.channel.send(&HandoverMessage::End, &[]);
    }

    /// Tells the predecessor that this process stops: with nobody behind it, it stops, too.
    pub fn stop(&self) {
        // The predecessor may have ended meanwhile, or be of an earlier build.
        let _ = self.channel.send(&HandoverMessage::Stopping, &[]);
    }

    fn watch(&self, metrics: &Metrics) {
        // The predecessor reports several times a second, and closes at the end.
        let _ = self.channel.wait_at_most(None);
        while let Ok((message, _)) = self.channel.receive() {
            let HandoverMessage::Draining(Draining { streams, connections, milliseconds_left }) = message
            else {
                continue;
            };
            metrics.handover.predecessor_streams(streams);
            if let Some(status) = &mut *self.status.lock() {
                (status.streams, status.connections) = (streams, connections);
                status.seconds_left = Duration::from_millis(milliseconds_left).as_secs_f64();
            }
        }
    }
}

async fn blocking<T: Send + 'static>(
    channel: &Channel,
    talk: impl FnOnce(&Channel) -> Result<T, HandoverFault> + Send + 'static,
) -> Result<T, HandoverFault> {
    let channel = channel.another()?;
    spawn_blocking(move || talk(&channel)).await.map_err(|_| HandoverFault::Closed)?
}
