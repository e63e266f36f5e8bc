//! The files of one place over time: watched, judged, put in force (CRT-1 to CRT-4, CRT-6, CRT-7, CRT-11).
//!
//! The watch is a poll of file states, twice a second. Notifications of the kernel get lost, see nothing on
//! network file systems, and must follow each symlink of a path; a poll costs a system call for each file.

mod prepared;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

pub use prepared::Prepared;

use super::certificate::time_text;
use super::contents::{Contents, PlaceFile, Stamps};
use super::fault::Fault;
use crate::telemetry::events::tell;
use crate::telemetry::metrics::TlsMetrics;
use crate::telemetry::wall_now;
use sluice_setting::InForce;

/// The interval of looks at the state of the files. A new pair is in use within a second.
const POLL: Duration = Duration::from_millis(500);
/// The pause after a fault that a rotation in progress may cause, and the time after which the fault is told:
/// files written one after the other do not match meanwhile (CRT-2).
const RETRY: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(5);
/// Expired authorities are looked for in this interval (CRT-6).
const JUDGE_AGAIN: Duration = Duration::from_secs(3600);
/// A look at the ends of certificates.
const EXPIRY_CHECK: Duration = Duration::from_secs(60);
/// A difference between the wall clock and the monotonic clock from one look to the next: somebody has set
/// the clock.
const JUMP: Duration = Duration::from_secs(60);
/// Parts of a certificate's life: a WARN, and a WARN every hour (CRT-11).
const LIFE_WARN: f64 = 0.20;
const LIFE_HOURLY: f64 = 0.05;

/// A set of files in force together.
pub trait FilesInForce: Send + Sync + Sized + 'static {
    /// The files in the log.
    const FILES: &'static str = "certificate files";

    /// The certificates whose end an operator must know.
    fn expiries(&self, now: SystemTime) -> Vec<Expiry>;

    /// Oddities for the log, one sentence each.
    fn remarks(&self, now: SystemTime) -> Vec<String>;

    /// Whether both generations judge all peers alike.
    fn judges_like(&self, other: &Self) -> bool;
}

/// The validity of a certificate in the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The part of the place: `certificates[0]`.
    pub part: String,
    pub not_before: SystemTime,
    pub not_after: SystemTime,
    /// A certificate of the relay itself, not of an authority.
    pub is_own: bool,
}

/// Builds a generation from contents: `(contents, the generation in force, now)`.
pub type Build<T> = dyn Fn(&Contents, Option<&T>, SystemTime) -> Result<T, Fault> + Send + Sync;

/// The files of one place, and the way from contents to a generation.
pub struct WatchedPlace<T> {
    /// The place in logs and metrics: `listeners[main].tls`.
    pub name: String,
    pub files: Vec<PlaceFile>,
    /// All files are read again in this interval, changed or not.
    pub refresh: Duration,
    pub build: Arc<Build<T>>,
}

/// A place whose files are in force. Dropping the last clone ends the watch.
pub struct Watched<T> {
    in_force: InForce<T>,
    /// Counts generations that may judge peers differently from the one before.
    judged: watch::Sender<u64>,
    turn: Turn,
    task: Arc<Mutex<AbortOnDropHandle<()>>>,
}

/// The number of the watch that may publish: an earlier watch may be in the middle of a look.
type Turn = Arc<Mutex<u64>>;

impl<T> Clone for Watched<T> {
    fn clone(&self) -> Watched<T> {
        let (in_force, judged) = (self.in_force.clone(), self.judged.clone());
        Watched { in_force, judged, turn: self.turn.clone(), task: self.task.clone() }
    }
}

impl<T> Watched<T> {
    pub fn in_force(&self) -> &InForce<T> {
        &self.in_force
    }

    /// Changes when open connections must be judged again (CRT-8).
    pub fn judgements(&self) -> watch::Receiver<u64> {
        self.judged.subscribe()
    }
}

impl<T: FilesInForce> Watched<T> {
    /// Whether a certificate of the relay itself has expired (CRT-7).
    pub fn has_expired(&self) -> bool {
        let now = wall_now();
        self.in_force.get().expiries(now).iter().any(|expiry| expiry.is_own && expiry.not_after < now)
    }
}

impl<T: FilesInForce> WatchedPlace<T> {
    /// Reads the files once.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn read(&self) -> Result<T, Fault> {
        let (contents, _) = Contents::read(&self.files)?;
        (self.build)(&contents, None, wall_now())
    }

    /// Reads the files, and watches them from then on. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn watch(self, metrics: TlsMetrics) -> Result<Watched<T>, Fault> {
        Ok(self.prepare()?.watch(metrics))
    }

    /// Reads the files, and leaves the rest for later.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn prepare(self) -> Result<Prepared<T>, Fault> {
        self.prepare_with(Arc::new(wall_now))
    }

    fn prepare_with(self, clock: Arc<Clock>) -> Result<Prepared<T>, Fault> {
        let (contents, stamps) = Contents::read(&self.files)?;
        let first = (self.build)(&contents, None, clock())?;
        Ok(Prepared { place: self, first, stamps, digest: contents.digest(), clock })
    }
}

/// The generation in force, as the watch of its files has it.
struct FollowedFiles<T> {
    in_force: InForce<T>,
    judged: watch::Sender<u64>,
    turn: Turn,
    number: u64,
}

impl<T> Clone for FollowedFiles<T> {
    fn clone(&self) -> FollowedFiles<T> {
        let (in_force, judged) = (self.in_force.clone(), self.judged.clone());
        FollowedFiles { in_force, judged, turn: self.turn.clone(), number: self.number }
    }
}

/// The files of a place at their first read.
struct Files<T> {
    place: WatchedPlace<T>,
    stamps: Stamps,
    digest: [u8; 32],
}

type Clock = dyn Fn() -> SystemTime + Send + Sync;

/// The watch over the files of one place. Wide because each look compares the files, the clocks and the
/// warnings with those of the last look.
struct Rotation<T> {
    place: Arc<WatchedPlace<T>>,
    followed: FollowedFiles<T>,
    metrics: TlsMetrics,
    clock: Arc<Clock>,
    /// The state of the files at the last read, good or bad.
    stamps: Stamps,
    /// The digest of the contents in force.
    digest: [u8; 32],
    read_at: Instant,
    judged_at: Instant,
    /// The time of the last look, by both clocks.
    looked_at: (Instant, SystemTime),
    expiry_checked: Option<Instant>,
    failing: Option<FailingFiles>,
    /// The hour of the last warning, by part.
    warned: Vec<(String, Warned)>,
    /// The parts with a metric.
    measured: BTreeSet<String>,
}

/// A place that a reload took away has no certificates that could expire.
impl<T> Drop for Rotation<T> {
    fn drop(&mut self) {
        // Other files may have taken the place.
        if *self.followed.turn.lock() == self.followed.number {
            self.measured.iter().for_each(|part| self.metrics.forget(part));
            self.metrics.forget(&self.place.name);
        }
    }
}

/// Files that cannot be used.
struct FailingFiles {
    since: Instant,
    fault: Fault,
    /// The fault was logged.
    is_told: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Warned {
    Once,
    At(Instant),
}

/// The result of one look at the files.
enum FilesLook<T> {
    Unchanged,
    /// Other files with the same content, or files of which nothing new came.
    Same(Stamps),
    New {
        generation: T,
        stamps: Stamps,
        digest: [u8; 32],
    },
    Bad(Fault),
}

impl<T: FilesInForce> Rotation<T> {
    /// Starts the watch of files that are in force.
    fn start(
        Files { place, stamps, digest }: Files<T>,
        followed: FollowedFiles<T>,
        metrics: TlsMetrics,
        clock: Arc<Clock>,
    ) -> AbortOnDropHandle<()> {
        let rotation = Rotation {
            read_at: Instant::now(),
            judged_at: Instant::now(),
            looked_at: (Instant::now(), clock()),
            expiry_checked: None,
            digest,
            stamps,
            failing: None,
            warned: Vec::new(),
            measured: BTreeSet::new(),
            followed,
            metrics,
            clock,
            place: Arc::new(place),
        };
        rotation.metrics.reload_failing(&rotation.place.name, false);
        for remark in rotation.followed.in_force.get().remarks((rotation.clock)()) {
            tracing::warn!(place = %rotation.place.name, "{remark}");
        }
        AbortOnDropHandle::new(tokio::spawn(rotation.run()))
    }

    async fn run(mut self) {
        loop {
            self.check_expiries();
            sleep(self.pause()).await;
            self.look().await;
        }
    }

    /// Short while a rotation may be in progress.
    fn pause(&self) -> Duration {
        match &self.failing {
            Some(failing) if failing.fault.may_pass && !failing.is_told => RETRY,
            _ => POLL,
        }
    }

    async fn look(&mut self) {
        let now = Instant::now();
        let is_refresh = now >= self.read_at + self.place.refresh;
        let has_jumped = self.has_clock_jumped(now);
        let is_judgement = has_jumped || now >= self.judged_at + JUDGE_AGAIN;
        let retries = self.failing.as_ref().is_some_and(|failing| failing.fault.may_pass && !failing.is_told);
        let (place, wall, last_stamps, digest) =
            (self.place.clone(), (self.clock)(), self.stamps.clone(), self.digest);
        let in_force = self.followed.in_force.epoch();
        // Files and lists are read and parsed off the serving tasks (SEC-10).
        let look = tokio::task::spawn_blocking(move || {
            let stamps = Stamps::of(&place.files);
            let is_certain = stamps == last_stamps && !stamps.are_recent(wall);
            if is_certain && !is_refresh && !is_judgement && !retries {
                return FilesLook::Unchanged;
            }
            let (contents, stamps) = match Contents::read(&place.files) {
                Ok(read) => read,
                Err(fault) => return FilesLook::Bad(fault),
            };
            let new = contents.digest();
            if new == digest && !is_judgement {
                return FilesLook::Same(stamps);
            }
            match (place.build)(&contents, Some(&in_force), wall) {
                Ok(generation) => FilesLook::New { generation, stamps, digest: new },
                Err(fault) => FilesLook::Bad(fault),
            }
        });
        let look = look.await.unwrap_or_else(|_| {
            let path = self.place.files.first().map(|file| file.path.clone()).unwrap_or_default();
            FilesLook::Bad(Fault::new(&path, "reading the files failed"))
        });
        if is_refresh {
            self.read_at = now;
        }
        if is_judgement {
            self.judged_at = now;
        }
        self.conclude(look, now);
    }

    /// CRT-12: the wall clock decides about certificates, so its jumps are told, and everything is judged
    /// again.
    fn has_clock_jumped(&mut self, now: Instant) -> bool {
        let wall = (self.clock)();
        let (then, before) = std::mem::replace(&mut self.looked_at, (now, wall));
        let expected = before + now.saturating_duration_since(then);
        let (is_forward, jump) = match wall.duration_since(expected) {
            Ok(jump) => (true, jump),
            Err(error) => (false, error.duration()),
        };
        if jump < JUMP {
            return false;
        }
        self.expiry_checked = None;
        let direction = if is_forward { "forward" } else { "back" };
        let seconds = jump.as_secs();
        tell!(self.metrics.events, warn(Tls, "the clock has jumped; certificates are judged by the new time")
            .detail(format_args!("{direction} by {seconds} s"));
            { place = %self.place.name, time = %time_text(wall), direction, seconds });
        true
    }

    fn conclude(&mut self, look: FilesLook<T>, now: Instant) {
        match look {
            FilesLook::Unchanged => {}
            FilesLook::Same(stamps) => {
                self.stamps = stamps;
                self.recover();
            }
            FilesLook::New { generation, stamps, digest } => {
                let is_new = digest != self.digest;
                (self.stamps, self.digest) = (stamps, digest);
                self.recover();
                self.publish(generation, is_new);
            }
            FilesLook::Bad(fault) => self.fail(fault, now),
        }
    }

    fn publish(&mut self, generation: T, is_new: bool) {
        let wall = (self.clock)();
        let before = self.followed.in_force.epoch();
        let judges_like = generation.judges_like(&before);
        // The hourly look at expired authorities changes nothing as a rule.
        if !is_new && judges_like {
            return;
        }
        let remarks = generation.remarks(wall);
        let ends = generation.expiries(wall).into_iter();
        let ends = ends.map(|expiry| format!("{} until {}", expiry.part, time_text(expiry.not_after)));
        let (files, ends) = (T::FILES, ends.collect::<Vec<_>>().join(", "));
        {
            let number = self.followed.turn.lock();
            // Other files have taken the place of these during the look.
            if *number != self.followed.number {
                return;
            }
            self.followed.in_force.publish(generation);
        }
        self.warned.clear();
        self.expiry_checked = None;
        tell!(self.metrics.events, info(Tls, "reloaded files").place(&self.place.name).detail(&ends);
            { place = %self.place.name, valid = ends } = "reloaded the {files}");
        for remark in remarks {
            tracing::warn!(place = %self.place.name, "{remark}");
        }
        if !judges_like {
            self.followed.judged.send_modify(|count| *count += 1);
        }
    }

    fn recover(&mut self) {
        if self.failing.take().is_some_and(|failing| failing.is_told) {
            let files = T::FILES;
            tell!(self.metrics.events, info(Tls, "files can be used again").place(&self.place.name);
                { place = %self.place.name } = "the {files} can be used again");
        }
        self.metrics.reload_failing(&self.place.name, false);
    }

    /// CRT-3: the last good generation stays; the log has one line for each fault.
    fn fail(&mut self, fault: Fault, now: Instant) {
        let stamps = Stamps::of(&self.place.files);
        let (since, was_told) = match &self.failing {
            Some(failing) => (failing.since, failing.is_told && failing.fault == fault),
            None => (now, false),
        };
        let is_due = !fault.may_pass || now >= since + PATIENCE;
        if is_due && !was_told {
            let files = T::FILES;
            tell!(self.metrics.events, warn(Tls, "cannot use new files; the last good ones stay")
                .place(&self.place.name).detail(&fault);
                { place = %self.place.name, key = %fault.key, %fault }
                = "cannot use the new {files}; the last good ones stay in force");
        }
        if is_due {
            self.metrics.reload_failing(&self.place.name, true);
            self.stamps = stamps;
        }
        self.failing = Some(FailingFiles { since, fault, is_told: is_due });
    }

    fn check_expiries(&mut self) {
        let now = Instant::now();
        if self.expiry_checked.is_some_and(|last| now < last + EXPIRY_CHECK) {
            return;
        }
        self.expiry_checked = Some(now);
        let wall = (self.clock)();
        let mut before = std::mem::take(&mut self.measured);
        for expiry in self.followed.in_force.epoch().expiries(wall) {
            let part = format!("{}.{}", self.place.name, expiry.part);
            self.metrics.valid(&part, expiry.not_before, expiry.not_after);
            self.warn_of(&part, &expiry, now, wall);
            before.remove(&part);
            self.measured.insert(part);
        }
        before.iter().for_each(|part| self.metrics.forget(part));
    }

    /// CRT-11: one WARN at a fifth of the life, and one an hour in the last twentieth.
    fn warn_of(&mut self, part: &str, expiry: &Expiry, now: Instant, wall: SystemTime) {
        let life = expiry.not_after.duration_since(expiry.not_before).unwrap_or_default().as_secs_f64();
        let left = expiry.not_after.duration_since(wall).unwrap_or_default().as_secs_f64();
        let due = if left <= life * LIFE_HOURLY {
            Warned::At(now)
        } else if left <= life * LIFE_WARN {
            Warned::Once
        } else {
            return;
        };
        let last = self.warned.iter().position(|(warned, _)| warned == part);
        let was = last.and_then(|at| self.warned.get(at)).map(|(_, warned)| *warned);
        let is_silent = match (was, due) {
            (Some(Warned::At(last)), Warned::At(_)) => now < last + JUDGE_AGAIN,
            (Some(_), Warned::Once) => true,
            _ => false,
        };
        if is_silent {
            return;
        }
        if let Some(at) = last {
            self.warned.swap_remove(at);
        }
        self.warned.push((part.to_owned(), due));
        let end = time_text(expiry.not_after);
        let events = &self.metrics.events;
        if expiry.not_after < wall {
            tell!(events, error as warn(Tls, "a certificate has expired").place(part).detail(&end);
                { certificate = part, %end });
        } else {
            tell!(events, warn(Tls, "a certificate expires soon").place(part).detail(&end);
                { certificate = part, %end });
        }
    }
}

#[cfg(test)]
mod tests;
