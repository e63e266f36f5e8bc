//! `facts:`, fields of clients that their nodes lack: their source, and the file with the table.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::classes::{NODE_KEY, read_key};
use super::error::{ConfigError, Place};
use super::form::Form;
use super::reader::Map;
use super::syntax::{read_text, repeated_key, syntax_error, without_position};
use super::tree::Format;
use super::units::{TEXT, boolean};
use crate::kubernetes::{ClusterAccess, Interest};
use sluice_engine::class::NodeKey;
use sluice_engine::class::facts::{FactTable, Fields};
use sluice_text::shortened;
use sluice_xds::Value;

/// The longest file of facts, in bytes: 100,000 entries with ten labels take half of it.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// The most values in a file. Copies by aliases count, so a few lines of nested aliases end here.
const VALUES_MAX: usize = 4_000_000;

/// Where the facts of clients come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FactsSource {
    /// A file with the table.
    File(PathBuf),
    /// The Pods of a cluster.
    Kubernetes(Interest),
}

/// The facts of clients: the key in their nodes, and the source of the table.
pub(super) struct Facts {
    pub key: NodeKey,
    pub source: FactsSource,
}

/// `None` only if an error was reported.
pub(super) fn read_facts(map: &mut Map<'_>, directory: &Path) -> Option<Facts> {
    let key = map.required("key", NODE_KEY).and_then(|item| read_key(&item));
    map.can_be("file", &[Form::Text]);
    let file = map.item("file").map(|item| item.text());
    let kubernetes = map.item("kubernetes").map(|item| item.map(|map| read_kubernetes(map, directory)));
    let source = match (file, kubernetes) {
        (Some(file), None) => FactsSource::File(directory.join(file?)),
        (None, Some(interest)) => FactsSource::Kubernetes(interest?),
        (None, None) | (Some(_), Some(_)) => {
            map.invalid("one of `file` and `kubernetes`");
            return None;
        }
    };
    Some(Facts { key: key?, source })
}

fn read_kubernetes(map: &mut Map<'_>, directory: &Path) -> Interest {
    Interest { access: read_access(map, directory), nodes: map.or("nodes", true, boolean()) }
}

/// The keys `kubeconfig` and `context` of a section.
pub(super) fn read_access(map: &mut Map<'_>, directory: &Path) -> ClusterAccess {
    map.can_be("kubeconfig", &[Form::Text]);
    map.can_be("context", &[Form::Text]);
    let kubeconfig = map.item("kubeconfig").and_then(|item| item.text());
    let context = map.item("context").and_then(|item| item.text());
    if context.is_some() && kubeconfig.is_none() {
        map.contradiction("context", "needs the key `kubeconfig` of the file with the context");
    }
    ClusterAccess {
        kubeconfig: kubeconfig.map(|file| directory.join(file)),
        context: context.map(str::to_owned),
    }
}

/// Reads a file of facts: JSON if its name is `*.json`, else YAML. A map from keys to the fields of each
/// client.
///
/// # Errors
/// The first error of the file. The file as a whole is not used then. An error quotes keys and numbers,
/// shortened, and no text: the file may be another than the operator meant.
pub fn load_facts(file: &Path) -> Result<FactTable, ConfigError> {
    let text = read_text(file, FILE_BYTES_MAX)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    // Half a write may be empty, and would take the facts of all clients away.
    let empty = || ConfigError::Syntax {
        place: Place::START,
        message: "empty; `{}` is a table without entries".into(),
    };
    if text.trim().is_empty() {
        return Err(empty());
    }
    if Format::of(file) == Format::Json {
        let entries = serde_json::from_str::<FactEntries>(text);
        return entries.map(|FactEntries(table)| table).map_err(|error| ConfigError::Syntax {
            place: Place::new(error.line() as u64, error.column() as u64),
            message: without_position(&error.to_string()),
        });
    }
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_nodes: VALUES_MAX,
            max_events: 2 * VALUES_MAX,
            max_aliases: VALUES_MAX,
            enforce_alias_anchor_ratio: false,
        },
    };
    let entries = serde_saphyr::from_str_with_options::<Option<FactEntries>>(text, options)
        .map_err(|error| syntax_error(&error))?;
    entries.map(|FactEntries(table)| table).ok_or_else(empty)
}

/// The letters of a key in an error.
const LETTERS_MAX: usize = 80;

/// The entries of a file. Equal fields are kept once: the Pods of a workload have mostly the same.
struct FactEntries(FactTable);

impl<'de> Deserialize<'de> for FactEntries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FactEntries, D::Error> {
        deserializer.deserialize_any(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = FactEntries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from keys to fields")
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<FactEntries, E> {
        Err(E::custom("found text; expected a map from keys to fields"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FactEntries, A::Error> {
        let (mut table, mut distinct) = (FactTable::default(), HashSet::<Arc<Fields>>::new());
        while let Some(key) = map.next_key_seed(NewKey(|key: &str| table.has(key)))? {
            let fields = Arc::new(map.next_value_seed(EntryAt(At(&key)))?);
            let fields = distinct.get(&fields).cloned().unwrap_or(fields);
            distinct.insert(fields.clone());
            table.put(&key, fields);
        }
        Ok(FactEntries(table))
    }
}

/// A key that is not in the map yet. The argument tells which keys are in the map.
struct NewKey<F>(F);

impl<'de, F: Fn(&str) -> bool> DeserializeSeed<'de> for NewKey<F> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        let key = String::deserialize(deserializer)?;
        if key.trim().is_empty() {
            return Err(D::Error::custom("found an empty key"));
        }
        if (self.0)(&key) {
            let repeated = repeated_key(&shortened(&key, LETTERS_MAX));
            return Err(D::Error::custom(format!("{repeated}, in this or in another spelling")));
        }
        Ok(key)
    }
}

/// The fields of an entry.
struct EntryAt<'a>(At<'a>);

impl<'de> DeserializeSeed<'de> for EntryAt<'_> {
    type Value = Fields;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Fields, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for EntryAt<'_> {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a map of fields for {}", shortened(self.0.0, LETTERS_MAX))
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Fields, E> {
        Err(E::custom(format!("{}: found text; expected a map of fields", shortened(self.0.0, LETTERS_MAX))))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Fields, A::Error> {
        self.0.fields(map)
    }
}

/// A value at a path. Scalars are texts: as numbers, `1.10` and `1.1` would be one, and two clients one
/// class.
struct At<'a>(&'a str);

impl At<'_> {
    fn refuse<E: Error>(&self, value: &dyn fmt::Display) -> E {
        E::custom(format!("{}: found {value}; expected {TEXT}", shortened(self.0, LETTERS_MAX)))
    }

    fn fields<'de, A: MapAccess<'de>>(&self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Fields::new();
        while let Some(key) = map.next_key_seed(NewKey(|key: &str| fields.contains_key(key)))? {
            let value = map.next_value_seed(At(&format!("{}.{key}", self.0)))?;
            fields.insert(key, value);
        }
        Ok(fields)
    }
}

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for At<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a list or a map")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.into()))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Err(self.refuse(&"nothing"))
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Err(self.refuse(&"nothing"))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Err(self.refuse(&value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Err(self.refuse(&value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Err(self.refuse(&value))
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Value, E> {
        Err(self.refuse(&value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Err(self.refuse(&value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(At(&format!("{}[{}]", self.0, items.len())))? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        self.fields(map).map(Value::Struct)
    }
}
