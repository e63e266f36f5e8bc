//! Node classes that were split beside the rules, by the proof or by an operator (PRF-27).
//!
//! A split is applied to the class that the rules give, so a rule that gives another class undoes the split
//! (PRF-32).

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::driver::ground::class_identity::{class_digest, of_member};
use sluice_engine::class::NodeClass;
use sluice_identity::Identity;
use sluice_proof::learning::node_fields;
use sluice_proof::node_fields::NodeFields;
use sluice_xds::Node;

/// Splits of splits. Each is by further fields, so that this is more than a fleet needs.
const DEPTH_MAX: usize = 8;

/// The format of the file. Another number means another format.
const FORMAT: u32 = 1;

/// The values of some fields at one node, in JSON; `null` for a field that the node lacks.
pub type Values = String;

/// The keyed hash of values. A file on disk shows no value of a client (LRN-16).
type ValuesHash = u64;

/// All splits in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Splits {
    /// The key of the hashes.
    key: [u8; 32],
    /// By the digest of the class, in the order of time.
    by_class: BTreeMap<Box<str>, Vec<ClassSplit>>,
}

/// A class whose members with some values have classes of their own, one for each tuple of values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassSplit {
    /// The paths of the fields, as in reports: `metadata.LABELS.team`.
    pub fields: Vec<Box<str>>,
    /// The values that leave the class; `None`: all.
    values: Option<BTreeSet<ValuesHash>>,
    pub cause: SplitCause,
    /// The digests of the classes from which the class of this split was split off itself.
    #[serde(default)]
    within: Vec<Box<str>>,
    /// In milliseconds since 1970.
    made_at: u64,
    /// The shortest time until the classes may be one again, in seconds (PRF-31); `None`: until an operator
    /// joins them.
    holds: Option<u64>,
}

/// The reason for a split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SplitCause {
    /// The proof found that this client is told otherwise about this type (PRF-32).
    Proof {
        client: Box<str>,
        type_name: Box<str>,
    },
    Operator,
}

/// A split to make.
#[derive(Clone, Debug)]
pub struct NewSplit {
    pub class: NodeClass,
    pub fields: Vec<Box<str>>,
    /// `None`: each tuple of values has a class of its own.
    pub values: Option<Vec<Vec<Option<Arc<str>>>>>,
    pub cause: SplitCause,
    pub holds: Option<Duration>,
}

impl ClassSplit {
    pub fn made_at(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.made_at)
    }

    pub fn holds(&self) -> Option<Duration> {
        self.holds.map(Duration::from_secs)
    }

    /// Smaller for a narrower split: by the id, and by more fields.
    fn breadth(&self) -> (bool, Reverse<usize>) {
        (self.fields.iter().all(|field| **field != *"id"), Reverse(self.fields.len()))
    }

    /// The values of a class that a split of the parent by these fields made.
    fn part<'a>(&self, class: &'a NodeClass) -> Option<&'a str> {
        let (parent, name) = (class.split_from.as_ref()?, attribute(&self.fields));
        class.attributes.get(&name).filter(|_| !parent.attributes.contains_key(&name)).map(|values| &**values)
    }

    /// How many tuples of values leave the class; `None`: all.
    pub fn tuples(&self) -> Option<usize> {
        self.values.as_ref().map(BTreeSet::len)
    }
}

impl Splits {
    pub fn is_empty(&self) -> bool {
        self.by_class.is_empty()
    }

    /// Each split with the digest of its class.
    pub fn all(&self) -> impl Iterator<Item = (&str, &ClassSplit)> {
        self.by_class.iter().flat_map(|(class, splits)| splits.iter().map(move |split| (&**class, split)))
    }

    /// The class of a client, from its class by the rules.
    #[must_use]
    pub fn apply(&self, mut class: NodeClass, node: Option<&Node>) -> NodeClass {
        let (false, Some(node)) = (self.is_empty(), node) else { return class };
        for _ in 0..DEPTH_MAX {
            let Some(splits) = self.by_class.get(&*class_digest(&class)) else { break };
            let shown = class.with_identity(of_member(node));
            let fields = node_fields(&shown, &Identity::Anonymous);
            let leaving = splits.iter().filter_map(|split| {
                let values = values_at(&fields, &split.fields);
                let leaves =
                    split.values.as_ref().is_none_or(|leaving| leaving.contains(&self.hash(&values)));
                leaves.then_some((split, values))
            });
            // The narrowest: the most was known of these members when the split was made.
            let leaving = leaving.min_by_key(|leaving| leaving.0.breadth());
            let Some((split, values)) = leaving else { break };
            class = class.split_off(attribute(&split.fields), values.into());
        }
        class
    }

    /// Adds a split. Values that leave the class by these fields already keep their split, with its cause and
    /// its time. A split of all values takes the place of those before. Returns whether a part of the split
    /// is new.
    fn add(&mut self, split: NewSplit, now: SystemTime) -> bool {
        if self.by_class.is_empty() {
            self.key = std::array::from_fn(|_| fastrand::u8(..));
        }
        let texts = |values: Vec<Vec<Option<Arc<str>>>>| -> BTreeSet<ValuesHash> {
            values.iter().map(|tuple| self.hash(&in_json(tuple))).collect()
        };
        let values = split.values.map(texts);
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let outer =
            std::iter::successors(split.class.split_from.as_deref(), |class| class.split_from.as_deref());
        let mut made = ClassSplit {
            fields: split.fields,
            values,
            cause: split.cause,
            within: outer.map(|class| class_digest(class).into()).collect(),
            made_at: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            holds: split.holds.map(|holds| holds.as_secs()),
        };
        let splits = self.by_class.entry(class_digest(&split.class).into()).or_default();
        let is_same = |split: &ClassSplit| split.fields == made.fields;
        if splits.iter().any(|split| is_same(split) && split.values.is_none()) {
            return false;
        }
        match &mut made.values {
            Some(values) => {
                let present =
                    splits.iter().filter(|split| is_same(split)).filter_map(|split| split.values.as_ref());
                present.for_each(|present| values.retain(|value| !present.contains(value)));
                if values.is_empty() {
                    return false;
                }
            }
            None => splits.retain(|split| !is_same(split)),
        }
        splits.push(made);
        true
    }

    /// The split that made a class.
    pub fn origin(&self, class: &NodeClass) -> Option<&ClassSplit> {
        let parent = class.split_from.as_ref()?;
        let splits = self.by_class.get(&*class_digest(parent))?;
        splits.iter().find(|split| self.made_part(split, class).is_some())
    }

    /// The values of a class that the split made; `None`: another split made the class.
    fn made_part<'a>(&self, split: &ClassSplit, class: &'a NodeClass) -> Option<&'a str> {
        let has = |part: &&str| split.values.as_ref().is_none_or(|values| values.contains(&self.hash(part)));
        split.part(class).filter(has)
    }

    /// Whether an operator made the class.
    pub fn is_operators(&self, class: &NodeClass) -> bool {
        self.origin(class).is_some_and(|split| split.cause == SplitCause::Operator)
    }

    /// The members of a class return to the class from which it was split off. Returns whether it was.
    fn join(&mut self, class: &NodeClass) -> bool {
        let Some(parent) = &class.split_from else { return false };
        let digest = class_digest(parent);
        let splits = self.by_class.get(&*digest).map(Vec::as_slice).unwrap_or_default();
        let made =
            splits.iter().enumerate().find_map(|(at, split)| Some((at, self.made_part(split, class)?)));
        let Some((at, values)) = made else { return false };
        let hash = self.hash(values);
        self.forget(&class_digest(class));
        let Some(splits) = self.by_class.get_mut(&*digest) else { return false };
        let leaving = splits.get_mut(at).and_then(|split| split.values.as_mut());
        let (was_split, is_over) = match leaving {
            Some(leaving) => (leaving.remove(&hash), leaving.is_empty()),
            None => (true, true),
        };
        if is_over {
            splits.remove(at);
        }
        if splits.is_empty() {
            self.by_class.remove(&*digest);
        }
        was_split
    }

    /// A class has its members back. Returns whether it was split.
    fn join_all(&mut self, class: &str) -> bool {
        let was_split = self.by_class.contains_key(class);
        self.forget(class);
        was_split
    }

    /// Forgets the splits of a class, and those of its parts.
    fn forget(&mut self, class: &str) {
        let is_within = |split: &ClassSplit| split.within.iter().any(|outer| **outer == *class);
        self.by_class.retain(|split, splits| **split != *class && !splits.iter().any(is_within));
    }

    fn hash(&self, values: &str) -> ValuesHash {
        let hash = blake3::keyed_hash(&self.key, values.as_bytes());
        let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

/// The attribute of a class that was split off.
fn attribute(fields: &[Box<str>]) -> Box<str> {
    format!("split by {}", fields.join(",")).into()
}

fn in_json(values: &[Option<Arc<str>>]) -> Values {
    let texts: Vec<Option<&str>> = values.iter().map(Option::as_deref).collect();
    // Texts and nulls are always JSON.
    serde_json::to_string(&texts).unwrap_or_default()
}

/// The values of some fields, as one text.
pub fn values_at(fields: &NodeFields, paths: &[Box<str>]) -> Values {
    let value = |path: &str| {
        let at = fields.0.binary_search_by(|field| (*field.path).cmp(path)).ok()?;
        Some(fields.0.get(at)?.value.clone())
    };
    in_json(&paths.iter().map(|path| value(path)).collect::<Vec<_>>())
}

/// The splits of the relay, beside the configuration (PRF-32): what the proof and operators change, and what
/// the keeper of the relay puts in force.
#[derive(Debug, Default)]
pub struct SplitStore {
    splits: Mutex<Arc<Splits>>,
    changed: Notify,
}

impl SplitStore {
    pub fn get(&self) -> Arc<Splits> {
        self.splits.lock().clone()
    }

    /// Passes the splits to `publish`. No other call and no change comes in between.
    pub fn in_turn(&self, publish: impl FnOnce(&Arc<Splits>)) {
        publish(&self.splits.lock());
    }

    pub fn add(&self, split: NewSplit, now: SystemTime) {
        self.change(|splits| splits.add(split, now));
    }

    /// See [`Splits::join`].
    pub fn join(&self, class: &NodeClass) -> bool {
        self.change(|splits| splits.join(class))
    }

    /// Undoes a split of the proof (PRF-31). An operator's split is not the proof's to undo.
    pub fn undo(&self, class: &NodeClass) {
        self.change(|splits| !splits.is_operators(class) && splits.join(class));
    }

    /// See [`Splits::join_all`].
    pub fn join_all(&self, class: &str) -> bool {
        self.change(|splits| splits.join_all(class))
    }

    /// Takes the splits of before a restart, or of a predecessor.
    pub fn restore(&self, splits: Splits) {
        self.change(|present| {
            *present = splits;
            true
        });
    }

    /// Resolves after a change.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    fn change(&self, change: impl FnOnce(&mut Splits) -> bool) -> bool {
        let mut splits = self.splits.lock();
        let mut next = Splits::clone(&splits);
        let is_changed = change(&mut next);
        if is_changed {
            *splits = Arc::new(next);
            self.changed.notify_one();
        }
        is_changed
    }
}

/// The file.
#[derive(Serialize, Deserialize)]
struct SplitsFile {
    format: u32,
    #[serde(flatten)]
    splits: Splits,
}

/// Writes all splits as one file.
pub fn encode_splits(splits: &Splits) -> Vec<u8> {
    // Plain data: no map has a key that JSON lacks.
    serde_json::to_vec(&SplitsFile { format: FORMAT, splits: splits.clone() }).unwrap_or_default()
}

/// Reads the splits of a file.
///
/// # Errors
/// The text is not of this format.
pub fn decode_splits(bytes: &[u8]) -> Result<Splits, String> {
    let file: SplitsFile = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    match file.format {
        FORMAT => Ok(file.splits),
        other => Err(format!("format {other}; this build reads {FORMAT}")),
    }
}
