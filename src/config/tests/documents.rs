//! The documents and the code have the same keys, defaults, ranges and names.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::config::effect::{EFFECTS, effect_of, entry_of};
use crate::config::key_report::{Declared, KeyReport};
use crate::config::reader::Item;
use crate::config::schema::VISITS;
use crate::config::syntax;
use crate::config::units::show;
use crate::telemetry::Limit;
use sluice_engine::upstream::REFRESH_DELAY;

const DOCS: &str = include_str!("../../../docs/configuration.md");
const METRICS: &str = include_str!("../../../docs/metrics.md");

/// The beginnings of keys that the same reader reads, and that the page lists once.
const SAME: [(&str, &str); 10] = [
    ("ledger.etcd.tls.", "xds_servers[].channel_creds[].config."),
    ("authorities[].xds_servers[].mass_deletion", "xds_servers[].mass_deletion"),
    ("types[].xds_servers[].mass_deletion", "xds_servers[].mass_deletion"),
    ("authorities[].xds_servers[].lrs", "xds_servers[].lrs"),
    ("types[].xds_servers[].lrs", "xds_servers[].lrs"),
    ("admin.tls.", "listeners[].tls."),
    ("rollouts[].match.node.", "node_classes[].match."),
    ("proof.match.node.", "node_classes[].match."),
    ("proof.never[].", "node_classes[].match."),
    ("rollouts[].steps[].clients.", "node_classes[].match."),
];

/// The keys that readers ask for, over files that together visit every map, and the settings among them.
fn keys_and_settings() -> (BTreeSet<String>, BTreeMap<String, Declared>) {
    let (mut keys, mut settings) = (BTreeSet::new(), BTreeMap::new());
    for text in [&[EXAMPLE], VISITS.as_slice()].concat() {
        let tree = syntax::parse(text, Format::Yaml, &|_| None).unwrap();
        let report = KeyReport::default();
        Item::root(&tree, &report).map(|map| read::read_config(map, context("")));
        assert_eq!(report.errors.into_inner(), []);
        // The same keys, read by the same reader.
        let shown = |key: String| {
            let same = |(from, to): &(&str, &str)| Some(format!("{to}{}", key.strip_prefix(from)?));
            SAME.iter().find_map(same).unwrap_or(key.clone())
        };
        keys.extend(report.keys.into_inner().into_iter().map(shown));
        settings
            .extend(report.settings.into_inner().into_iter().map(|(key, declared)| (shown(key), declared)));
    }
    (keys, settings)
}

#[test]
fn the_documentation_and_the_reader_know_the_same_keys() {
    let row = |line: &'static str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_string());
    let documented: BTreeSet<String> = DOCS.lines().filter_map(row).collect();
    let is_section = |key: &&String| !documented.iter().any(|other| other.starts_with(&format!("{key}.")));
    let (keys, _) = keys_and_settings();
    let keys: BTreeSet<&String> = keys.iter().collect();
    let undocumented: Vec<_> =
        keys.iter().copied().filter(is_section).filter(|key| !documented.contains(*key)).collect();
    let unknown: Vec<_> = documented.iter().filter(|key| !keys.contains(key)).collect();
    assert_eq!((undocumented, unknown), (vec![], vec![]));
}

/// REL-3: an entry for each key, or for a section whose keys have one effect. `limits` is no such section.
#[test]
fn rel_3_the_effect_of_a_reload_on_every_key_is_known() {
    let keys = keys_and_settings().0;
    let sections = ["limits", "log", "admin", "cache", "reload", "fallback", "handover", "history"];
    let without: Vec<_> = keys.iter().filter(|key| entry_of(key).is_none()).collect();
    let without: BTreeSet<_> = without.into_iter().map(String::as_str).collect();
    assert_eq!(without, BTreeSet::from(sections), "keys without an effect");
    let entries: BTreeSet<&str> = EFFECTS.iter().map(|(key, _)| *key).collect();
    let gone: Vec<_> = entries.iter().filter(|key| !keys.contains(**key)).collect();
    assert!(gone.is_empty(), "entries without a key: {gone:?}");
    for (key, effect) in [
        ("node.locality.zone", Effect::Process),
        ("xds_servers[3].server_uri", Effect::Lists),
        ("authorities[a].xds_servers[0].backoff.max", Effect::Live),
        ("node_classes[2].match.id.prefix", Effect::Classes),
        ("listeners[0].tls.min_version", Effect::Listeners),
        ("admin.address", Effect::Process),
        ("checkpoint.max_age", Effect::Live),
        ("limits.connections", Effect::Live),
        ("limits.of_next_year", Effect::Process),
    ] {
        assert_eq!(effect_of(key), effect, "{key}");
    }
}

/// REL-3: whatever the entry of a number says, a file with another number behaves so.
#[test]
fn rel_3_another_number_needs_a_new_process_or_not_as_its_entry_says() {
    let before = read(EXAMPLE).unwrap();
    for key in keys_and_settings().1.into_keys().filter(|key| !key.contains("[]")) {
        let Some(text) = with_another_number(&key) else { continue };
        let Ok(after) = read(&text) else { continue };
        let changes = before.shown.difference(&after.shown);
        assert_eq!(changes.iter().map(|change| change.key.as_str()).collect::<Vec<_>>(), [key.as_str()]);
        assert_ne!(before.config, after.config, "{key}");
        let needs = !before.config.needs_process(&after.config).is_empty();
        assert_eq!(needs, effect_of(&key) == Effect::Process, "{key}");
    }
}

/// The example with one more digit in the number of a key.
fn with_another_number(key: &str) -> Option<String> {
    let (section, name) = key.split_once('.').map_or((None, key), |(section, name)| (Some(section), name));
    let mut inside = section.is_none();
    let mut is_found = false;
    let mut lines = Vec::new();
    for line in EXAMPLE.lines() {
        let at_top = !line.starts_with([' ', '#']);
        if let (true, Some(section)) = (at_top, section) {
            inside = line.starts_with(&format!("{section}:"));
        }
        let begin = format!("{}{name}: ", if section.is_some() { "  " } else { "" });
        match line
            .strip_prefix(&begin)
            .filter(|rest| inside && rest.starts_with(|c: char| c.is_ascii_digit()))
        {
            Some(rest) => {
                is_found = true;
                lines.push(format!("{begin}1{rest}"));
            }
            None => lines.push(line.to_owned()),
        }
    }
    is_found.then(|| lines.join("\n"))
}

/// REL-3: keys for a new process, by the meaning of their values.
#[test]
fn rel_3_another_spelling_is_no_other_value() {
    let config = |text: &str| with_server(text);
    let before = config("");
    for same in
        ["node: {id: sluice-host-1}", "checkpoint: off", "admin: {address: '127.0.0.1:19000'}", "drain: 10s"]
    {
        assert_eq!(config(same), before, "{same}");
    }
    for (text, key) in [
        ("node: {cluster: a}", "node"),
        ("checkpoint: {directory: a}", "checkpoint.directory"),
        ("admin: {address: '127.0.0.1:1'}", "admin.address"),
    ] {
        assert_eq!(before.needs_process(&config(text)), [key]);
    }
    let socket = |mode| config(&format!("admin: {{address: 'unix:/run/a', mode: '{mode}'}}"));
    assert_eq!(socket("0600").needs_process(&socket("0660")), ["admin.mode"]);
    let times = |more| config(&format!("checkpoint: {{directory: a, {more}}}"));
    assert!(times("interval: 5s").needs_process(&times("interval: 6s, max_age: 2h")).is_empty());
}

#[test]
fn the_example_shows_every_key() {
    for key in keys_and_settings().0 {
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
    let (rows, (_, settings)) = (rows(), keys_and_settings());
    let show = |number| show(REFRESH_DELAY.unit, number);
    let (least, most) = (show(REFRESH_DELAY.least), show(REFRESH_DELAY.most));
    let mut expected: Vec<_> = settings
        .into_iter()
        .map(|(key, Declared { default, least, most })| (key, format!("`{default}`"), least, most))
        .collect();
    expected.push(("xds_servers[].refresh_delay".into(), "required".into(), least, most));
    let mut wrong = Vec::new();
    for (key, default, least, most) in expected {
        let (documented_default, row) = rows.get(key.as_str()).copied().unwrap_or(("no row", ""));
        let is_inherited = ["authorities[].", "types[]."].iter().any(|list| key.starts_with(list));
        let is_right = if is_inherited {
            documented_default == "as above"
        } else {
            documented_default == default && row.contains(&format!("`{least}` to `{most}`"))
        };
        if !is_right {
            wrong.push(format!("{key}: {default}, `{least}` to `{most}`; the page has {documented_default}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A label is the last part of a key, or the page of the metrics explains the label.
#[test]
fn the_label_of_a_limit_is_its_key() {
    let (keys, _) = keys_and_settings();
    let is_key = |label: &str| keys.contains(&format!("limits.{label}"));
    let is_explained = |label: &str| METRICS.contains(&format!("\n| {label} | "));
    for label in Limit::ALL.map(Limit::name) {
        assert!(is_key(label) != is_explained(label), "{label}");
    }
}
