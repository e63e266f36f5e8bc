//! The kernel's reports about a directory.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use notify::event::{Event, EventKind, ModifyKind, RenameMode};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::warn;

use super::debounce::Changes;

/// The symlink that Kubernetes replaces to change all files of a volume at once (FIL-2).
pub(super) const KUBERNETES_DATA: &str = "..data";

/// Collects the changes in one directory until the caller asks for them.
pub(super) struct Watch {
    events: Arc<WatchEvents>,
    watcher: Option<RecommendedWatcher>,
    /// Device and inode of the watched directory: its path may come to mean another one.
    watched: Option<(u64, u64)>,
}

#[derive(Default)]
struct WatchEvents {
    changes: Mutex<Changes>,
    news: Notify,
}

impl Watch {
    /// Starts the watch. If the kernel can't report changes, the directory is still polled.
    pub(super) fn start(path: &Path) -> Watch {
        let events = Arc::new(WatchEvents::default());
        let receiver = events.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| match event {
            Ok(event) => receiver.receive(&event),
            Err(error) => warn!(%error, "error while watching a directory"),
        });
        let watcher =
            watcher.inspect_err(|error| warn!(%error, "cannot watch directories; polling only")).ok();
        let mut watch = Watch { events, watcher, watched: None };
        watch.renew(path);
        watch
    }

    /// Watches the directory now at the path, if it is a different one.
    pub(super) fn renew(&mut self, path: &Path) {
        let Ok(metadata) = std::fs::metadata(path) else { return };
        let directory = Some((metadata.dev(), metadata.ino()));
        let Some(watcher) = self.watcher.as_mut().filter(|_| self.watched != directory) else { return };
        // Fails if there was no watch, or if the watch ended with the old directory.
        let _ = watcher.unwatch(path);
        match watcher.watch(path, RecursiveMode::NonRecursive) {
            Ok(()) => self.watched = directory,
            Err(error) => warn!(path = %path.display(), %error, "cannot watch the directory; polling only"),
        }
    }

    /// The directory has vanished. Another directory may replace it, even with the same inode.
    pub(super) fn lost(&mut self) {
        self.watched = None;
    }

    /// Waits for a change.
    pub(super) async fn changes(&self) -> Changes {
        self.events.news.notified().await;
        std::mem::take(&mut *self.events.changes.lock())
    }
}

impl WatchEvents {
    fn receive(&self, event: &Event) {
        // Our own reads are accesses, too, and would wake us again.
        if matches!(event.kind, EventKind::Access(_)) && !event.need_rescan() {
            return;
        }
        let mut changes = self.changes.lock();
        let names = || event.paths.iter().filter_map(|path| path.file_name());
        let arrived: Option<&OsStr> = match event.kind {
            EventKind::Modify(ModifyKind::Name(RenameMode::To | RenameMode::Both)) => names().next_back(),
            _ => None,
        };
        changes.touched.extend(names().map(OsStr::to_owned));
        if let Some(name) = arrived {
            changes.all_moved |= name == KUBERNETES_DATA;
            changes.moved.insert(name.to_owned());
        }
        drop(changes);
        self.news.notify_one();
    }
}
