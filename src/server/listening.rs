//! The listeners in service: opened and closed while the server runs. No connection belongs to a
//! configuration: the connections of a listener stay when their listener is closed, until somebody lets them
//! leave (REL-5).

use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::crowd::usher;
use super::emptying::{Departure, Door, Emptier};
use super::gate::{ConnectionPermit, Gate};
use super::listener::Listener;
use super::passage::Accepted;
use super::socket::Plain;
use super::{Shared, accept, connection};
use crate::driver::api::downstream::{ConnectionCut, OpenStreams, Peer};
use sluice_identity::Identity;

/// A handle to the listeners of a server. Clones share the listeners.
pub struct Listening<R: OpenStreams>(Arc<ListeningInner<R>>);

impl<R: OpenStreams> Clone for Listening<R> {
    fn clone(&self) -> Self {
        Listening(self.0.clone())
    }
}

struct ListeningInner<R> {
    shared: Arc<Shared<R>>,
    emptier: Arc<Emptier>,
    gate: Arc<Gate>,
    connections: TaskTracker,
    open: Mutex<OpenListeners>,
}

#[derive(Default)]
struct OpenListeners {
    listeners: Vec<Accepting>,
    /// The server accepts no more.
    is_over: bool,
}

/// A listener in service.
struct Accepting {
    name: Arc<str>,
    door: Arc<Door>,
    stop: CancellationToken,
    /// Resolves to the listener after `stop`.
    over: JoinHandle<Listener>,
}

impl Accepting {
    async fn stop(self) -> Option<Closed> {
        self.stop.cancel();
        // An error is a panic in the loop: the socket has gone with it.
        let listener = self.over.await.ok()?;
        Some(Closed { listener, door: self.door })
    }
}

/// A listener out of service. The kernel still queues connections for it, and its former connections stay.
pub struct Closed {
    listener: Listener,
    door: Arc<Door>,
}

impl Closed {
    pub fn name(&self) -> &Arc<str> {
        self.listener.name()
    }

    pub fn listener(&self) -> &Listener {
        &self.listener
    }
}

impl<R: OpenStreams> Listening<R> {
    pub(super) fn new(shared: Arc<Shared<R>>, emptier: Arc<Emptier>) -> Listening<R> {
        let relay = shared.relay.clone();
        let is_out_of_memory = move || relay.is_out_of_memory();
        let gate = Gate::new(shared.limits.clone(), shared.metrics.clone(), is_out_of_memory);
        let (connections, open) = (TaskTracker::new(), Mutex::default());
        Listening(Arc::new(ListeningInner { shared, emptier, gate, connections, open }))
    }

    /// Accepts on a listener from now on. A server at its end drops the listener. Must be called within a
    /// tokio runtime.
    pub fn open(&self, listener: Listener) {
        let door = self.0.emptier.door();
        self.accept(Closed { listener, door });
    }

    /// Accepts again on a listener that was closed.
    pub fn reopen(&self, closed: Closed) {
        self.accept(closed);
    }

    /// Takes a listener out of service; `None` if there is none with the name.
    pub async fn close(&self, name: &str) -> Option<Closed> {
        let accepting = {
            let mut open = self.0.open.lock();
            let index = open.listeners.iter().position(|accepting| &*accepting.name == name)?;
            open.listeners.remove(index)
        };
        accepting.stop().await
    }

    /// Takes all listeners out of service.
    pub async fn close_all(&self) -> Vec<Closed> {
        let all = std::mem::take(&mut self.0.open.lock().listeners);
        join_all(all.into_iter().map(Accepting::stop)).await.into_iter().flatten().collect()
    }

    /// Lets the connections of a closed listener leave, like those of a drain. Returns the socket.
    pub fn leave(&self, closed: Closed) -> Listener {
        self.0.emptier.retire(&closed.door);
        closed.listener
    }

    /// Closes all listeners, and opens no more.
    pub(super) async fn end(&self) {
        self.0.open.lock().is_over = true;
        // Sockets close and socket files are removed here.
        drop(self.close_all().await);
    }

    /// Stops all listeners without waiting for them, and opens no more.
    pub(super) fn cut_off(&self) {
        let mut open = self.0.open.lock();
        open.is_over = true;
        for accepting in std::mem::take(&mut open.listeners) {
            accepting.stop.cancel();
        }
    }

    /// The connections of all listeners, past and present.
    pub(super) fn connections(&self) -> &TaskTracker {
        &self.0.connections
    }

    fn accept(&self, Closed { listener, door }: Closed) {
        let (name, options) = (listener.name().clone(), listener.options());
        let (shared, connections) = (self.0.shared.clone(), self.0.connections.clone());
        let security = listener.security();
        let anonymous = Arc::new(Identity::Anonymous);
        let (listener_name, way) = (name.clone(), door.clone());
        let tracker = connections.clone();
        let begin = move |(accepted, permit, departure): (Accepted, ConnectionPermit, Arc<Departure>)| {
            let address = accepted.address();
            let identity = accepted.user().map_or_else(|| anonymous.clone(), Arc::new);
            let socket = match accepted {
                Accepted::Tcp(stream, _) => Plain::Tcp(stream),
                Accepted::Unix(stream) => Plain::Unix(stream),
            };
            let peer = Arc::new(Peer {
                listener: name.clone(),
                address,
                identity,
                connection: ConnectionCut::with_budget(shared.limits.get().connection_bytes),
                when_unavailable: options.get().when_unavailable,
                relays: None,
            });
            shared.relay.connected(&peer.connection);
            connections.spawn(connection::run(
                socket,
                security.clone(),
                peer,
                options.clone(),
                shared.clone(),
                departure,
                permit,
            ));
        };
        let mut open = self.0.open.lock();
        if open.is_over {
            return;
        }
        let stop = CancellationToken::new();
        let (gate, metrics) = (self.0.gate.clone(), self.0.shared.metrics.clone());
        // The gate bounds the queue.
        let (queue, queued) = mpsc::unbounded_channel();
        tracker.spawn(usher(queued, begin));
        let counted = metrics.clone();
        let serve = move |accepted, permit| match way.departure() {
            // Whoever was accepted before a drain is told of it, also from the queue (HND-1).
            Some(departure) => drop(queue.send((accepted, permit, departure))),
            // Closed at once, so that the client turns to another relay (HND-9).
            None => drop(counted.closed_draining.inc()),
        };
        let over = accept::spawn(listener, gate, metrics, stop.clone(), serve);
        open.listeners.push(Accepting { name: listener_name, door, stop, over });
    }
}
