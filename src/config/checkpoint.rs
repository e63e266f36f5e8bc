//! The checkpoint: where to keep the last good state for a restart.

use std::path::Path;

use super::reader::{Item, Map};
use super::units::text;
use crate::driver::CheckpointSettings;
use crate::driver::ground::checkpoint_writer::{INTERVAL, MAX_AGE};
use sluice_setting::Read;

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
