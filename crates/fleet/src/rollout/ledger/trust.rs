//! Whether a ledger is the one that a replica knows (LDG-6).
//!
//! A ledger that lost its data would let each halted push begin again. So the first replica writes an
//! *epoch*, a number by chance, and each replica remembers it, with the latest revision that it saw. A ledger
//! without the epoch, with another one, or with an older revision counts as away until an operator says
//! `sluice ledger init`.

use serde::{Deserialize, Serialize};

/// The key of the epoch.
pub const EPOCH_KEY: &str = "epoch";

/// The memory of a ledger, also over a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerMemory {
    /// The ledger's own name of itself: of etcd, the id of the cluster.
    pub identity: String,
    pub epoch: String,
    pub revision: u64,
}

/// The file of a replica.
#[must_use]
pub fn encode_memory(memory: &LedgerMemory) -> Vec<u8> {
    crate::rollout::shared::record::write(memory)
}

/// Reads the file of a replica.
///
/// # Errors
/// The text is no such memory.
pub fn decode_memory(bytes: &[u8]) -> Result<LedgerMemory, String> {
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

/// The belief in a ledger whose entries have just been loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Belief {
    Believed,
    /// Nobody here ever knew it, and it is new: write the epoch, if there is none yet.
    IsNew,
    /// In words.
    Refused(Box<str>),
}

/// The trust of one replica in its ledger.
#[derive(Debug, Default)]
pub struct LedgerTrust {
    memory: Option<LedgerMemory>,
    /// An operator said that the next ledger is to be believed.
    is_told: bool,
}

impl LedgerTrust {
    pub fn new(memory: Option<LedgerMemory>) -> LedgerTrust {
        LedgerTrust { memory, is_told: false }
    }

    pub fn memory(&self) -> Option<&LedgerMemory> {
        self.memory.as_ref()
    }

    /// All entries of the ledger have been loaded. `epoch`: the value under [`EPOCH_KEY`].
    pub fn loaded(&mut self, identity: &str, revision: u64, epoch: Option<&str>) -> Belief {
        if self.is_told && epoch.is_none() {
            // The memory stays until the ledger of the operator's word has an epoch.
            return Belief::IsNew;
        }
        if self.is_told {
            self.memory = None;
        }
        let Some(memory) = &self.memory else {
            let Some(epoch) = epoch else { return Belief::IsNew };
            self.is_told = false;
            let (identity, epoch) = (identity.to_owned(), epoch.to_owned());
            self.memory = Some(LedgerMemory { identity, epoch, revision });
            return Belief::Believed;
        };
        let fault = match epoch {
            _ if memory.identity != identity => {
                format!("it is {identity}, and this replica knows {}", memory.identity)
            }
            None => "its epoch is gone".to_owned(),
            Some(epoch) if epoch != memory.epoch => "it has another epoch".to_owned(),
            Some(_) if revision < memory.revision => {
                format!("its revision is {revision}, and this replica has seen {}", memory.revision)
            }
            Some(_) => {
                self.saw(revision);
                return Belief::Believed;
            }
        };
        Belief::Refused(format!("the ledger has lost its data: {fault}; see `sluice ledger init`").into())
    }

    /// A believed ledger has got so far. Returns whether that is news.
    pub fn saw(&mut self, revision: u64) -> bool {
        let Some(memory) = self.memory.as_mut().filter(|memory| revision > memory.revision) else {
            return false;
        };
        memory.revision = revision;
        true
    }

    /// The ledger is away. The next one may be another than the one that an operator meant.
    pub fn lost(&mut self) {
        self.is_told = false;
    }

    /// An operator says that the ledger as it is now is to be believed.
    pub fn init(&mut self) {
        self.is_told = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> LedgerTrust {
        let mut trust = LedgerTrust::default();
        assert_eq!(trust.loaded("c1", 5, None), Belief::IsNew, "it has to get an epoch first");
        assert_eq!(trust.loaded("c1", 6, Some("e1")), Belief::Believed);
        assert!(trust.saw(9) && !trust.saw(8));
        trust
    }

    #[test]
    fn ldg_6_a_ledger_that_lost_its_data_is_away_until_an_operator_says_otherwise() {
        let cases = [
            ("c2", 20, Some("e1"), "it is c2, and this replica knows c1"),
            ("c1", 20, None, "its epoch is gone"),
            ("c1", 20, Some("e2"), "it has another epoch"),
            ("c1", 8, Some("e1"), "its revision is 8, and this replica has seen 9"),
        ];
        for (identity, revision, epoch, words) in cases {
            let mut trust = known();
            let belief = trust.loaded(identity, revision, epoch);
            let Belief::Refused(text) = belief else {
                panic!("{identity}, {revision}, {epoch:?}: {belief:?}")
            };
            assert!(text.contains(words), "{text}");
            assert_eq!(trust.loaded("c1", 9, Some("e1")), Belief::Believed, "the ledger of before is back");
            trust.init();
            let is_new = trust.loaded(identity, revision, epoch) == Belief::IsNew;
            assert_eq!(is_new, epoch.is_none());
            let epoch = epoch.or(Some("e3"));
            assert_eq!(trust.loaded(identity, revision + 1, epoch), Belief::Believed, "as the operator said");
            assert_ne!(trust.loaded("c9", 99, Some("e9")), Belief::Believed, "the word was for one ledger");
        }
    }

    #[test]
    fn ldg_6_the_memory_outlives_the_process() {
        let memory = known().memory().cloned();
        let mut trust = LedgerTrust::new(memory);
        assert!(matches!(trust.loaded("c1", 3, Some("e1")), Belief::Refused(_)));
    }

    #[test]
    fn ldg_6_a_word_for_a_ledger_that_went_is_none_for_the_next() {
        let memory = LedgerMemory { identity: "a".into(), epoch: "e".into(), revision: 9 };
        let mut trust = LedgerTrust::new(Some(memory));
        trust.init();
        assert_eq!(trust.loaded("a", 1, None), Belief::IsNew);
        // Its epoch could not be written, and somebody restores a backup.
        trust.lost();
        assert!(matches!(trust.loaded("a", 5, Some("older")), Belief::Refused(_)));
        trust.init();
        assert_eq!(trust.loaded("a", 5, Some("older")), Belief::Believed);
    }
}
