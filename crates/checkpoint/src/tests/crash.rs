//! A model of a disk that may stop at every call, and what may be on it afterwards (FP2, I13).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::*;
use crate::disk::{Disk, replace};

#[derive(Clone, Debug, Default)]
struct Inode {
    data: Vec<u8>,
    /// What is on the disk for certain.
    synced: Option<Vec<u8>>,
}

#[derive(Clone, Debug)]
enum Change {
    Link(PathBuf, usize),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

#[derive(Clone, Debug, Default)]
struct State {
    inodes: Vec<Inode>,
    /// Names that are on the disk for certain.
    durable: BTreeMap<PathBuf, usize>,
    /// Changes of names since, in order.
    pending: Vec<Change>,
    calls: usize,
}

impl State {
    fn names(&self, changes: usize) -> BTreeMap<PathBuf, usize> {
        let mut names = self.durable.clone();
        for change in &self.pending[..changes] {
            match change {
                Change::Link(path, inode) => drop(names.insert(path.clone(), *inode)),
                Change::Rename(from, to) => {
                    if let Some(inode) = names.remove(from) {
                        names.insert(to.clone(), inode);
                    }
                }
                Change::Remove(path) => drop(names.remove(path)),
            }
        }
        names
    }

    /// Everything that may be under a name if the power fails now: names in any state that they went through,
    /// and of data that was not synced nothing, a part, all, or blocks of zeros.
    fn after_power_failed(&self, path: &Path) -> Vec<Option<Vec<u8>>> {
        let mut states = Vec::new();
        for changes in 0..=self.pending.len() {
            let Some(inode) = self.names(changes).get(path).map(|inode| &self.inodes[*inode]) else {
                states.push(None);
                continue;
            };
            match &inode.synced {
                Some(synced) if *synced == inode.data => states.push(Some(synced.clone())),
                _ => {
                    let data = &inode.data;
                    states
                        .extend([Vec::new(), data[..data.len() / 2].to_vec(), vec![0; data.len()]].map(Some));
                    states.push(Some(data.clone()));
                }
            }
        }
        states
    }
}

/// Fails at one call, if told to, before or after it took effect.
struct ModelDisk {
    state: RefCell<State>,
    fails_at: Option<(usize, bool)>,
}

impl ModelDisk {
    fn call<T>(&self, act: impl FnOnce(&mut State) -> T) -> io::Result<T> {
        let state = &mut *self.state.borrow_mut();
        let call = state.calls;
        state.calls += 1;
        match self.fails_at {
            Some((at, false)) if at == call => Err(io::Error::from(io::ErrorKind::StorageFull)),
            Some((at, true)) if at == call => {
                act(state);
                Err(io::Error::other("EIO"))
            }
            _ => Ok(act(state)),
        }
    }
}

impl Disk for ModelDisk {
    type File = usize;

    fn create(&self, path: &Path) -> io::Result<usize> {
        self.call(|state| {
            state.inodes.push(Inode::default());
            state.pending.push(Change::Link(path.to_owned(), state.inodes.len() - 1));
            state.inodes.len() - 1
        })
    }

    fn write(&self, file: &mut usize, bytes: &[u8]) -> io::Result<()> {
        self.call(|state| state.inodes[*file].data.extend_from_slice(bytes))
    }

    fn sync(&self, file: &mut usize) -> io::Result<()> {
        self.call(|state| {
            let inode = &mut state.inodes[*file];
            inode.synced = Some(inode.data.clone());
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(|state| state.pending.push(Change::Rename(from.to_owned(), to.to_owned())))
    }

    fn sync_directory(&self, _directory: &Path) -> io::Result<()> {
        self.call(|state| {
            state.durable = state.names(state.pending.len());
            state.pending.clear();
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(|state| state.pending.push(Change::Remove(path.to_owned())))
    }
}

const NAME: &str = "one.checkpoint";

/// In small pieces, so that there are many calls.
fn write(disk: &ModelDisk, file: &[u8]) -> io::Result<()> {
    replace(disk, Path::new("dir"), NAME, |sink| file.chunks(40).try_for_each(sink))
}

fn with_old(old: &[u8]) -> State {
    let disk = ModelDisk { state: RefCell::default(), fails_at: None };
    write(&disk, old).unwrap();
    State { calls: 0, ..disk.state.into_inner() }
}

fn check(state: &State, allowed: &[&[u8]], when: &str) {
    for bytes in state.after_power_failed(&Path::new("dir").join(NAME)) {
        let bytes = bytes.unwrap_or_else(|| panic!("{when}: the file is gone"));
        assert!(decode(&bytes, wall_now()).is_ok(), "{when}: neither the old file nor the new one");
        assert!(allowed.contains(&&bytes[..]), "{when}: a mix");
    }
}

#[test]
fn fp_2_a_crash_at_any_call_leaves_the_old_file_or_the_new_one() {
    let (old, new) = (bytes_of(&header(), &small(1)), bytes_of(&header(), &small(3)));
    let disk = ModelDisk { state: with_old(&old).into(), fails_at: None };
    write(&disk, &new).unwrap();
    let calls = disk.state.borrow().calls;
    assert!(calls > 10, "{calls}");
    check(&disk.state.borrow(), &[&new], "when it is done");
    for stop in 0..=calls {
        // A process that is killed makes no further call: nothing that comes after the failure counts.
        let state = RefCell::new(with_old(&old));
        let disk = ModelDisk { state, fails_at: None };
        let stopped = StoppingDisk { disk: &disk, left: RefCell::new(stop) };
        let done = replace(&stopped, Path::new("dir"), NAME, |sink| new.chunks(40).try_for_each(sink));
        assert_eq!(done.is_ok(), stop == calls);
        check(&disk.state.borrow(), &[&old, &new], &format!("killed before call {stop}"));
    }
}

#[test]
fn fp_3_a_call_that_fails_leaves_the_old_file_and_the_next_attempt_works() {
    let (old, new) = (bytes_of(&header(), &small(1)), bytes_of(&header(), &small(3)));
    let disk = ModelDisk { state: with_old(&old).into(), fails_at: None };
    write(&disk, &new).unwrap();
    let calls = disk.state.into_inner().calls;
    for call in 0..calls {
        for took_effect in [false, true] {
            let disk = ModelDisk { state: with_old(&old).into(), fails_at: Some((call, took_effect)) };
            assert!(write(&disk, &new).is_err(), "call {call}");
            check(&disk.state.borrow(), &[&old, &new], &format!("call {call} failed"));
            write(&disk, &new).unwrap();
            check(&disk.state.borrow(), &[&new], &format!("the attempt after call {call} failed"));
        }
    }
}

/// Does nothing more after some calls.
struct StoppingDisk<'a> {
    disk: &'a ModelDisk,
    left: RefCell<usize>,
}

impl StoppingDisk<'_> {
    fn call<T>(&self, act: impl FnOnce(&ModelDisk) -> io::Result<T>) -> io::Result<T> {
        let left = &mut *self.left.borrow_mut();
        if *left == 0 {
            return Err(io::Error::other("killed"));
        }
        *left -= 1;
        act(self.disk)
    }
}

impl Disk for StoppingDisk<'_> {
    type File = usize;

    fn create(&self, path: &Path) -> io::Result<usize> {
        self.call(|disk| disk.create(path))
    }

    fn write(&self, file: &mut usize, bytes: &[u8]) -> io::Result<()> {
        self.call(|disk| disk.write(file, bytes))
    }

    fn sync(&self, file: &mut usize) -> io::Result<()> {
        self.call(|disk| disk.sync(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(|disk| disk.rename(from, to))
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.call(|disk| disk.sync_directory(directory))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(|disk| disk.remove(path))
    }
}
