//! The checkpoint: where to keep the last good state for a restart.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::reader::{Item, Map};
use super::tree::Tree;
use super::units::{duration, hours, ms, seconds, text};

/// Without this section, the relay writes nothing to disk (RLY-7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// A directory for this relay alone; created if missing.
    pub directory: PathBuf,
    /// How long to batch changes before a write.
    pub interval: Duration,
    /// After a restart, state that its server confirmed longer ago than this is not served.
    pub max_age: Duration,
}

/// `None`: off, or an error was reported.
pub(super) fn read_checkpoint(item: &Item<'_>, directory: &Path) -> Option<Checkpoint> {
    match item.tree {
        Tree::Text(text) if text == "off" => None,
        _ => item.map(|map| read_keys(map, directory)).flatten(),
    }
}

fn read_keys(map: &mut Map<'_>, directory: &Path) -> Option<Checkpoint> {
    let (interval, max_age) = (seconds(5), hours(24));
    let path = map.required("directory", "the path of a directory for this relay alone");
    let interval = map.or("interval", interval, duration(ms(100)..=hours(1)));
    let max_age = map.or("max_age", max_age, duration(seconds(1)..=hours(24 * 365)));
    if max_age < interval {
        map.contradiction("max_age", "shorter than `interval`: every file would be too old at once");
    }
    let path = path?.parse(text)?;
    Some(Checkpoint { directory: directory.join(path), interval, max_age })
}
