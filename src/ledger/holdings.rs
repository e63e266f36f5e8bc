//! The bounds of a ledger's content: whoever else writes below the prefix must not make the process grow.

use std::collections::BTreeMap;

use super::{LedgerEntry, LedgerEvent};

/// The longest value of an entry.
pub const VALUE_BYTES_MAX: usize = 64 << 10;

/// The longest key that the relay writes.
pub const KEY_BYTES_MAX: usize = 512;

/// The most entries of a ledger.
pub const ENTRIES_MAX: usize = 4096;

/// The most bytes of all keys and values of a ledger: 16 MiB.
pub const LEDGER_BYTES_MAX: usize = 16 << 20;

/// The content of a ledger, by size, up to a revision.
#[derive(Debug)]
pub(super) struct Holdings {
    /// Bytes of the values by key.
    sizes: BTreeMap<String, usize>,
    bytes: usize,
    /// The revision of the load, and of the last event.
    loaded: u64,
    revision: u64,
}

impl Holdings {
    /// # Errors
    /// The bound that the entries are over, in words.
    pub(super) fn new(entries: &[LedgerEntry], revision: u64) -> Result<Holdings, String> {
        let mut holdings = Holdings { sizes: BTreeMap::new(), bytes: 0, loaded: revision, revision };
        for entry in entries {
            holdings.put(&entry.key, entry.value.len())?;
        }
        Ok(holdings)
    }

    /// # Errors
    /// The reason why the event cannot follow the events before.
    pub(super) fn take(&mut self, event: &LedgerEvent) -> Result<(), String> {
        let (key, value, revision) = match event {
            LedgerEvent::Changed(entry) => (&entry.key, Some(entry.value.len()), entry.revision),
            LedgerEvent::Gone { key, revision } => (key, None, *revision),
            LedgerEvent::Loaded { .. } | LedgerEvent::Lost(_) => return Ok(()),
        };
        if revision < self.revision || revision <= self.loaded {
            return Err(format!("an event of revision {revision} came after revision {}", self.revision));
        }
        self.revision = revision;
        match value {
            Some(bytes) => self.put(key, bytes),
            None => {
                self.bytes -= self.sizes.remove(key).map_or(0, |bytes| key.len() + bytes);
                Ok(())
            }
        }
    }

    /// The revision of the last event.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    fn put(&mut self, key: &str, bytes: usize) -> Result<(), String> {
        if bytes > VALUE_BYTES_MAX {
            return Err(format!(
                "the entry {:?} has {bytes} bytes; at most {VALUE_BYTES_MAX} are taken",
                key.chars().take(64).collect::<String>()
            ));
        }
        match self.sizes.insert(key.to_owned(), bytes) {
            Some(before) => self.bytes -= before,
            None => self.bytes += key.len(),
        }
        self.bytes += bytes;
        if self.sizes.len() > ENTRIES_MAX {
            return Err(too_many());
        }
        if self.bytes > LEDGER_BYTES_MAX {
            return Err(too_large());
        }
        Ok(())
    }
}

pub(super) fn too_many() -> String {
    format!("there are more than {ENTRIES_MAX} entries in the ledger; is something else written there?")
}

pub(super) fn too_large() -> String {
    format!(
        "the entries of the ledger have more than {} MiB; is something else written there?",
        LEDGER_BYTES_MAX >> 20
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn entry(key: &str, bytes: usize, revision: u64) -> LedgerEntry {
        LedgerEntry { key: key.to_owned(), value: Bytes::from(vec![0; bytes]), revision }
    }

    fn changed(key: &str, bytes: usize, revision: u64) -> LedgerEvent {
        LedgerEvent::Changed(entry(key, bytes, revision))
    }

    #[test]
    fn ldg_1_the_content_is_bounded_by_number_and_bytes() {
        let many: Vec<_> = (0..ENTRIES_MAX).map(|at| entry(&format!("{at:04}"), 4000, 1)).collect();
        let mut holdings = Holdings::new(&many, 1).unwrap();
        assert_eq!(holdings.take(&changed("0000", 4001, 2)), Ok(()), "no new entry");
        assert_eq!(holdings.take(&changed("more", 0, 3)), Err(too_many()));
        let mut holdings = Holdings::new(&many, 1).unwrap();
        assert_eq!(holdings.take(&LedgerEvent::Gone { key: "0001".to_owned(), revision: 2 }), Ok(()));
        assert_eq!(holdings.take(&LedgerEvent::Gone { key: "other".to_owned(), revision: 2 }), Ok(()));
        // 4,095 entries have 16,396,380 bytes. Six of 64 KiB are 377,216 beside them.
        for at in 2..8 {
            assert_eq!(holdings.take(&changed(&format!("{at:04}"), VALUE_BYTES_MAX, 3)), Ok(()), "{at}");
        }
        assert_eq!(holdings.take(&changed("0008", VALUE_BYTES_MAX, 3)), Err(too_large()));
        let long = Holdings::new(&[entry("long", VALUE_BYTES_MAX + 1, 1)], 1).unwrap_err();
        assert_eq!(long, "the entry \"long\" has 65537 bytes; at most 65536 are taken");
    }

    #[test]
    fn ldg_1_events_come_in_the_order_of_revisions() {
        let mut holdings = Holdings::new(&[], 5).unwrap();
        assert_eq!(holdings.take(&changed("a", 1, 7)), Ok(()));
        assert_eq!(holdings.take(&changed("b", 1, 7)), Ok(()), "one write may change several entries");
        let late = Err("an event of revision 6 came after revision 7".to_owned());
        assert_eq!(holdings.take(&changed("a", 1, 6)), late);
        let mut fresh = Holdings::new(&[], 5).unwrap();
        let loaded = Err("an event of revision 5 came after revision 5".to_owned());
        assert_eq!(fresh.take(&changed("a", 1, 5)), loaded, "the load has it");
    }
}
