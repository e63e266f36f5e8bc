//! `file:` servers: a directory in place of a control plane (FIL-4 to FIL-8).
//!
//! Every file directly inside the directory contains one `DiscoveryResponse`, or one `Resource` with a list
//! collection (FIL-5). The extension states the format: `.json`, `.yaml`, `.yml`, `.pb` (binary),
//! `.pb_length_delimited` (binary, with a length prefix) and `.pb_text`. Files with other extensions, such as
//! a README, are ignored; so are subdirectories and names with a leading dot. The `..data` symlink of a
//! Kubernetes volume is followed.
//!
//! The directory is taken as a whole. While any file is bad, or two files contain the same resource, the last
//! good state stays in force (FIL-7). There is no ACK and no NACK.
//!
//! A file is deleted if the directory no longer has its name. A file that cannot be looked at or read is bad,
//! and so is a directory without files.

mod changed;
mod changes;
mod load;
mod debounce;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info, warn};

use self::changes::Watch;
use self::debounce::{Changes, Debounce, DueFiles};
use self::load::{DirectoryListing, FileProblem, LoadedFile, Unusable};
use crate::client::Arrival;
use sluice_xds::{Resource, TypeUrl};

/// All resources of a directory, by type and name.
pub type FileState = Vec<(TypeUrl, Vec<Arc<Resource>>)>;

/// An event of a watched directory.
#[derive(Clone, Debug, PartialEq)]
pub enum FileEvent {
    /// The complete content of the directory. A type or resource of the last state that is missing in this
    /// one was deleted by the operator. With the times of reading the files that had changed.
    State(FileState, Arrival),
    /// A file, or the directory itself, is unusable; the last state stays in force. Reported once per file
    /// and reason.
    Bad { path: PathBuf, reason: String },
}

/// Settings for watching a directory.
#[derive(Clone, Debug)]
pub struct FileSettings {
    /// A file written in place is read after 0.5 s without changes (FIL-8).
    pub quiet: Duration,
    /// The directory is scanned every 5 s, for changes that the kernel does not report.
    pub poll_interval: Duration,
    /// The longest file: 256 MiB, as for the responses of servers.
    pub file_bytes_max: u64,
}

impl Default for FileSettings {
    fn default() -> Self {
        FileSettings {
            quiet: Duration::from_millis(500),
            poll_interval: Duration::from_secs(5),
            file_bytes_max: 256 << 20,
        }
    }
}

/// The directory can't be served at all (FIL-3).
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read the directory {path:?}: {error}")]
    Unreadable { path: PathBuf, error: std::io::Error },
    #[error(
        "the directory {path:?} contains no file to serve; add at least one .json, .yaml, .yml, .pb, .pb_text or \
        .pb_length_delimited file"
    )]
    Empty { path: PathBuf },
}

/// Watches directories.
#[derive(Debug)]
pub struct FileServer;

/// A watch. Dropping the handle ends the watch without further events.
#[derive(Debug)]
pub struct FileHandle {
    _task: AbortOnDropHandle<()>,
}

impl FileServer {
    /// Reads a directory once, as [`FileServer::watch`] does at first.
    ///
    /// # Errors
    /// A line for each fault, beginning with the path of the directory or of a file in it.
    pub fn check(directory: &Path, settings: &FileSettings) -> Result<(), Vec<String>> {
        let of_directory = |reason: String| Err(vec![format!("{}: {reason}", directory.display())]);
        let listing = match load::scan(directory) {
            Ok(listing) => listing,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return of_directory("the directory does not exist".to_owned());
            }
            Err(error) => return of_directory(format!("cannot list the directory: {error}")),
        };
        let read = |name: &OsString| load::read(&directory.join(name), settings.file_bytes_max);
        let files = listing.files.keys().map(|name| (name.clone(), read(name))).collect();
        let merged = load::merge(directory, &files, &listing.faults).map(drop);
        let shown = |problem: FileProblem| format!("{}: {}", problem.path.display(), problem.reason);
        merged.map_err(|problems| problems.into_iter().map(shown).collect())
    }

    /// Watches a directory and reports its state, at first and after each change. Equal content is not
    /// reported again. Must be called within a tokio runtime.
    pub async fn watch(
        directory: &Path,
        settings: FileSettings,
        events: mpsc::Sender<FileEvent>,
    ) -> Result<FileHandle, FileError> {
        let path = directory.to_owned();
        let listing =
            scan(&path).await.map_err(|error| FileError::Unreadable { path: path.clone(), error })?;
        if listing.has_no_file() {
            return Err(FileError::Empty { path });
        }
        let directory = Directory {
            watch: Watch::start(&path),
            debounce: Debounce::new(settings.quiet),
            path,
            settings,
            files: BTreeMap::new(),
            faults: BTreeMap::new(),
            bearers: BTreeSet::new(),
            silent: BTreeSet::new(),
            served: None,
            reported: BTreeSet::new(),
            events,
        };
        Ok(FileHandle { _task: AbortOnDropHandle::new(tokio::spawn(directory.run())) })
    }
}

struct Directory {
    path: PathBuf,
    settings: FileSettings,
    watch: Watch,
    debounce: Debounce,
    /// The last known content of each file.
    files: BTreeMap<OsString, Result<LoadedFile, Unusable>>,
    /// The names whose files cannot be looked at now, with the reasons.
    faults: BTreeMap<OsString, String>,
    /// The files with resources in the last state reported.
    bearers: BTreeSet<OsString>,
    /// The ignored files that were logged.
    silent: BTreeSet<OsString>,
    /// The last state reported.
    served: Option<FileState>,
    /// Current problems that were reported.
    reported: BTreeSet<FileProblem>,
    events: mpsc::Sender<FileEvent>,
}

impl Directory {
    async fn run(mut self) {
        let mut changes = Changes { all_moved: true, ..Changes::default() };
        loop {
            self.look(&changes).await;
            let poll_at = Instant::now() + self.settings.poll_interval;
            let look_at = self.debounce.timeout().map_or(poll_at, |settled| settled.min(poll_at));
            changes = tokio::select! {
                changes = self.watch.changes() => changes,
                () = sleep_until(look_at) => Changes::default(),
            };
        }
    }

    /// Reads the settled files, and reports changes.
    async fn look(&mut self, changes: &Changes) {
        let DirectoryListing { files: present, faults, others } = match scan(&self.path).await {
            Ok(listing) => listing,
            Err(error) => {
                self.watch.lost();
                let reason = format!("cannot read the directory: {error}");
                return self
                    .report_problems(BTreeSet::from([FileProblem { path: self.path.clone(), reason }]))
                    .await;
            }
        };
        self.watch.renew(&self.path);
        self.faults = faults;
        let replaced = others.into_iter().filter(|name| self.files.contains_key(name));
        self.faults.extend(replaced.map(|name| (name, "not a regular file any more".to_owned())));
        let begin = Instant::now();
        let faults = &self.faults;
        let DueFiles { read, gone } =
            self.debounce.look(&present, |name| faults.contains_key(name), changes, Instant::now());
        for name in &gone {
            self.files.remove(name);
        }
        let mut settled = true;
        for name in &read {
            let path = self.path.join(name);
            let bytes_max = self.settings.file_bytes_max;
            let reading = move || (load::read(&path, bytes_max), load::stamp(&path).ok());
            let Ok((content, stamp)) = tokio::task::spawn_blocking(reading).await else { continue };
            if stamp.is_some() && stamp.as_ref() == present.get(name) {
                if matches!(content, Err(Unusable::Unreadable(_))) {
                    self.debounce.unread(name);
                }
                self.files.insert(name.clone(), content);
            } else {
                // The file changed during the read. Read again once it is quiet, and report no state before:
                // the file may contain resources that another file lost in the same step.
                self.debounce.unsettled(name, stamp, Instant::now());
                settled = false;
            }
        }
        // The first state has all files, also one that could not be looked at before and has to be quiet now.
        settled &= self.served.is_some() || present.keys().all(|name| self.files.contains_key(name));
        let is_news = !read.is_empty() || !gone.is_empty() || !self.faults.is_empty();
        if settled && (is_news || !self.reported.is_empty()) {
            self.judge(begin).await;
        }
    }

    /// Reports the new state of the whole directory, or its problems. `begin`: of reading the changed files.
    async fn judge(&mut self, begin: Instant) {
        self.judge_silent();
        match load::merge(&self.path, &self.files, &self.faults) {
            Ok(state) => {
                let bears = |content: &&Result<LoadedFile, Unusable>| {
                    content.as_ref().is_ok_and(LoadedFile::has_resources)
                };
                let bearers = self.files.iter().filter(|(_, content)| bears(content));
                self.bearers = bearers.map(|(name, _)| name.clone()).collect();
                let is_new = self.served.as_ref() != Some(&state);
                if is_new {
                    let resources: usize = state.iter().map(|(_, resources)| resources.len()).sum();
                    let directory = self.path.display();
                    match &self.served {
                        None => info!(%directory, resources, "loaded the directory"),
                        Some(served) => {
                            let changed = changed::summary(served, &state);
                            info!(%directory, resources, changed, "reloaded the directory");
                        }
                    }
                    self.served = Some(state.clone());
                }
                // A state served already is reported again, as a confirmation, once no problem remains and no
                // file is waiting.
                let is_confirmed = !self.reported.is_empty() && self.debounce.timeout().is_none();
                if is_new || is_confirmed {
                    self.reported.clear();
                    self.report(FileEvent::State(state, Arrival::decoded(begin))).await;
                }
            }
            Err(problems) => self.report_problems(problems).await,
        }
    }

    /// A file without resources and without a type does not say what it deletes. It is bad if it had
    /// resources, and otherwise ignored.
    fn judge_silent(&mut self) {
        for (name, content) in &mut self.files {
            if !content.as_ref().is_ok_and(LoadedFile::says_nothing) {
                continue;
            }
            let path = self.path.join(name);
            if self.bearers.contains(name) {
                let reason = "the file has no resources and no type_url, so it does not say what it deletes";
                *content = Err(Unusable::Content(reason.to_owned()));
            } else if self.silent.insert(name.clone()) {
                warn!(file = %path.display(), "ignored a file without resources and without a type_url");
            }
        }
    }

    /// Reports the problems not reported yet (FIL-7).
    async fn report_problems(&mut self, problems: BTreeSet<FileProblem>) {
        for FileProblem { path, reason } in problems.difference(&self.reported) {
            debug!(path = %path.display(), reason, "the last good state of the directory stays in force");
            self.report(FileEvent::Bad { path: path.clone(), reason: reason.clone() }).await;
        }
        self.reported = problems;
    }

    /// A send error means that the handle was dropped, which aborts this task.
    async fn report(&self, event: FileEvent) {
        let _ = self.events.send(event).await;
    }
}

async fn scan(path: &Path) -> std::io::Result<DirectoryListing> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || load::scan(&path)).await.map_err(std::io::Error::other)?
}
