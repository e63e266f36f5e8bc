//! A real directory: who may use it, and which files.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use super::*;
use crate::store::Unwanted;

fn load(store: &Store) -> Loaded {
    store.load(wall_now(), &|_| Ok(())).unwrap()
}

/// A directory with one file, and that file.
fn written() -> (tempfile::TempDir, Store, std::path::PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let store = Store::new(parent.path().join("made/when/needed"));
    store.open().unwrap();
    store.write(&header(), &small(1)).unwrap();
    let file = store.directory().join(header().identity.file_name());
    (parent, store, file)
}

#[test]
fn what_was_written_is_read() {
    let (_parent, store, file) = written();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(store.directory()).unwrap().permissions().mode() & 0o777, 0o700);
    let loaded = load(&store);
    assert!(loaded.refused.is_empty() && loaded.sources.len() == 1);
    store.remove(&header().identity).unwrap();
    store.remove(&header().identity).unwrap();
    assert!(load(&store).sources.is_empty());
}

#[test]
fn fp_13_a_directory_is_of_one_process() {
    let (_parent, store, _) = written();
    store.open().unwrap();
    let other = Store::new(store.directory().to_owned());
    assert!(matches!(other.open(), Err(StoreError::Locked)));
    drop(store);
    other.open().unwrap();
    assert_eq!(load(&other).sources.len(), 1);
}

#[test]
fn fp_4_a_file_that_others_may_write_is_refused() {
    for mode in [0o620, 0o602, 0o666] {
        let (_parent, store, file) = written();
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        let loaded = load(&store);
        assert!(loaded.sources.is_empty());
        assert_eq!(
            loaded.refused[0].1.to_string(),
            format!("other users can write to the file (mode {mode:03o})")
        );
    }
}

#[test]
fn fp_4_a_directory_that_others_may_write_is_refused() {
    for mode in [0o720, 0o702, 0o777] {
        let (_parent, store, _) = written();
        let again = Store::new(store.directory().to_owned());
        fs::set_permissions(store.directory(), Permissions::from_mode(mode)).unwrap();
        drop(store);
        let error = again.open().unwrap_err().to_string();
        assert!(
            error.contains(&format!("other users can write to the directory (mode {mode:03o})")),
            "{error}"
        );
    }
}

/// Only root can give a file away, so that others see nothing of this test.
#[test]
fn fp_4_what_belongs_to_another_user_is_refused() {
    const STRANGER: u32 = 54_321;
    let (_parent, store, file) = written();
    if chown(&file, Some(STRANGER), None).is_err() {
        return;
    }
    assert!(matches!(load(&store).refused[..], [(_, Refused::Owner(STRANGER))]));
    let again = Store::new(store.directory().to_owned());
    chown(store.directory(), Some(STRANGER), None).unwrap();
    drop(store);
    let error = again.open().unwrap_err().to_string();
    assert!(error.contains("the directory belongs to another user (uid 54321)"), "{error}");
}

#[test]
fn fp_4_a_link_in_the_place_of_an_unfinished_file_is_not_followed() {
    let (parent, store, file) = written();
    let victim = parent.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, file.with_extension("checkpoint.unfinished")).unwrap();
    store.write(&header(), &small(2)).unwrap();
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    assert!(fs::symlink_metadata(&file).unwrap().is_file());
}

#[test]
fn fp_4_what_is_no_file_of_this_source_is_refused() {
    let (_parent, store, file) = written();
    let elsewhere = store.directory().join("elsewhere.checkpoint");
    fs::rename(&file, &elsewhere).unwrap();
    assert!(matches!(load(&store).refused[..], [(_, Refused::Misplaced)]));
    symlink(&elsewhere, &file).unwrap();
    let refused = load(&store).refused;
    assert!(refused.iter().any(|(path, reason)| *path == file && matches!(reason, Refused::Irregular)));
    fs::write(store.directory().join("a.txt"), "of no concern").unwrap();
    assert_eq!(load(&store).refused.len(), 2);
}

#[test]
fn fp_5_what_is_too_old_goes_and_what_is_of_another_server_stays() {
    let (_parent, store, file) = written();
    let other = || Unwanted::Server { list: "l".into(), server: "s".into() };
    assert_eq!(store.load(wall_now(), &|_| Err(other())).unwrap().refused.len(), 1);
    assert!(file.exists());
    let too_old = |_: &Header| Err(Unwanted::TooOld { age: 2, max: 1 });
    assert_eq!(store.load(wall_now(), &too_old).unwrap().refused.len(), 1);
    assert!(!file.exists());
}

#[test]
fn fp_2_what_a_crash_left_unfinished_is_removed() {
    let (_parent, store, file) = written();
    let unfinished = file.with_extension("checkpoint.unfinished");
    fs::write(&unfinished, "half").unwrap();
    assert_eq!(load(&store).sources.len(), 1);
    assert!(!unfinished.exists());
}

#[test]
fn hnd_2_an_unfinished_file_of_a_predecessor_stays() {
    let (_parent, old, file) = written();
    let unfinished = file.with_extension("checkpoint.unfinished");
    fs::write(&unfinished, "half").unwrap();
    let new = Store::new(old.directory().to_owned());
    assert!(new.inherit_lock(old.lock_file().unwrap().unwrap()));
    assert_eq!(load(&new).sources.len(), 1);
    assert!(unfinished.exists(), "the predecessor is about to rename it");
}

/// WAV-8: the state of the plans is one file beside those of the sources, under the same conditions.
#[test]
fn wav_8_the_state_of_the_plans_is_kept_like_a_source() {
    let (_parent, store, _) = written();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|error| error.to_string());
    assert_eq!(store.read_state(StateFile::Plans, text).unwrap(), None);
    store.write_state(StateFile::Plans, b"one").unwrap();
    store.write_state(StateFile::Plans, b"two").unwrap();
    assert_eq!(store.read_state(StateFile::Plans, text).unwrap().unwrap(), "two");
    assert_eq!(load(&store).sources.len(), 1, "the file is no source");
    let (path, refused) =
        store.read_state(StateFile::Plans, |_| Err::<(), _>("line 1".to_owned())).unwrap_err();
    assert_eq!(refused.to_string(), "not a state of the relay: line 1");
    fs::set_permissions(&path, Permissions::from_mode(0o620)).unwrap();
    let (_, refused) = store.read_state(StateFile::Plans, text).unwrap_err();
    assert_eq!(refused.to_string(), "other users can write to the file (mode 620)");
    fs::write(&path, vec![b'x'; (16 << 20) + 1]).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let (_, refused) = store.read_state(StateFile::Plans, text).unwrap_err();
    assert!(refused.to_string().starts_with("the file has 16777217 bytes"), "{refused}");
}
