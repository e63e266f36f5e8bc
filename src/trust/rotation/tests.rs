#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "files are written while time is paused")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::*;
use crate::trust::issue::{Authority, Issued, Leaf};
use crate::trust::pair::{Pair, PairFiles};

const DAY: Duration = Duration::from_secs(86_400);

impl FilesInForce for Pair {
    fn expiries(&self, _: SystemTime) -> Vec<Expiry> {
        let (not_before, not_after) = (self.leaf.not_before, self.leaf.not_after);
        vec![Expiry { part: "pair".into(), not_before, not_after, is_own: true }]
    }

    fn remarks(&self, _: SystemTime) -> Vec<String> {
        Vec::new()
    }

    fn judges_like(&self, _: &Pair) -> bool {
        true
    }
}

/// A directory with a pair under watch.
struct Files {
    directory: tempfile::TempDir,
    authority: Authority,
    metrics: TlsMetrics,
    wall: Arc<Mutex<SystemTime>>,
    /// Distinguishes leaves.
    issued: u32,
    /// Counts how often the files were judged.
    judged: Arc<AtomicUsize>,
}

impl Files {
    fn new() -> Files {
        let now = wall_now();
        Files {
            directory: tempfile::tempdir().unwrap(),
            authority: Authority::new("test", 100 * DAY, now).unwrap(),
            metrics: TlsMetrics::default(),
            wall: Arc::new(Mutex::new(now)),
            issued: 0,
            judged: Arc::default(),
        }
    }

    fn issue(&mut self, life: Duration) -> Issued {
        self.issued += 1;
        let host = format!("host-{}", self.issued);
        let leaf = Leaf { hosts: &[&host], is_server: true, ..Leaf::default() };
        self.authority.issue(&leaf, life, wall_now()).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn watch(&self) -> Result<Watched<Pair>, Fault> {
        Ok(self.prepare()?.watch(self.metrics.clone()))
    }

    fn prepare(&self) -> Result<Prepared<Pair>, Fault> {
        let files = PairFiles { certificate: self.path("tls.crt"), private_key: self.path("tls.key") };
        let judged = self.judged.clone();
        let place = WatchedPlace {
            name: "test".into(),
            files: files.files("").to_vec(),
            refresh: Duration::from_secs(600),
            build: Arc::new(move |contents: &Contents, old: Option<&Pair>, now| {
                judged.fetch_add(1, Ordering::Relaxed);
                Pair::read(&files, contents, old, now)
            }),
        };
        let wall = self.wall.clone();
        place.prepare_with(Arc::new(move || *wall.lock()))
    }

    fn put(&self, issued: &Issued) {
        self.write("tls.crt", &issued.certificate);
        self.write("tls.key", &issued.private_key);
    }

    fn is_failing(&self) -> bool {
        self.metrics.is_reload_failing("test")
    }
}

fn host(watched: &Watched<Pair>) -> String {
    watched.in_force().get().leaf.names.dns.join(",")
}

/// Lets the watch look at the files: paused time moves on while nothing else is to be done.
async fn within(time: Duration) {
    sleep(time).await;
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn crt_2_files_written_in_place_one_after_the_other_never_mix() {
    let mut files = Files::new();
    let first = files.issue(DAY);
    files.put(&first);
    let watched = files.watch().unwrap();
    for (name, other) in [("tls.crt", "tls.key"), ("tls.key", "tls.crt")] {
        let before = host(&watched);
        let new = files.issue(2 * DAY);
        let text =
            |name: &str| if name == "tls.crt" { new.certificate.clone() } else { new.private_key.clone() };
        files.write(name, &text(name));
        within(2 * SECOND).await;
        assert_eq!(host(&watched), before, "half of a pair is not used");
        assert!(!files.is_failing(), "and no alarm within five seconds");
        files.write(other, &text(other));
        within(SECOND).await;
        assert_eq!(host(&watched), format!("host-{}", files.issued));
        assert!(!files.is_failing());
    }
}

#[tokio::test(start_paused = true)]
async fn crt_1_a_swapped_link_and_a_renamed_file_are_seen_within_a_second() {
    let mut files = Files::new();
    for (number, name) in ["a", "b"].into_iter().enumerate() {
        let issued = files.issue((number as u32 + 1) * DAY);
        fs::create_dir(files.path(name)).unwrap();
        files.write(&format!("{name}/tls.crt"), &issued.certificate);
        files.write(&format!("{name}/tls.key"), &issued.private_key);
    }
    let link = |target: &str, name: &Path| std::os::unix::fs::symlink(target, name).unwrap();
    link("a", &files.path("..data"));
    link("..data/tls.crt", &files.path("tls.crt"));
    link("..data/tls.key", &files.path("tls.key"));
    let watched = files.watch().unwrap();
    assert_eq!(host(&watched), "host-1");
    link("b", &files.path("..new"));
    fs::rename(files.path("..new"), files.path("..data")).unwrap();
    within(SECOND).await;
    assert_eq!(host(&watched), "host-2");

    let third = files.issue(3 * DAY);
    for (name, text) in [("tls.key", &third.private_key), ("tls.crt", &third.certificate)] {
        files.write("new", text);
        fs::rename(files.path("new"), files.path(name)).unwrap();
    }
    within(SECOND).await;
    assert_eq!(host(&watched), "host-3");
}

#[tokio::test(start_paused = true)]
async fn crt_3_bad_files_keep_the_last_good_and_are_told() {
    let mut files = Files::new();
    let good = files.issue(DAY);
    files.put(&good);
    let watched = files.watch().unwrap();
    for bad in [
        "",
        "-----BEGIN CERTIFICATE-----\nAAAA",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        files.write("tls.crt", bad);
        within(4 * SECOND).await;
        assert!(!files.is_failing(), "it may be half a file");
        within(3 * SECOND).await;
        assert!(files.is_failing(), "{bad:?}");
        assert_eq!(host(&watched), "host-1");
        files.put(&good);
        within(2 * SECOND).await;
        assert!(!files.is_failing());
    }
    fs::remove_file(files.path("tls.key")).unwrap();
    within(7 * SECOND).await;
    assert!(files.is_failing());
    assert_eq!(host(&watched), "host-1");
}

#[tokio::test(start_paused = true)]
async fn crt_4_a_leaf_that_ends_earlier_or_has_ended_is_not_taken() {
    let mut files = Files::new();
    let good = files.issue(2 * DAY);
    files.put(&good);
    let watched = files.watch().unwrap();
    for life in [DAY, Duration::from_secs(30)] {
        let worse = files.issue(life);
        files.put(&worse);
        within(2 * SECOND).await;
        assert!(files.is_failing());
        assert_eq!(host(&watched), "host-1");
    }
    // The old leaf has ended meanwhile, so that any valid one is better.
    *files.wall.lock() += 2 * DAY + SECOND;
    let now = *files.wall.lock();
    let leaf = Leaf { hosts: &["late"], is_server: true, ..Leaf::default() };
    let late = files.authority.issue(&leaf, DAY, now).unwrap();
    files.put(&late);
    within(2 * SECOND).await;
    assert_eq!(host(&watched), "late");
    assert!(!files.is_failing() && !watched.has_expired());
}

/// Ten years forward and back: each jump has the files judged again, and timers do not notice.
#[tokio::test(start_paused = true)]
async fn crt_12_after_a_jump_of_the_clock_everything_is_judged_by_the_new_time() {
    const YEARS: Duration = Duration::from_secs(10 * 365 * 86_400);
    let mut files = Files::new();
    let good = files.issue(DAY);
    files.put(&good);
    // Old enough that equal stamps mean equal files.
    *files.wall.lock() += 60 * SECOND;
    let watched = files.watch().unwrap();
    let pass = async |time: Duration| {
        for _ in 0..time.as_millis() / 500 {
            within(POLL).await;
            *files.wall.lock() += POLL;
        }
    };
    pass(20 * SECOND).await;
    assert_eq!(files.judged.load(Ordering::Relaxed), 1, "the clock runs evenly");
    for (count, is_forward) in [(2, true), (3, false)] {
        let now = *files.wall.lock();
        *files.wall.lock() = if is_forward { now + YEARS } else { now - YEARS };
        pass(20 * SECOND).await;
        assert_eq!(files.judged.load(Ordering::Relaxed), count);
        assert_eq!(host(&watched), "host-1", "an end in the past is no reason to drop our certificate");
        assert!(!files.is_failing());
    }
}

#[tokio::test(start_paused = true)]
async fn crt_7_missing_or_foreign_files_are_refused_at_the_start() {
    let mut files = Files::new();
    let (one, two) = (files.issue(DAY), files.issue(DAY));
    let fault = files.watch().err().unwrap();
    assert!(fault.reason.starts_with("cannot read the file"), "{fault}");
    files.put(&Issued { private_key: two.private_key, ..one });
    let fault = files.watch().err().unwrap();
    let expected = format!(
        "not the key of the certificate in {}; expected the pair that was issued together",
        files.path("tls.crt").display()
    );
    assert_eq!((fault.key.as_str(), fault.reason), ("private_key_file", expected));
}

/// Many rotations in each of the shapes; `tests/run --long` has a thousand on the built binary.
#[tokio::test(start_paused = true)]
async fn crt_1_twenty_rotations_are_all_seen() {
    let mut files = Files::new();
    let first = files.issue(DAY);
    files.put(&first);
    let watched = files.watch().unwrap();
    for round in 2..22 {
        let new = files.issue(round * DAY);
        match round % 2 {
            0 => files.put(&new),
            _ => {
                for (name, text) in [("tls.crt", &new.certificate), ("tls.key", &new.private_key)] {
                    files.write("new", text);
                    fs::rename(files.path("new"), files.path(name)).unwrap();
                }
            }
        }
        within(SECOND).await;
        assert_eq!(host(&watched), format!("host-{round}"));
    }
}

#[tokio::test(start_paused = true)]
async fn rel_2_other_files_take_the_place_of_those_under_watch_for_all_who_hold_them() {
    let (mut old, mut new) = (Files::new(), Files::new());
    new.issued = 10;
    let (first, second) = (old.issue(DAY), new.issue(DAY));
    old.put(&first);
    let (watched, held) = (old.watch().unwrap(), old.watch().unwrap());
    let clone = watched.clone();
    assert!(new.prepare().is_err(), "there are no files yet");
    new.put(&second);
    let prepared = new.prepare().unwrap();
    assert_eq!(host(&watched), "host-1", "nothing has changed before");
    let mut judgements = watched.judgements();
    prepared.replace(&watched, new.metrics.clone());
    assert_eq!(
        (host(&watched), host(&clone), host(&held)),
        ("host-11".into(), "host-11".into(), "host-1".into())
    );
    assert!(!judgements.has_changed().unwrap(), "a pair judges nobody");
    judgements.mark_unchanged();
    // From now on the new files are followed, and the old ones are not.
    let (third, fourth) = (old.issue(2 * DAY), new.issue(2 * DAY));
    old.put(&third);
    within(2 * SECOND).await;
    assert_eq!((host(&watched), host(&held)), ("host-11".into(), "host-2".into()));
    new.put(&fourth);
    within(2 * SECOND).await;
    assert_eq!(host(&clone), "host-12");
}
