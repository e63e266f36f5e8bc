//! `sluice ledger init --config`: a relay that does not run forgets the ledger that it knew (LDG-6).

use std::path::Path;

use crate::command::outcome::Failure;
use crate::config::Config;
use sluice_checkpoint::{StateFile, Store, StoreError};

/// Lets the next start with this configuration believe the ledger that it finds. Returns what was done, in
/// words.
///
/// # Errors
/// The relay shares no ledger, a relay runs with this checkpoint, or the disk refuses.
pub fn forget_ledger(config: &Config) -> Result<String, Failure> {
    if config.ledger.is_none() {
        return Err(Failure::Usage(
            "the configuration has `ledger: local`: there is none to believe".to_owned(),
        ));
    }
    let Some(checkpoint) = &config.checkpoint else {
        return Ok("without `checkpoint` no start remembers a ledger; nothing to do".to_owned());
    };
    let directory = &checkpoint.directory;
    match forget(directory) {
        Ok(true) => Ok(format!("{}: the next start believes the ledger that it finds", directory.display())),
        Ok(false) => Ok(format!("{}: no ledger is remembered; nothing to do", directory.display())),
        Err(StoreError::Locked) => Err(Failure::Conflict(format!(
            "checkpoint.directory: {}: a relay runs with it; nothing was done: say `sluice ledger init` to the relay",
            directory.display()
        ))),
        Err(StoreError::Io(error)) => {
            Err(Failure::Unavailable(format!("checkpoint.directory: {}: {error}", directory.display())))
        }
    }
}

/// Returns false if nothing was remembered.
fn forget(directory: &Path) -> Result<bool, StoreError> {
    let store = Store::new(directory.to_owned());
    // The lock would make a directory that is not there.
    if directory.exists() {
        store.open()?;
        return Ok(store.remove_state(StateFile::Ledger)?);
    }
    Ok(false)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config;

    #[test]
    fn ldg_6_a_relay_that_does_not_run_forgets_its_ledger_once_it_is_told() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("checkpoint");
        let read = |more: &str| {
            let text = format!("xds_servers: [{{server_uri: 'file:.'}}]\n{more}");
            config::parse_file(&text, &parent.path().join("sluice.yaml"), "host-1").unwrap().config
        };
        let ledger = "ledger: {etcd: {endpoints: ['127.0.0.1:1']}}\n";
        assert_eq!(forget_ledger(&read("")).unwrap_err().code(), 64);
        assert!(forget_ledger(&read(ledger)).unwrap().starts_with("without `checkpoint`"));
        let config = read(&format!("{ledger}checkpoint: {{directory: checkpoint}}\n"));
        assert!(forget_ledger(&config).unwrap().ends_with("no ledger is remembered; nothing to do"));
        assert!(!directory.exists());
        let store = Store::new(directory);
        store.open().unwrap();
        store.write_state(StateFile::Ledger, b"{}").unwrap();
        let refused = forget_ledger(&config).unwrap_err();
        assert!(refused.code() == 65 && refused.text().unwrap().contains("a relay runs"), "{refused:?}");
        let memory = |store: &Store| store.read_state(StateFile::Ledger, |_| Ok(())).unwrap();
        assert_eq!(memory(&store), Some(()));
        let directory = store.directory().to_owned();
        drop(store);
        assert!(
            forget_ledger(&config).unwrap().ends_with("the next start believes the ledger that it finds")
        );
        assert_eq!(memory(&Store::new(directory.clone())), None);
        assert!(fs::exists(directory).unwrap());
    }
}
