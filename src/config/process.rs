//! The sections of the process: `checkpoint`, the last good state for a restart; `handover`, an upgrade of
//! the process; `reload`, the way to another configuration for the running process.

use std::path::Path;

use super::reader::{Item, Map};
use super::tls::read_path;
use super::units::{boolean, text};
use crate::driver::CheckpointSettings;
use crate::driver::ground::checkpoint_writer::{INTERVAL, MAX_AGE};
use crate::handover::{DRAIN, HandoverSettings, TIMEOUT};
use sluice_setting::{Read, Setting, count};

/// `None`: off, or an error was reported.
pub(super) fn read_checkpoint(item: &Item<'_>, directory: &Path) -> Option<CheckpointSettings> {
    if item.is_word("off") {
        return None;
    }
    item.map(|map| read_keys(map, directory)).flatten()
}

fn read_keys(map: &mut Map<'_>, directory: &Path) -> Option<CheckpointSettings> {
    let path = map.required("directory", "the path of a directory for this relay alone");
    let interval = map.value(&INTERVAL);
    let max_age = map.value(&MAX_AGE);
    if max_age < interval {
        map.contradiction("max_age", "shorter than `interval`: every file would be too old at once");
    }
    let path = path?.parse(text)?;
    Some(CheckpointSettings { directory: directory.join(path), interval, max_age })
}

pub(super) fn read_handover(map: &mut Map<'_>, directory: &Path) -> HandoverSettings {
    HandoverSettings {
        drain: map.value(&DRAIN),
        timeout: map.value(&TIMEOUT),
        binary: map.item("binary").and_then(|item| read_path(&item, directory)),
    }
}

/// In percent of the streams. A wrong pattern in `node_classes` moves all of them, and may delete from all.
pub const MAX_MOVED: Setting<u32> = Setting::new("max_moved", 50, count(0..=100));

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadSettings {
    /// A changed file is taken by itself (REL-8).
    pub watch: bool,
    /// See [`MAX_MOVED`].
    pub max_moved: u32,
}

impl Default for ReloadSettings {
    fn default() -> ReloadSettings {
        ReloadSettings { watch: false, max_moved: MAX_MOVED.default }
    }
}

pub(super) fn read_reload(map: &mut Map<'_>) -> ReloadSettings {
    let d = ReloadSettings::default();
    ReloadSettings { watch: map.or("watch", d.watch, boolean()), max_moved: map.value(&MAX_MOVED) }
}
