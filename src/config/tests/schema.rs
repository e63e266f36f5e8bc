//! `sluice schema` (PKG-8): the schema is whole, and agrees with the reader about every configuration of
//! these tests.

use std::sync::OnceLock;

use regex::Regex;
use serde_json::{Map, Value, json};

use super::*;
use crate::config::form::Form;
use crate::config::schema::{SAME, schema, visit};
use crate::config::syntax;
use crate::config::tree::{Tree, TreeNode};

/// Fails if the schema refuses a text that the reader accepts.
pub(super) fn agrees(text: &str, read: Result<(), &ConfigError>) {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    let schema = SCHEMA.get_or_init(schema);
    if let (Ok(()), Ok(node)) = (read, syntax::parse(text, Format::Yaml, &|_| None)) {
        let faults_of_text = faults(schema, schema, &value(&node), "");
        assert_eq!(
            faults_of_text,
            Vec::<String>::new(),
            "the schema refuses a configuration that the reader accepts:\n{text}"
        );
    }
}

fn value(node: &TreeNode) -> Value {
    match &node.tree {
        // As in the file.
        Tree::Unset(_) => json!("${A}"),
        Tree::Null => Value::Null,
        Tree::Bool(value) => json!(value),
        Tree::Integer(value) => serde_json::from_str(&value.to_string()).unwrap(),
        Tree::Float(value) => json!(value),
        // The tree has the value of a variable in place of the variable.
        Tree::Text(_) if node.expansion.is_some() => json!("${A}"),
        Tree::Text(text) => json!(text),
        Tree::List(items) => items.iter().map(value).collect(),
        Tree::Map(entries) => {
            entries.iter().map(|entry| (entry.key.clone(), value(&entry.node))).collect::<Map<_, _>>().into()
        }
    }
}

/// The faults that draft-07 finds, by the keywords that the schema uses. Any other keyword is a fault of the
/// schema.
fn faults(root: &Value, schema: &Value, value: &Value, path: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut inner = |schema: &Value, value: &Value, path: String| {
        all.extend(faults(root, schema, value, &path));
    };
    for (keyword, operand) in schema.as_object().expect("a schema") {
        let object = value.as_object();
        match keyword.as_str() {
            "$ref" => {
                let name = operand.as_str().unwrap().strip_prefix("#/definitions/").unwrap();
                inner(&root["definitions"][name], value, path.to_owned());
            }
            "allOf" => operand.as_array().unwrap().iter().for_each(|one| inner(one, value, path.to_owned())),
            "if" if faults(root, operand, value, path).is_empty() => {
                inner(&schema["then"], value, path.to_owned())
            }
            "properties" => {
                for (key, schema) in operand.as_object().unwrap() {
                    let value = object.and_then(|object| object.get(key));
                    value.into_iter().for_each(|value| inner(schema, value, format!("{path}.{key}")));
                }
            }
            "additionalProperties" if operand.is_object() => {
                let others = object.into_iter().flatten().filter(|(key, _)| !is_named(schema, key));
                others.for_each(|(key, value)| inner(operand, value, format!("{path}[{key}]")));
            }
            "items" => {
                let items = value.as_array().into_iter().flatten();
                items.for_each(|item| inner(operand, item, format!("{path}[]")));
            }
            _ => {}
        }
    }
    let wrong = |(keyword, operand): &(&String, &Value)| !is_right(root, schema, keyword, operand, value);
    let words = schema.as_object().unwrap().iter().filter(wrong);
    all.extend(words.map(|(keyword, operand)| format!("{path}: {value} against {keyword} {operand}")));
    all
}

/// Whether the value as a whole obeys a keyword.
fn is_right(root: &Value, schema: &Value, keyword: &str, operand: &Value, value: &Value) -> bool {
    let object = value.as_object();
    match keyword {
        "$schema" | "title" | "definitions" | "description" | "default" => true,
        "$ref" | "allOf" | "if" | "then" | "properties" | "patternProperties" | "items" => true,
        "anyOf" => operand.as_array().unwrap().iter().any(|one| faults(root, one, value, "").is_empty()),
        "enum" => operand.as_array().unwrap().contains(value),
        "type" => match operand {
            Value::Array(types) => types.iter().any(|one| has_type(value, one)),
            one => has_type(value, one),
        },
        "minimum" => value.as_u64().is_none_or(|number| number >= operand.as_u64().unwrap()),
        "maximum" => value.as_u64().is_none_or(|number| number <= operand.as_u64().unwrap()),
        "minLength" => value.as_str().is_none_or(|text| text.len() as u64 >= operand.as_u64().unwrap()),
        "pattern" => {
            value.as_str().is_none_or(|text| Regex::new(operand.as_str().unwrap()).unwrap().is_match(text))
        }
        "required" => {
            let has = |key: &Value| object.is_none_or(|object| object.contains_key(key.as_str().unwrap()));
            operand.as_array().unwrap().iter().all(has)
        }
        "additionalProperties" if operand == &json!(false) => {
            object.is_none_or(|object| object.keys().all(|key| is_named(schema, key)))
        }
        "additionalProperties" => true,
        other => panic!("{other} is no keyword of these tests"),
    }
}

fn is_named(schema: &Value, key: &str) -> bool {
    schema.get("properties").is_some_and(|named| named.get(key).is_some())
        || schema.get("patternProperties").is_some() && key.starts_with("x-")
}

fn has_type(value: &Value, name: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is no type of these tests"),
    }
}

/// Every key that readers know has its form: a key without one would accept anything.
#[test]
fn pkg_8_every_key_has_a_form() {
    let report = visit();
    assert_eq!(report.errors.into_inner(), []);
    let (keys, forms) = (report.keys.into_inner(), report.forms.into_inner());
    let is_same = |key: &str| SAME.iter().any(|(other, _)| key.starts_with(other));
    let without: Vec<_> = keys.iter().filter(|key| !forms.contains_key(*key) && !is_same(key)).collect();
    assert!(without.is_empty(), "{without:?}");
    for (path, all) in &forms {
        let items = format!("{path}[]");
        let has_items = all.iter().any(|form| matches!(form, Form::List | Form::Entries));
        assert!(!has_items || forms.contains_key(&items) || is_same(path), "no item of {path} was visited");
        // Paths with the same keys have no key or form of their own.
        for (other, full) in SAME {
            let Some(rest) = path.strip_prefix(other) else { continue };
            let whole =
                forms.get(&format!("{full}{rest}")).unwrap_or_else(|| panic!("{path} is not in {full}"));
            assert!(all.iter().all(|form| whole.contains(form)), "{path}: {all:?} are not all in {whole:?}");
        }
    }
}

/// Every key of the documentation is in the schema, with its words.
#[test]
fn pkg_8_the_schema_has_the_keys_and_the_words_of_the_documentation() {
    let schema = schema();
    let page = include_str!("../../../docs/configuration.md");
    let mut count = 0;
    for key in page.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0)) {
        let property = find(&schema, &schema, key).unwrap_or_else(|| panic!("{key} is not in the schema"));
        let is_empty = page.contains(&format!("| `{key}` | | |\n"));
        assert!(
            is_empty || property["description"].as_str().is_some_and(|text| text.len() > 5),
            "{key}: {property}"
        );
        count += 1;
    }
    assert!(count > 200, "{count} keys");
    let property = |key: &str| find(&schema, &schema, key).unwrap();
    assert_eq!(property("limits.connections")["default"], 20000);
    assert_eq!(property("drain")["default"], "10s");
    let words = |key: &str| property(key)["description"].as_str().unwrap().to_owned();
    let text = words("limits.connections");
    assert_eq!(text, "Default: `20000`. `1` to `1000000000`; open connections over all listeners.");
    let text = words("admin.tls");
    assert!(text.contains("the keys of `listeners[].tls`") && !text.contains("]("), "{text}");
}

/// The schema of a key, through references and choices.
fn find(root: &Value, schema: &Value, key: &str) -> Option<Value> {
    if key.is_empty() {
        return Some(schema.clone());
    }
    if let Some(name) = schema.get("$ref") {
        let name = name.as_str()?.strip_prefix("#/definitions/")?;
        return find(root, &root["definitions"][name], key);
    }
    let lists = ["allOf", "anyOf"].iter().filter_map(|part| schema.get(part)?.as_array()).flatten();
    let choices = lists.chain(schema.get("then"));
    let item = key.strip_prefix("[]").map(|rest| (rest, ["items", "additionalProperties"]));
    if let Some((rest, names)) = item {
        let inner = names.iter().filter_map(|name| schema.get(name).filter(|part| part.is_object()));
        return inner.chain(choices).find_map(|one| {
            match schema.get("items").or(schema.get("additionalProperties")) {
                Some(_) => find(root, one, rest),
                None => find(root, one, key),
            }
        });
    }
    let plain = key.strip_prefix('.').unwrap_or(key);
    let end = plain.find(['.', '[']).unwrap_or(plain.len());
    let (name, rest) = plain.split_at(end);
    let inner = schema.get("properties").and_then(|part| part.get(name));
    inner
        .and_then(|part| find(root, part, rest))
        .or_else(|| choices.into_iter().find_map(|one| find(root, one, key)))
}

#[test]
fn pkg_8_the_schema_refuses_what_it_can_know() {
    for (text, why) in [
        ("node: {}", "xds_servers"),
        ("limit: {}", "additionalProperties"),
        ("limits: {connection: 1}", "additionalProperties"),
        ("limits: {connections: 0}", "minimum"),
        ("limits: {connections: many}", "anyOf"),
        ("limits: {connection_bytes: 1KB}", "anyOf"),
        ("drain: 10", "anyOf"),
        ("drain: 10d", "anyOf"),
        ("drain: ''", "anyOf"),
        ("log: {format: xml}", "anyOf"),
        ("listeners: {name: a}", "type"),
        ("listeners: [{name: a}]", "required"),
        ("listeners: [{name: a, address: 'unix:/a', mode: 0660}]", "anyOf"),
        ("admin: {tls: {certificate: a}}", "additionalProperties"),
        ("authorities: {a: {xds_servers: [{}]}}", "required"),
        ("authorization: {rules: [{name: a, deny: true}]}", "anyOf"),
    ] {
        let root = schema();
        let text = if why == "xds_servers" { text.to_owned() } else { format!("{SERVER}{text}") };
        let node = syntax::parse(&text, Format::Yaml, &|_| None).unwrap();
        let errors = faults(&root, &root, &value(&node), "");
        assert!(errors.iter().any(|fault| fault.contains(why)), "{text}: {errors:?}");
        assert!(read(&text).is_err(), "{text}");
    }
    for text in
        ["drain: ${A:-10s}", "limits: {connections: '${A:-1}', memory_bytes: off}", "x-a: [1]", "limits:"]
    {
        assert!(read(&format!("{SERVER}{text}")).is_ok(), "{text}");
    }
}
