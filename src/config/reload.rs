//! `reload`: the way to another configuration for the running process.

use super::reader::Map;
use super::units::boolean;
use sluice_setting::{Read, Setting, count};

/// In percent of the streams. A wrong pattern in `node_classes` moves all of them, and may delete from all.
pub const MAX_MOVED: Setting<u32> = Setting::new("max_moved", 50, count(0..=100));

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reload {
    /// A changed file is taken by itself (REL-8).
    pub watch: bool,
    /// See [`MAX_MOVED`].
    pub max_moved: u32,
}

impl Default for Reload {
    fn default() -> Reload {
        Reload { watch: false, max_moved: MAX_MOVED.default }
    }
}

pub(super) fn read_reload(map: &mut Map<'_>) -> Reload {
    let d = Reload::default();
    Reload { watch: map.or("watch", d.watch, boolean()), max_moved: map.value(&MAX_MOVED) }
}
