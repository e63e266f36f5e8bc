//! The time before a source has its first client, and sources that cannot begin.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::driver::source::handle::{Command, Listing, Queued, SourceHandle};
use crate::xds::{Code, Status};

/// Ends the streams of a source that cannot begin, until nobody holds the source's handle.
pub(super) async fn refuse(
    mut queue: mpsc::UnboundedReceiver<Queued>,
    handle: Arc<SourceHandle>,
    listing: &dyn Listing,
    first: Vec<Queued>,
    error: String,
) {
    let status = Status::new(Code::FailedPrecondition, error);
    handle.loaded.send_replace(Some(Err(status.clone())));
    listing.forget(&handle);
    drop(handle);
    let end = |command: Command| {
        if let Command::Watch { stream, .. } = command {
            stream.end(status.clone());
        }
    };
    first.into_iter().for_each(|(command, _permit)| end(command));
    while let Some((command, _permit)) = queue.recv().await {
        end(command);
    }
}

/// Waits for the first `Watch` command, and returns it after earlier commands about the source itself. `None`: the source is unused.
/// A class with a member's node has no node before its first client, and any other does not wait.
pub(super) async fn first_watch(
    shows_member: bool,
    queue: &mut mpsc::UnboundedReceiver<Queued>,
    source: &Arc<SourceHandle>,
    listing: &dyn Listing,
) -> Option<Vec<Queued>> {
    let mut first = Vec::new();
    if !shows_member {
        return Some(first);
    }
    loop {
        match timeout(Duration::from_secs(1), queue.recv()).await {
            Ok(Some(queued @ (Command::Watch { .. }, _))) => {
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
