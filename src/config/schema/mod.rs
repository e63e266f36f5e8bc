//! `sluice schema`: the configuration as JSON Schema draft-07 (PKG-8). The readers walk over `visits.yaml`
//! and `visits_kubernetes.yaml`, which have a value for each key that they do not ask for in every file, and
//! declare the keys and the forms of their values. The descriptions are those of `docs/configuration.md`.

mod docs;

use std::path::Path;

use serde_json::{Map, Value, json};

use self::docs::{DocRow, rows};
use super::expand::no_environment;
use super::form::{Form, MapForm};
use super::key_report::{Declared, KeyReport, join};
use super::read::{FileContext, read_config};
use super::reader::{HOLDER, Item};
use super::syntax;
use super::tree::Format;
use super::units::SIZE_UNITS;
use sluice_setting::{Range, TIME_UNITS, Unit};

/// Every map that a reader reads, for readers and tests.
pub(super) const VISITS: [&str; 2] = [include_str!("visits.yaml"), include_str!("visits_kubernetes.yaml")];

/// Paths with the same keys, read by the same reader: a path, and the one that `visits.yaml` visits in full.
pub(super) const SAME: &[(&str, &str)] = &[
    ("authorities[].xds_servers", "xds_servers"),
    ("types[].xds_servers", "xds_servers"),
    ("admin.tls", "listeners[].tls"),
    ("ledger.etcd.tls", "xds_servers[].channel_creds[].config"),
    ("xds_servers[].tls.match_sans[].spiffe", "xds_servers[].tls.match_sans[].dns"),
    ("xds_servers[].tls.match_sans[].uri", "xds_servers[].tls.match_sans[].dns"),
    ("node_classes[].match.cluster", "node_classes[].match.id"),
    ("node_classes[].match.user_agent_name", "node_classes[].match.id"),
    ("node_classes[].match.locality.region", "node_classes[].match.id"),
    ("node_classes[].match.locality.zone", "node_classes[].match.id"),
    ("node_classes[].match.locality.sub_zone", "node_classes[].match.id"),
    ("rollouts[].match.node.id", "node_classes[].match.id"),
    ("rollouts[].match.node.cluster", "node_classes[].match.id"),
    ("rollouts[].match.node.user_agent_name", "node_classes[].match.id"),
    ("rollouts[].match.node.locality", "node_classes[].match.locality"),
    ("rollouts[].match.node.metadata", "node_classes[].match.metadata"),
    ("rollouts[].steps[].clients", "rollouts[].match.node"),
    ("proof.match.node", "rollouts[].match.node"),
    ("proof.never[]", "rollouts[].match.node"),
    ("authorization.rules[].node.cluster", "authorization.rules[].node.id"),
    ("authorization.rules[].node.user_agent_name", "authorization.rules[].node.id"),
    ("authorization.rules[].node.locality.region", "authorization.rules[].node.id"),
    ("authorization.rules[].node.locality.zone", "authorization.rules[].node.id"),
    ("authorization.rules[].node.locality.sub_zone", "authorization.rules[].node.id"),
];

/// A variable has its value elsewhere. Only text can begin so.
const VARIABLE: &str = "\\$\\{";

/// The schema of the configuration file.
pub fn schema() -> Value {
    let schema = Schema { report: visit(), rows: rows() };
    let mut root = schema.of_map("");
    let definitions = SAME.iter().map(|(_, path)| (name(path), schema.in_full(path)));
    let definitions: Map<String, Value> = definitions.collect();
    let title = format!("Configuration of sluice {}", env!("CARGO_PKG_VERSION"));
    root.extend([
        ("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#")),
        ("title".to_owned(), json!(title)),
        ("definitions".to_owned(), Value::Object(definitions)),
    ]);
    Value::Object(root)
}

/// Everything that the readers declare.
pub(super) fn visit() -> KeyReport {
    let report = KeyReport::default();
    let context =
        FileContext { directory: Path::new("/"), hostname: "", variables: &no_environment, policy: None };
    // A test reads the files without an error.
    for text in VISITS {
        if let Ok(tree) = syntax::parse(text, Format::Yaml, context.variables) {
            Item::root(&tree, &report).map(|map| read_config(map, context));
        }
    }
    report
}

struct Schema {
    report: KeyReport,
    rows: Vec<DocRow>,
}

/// The name of a definition.
fn name(path: &str) -> String {
    path.replace("[]", "").replace('.', "_")
}

impl Schema {
    /// The value at a path: by reference, if other paths have the same.
    fn of_value(&self, path: &str) -> Map<String, Value> {
        let same = SAME.iter().find(|(other, full)| [other, full].contains(&&path));
        let mut value = match same {
            Some((_, full)) => object(json!({"allOf": [{"$ref": format!("#/definitions/{}", name(full))}]})),
            None => object(self.in_full(path)),
        };
        value.extend(self.annotations(path));
        value
    }

    fn in_full(&self, path: &str) -> Value {
        let forms = self.report.forms.borrow().get(path).cloned().unwrap_or_default();
        let any_text = forms.iter().any(|form| matches!(form, Form::Text | Form::AnyText | Form::Any));
        let words: Vec<Value> = forms.iter().filter_map(word).collect();
        let mut choices: Vec<Value> = forms.iter().filter_map(|form| self.of_form(path, *form)).collect();
        if !words.is_empty() && !any_text {
            choices.push(json!({"enum": words}));
        }
        let is_scalar = forms
            .iter()
            .any(|form| !matches!(form, Form::List | Form::Map | Form::Entries | Form::Fields | Form::Any));
        if is_scalar && !any_text {
            choices.push(json!({"type": "string", "pattern": VARIABLE}));
        }
        match choices.len() {
            1 => choices.swap_remove(0),
            _ => json!({"anyOf": choices}),
        }
    }

    /// `None`: a word.
    fn of_form(&self, path: &str, form: Form) -> Option<Value> {
        let items = || Value::Object(self.of_value(&format!("{path}[]")));
        Some(match form {
            Form::Word(_) | Form::Unquoted(_) => return None,
            Form::Any => json!({}),
            Form::Boolean => json!({"type": "boolean"}),
            Form::Number(range) => of_number(range),
            Form::Integer { least, most } => json!({"type": "integer", "minimum": least, "maximum": most}),
            Form::Text => json!({"type": "string", "minLength": 1}),
            Form::AnyText => json!({"type": "string"}),
            Form::Pattern(pattern) => json!({"type": "string", "pattern": pattern}),
            // A key with nothing behind it is empty.
            Form::List => json!({"type": ["array", "null"], "items": items()}),
            Form::Entries => json!({"type": ["object", "null"], "additionalProperties": items()}),
            Form::Fields => json!({"type": ["object", "null"]}),
            Form::Map => Value::Object(self.of_map(path)),
        })
    }

    fn of_map(&self, path: &str) -> Map<String, Value> {
        let map = self.report.maps.borrow().get(path).cloned().unwrap_or_default();
        let MapForm { required, sections, belonging, unused, allows_unknown_keys, allows_holders } = map;
        let needs_keys = |key: &&str| self.has_required(&join(path, key));
        let mut required = required.unwrap_or_default();
        required.extend(sections.into_iter().filter(needs_keys));
        let (mut properties, mut conditions) = (Map::new(), Vec::new());
        for key in self.keys_of(path) {
            let value = self.of_value(&join(path, &key));
            match belonging.get(key.as_str()) {
                None => drop(properties.insert(key, Value::Object(value))),
                Some((other, words)) => {
                    conditions.push(json!({
                        "if": {"properties": {*other: {"enum": words}}},
                        "then": {"properties": {key.clone(): value}},
                    }));
                    let words = self.annotations(&join(path, &key));
                    properties.insert(key, Value::Object(words));
                }
            }
        }
        for key in unused {
            let about = "No effect on the relay; the key is for gRPC clients.";
            properties.insert(key.to_owned(), json!({"description": about}));
        }
        let mut object = object(json!({
            "type": ["object", "null"],
            "properties": properties,
            "additionalProperties": allows_unknown_keys,
        }));
        // Nothing is an empty map, too, which lacks the keys.
        if !required.is_empty() {
            object.insert("type".to_owned(), json!("object"));
            object.insert("required".to_owned(), json!(required));
        }
        if !conditions.is_empty() {
            object.insert("allOf".to_owned(), json!(conditions));
        }
        if allows_holders {
            object.insert("patternProperties".to_owned(), json!({format!("^{HOLDER}"): {}}));
        }
        object
    }

    fn has_required(&self, path: &str) -> bool {
        let maps = self.report.maps.borrow();
        maps.get(path).and_then(|map| map.required.as_ref()).is_some_and(|required| !required.is_empty())
    }

    /// The keys that readers ask for below a path.
    fn keys_of(&self, path: &str) -> Vec<String> {
        let keys = self.report.keys.borrow();
        let below = |key: &String| {
            let rest = if path.is_empty() { key } else { key.strip_prefix(path)?.strip_prefix('.')? };
            (!rest.contains(['.', '['])).then(|| rest.to_owned())
        };
        keys.iter().filter_map(below).collect()
    }

    /// The words of the documentation, and the default of a setting.
    fn annotations(&self, path: &str) -> Map<String, Value> {
        let mut annotations = Map::new();
        if let Some(row) = self.rows.iter().find(|row| row.key == path && !row.text.is_empty()) {
            annotations.insert("description".to_owned(), json!(row.text));
        }
        if let Some(Declared { default, .. }) = self.report.settings.borrow().get(path) {
            let number = default.parse::<u64>().map(Value::from);
            annotations.insert("default".to_owned(), number.unwrap_or_else(|_| json!(default)));
        }
        annotations
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

fn word(form: &Form) -> Option<Value> {
    match form {
        Form::Word(word) => Some(json!(word)),
        Form::Unquoted(number) => serde_json::from_str(number).ok(),
        _ => None,
    }
}

/// A number within the range. The range of a text with a unit is in the description only.
fn of_number(Range { unit, least, most }: Range) -> Value {
    let integer = json!({"type": "integer", "minimum": least, "maximum": most});
    let names = |units: &[(&str, u64)]| units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join("|");
    match unit {
        Unit::Count => integer,
        Unit::Bytes => {
            let pattern = format!("^[0-9]+({})$", names(&SIZE_UNITS));
            json!({"anyOf": [integer, {"type": "string", "pattern": pattern}]})
        }
        Unit::Time => {
            let pattern = format!("^([0-9]+({})|[0-9]+\\.[0-9]{{1,9}}s)$", names(&TIME_UNITS));
            json!({"type": "string", "pattern": pattern})
        }
    }
}
