//! The begin of a source, also after a failure of its task.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::client::ConnectionChoice;
use crate::driver::ground::checkpoint_writer::CheckpointWriter;
use crate::driver::ground::class_identity::{class_digest, of_class};
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::durable::stored_unit;
use crate::driver::ground::servers::{Attach, ListedServer};
use crate::driver::ground::source_key::{Owner, SourceKey};
use crate::driver::source::anew;
use crate::driver::source::handle::{Command, Queued, SourceHandle, SourceListing};
use crate::driver::source::link::Link;
use crate::driver::source::report::SourceReport;
use crate::driver::source::task::saver::Saver;
use crate::driver::source::task::surroundings::Surroundings;
use crate::driver::source::task::{Numbers, SourceTask, settings_of};
use sluice_engine::class::UpstreamNode;
use sluice_engine::downstream::{SourceId, tells_ttl};
use sluice_engine::lanes::Published;
use sluice_engine::source::{Attachment, Files, Source, Streams};
use sluice_fleet::rollout::shared::UnitKey;
use sluice_xds::{Code, ResourceCopies, Status};

/// Starts the task of a source. `choice`: the connection of its streams. `failed`: the releases
/// of the source before a failure of its task.
pub(super) fn start(
    id: SourceId,
    key: Arc<SourceKey>,
    listed: ListedServer<'_>,
    shared: Arc<DriverContext>,
    listing: Arc<dyn SourceListing>,
    choice: ConnectionChoice,
    failed: Option<Arc<Published>>,
) -> Arc<SourceHandle> {
    let (server, in_force) = (listed.server().clone(), shared.epoch());
    let node = of_class(&in_force.node, &key.class);
    let shows_member = key.class.upstream_node == UpstreamNode::Member;
    let numbers = Numbers { source: fastrand::u64(..), epoch: in_force.number(), newcomer: None };
    let tells_ttl = tells_ttl(&key.class.node.client_features);
    let mut report = Box::new(SourceReport::new(&shared, &node, class_digest(&key.class), &key, id, listed));
    let identifiers =
        listed.serving().iter().map(|server| format!("{} via {}", in_force.node.id, server.uri).into());
    let status = report.status(None, &shared.clock);
    let (handle, mut queue) = SourceHandle::new(id, key, identifiers.collect(), listed.serving(), status);
    handle.shown.store((!shows_member).then(|| Arc::new(node.clone())));
    let handle = Arc::new(if failed.is_some() { handle.anew() } else { handle });
    let settings = settings_of(&in_force, handle.key(), listed);
    let identity = CheckpointWriter::identity(handle.key(), listed);
    let source = Source::new(numbers.source, settings, attachment(&server.attach));
    // In boxes, as the task below: a future keeps the room for all that it ever has, and lives as long as
    // the source.
    let mut source = Box::new(source.of_server(server.uri.clone(), tells_ttl));
    let around = Surroundings { handle: handle.clone(), shared, listing };
    tokio::spawn(async move {
        let kept = failed.as_ref().filter(|failed| !failed.has_waiting());
        if let (Some(failed), Some(identity)) = (kept, &identity) {
            anew::leave(failed, identity, &around.shared).await;
        }
        // No request is possible before a node is known.
        let first = first_watch(shows_member, &mut queue, &around.handle, &*around.listing).await;
        let Some(first) = first else { return };
        let choice = ConnectionChoice { taken: around.handle.connection.clone(), ..choice };
        // Those that may not be shared have private sources (BOD-3).
        let shares = !matches!(around.handle.key().owner, Owner::Stream(_));
        let copies = shares.then(|| around.shared.content.copies.clone() as Arc<dyn ResourceCopies>);
        let link = match Link::new(&server.attach, &node, choice, copies).await {
            Ok(link) => link,
            Err(error) => return refuse(queue, around.handle, &*around.listing, first, error).await,
        };
        source.set_node_bytes(link.node_bytes());
        let unit = identity.as_ref().map(stored_unit).map(|unit| UnitKey::new(&unit.list, &unit.class));
        let saver = Saver::restore(&mut source, &mut report, identity, &around.shared);
        let is_new = failed.as_ref().is_none_or(|failed| failed.has_waiting()) && !source.is_restored();
        let newcomer = unit.filter(|_| is_new);
        let numbers = Numbers { newcomer, ..numbers };
        let task = SourceTask::new(*source, numbers, link, saver, *report, shows_member, around);
        let task = Box::new(task);
        run(task, first, failed, queue).await;
    });
    handle
}

/// Runs a task to the end. After a panic the table has another source, and no stream is left here.
async fn run(
    task: Box<SourceTask>,
    first: Vec<Queued>,
    failed: Option<Arc<Published>>,
    mut queue: mpsc::UnboundedReceiver<Queued>,
) {
    let around = task.surroundings();
    // The table retires a source without other holders.
    let handle = Arc::downgrade(&around.handle);
    let (shared, listing) = (around.shared.clone(), around.listing.clone());
    let run = AssertUnwindSafe(task.run(first, failed, &mut queue)).catch_unwind();
    if run.await.is_err() {
        // A displaced source may have gone with the task.
        handle.upgrade().iter().for_each(|handle| listing.clone().begin_anew(handle, &shared));
        anew::refuse_queued(&mut queue);
    }
}

fn attachment(attach: &Attach) -> Attachment {
    match attach {
        Attach::Grpc { settings, .. } | Attach::Rest { settings, .. } => {
            Attachment::Streams(Box::new(Streams::new(settings.clone())))
        }
        Attach::Files { mass_deletion_hold, .. } => {
            let mut files = Files::default();
            files.set_hold(*mass_deletion_hold);
            Attachment::Files(files)
        }
        Attach::Nothing => Attachment::Files(Files::nothing()),
        Attach::Refused => Attachment::Files(Files::refused(no_room())),
    }
}

/// The status for a type whose class has no room.
fn no_room() -> Status {
    let text = "there is no room for another node class; the limits are `limits.node_classes`, \
        `limits.node_classes_per_connection` and `limits.secret_classes`";
    Status::new(Code::ResourceExhausted, text)
}

/// Ends the streams of a source that cannot begin, until nobody holds the source's handle.
async fn refuse(
    mut queue: mpsc::UnboundedReceiver<Queued>,
    handle: Arc<SourceHandle>,
    listing: &dyn SourceListing,
    first: Vec<Queued>,
    error: String,
) {
    let status = Status::new(Code::FailedPrecondition, error);
    handle.loaded.send_replace(Some(Err(status.clone())));
    listing.forget(&handle);
    drop(handle);
    let end = |command: Command| {
        if let Command::Watch { stream, .. } | Command::WatchAll { stream, .. } = command {
            stream.end(status.clone());
        }
    };
    first.into_iter().for_each(|(command, _permit)| end(command));
    while let Some((command, _permit)) = queue.recv().await {
        end(command);
    }
}

/// Waits for the first `Watch` command, and returns it after earlier commands about the source itself.
/// `None`: the source is unused. A class with a member's node has no node before its first client, and any
/// other does not wait.
async fn first_watch(
    shows_member: bool,
    queue: &mut mpsc::UnboundedReceiver<Queued>,
    source: &Arc<SourceHandle>,
    listing: &dyn SourceListing,
) -> Option<Vec<Queued>> {
    let mut first = Vec::new();
    if !shows_member {
        return Some(first);
    }
    loop {
        match timeout(Duration::from_secs(1), queue.recv()).await {
            Ok(Some(queued @ (Command::Watch { .. } | Command::WatchAll { .. }, _))) => {
                first.push(queued);
                return Some(first);
            }
            // The source was displaced before its first client came.
            Ok(Some(queued @ (Command::Displace, _))) => first.push(queued),
            Ok(Some(_)) | Err(_) if listing.retire(source) => return None,
            Ok(Some(_)) | Err(_) => {}
            Ok(None) => return None,
        }
    }
}
