//! `handover`: an upgrade of the process.

use std::path::Path;

use super::reader::Map;
use super::tls::read_path;
use crate::handover::{DRAIN, HandoverSettings, TIMEOUT};
use sluice_setting::Read;

pub(super) fn read_handover(map: &mut Map<'_>, directory: &Path) -> HandoverSettings {
    HandoverSettings {
        drain: map.value(&DRAIN),
        timeout: map.value(&TIMEOUT),
        binary: map.item("binary").and_then(|item| read_path(&item, directory)),
    }
}
