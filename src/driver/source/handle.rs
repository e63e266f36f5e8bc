//! A source as streams and the admin listener see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use arc_swap::ArcSwap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use crate::driver::api::status::SourceStatus;
use crate::driver::ground::servers::Place;
use crate::driver::ground::source_key::SourceKey;
use crate::engine::cache::SessionId;
use crate::engine::downstream::SourceId;
use crate::engine::interest::Interest;
use crate::engine::snapshot::Snapshot;
use crate::engine::source::Collection;
use crate::xds::{Code, Node, Status, TypeUrl};

/// Changes of interest that may wait for a source's task; streams that have more wait their turn.
const COMMANDS_MAX: usize = 4096;

/// The table in which a source stands.
pub trait Listing: Send + Sync {
    /// Takes a source away that nobody uses, unless somebody just began to. Called by its own task.
    fn retire(&self, source: &Arc<SourceHandle>) -> bool;

    /// A source whose task failed makes room for a new one.
    fn forget(&self, source: &SourceHandle);
}

/// A stream, as its sources see it.
pub trait Subscriber: Send + Sync {
    fn id(&self) -> SessionId;

    /// There may be news.
    fn wake(&self);

    /// Ends the stream; the first reason given stands.
    fn end(&self, status: Status);

    /// Who the client says it is.
    fn node(&self) -> Option<Arc<Node>>;

    /// Some of what it wants of a type has to be asked for by itself alone (CCH-1).
    fn divert(self: Arc<Self>, type_url: TypeUrl);

    /// This source gave its place to another class (RLY-14).
    fn displaced(self: Arc<Self>, source: SourceId);
}

/// What streams tell a source.
pub enum Command {
    Watch {
        stream: Arc<dyn Subscriber>,
        type_url: TypeUrl,
        interest: Interest,
    },
    Unwatch {
        session: SessionId,
        type_url: TypeUrl,
        collection: Collection,
    },
    /// The stream is gone.
    Forget(SessionId),
    /// The process ends: what is held is to be written, and this to be dropped when it is.
    Save(oneshot::Sender<()>),
    /// The stream went back to a server of higher priority.
    Dismiss(SessionId),
    /// The source is off the table: another class has its place.
    Displace,
    /// Somebody looks at the status: it is to show what was done so far.
    Show(oneshot::Sender<()>),
    /// The operator says of these types, or of all, that what is held back of deletions was meant (FU18).
    ConfirmDeletions {
        type_name: Option<Arc<str>>,
        /// Hears how many resources went.
        done: oneshot::Sender<usize>,
    },
}

pub type Queued = (Command, Option<OwnedSemaphorePermit>);

/// How streams and the admin see a source. The task ends once nobody holds a handle and nothing lingers.
pub struct SourceHandle {
    id: SourceId,
    key: Arc<SourceKey>,
    /// What `control_plane.identifier` says of what comes from here (RLY-76), of each server that may serve.
    identifiers: Box<[Box<str>]>,
    /// The server that was heard last: its number from that of the place on. It is 0 but on the failover server.
    pub(super) serving: AtomicU16,
    commands: mpsc::UnboundedSender<Queued>,
    /// Bounds the queue of commands. Farewells need no permit: there is one per stream at the most.
    permits: Arc<Semaphore>,
    pub(super) snapshot: ArcSwap<Snapshot>,
    pub(super) status: ArcSwap<SourceStatus>,
    pub(super) loaded: watch::Sender<Option<Result<(), Status>>>,
}

impl SourceHandle {
    /// A handle, and the queue of the commands that come through it.
    pub fn new(
        id: SourceId,
        key: Arc<SourceKey>,
        identifiers: Box<[Box<str>]>,
        status: SourceStatus,
    ) -> (SourceHandle, mpsc::UnboundedReceiver<Queued>) {
        let (commands, queue) = mpsc::unbounded_channel();
        let handle = SourceHandle {
            id,
            key,
            identifiers,
            serving: AtomicU16::new(0),
            commands,
            permits: Arc::new(Semaphore::new(COMMANDS_MAX)),
            snapshot: ArcSwap::from_pointee(Snapshot::default()),
            status: ArcSwap::from_pointee(status),
            loaded: watch::Sender::new(None),
        };
        (handle, queue)
    }

    pub fn id(&self) -> SourceId {
        self.id
    }

    pub fn key(&self) -> &SourceKey {
        &self.key
    }

    pub fn identifier(&self) -> &str {
        let serving = self.serving.load(Ordering::Relaxed);
        self.identifiers.get(usize::from(serving)).map_or("", |identifier| identifier)
    }

    /// The server that serves.
    pub fn place(&self) -> Place {
        self.key.place.failover(self.serving.load(Ordering::Relaxed))
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    pub fn status(&self) -> Arc<SourceStatus> {
        self.status.load_full()
    }

    /// Brings a change of interest to the source; waits while too many others do.
    pub async fn send(&self, command: Command) {
        // The semaphore is never closed, and the task outlives its handles.
        let permit = self.permits.clone().acquire_owned().await.ok();
        let _ = self.commands.send((command, permit));
    }

    /// A stream is gone.
    pub fn forget(&self, session: SessionId) {
        let _ = self.commands.send((Command::Forget(session), None));
    }

    /// A stream is served by a server of higher priority again.
    pub fn dismiss(&self, session: SessionId) {
        let _ = self.commands.send((Command::Dismiss(session), None));
    }

    /// It is off the table.
    pub fn displace(&self) {
        let _ = self.commands.send((Command::Displace, None));
    }

    /// Has the status brought up to date; it is when the answer comes.
    pub fn show(&self) -> oneshot::Receiver<()> {
        let (done, shown) = oneshot::channel();
        let _ = self.commands.send((Command::Show(done), None));
        shown
    }

    /// Waits for the first state of a `file:` server.
    pub async fn loaded(&self) -> Result<(), Status> {
        let mut loaded = self.loaded.subscribe();
        let state = loaded.wait_for(Option::is_some).await;
        let ended = || Err(Status::new(Code::Internal, "the task of the source has ended"));
        state.map_or_else(|_| ended(), |state| state.clone().unwrap_or(Ok(())))
    }
}
