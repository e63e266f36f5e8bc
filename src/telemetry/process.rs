//! What the kernel knows of this process.

use std::fs;

/// Resident memory in bytes; `None` where `/proc` does not say.
pub fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Open file descriptors; `None` where `/proc` does not say.
pub(super) fn open_fds() -> Option<u64> {
    // Linux 6.2 and later count them. Before, they have to be walked, which takes milliseconds of many.
    if let Some(count) =
        fs::metadata("/proc/self/fd").ok().map(|found| found.len()).filter(|count| *count > 0)
    {
        return Some(count);
    }
    // Reading the directory holds one descriptor itself.
    let entries = fs::read_dir("/proc/self/fd").ok()?.count();
    Some(entries.saturating_sub(1) as u64)
}

/// The soft limit of open file descriptors.
pub(super) fn max_fds() -> Option<u64> {
    rlimit::getrlimit(rlimit::Resource::NOFILE).ok().map(|(soft, _)| soft)
}
