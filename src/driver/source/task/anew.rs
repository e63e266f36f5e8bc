//! A source under an enforcing plan begins anew after a failure of the task, from the stable content (WAV-8). As after a restart of
//! the process (ADR 43), the server's next answer is a change, and the plan decides.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tracing::warn;

use super::SourceTask;
use crate::checkpoint::format::{decode, encode_with_secrets};
use crate::checkpoint::{Header, Identity, Restored};
use crate::driver::ground::checkpoint_writer::digest_of_relay;
use crate::driver::ground::context::DriverContext;
use crate::driver::source::handle::{Command, Queued, failed};
use crate::engine::cache::expiry::{Leased, Left};
use crate::engine::collection::CollectionKind;
use crate::engine::lanes::Published;
use crate::engine::rollout::UnitId;
use crate::engine::snapshot::Snapshot;
use crate::engine::source::Image;
use crate::telemetry::wall_now;

/// The wait before a source begins anew: the server may state the same content again at once, and the task fail again.
const ANEW_AFTER: Duration = Duration::from_secs(1);

/// Runs a task to the end. After a panic the table has another source, and no stream is left here.
pub(super) async fn run(
    task: SourceTask,
    first: Vec<Queued>,
    former: Option<Arc<Published>>,
    mut queue: mpsc::UnboundedReceiver<Queued>,
) {
    // The table retires a source without other holders.
    let handle = Arc::downgrade(&task.handle);
    let (shared, listing) = (task.shared.clone(), task.listing.clone());
    let run = AssertUnwindSafe(task.run(first, former, &mut queue)).catch_unwind();
    if run.await.is_err() {
        // A displaced source may have gone with the task.
        handle.upgrade().iter().for_each(|handle| listing.clone().begin_anew(handle, &shared));
        refuse_queued(&mut queue);
    }
}

/// Leaves the stable content to the next task after a failure. The next task begins after a while.
pub(super) async fn leave(former: &Published, identity: &Identity, shared: &DriverContext) {
    sleep(ANEW_AFTER).await;
    let header = Header {
        identity: identity.clone(),
        relay: digest_of_relay(&shared.settings().node),
        written_at: wall_now(),
        confirmed_at: wall_now(),
    };
    match restored(&header, &image(former.stable())) {
        Ok(restored) => shared.durable.inheritance.put(restored),
        Err(error) => warn!(%error, "cannot use the content of a source whose task failed; it starts cold"),
    }
}

/// Ends the streams with queued subscriptions.
fn refuse_queued(queue: &mut mpsc::UnboundedReceiver<Queued>) {
    queue.close();
    while let Ok((command, _permit)) = queue.try_recv() {
        if let Command::Watch { stream, .. } = command {
            stream.end(failed());
        }
    }
}

/// No version of the server is claimed, so the server says all again. Times to live begin anew.
fn image(stable: &Snapshot) -> Image {
    let mut image = Image { snapshot: stable.clone(), ..Image::default() };
    for (type_url, of) in stable.types() {
        let globs: Vec<_> = of.globs.complete.iter().cloned().collect();
        if !globs.is_empty() {
            image.complete_globs.insert(type_url.clone(), globs);
        }
        let named = of.names.known.iter().filter_map(|(name, known)| Some((name, known.resource()?)));
        let named = named.map(|of| (CollectionKind::Names, of));
        let members =
            [(CollectionKind::Wildcard, &of.wildcard.members), (CollectionKind::Globs, &of.globs.members)];
        let members = members.into_iter().flat_map(|(kind, members)| {
            members.iter().map(move |(name, member)| (kind, (name, &member.resource)))
        });
        for (kind, (name, resource)) in named.chain(members) {
            if let Some(ttl) = resource.ttl {
                image.left.insert(Leased::new(type_url, kind, name), Left { ttl, left: ttl });
            }
        }
    }
    image
}

fn restored(header: &Header, image: &Image) -> io::Result<Restored> {
    let mut bytes = Vec::new();
    encode_with_secrets(header, image, &mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    })?;
    decode(&bytes, header.written_at).map_err(io::Error::other)
}

impl SourceTask {
    /// Holds the restored content from the begin: until the server has answered, nothing else is known about the content of clients.
    pub(super) fn hold_anew(&mut self, former: &Published) {
        if let Some(lanes) = self.lanes.as_mut().filter(|_| self.source.is_restored()) {
            lanes.hold();
            former.restated.iter().for_each(|restated| lanes.restate(restated));
            self.publish_lanes();
        }
        self.handle.has_begun();
        if let (Some(plan), Some(stable)) = (&self.plan, self.stable()) {
            plan.note(UnitId(self.handle.id().0), &stable);
        }
    }
}
