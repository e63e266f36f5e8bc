//! A source under an enforcing plan begins anew after a failure of the task, from the stable content (WAV-8).
//! As after a restart of the process (ADR 43), the server's next answer is a change, and the plan decides.

use std::io;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;
use tracing::warn;

use crate::driver::ground::checkpoint_writer::digest_of_relay;
use crate::driver::ground::context::DriverContext;
use crate::driver::source::handle::{Command, Queued, failed};
use crate::telemetry::wall_now;
use sluice_checkpoint::format::{decode, encode_with_secrets};
use sluice_checkpoint::{Header, Identity, Restored};
use sluice_engine::cache::expiry::{Leased, Left};
use sluice_engine::collection::CollectionKind;
use sluice_engine::lanes::Published;
use sluice_engine::snapshot::Snapshot;
use sluice_engine::source::Image;

/// The wait before a source begins anew: the server may state the same content again at once, and the task
/// fail again.
const ANEW_AFTER: Duration = Duration::from_secs(1);

/// Leaves the stable content to the next task after a failure. The next task begins after a while.
pub(super) async fn leave(failed: &Published, identity: &Identity, shared: &DriverContext) {
    sleep(ANEW_AFTER).await;
    let header = Header {
        identity: identity.clone(),
        relay: digest_of_relay(&shared.settings().node),
        written_at: wall_now(),
        confirmed_at: wall_now(),
    };
    match restored(&header, &image(failed.stable())) {
        Ok(restored) => shared.durable.inheritance.put(restored),
        Err(error) => warn!(%error, "cannot use the content of a source whose task failed; it starts cold"),
    }
}

/// Ends the streams with queued subscriptions.
pub(super) fn refuse_queued(queue: &mut mpsc::UnboundedReceiver<Queued>) {
    queue.close();
    while let Ok((command, _permit)) = queue.try_recv() {
        if let Command::Watch { stream, .. } | Command::WatchAll { stream, .. } = command {
            stream.end(failed());
        }
    }
}

/// No version of the server is claimed, so the server says all again. Times to live begin anew.
fn image(stable: &Snapshot) -> Image {
    let mut image = Image { snapshot: stable.clone(), ..Image::default() };
    for (type_url, content) in stable.types() {
        let globs: Vec<_> = content.globs.complete.iter().cloned().collect();
        if !globs.is_empty() {
            image.complete_globs.insert(type_url.clone(), globs);
        }
        let named = content.names.entries.iter().filter_map(|(name, state)| Some((name, state.resource()?)));
        let named = named.map(|resource| (CollectionKind::Names, resource));
        let members = [
            (CollectionKind::Wildcard, &content.wildcard.members),
            (CollectionKind::Globs, &content.globs.members),
        ];
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
