//! Readings from the kernel: clocks, CPU time and resident memory of a process.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// Nanoseconds of CLOCK_MONOTONIC: one clock for all processes of a machine, so that a stamp from the control
/// plane can be compared with a client's time of reading.
pub fn monotonic_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// The time that the calling thread ran and waited for a CPU, in nanoseconds.
#[derive(Clone, Copy, Default)]
pub struct ThreadTime {
    pub cpu_ns: u64,
    /// Ready to run, while other threads had the CPUs. 0 if the kernel keeps no such account.
    pub waited_ns: u64,
}

impl ThreadTime {
    pub fn now() -> ThreadTime {
        let schedstat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let waited = schedstat.split_whitespace().nth(1).and_then(|field| field.parse().ok());
        ThreadTime { cpu_ns: read(ClockId::CLOCK_THREAD_CPUTIME_ID), waited_ns: waited.unwrap_or(0) }
    }

    /// CPU time of the calling thread alone, in nanoseconds; cheaper.
    pub fn cpu_only_ns() -> u64 {
        read(ClockId::CLOCK_THREAD_CPUTIME_ID)
    }

    pub fn since(self, earlier: ThreadTime) -> ThreadTime {
        ThreadTime {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            waited_ns: self.waited_ns.saturating_sub(earlier.waited_ns),
        }
    }
}

/// CPU time of this whole process, in nanoseconds.
pub fn own_cpu_ns() -> u64 {
    read(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// These three clocks exist on every Linux; a kernel without a clock gives zeroes, which are conspicuous in
/// every figure.
fn read(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |time| nanos(Duration::from(time)))
}

pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Another process, the server under test.
pub struct Process {
    pid: i32,
    cpu_clock: ClockId,
}

impl Process {
    /// Fails if the process does not exist.
    pub fn find(pid: i32) -> Result<Process> {
        ensure!(pid > 0 && fs::exists(format!("/proc/{pid}"))?, "no process has the pid {pid}");
        let cpu_clock = clock_getcpuclockid(Pid::from_raw(pid))
            .with_context(|| format!("no process has the pid {pid}"))?;
        Ok(Process { pid, cpu_clock })
    }

    /// User and system time of all threads, ended threads included, in nanoseconds. The sum of utime and
    /// stime of /proc/PID/stat, without their rounding to 10 ms.
    pub fn cpu_ns(&self) -> Result<u64> {
        let time =
            clock_gettime(self.cpu_clock).with_context(|| format!("process {} has ended", self.pid))?;
        Ok(nanos(Duration::from(time)))
    }

    /// Resident memory in bytes, without the pages of files, such as the program's code. `smaps_rollup` counts page tables and is exact,
    /// but slow.
    pub fn rss_bytes(&self) -> Result<u64> {
        let exact = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid));
        if let Some(bytes) = exact.ok().as_deref().and_then(|text| kilobytes(text, "Anonymous:")) {
            return Ok(bytes);
        }
        self.quick_rss_bytes()
    }

    /// The same from `status`, which may lag by some hundred KiB but is fast and needs no permission over the
    /// process.
    pub fn quick_rss_bytes(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))
            .with_context(|| format!("cannot read the memory of process {}", self.pid))?;
        kilobytes(&status, "RssAnon:").with_context(|| format!("process {} has ended", self.pid))
    }
}

/// The bytes of a line such as `RssAnon:   1234 kB`.
fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    let number: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1024)
}

/// Raises the soft limit of open files to the hard limit, and checks that `wanted` fit.
pub fn raise_open_files(wanted: u64) -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("cannot raise the limit of open files")?;
    }
    if wanted > hard {
        bail!("{wanted} open files are needed, but `ulimit -Hn` is {hard}");
    }
    Ok(())
}

/// The machine behind a figure and its load over a minute, in one line.
pub fn machine() -> String {
    let model = fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        })
        .unwrap_or_else(|| "unknown CPU".to_owned());
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("unknown");
    format!("{cores} cores ({model}), Linux {}, load average {load}", kernel.trim())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn lines_of_proc_are_read_in_kib() {
        let text = "Name:\tx\nRssAnon:\t    1234 kB\nThreads:\t2\n";
        assert_eq!(kilobytes(text, "RssAnon:"), Some(1234 * 1024));
        assert_eq!(kilobytes(text, "Threads:"), None);
        assert_eq!(kilobytes(text, "Rss:"), None);
    }

    #[test]
    fn our_own_process_has_memory_and_cpu_time() {
        let own = Process::find(std::process::id().cast_signed()).unwrap();
        assert!(own.rss_bytes().unwrap() > 100 * 1024);
        let before = own.cpu_ns().unwrap();
        let end = own_cpu_ns() + 5_000_000;
        while own_cpu_ns() < end {
            std::hint::spin_loop();
        }
        assert!(own.cpu_ns().unwrap() - before >= 5_000_000);
    }

    #[test]
    fn a_process_that_does_not_exist_is_refused() {
        for pid in [i32::MAX, 0, -1] {
            assert!(Process::find(pid).is_err(), "{pid}");
        }
    }
}
