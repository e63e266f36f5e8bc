//! Events of files, and the machine that reads them again.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sluice::telemetry::metrics::TlsMetrics;
use sluice::trust::contents::{Contents, PlaceFile};
use sluice::trust::fault::Fault;
use sluice::trust::rotation::{Expiry, FilesInForce, Watched, WatchedPlace};
use tokio::time::sleep;

use super::Target;
use super::draw::Draw;

pub const FILE_EVENTS: Target = Target {
    name: "file_events",
    run,
    seeds: || {
        vec![
            // Pairs in place, one file after the other; links; renames; faults.
            vec![0, 1, 1, 1, 1, 1, 2, 2, 3, 0, 2, 9, 1, 2, 9],
            vec![3, 1, 9, 3, 2, 9, 3, 3, 1, 3, 4, 9],
            vec![5, 0, 1, 0, 3, 1, 1, 3, 9, 4, 1, 0, 0, 5, 9, 1, 5, 9],
            vec![2, 7, 9, 0, 1, 9, 1, 1, 9, 6, 1, 9, 6, 0, 9],
        ]
    },
    words: &[],
    mutations: 120,
    memory: None,
};

/// The contents of the three files; a pair matches if both have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    certificate: u8,
    key: u8,
    authority: u8,
}

impl FilesInForce for Seen {
    fn expiries(&self, _: SystemTime) -> Vec<Expiry> {
        Vec::new()
    }

    fn remarks(&self, _: SystemTime) -> Vec<String> {
        Vec::new()
    }

    fn judges_like(&self, other: &Seen) -> bool {
        self.authority == other.authority
    }
}

const FILES: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];

impl Seen {
    fn of(contents: [&[u8]; 3]) -> Option<Seen> {
        let number = |index: usize| match contents[index] {
            [number, b'.'] => Some(*number),
            _ => None,
        };
        let seen = Seen { certificate: number(0)?, key: number(1)?, authority: number(2)? };
        (seen.certificate == seen.key).then_some(seen)
    }

    fn build(directory: &Path, contents: &Contents) -> Result<Seen, Fault> {
        let paths = FILES.map(|name| directory.join(name));
        let fault = || Fault::passing(&paths[0], "does not match");
        Seen::of([0, 1, 2].map(|index| contents.of(&paths[index]))).ok_or_else(fault)
    }
}

fn run(data: &[u8]) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(events(data));
}

struct Site {
    directory: tempfile::TempDir,
    links: usize,
}

impl Site {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, file: usize, bytes: &[u8]) {
        let path = self.path(FILES[file]);
        // A file may be a link into a directory that is gone.
        if std::fs::write(&path, bytes).is_err() {
            let _ = std::fs::remove_file(&path);
            std::fs::write(&path, bytes).unwrap();
        }
    }

    fn rename_over(&self, file: usize, bytes: &[u8]) {
        std::fs::write(self.path("new"), bytes).unwrap();
        std::fs::rename(self.path("new"), self.path(FILES[file])).unwrap();
    }

    /// The kubelet's way: all files are links into a directory, which is replaced at once.
    fn swap(&mut self, number: u8, authority: u8) {
        self.links += 1;
        let directory = format!("..{}", self.links);
        std::fs::create_dir(self.path(&directory)).unwrap();
        for (file, number) in FILES.iter().zip([number, number, authority]) {
            std::fs::write(self.path(&directory).join(file), [number, b'.']).unwrap();
        }
        symlink(&directory, self.path("..swap")).unwrap();
        std::fs::rename(self.path("..swap"), self.path("..data")).unwrap();
        for file in FILES {
            let is_link = std::fs::read_link(self.path(file)).is_ok();
            if !is_link {
                symlink(format!("..data/{file}"), self.path("link")).unwrap();
                std::fs::rename(self.path("link"), self.path(file)).unwrap();
            }
        }
    }

    /// The files as they are now, if they are good.
    fn now(&self) -> Option<Seen> {
        let read = FILES.map(|name| std::fs::read(self.path(name)).unwrap_or_default());
        Seen::of([&read[0], &read[1], &read[2]])
    }

    fn watch(&self) -> Watched<Seen> {
        let directory = self.directory.path().to_owned();
        let place = WatchedPlace {
            name: "listeners[main].tls".into(),
            files: FILES.map(|name| PlaceFile::new(name, &self.path(name))).to_vec(),
            refresh: Duration::from_secs(600),
            build: Arc::new(move |contents: &Contents, _: Option<&Seen>, _| {
                Seen::build(&directory, contents)
            }),
        };
        place.watch(TlsMetrics::default()).unwrap()
    }
}

/// CRT-2, CRT-3: in force is always a good set that the files were at one moment, and soon after the last event the
/// files as they are.
async fn events(data: &[u8]) {
    let mut draw = Draw::new(data);
    let mut site = Site { directory: tempfile::tempdir().unwrap(), links: 0 };
    (0..3).for_each(|file| site.write(file, b"0."));
    let watched = site.watch();
    let mut were = BTreeSet::from([site.now().unwrap()]);
    let (mut at, mut events) = (0, 0);
    while !draw.is_empty() && events < 24 {
        events += 1;
        let (what, file) = (draw.below(8), draw.below(3));
        let number = b'0' + draw.byte() % 6;
        match what {
            0 | 1 => site.write(file, &[number, b'.']),
            2 => site.rename_over(file, &[number, b'.']),
            3 => site.swap(number, b'0' + number % 2),
            4 => drop(std::fs::remove_file(site.path(FILES[file]))),
            5 => site.write(file, &[number]),
            6 => (0..2).for_each(|file| site.write(file, &[number, b'.'])),
            _ => site.write(file, b""),
        }
        were.extend(site.now());
        // Never at the moment of a look, which is a multiple of 100 ms.
        let pause = 1 + 37 * u64::from(draw.byte());
        let pause = if (at + pause) % 100 == 0 { pause + 1 } else { pause };
        at += pause;
        sleep(Duration::from_millis(pause)).await;
        let in_force = **watched.in_force().epoch();
        assert!(were.contains(&in_force), "{in_force:?} never stood in the files: {were:?}");
        if pause > 1_000
            && let Some(now) = site.now()
        {
            assert_eq!(in_force, now, "a second after the last event");
        }
    }
    site.swap(b'9', b'9');
    sleep(Duration::from_millis(1_001)).await;
    assert_eq!(Some(**watched.in_force().epoch()), site.now(), "at the end");
}
