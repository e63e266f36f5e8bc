//! The file of the configuration under watch (REL-8).
//!
//! A poll by path, twice a second: notifications of the kernel get lost, see nothing on network file systems,
//! and must follow each symlink of a path. A swap of Kubernetes' `..data` is another inode at the end of the
//! path. The content decides, by its hash.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::warn;

use super::Reloader;
use super::file::ConfigFile;
use crate::trust::contents::Stamp;

/// Two equal looks in a row are the quiet time: a file that is written in place is not read halfway.
const LOOK: Duration = Duration::from_millis(500);

/// The content is read this often, even if the state of the file looks the same.
const READ_AGAIN: Duration = Duration::from_secs(5);

/// Asks for a reload after each change. Never ends. `started`: the beginning of the hash that the start has
/// read; the file may be another already.
pub(super) async fn follow(file: ConfigFile, reloader: Reloader, started: Option<String>) {
    warn_of_own_mount(file.path());
    let mut content = read(&file).await;
    let is_read =
        |hash: &blake3::Hash| started.as_ref().is_none_or(|begin| hash.to_hex().starts_with(begin.as_str()));
    if content.as_ref().is_ok_and(|hash| !is_read(hash)) {
        reloader.notify("watch");
    }
    let (mut last, mut read_at, mut is_due) = (stamp(&file).await, Instant::now(), false);
    loop {
        sleep(LOOK).await;
        let now = stamp(&file).await;
        let is_quiet = now == last;
        is_due |= !is_quiet;
        last = now;
        // A missing file may be on its way: editors remove first, and links may come before their files.
        let is_missing = now.is_none() && read_at.elapsed() < READ_AGAIN;
        if !is_quiet || is_missing || (!is_due && read_at.elapsed() < READ_AGAIN) {
            continue;
        }
        (read_at, is_due) = (Instant::now(), false);
        let latest = read(&file).await;
        if latest != content {
            content = latest;
            reloader.notify("watch");
        }
    }
}

/// `None`: the file cannot be found.
async fn stamp(file: &ConfigFile) -> Option<Stamp> {
    tokio::fs::metadata(file.path()).await.ok().map(Stamp::from)
}

/// The hash of the content, or the reason why there is none.
async fn read(file: &ConfigFile) -> Result<blake3::Hash, String> {
    let file = file.clone();
    let read = tokio::task::spawn_blocking(move || Ok(blake3::hash(file.read()?.as_bytes()))).await;
    read.unwrap_or_else(|error| Err(error.to_string()))
}

/// Kubernetes never changes a file that is mounted by `subPath`.
fn warn_of_own_mount(path: &Path) {
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return };
    if is_mount_point(&mounts, path) {
        warn!(
            file = %path.display(),
            "the configuration file is a mount of its own, as by `subPath`: such a file never changes. Mount its directory"
        );
    }
}

fn is_mount_point(mounts: &str, path: &Path) -> bool {
    // The kernel writes blanks in paths as octal numbers.
    let is_it = |point: &str| Path::new(&point.replace("\\040", " ")) == path;
    mounts.lines().filter_map(|line| line.split(' ').nth(4)).any(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rel_8_a_file_that_is_a_mount_of_its_own_is_known() {
        let mounts = "22 1 8:1 / / rw - ext4 /dev/a rw\n\
            40 22 8:1 /v/cm/..2026/sluice.yaml /etc/sluice/my\\040file.yaml ro - ext4 /dev/a rw\n";
        assert!(is_mount_point(mounts, Path::new("/etc/sluice/my file.yaml")));
        assert!(!is_mount_point(mounts, Path::new("/etc/sluice/sluice.yaml")));
        assert!(!is_mount_point(mounts, Path::new("/etc/sluice")));
    }
}
