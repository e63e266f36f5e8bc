//! The documents and the code have the same keys, defaults, ranges and names.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::config::reader::{Declared, Item, Report};
use crate::config::tree::Tree;
use crate::config::units::show;
use crate::engine::upstream::REFRESH_DELAY;
use crate::telemetry::Limit;

const DOCS: &str = include_str!("../../../docs/configuration.md");
const METRICS: &str = include_str!("../../../docs/metrics.md");

/// Together with the example: every key. Here stand the keys that the example can't show at their defaults.
const EVERYTHING: &str = "
node: {locality: {}}
xds_servers:
  - server_uri: 'localhost:1'
    channel_creds: [{type: insecure, config: {}}]
  - server_uri: 'localhost:2'
    channel_creds: [{type: tls, config: {}}]
    tls: {match_sans: [{dns: {exact: a.b}}]}
    call_creds: [{type: jwt_token_file, config: {jwt_token_file: a}}]
    initial_metadata: [{key: a, value: b}, {key: a, value_file: b}]
node_classes:
  - match:
      id: {prefix: a}
      metadata: [{path: a, exact: 1}]
    split_by: {identity: {segments: 2}}
    identity_metadata: a
    upstream_node: {template: {id: a}}
listeners:
  - {name: a, address: 'unix:/run/a', mode: '0600'}
  - name: b
    address: '127.0.0.1:1'
    tls:
      certificates: [{certificate_file: a, private_key_file: b}]
      ca_certificate_file: c
      trust_domain: d
      clients: [{spiffe: {prefix: e}}]
      crl: {files: [f]}
  - name: c
    address: '127.0.0.1:2'
    tls:
      certificates: [{certificate_file: a, private_key_file: b}]
      ca_certificate_file: c
      identity: dns
      clients: [{dns: {suffix: e}}]
admin:
  address: 'unix:/run/b'
  tls:
    certificates: [{certificate_file: a, private_key_file: b}]
    ca_certificate_file: c
    identity: dns
    clients: [{dns: {suffix: e}}]
  auth:
    tokens: [{name: a, token_file: b, roles: [view]}]
    identities: [{match: {dns: a}, roles: [act]}, {match: {unix_uid: [0]}, roles: [act]}]
authorities: {a: {fallback: {}, fallback_on_reachability_only: false, xds_servers: [{server_uri: 'file:a'}]}}
types: {a.B: {fallback: {}, xds_servers: [{server_uri: 'file:a'}]}}
checkpoint: {directory: a}
traces: {endpoint: 'http://a:1'}
authorization:
  mode: report
  rules:
    - name: a
      match: {identity: {dns: a}}
      node: {id: {prefix: a}, metadata: [{path: a, prefix: a}]}
      allow: [{types: all, names: [{prefix: a}]}]
    - {name: b, match: {identity: {unix_uid: [0]}}, deny: true}
";

/// The keys that readers ask for, over files that together visit every map, and the settings among them.
fn known() -> (BTreeSet<String>, BTreeMap<String, Declared>) {
    let (mut keys, mut settings) = (BTreeSet::new(), BTreeMap::new());
    for text in [EXAMPLE, EVERYTHING, REST] {
        let tree = Tree::parse(text, Format::Yaml).unwrap();
        let report = Report::default();
        Item::root(&tree, &report).map(|map| read::read_config(map, Path::new(""), ""));
        assert_eq!(report.errors.into_inner(), []);
        // The same keys, read by the same reader.
        let shown = |key: String| match key.strip_prefix("admin.tls.") {
            Some(key) => format!("listeners[].tls.{key}"),
            None => key,
        };
        keys.extend(report.keys.into_inner().into_iter().map(shown));
        settings.extend(report.settings.into_inner().into_iter().map(|(key, found)| (shown(key), found)));
    }
    (keys, settings)
}

#[test]
fn the_documentation_and_the_reader_know_the_same_keys() {
    let row = |line: &'static str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_string());
    let documented: BTreeSet<String> = DOCS.lines().filter_map(row).collect();
    let is_section = |key: &&String| !documented.iter().any(|other| other.starts_with(&format!("{key}.")));
    let (known, _) = known();
    let known: BTreeSet<&String> = known.iter().collect();
    let undocumented: Vec<_> =
        known.iter().copied().filter(is_section).filter(|key| !documented.contains(*key)).collect();
    let unknown: Vec<_> = documented.iter().filter(|key| !known.contains(key)).collect();
    assert_eq!((undocumented, unknown), (vec![], vec![]));
}

#[test]
fn the_example_shows_every_key() {
    for key in known().0 {
        let name = key.rsplit('.').next().unwrap().trim_end_matches("[]").to_string();
        let is_condition = key.contains(".match.") || key.contains("channel_creds[].config");
        assert!(is_condition || EXAMPLE.contains(&format!("{name}:")), "{key}");
    }
}

/// The rows of the tables of keys: the key, the default, and the whole row.
fn rows() -> BTreeMap<&'static str, (&'static str, &'static str)> {
    let row = |line: &'static str| {
        let mut cells = line.strip_prefix("| `")?.splitn(3, " | ");
        Some((cells.next()?.strip_suffix('`')?, (cells.next()?, line)))
    };
    DOCS.lines().filter_map(row).collect()
}

/// The owner of a number declares its default and its range; the table repeats both.
#[test]
fn the_documentation_has_the_default_and_the_range_of_every_setting() {
    let (rows, (_, settings)) = (rows(), known());
    let show = |number| show(REFRESH_DELAY.unit, number);
    let (least, most) = (show(REFRESH_DELAY.least), show(REFRESH_DELAY.most));
    let mut expected: Vec<_> = settings
        .into_iter()
        .map(|(key, Declared { default, least, most })| (key, format!("`{default}`"), least, most))
        .collect();
    expected.push(("xds_servers[].refresh_delay".into(), "required".into(), least, most));
    let mut wrong = Vec::new();
    for (key, default, least, most) in expected {
        let (found, row) = rows.get(key.as_str()).copied().unwrap_or(("no row", ""));
        let is_inherited = ["authorities[].", "types[]."].iter().any(|list| key.starts_with(list));
        let is_right = if is_inherited {
            found == "as above"
        } else {
            found == default && row.contains(&format!("`{least}` to `{most}`"))
        };
        if !is_right {
            wrong.push(format!("{key}: {default}, `{least}` to `{most}`; the page has {found}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A label is the last part of a key, or the page of the metrics explains the label.
#[test]
fn the_label_of_a_limit_is_its_key() {
    let (keys, _) = known();
    let is_key = |label: &str| keys.contains(&format!("limits.{label}"));
    let is_explained = |label: &str| METRICS.contains(&format!("\n| {label} | "));
    for label in Limit::ALL.map(Limit::name) {
        assert!(is_key(label) != is_explained(label), "{label}");
    }
}
