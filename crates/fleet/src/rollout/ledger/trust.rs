//! Whether a ledger is the one that a replica knows (LDG-6).
//!
//! A ledger that lost its data would let each halted push begin again. So the first replica writes an
//! *epoch*, a number by chance, and each replica remembers it, with the latest revision that it saw. A ledger
//! without the epoch, with another one, or with an older revision counts as away until an operator says
//! `sluice ledger init`. So does a ledger without an entry that no replica deletes: the record of a plan, or
//! one of the latest pushes of the past.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::share::{PAST_MAX, push_number};

/// The key of the epoch.
pub const EPOCH_KEY: &str = "epoch";

/// The memory of a ledger, also over a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerMemory {
    /// The ledger's own name of itself: of etcd, the id of the cluster.
    pub identity: String,
    pub epoch: String,
    pub revision: u64,
    /// The keys of the records of plans.
    #[serde(default)]
    pub records: BTreeSet<String>,
}

impl LedgerMemory {
    /// Whether two memories differ in revisions at most.
    #[must_use]
    pub fn is_like(&self, other: &LedgerMemory) -> bool {
        (&self.epoch, &self.records) == (&other.epoch, &other.records)
    }
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
    /// The entries of the believed ledger that replicas keep.
    kept: BTreeSet<String>,
    /// One of these is gone.
    lost: Option<String>,
    /// An operator said that the next ledger is to be believed.
    is_told: bool,
}

impl LedgerTrust {
    pub fn new(memory: Option<LedgerMemory>) -> LedgerTrust {
        let kept = memory.as_ref().map(|memory| memory.records.clone()).unwrap_or_default();
        LedgerTrust { memory, kept, lost: None, is_told: false }
    }

    pub fn memory(&self) -> Option<&LedgerMemory> {
        self.memory.as_ref()
    }

    /// All entries of the ledger have been loaded. `epoch`: the value under [`EPOCH_KEY`].
    pub fn loaded<'a>(
        &mut self,
        identity: &str,
        revision: u64,
        epoch: Option<&str>,
        keys: impl IntoIterator<Item = &'a str>,
    ) -> Belief {
        let kept: BTreeSet<String> = keys.into_iter().filter(|key| is_kept(key)).map(str::to_owned).collect();
        if self.is_told && epoch.is_none() {
            // The memory stays until the ledger of the operator's word has an epoch.
            return Belief::IsNew;
        }
        if self.is_told {
            (self.memory, self.lost) = (None, None);
            self.kept.clear();
        }
        let Some(memory) = &self.memory else {
            let Some(epoch) = epoch else { return Belief::IsNew };
            self.is_told = false;
            let (identity, epoch, records) = (identity.to_owned(), epoch.to_owned(), BTreeSet::new());
            self.memory = Some(LedgerMemory { identity, epoch, revision, records });
            self.keep(kept);
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
                let mut gone = self.kept.difference(&kept);
                self.lost = self.lost.take().or_else(|| gone.find(|key| is_loss(key, &kept)).cloned());
                match &self.lost {
                    Some(key) => format!("its entry {key:?} is gone"),
                    None => {
                        self.saw(revision);
                        self.keep(kept);
                        return Belief::Believed;
                    }
                }
            }
        };
        Belief::Refused(format!("the ledger has lost its data: {fault}; see `sluice ledger init`").into())
    }

    fn keep(&mut self, kept: BTreeSet<String>) {
        self.kept = kept;
        if let Some(memory) = &mut self.memory {
            memory.records = self.kept.iter().filter(|key| is_record(key)).cloned().collect();
        }
    }

    /// An entry of a believed ledger has come or changed.
    pub fn came(&mut self, key: &str) {
        if is_kept(key)
            && self.kept.insert(key.to_owned())
            && let Some(memory) = self.memory.as_mut().filter(|_| is_record(key))
        {
            memory.records.insert(key.to_owned());
        }
    }

    /// An entry of a believed ledger is gone. Returns whether the ledger has lost it: then it counts as
    /// loaded without the entry.
    pub fn gone(&mut self, key: &str) -> bool {
        let is_lost = self.kept.remove(key) && is_loss(key, &self.kept);
        if is_lost {
            self.kept.insert(key.to_owned());
        }
        is_lost
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

fn is_record(key: &str) -> bool {
    key.starts_with("plan/")
}

fn is_kept(key: &str) -> bool {
    is_record(key) || past_of(key).is_some()
}

/// The kind with the plan, and the push, of an entry of the past.
fn past_of(key: &str) -> Option<(&str, u64)> {
    let plan = key.match_indices('/').nth(1)?.0;
    let (series, push) = (&key[..plan], &key[plan + 1..]);
    let push = match series.split_once('/')?.0 {
        "done" => push,
        "halted" => push.split_once('/')?.0,
        _ => return None,
    };
    Some((series, push_number(push)?))
}

/// Whether no replica has deleted a kept entry that is no more: they delete the past beyond [`PAST_MAX`]
/// pushes. `rest`: the kept entries that are there.
fn is_loss(key: &str, rest: &BTreeSet<String>) -> bool {
    past_of(key).is_none_or(|(series, _)| {
        let pushes = rest.iter().filter_map(|key| past_of(key)).filter(|(other, _)| *other == series);
        pushes.collect::<BTreeSet<_>>().len() < PAST_MAX
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> LedgerTrust {
        let mut trust = LedgerTrust::default();
        assert_eq!(trust.loaded("c1", 5, None, []), Belief::IsNew, "it has to get an epoch first");
        assert_eq!(trust.loaded("c1", 6, Some("e1"), []), Belief::Believed);
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
            let belief = trust.loaded(identity, revision, epoch, []);
            let Belief::Refused(text) = belief else {
                panic!("{identity}, {revision}, {epoch:?}: {belief:?}")
            };
            assert!(text.contains(words), "{text}");
            assert_eq!(
                trust.loaded("c1", 9, Some("e1"), []),
                Belief::Believed,
                "the ledger of before is back"
            );
            trust.init();
            let is_new = trust.loaded(identity, revision, epoch, []) == Belief::IsNew;
            assert_eq!(is_new, epoch.is_none());
            let epoch = epoch.or(Some("e3"));
            assert_eq!(
                trust.loaded(identity, revision + 1, epoch, []),
                Belief::Believed,
                "as the operator said"
            );
            assert_ne!(
                trust.loaded("c9", 99, Some("e9"), []),
                Belief::Believed,
                "the word was for one ledger"
            );
        }
    }

    #[test]
    fn ldg_6_the_memory_outlives_the_process() {
        let memory = known().memory().cloned();
        let mut trust = LedgerTrust::new(memory);
        assert!(matches!(trust.loaded("c1", 3, Some("e1"), []), Belief::Refused(_)));
    }

    #[test]
    fn ldg_6_a_word_for_a_ledger_that_went_is_none_for_the_next() {
        let memory =
            LedgerMemory { identity: "a".into(), epoch: "e".into(), revision: 9, ..LedgerMemory::default() };
        let mut trust = LedgerTrust::new(Some(memory));
        trust.init();
        assert_eq!(trust.loaded("a", 1, None, []), Belief::IsNew);
        // Its epoch could not be written, and somebody restores a backup.
        trust.lost();
        assert!(matches!(trust.loaded("a", 5, Some("older"), []), Belief::Refused(_)));
        trust.init();
        assert_eq!(trust.loaded("a", 5, Some("older"), []), Belief::Believed);
    }

    #[test]
    fn ldg_6_an_entry_that_somebody_deleted_is_a_loss_by_watch_by_load_and_over_a_restart() {
        let all = ["epoch", "plan/edge", "done/edge/3", "halted/edge/4/a", "tally/edge/a", "done/edge/007"];
        let load =
            |trust: &mut LedgerTrust, keys: &[&str]| trust.loaded("c1", 9, Some("e1"), keys.iter().copied());
        for lost in &all[1..4] {
            let rest: Vec<_> = all.iter().filter(|key| *key != lost).copied().collect();
            let mut trust = known();
            assert_eq!(load(&mut trust, &["epoch"]), Belief::Believed);
            all.iter().for_each(|key| trust.came(key));
            assert!(trust.gone(lost), "by the watch");
            let Belief::Refused(why) = load(&mut trust, &rest) else { panic!("{lost} is gone") };
            assert!(why.contains(lost) && why.contains("sluice ledger init"), "{why}");
            trust.lost();
            assert!(load(&mut trust, &all) != Belief::Believed, "another replica may have written it anew");
            trust.init();
            assert_eq!(load(&mut trust, &rest), Belief::Believed);
            assert_eq!(load(&mut trust, &all), Belief::Believed);
            assert!(!trust.gone("tally/edge/a") && !trust.gone("done/edge/007"));
            trust.lost();
            assert!(load(&mut trust, &rest) != Belief::Believed, "by a load");
        }
        let mut trust = known();
        assert_eq!(load(&mut trust, &all), Belief::Believed);
        let mut restarted = LedgerTrust::new(trust.memory().cloned());
        assert!(load(&mut restarted, &["epoch"]) != Belief::Believed);
    }

    #[test]
    fn ldg_2_the_past_beyond_what_replicas_keep_is_no_loss() {
        let mut trust = known();
        let mut keys: Vec<String> = (1..=17).map(|push| format!("done/edge/{push}")).collect();
        keys.extend(
            (1..=17).flat_map(|push| ["a", "b"].map(|replica| format!("halted/edge/{push}/{replica}"))),
        );
        let load = |trust: &mut LedgerTrust, keys: &[String]| {
            trust.loaded("c1", 9, Some("e1"), keys.iter().map(|key| &**key))
        };
        assert_eq!(load(&mut trust, &keys), Belief::Believed);
        let old = ["done/edge/1", "halted/edge/1/a", "halted/edge/1/b"];
        for key in old {
            assert!(!trust.gone(key), "{key}");
        }
        keys.retain(|key| !old.contains(&&**key));
        assert_eq!(load(&mut trust, &keys), Belief::Believed);
        assert!(trust.gone("done/edge/2"));
        // Others took turns while this replica was away.
        keys.retain(|key| !key.starts_with("done/edge/2"));
        keys.push("done/edge/18".to_owned());
        assert_eq!(load(&mut trust, &keys), Belief::Believed);
    }
}
