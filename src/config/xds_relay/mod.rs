//! The configuration of xds-relay, the Go program of the same purpose, as one of sluice: `sluice migrate`.
//!
//! A class of sluice is a selection of fields of the node, and a key of xds-relay is any text made of them. A
//! translation may therefore share less than before, and never more: a field that a rule looks at splits,
//! unless the rule can be said exactly.

mod predicate;
mod fragment;
mod combine;
mod bootstrap;

use std::fmt::Write;

use serde_json::json;

use super::error::{ConfigError, Warning};
use super::node::either;
use super::reader::{Item, Map, walk};
use super::syntax;
use super::tree::Format;
use bootstrap::Bootstrap;
use fragment::Fragment;

/// The parts of xds-relay's configuration, from one or two files.
#[derive(Default)]
pub struct Migration {
    bootstrap: Option<Bootstrap>,
    fragments: Option<Vec<Fragment>>,
}

/// A configuration of sluice.
#[derive(Debug, PartialEq, Eq)]
pub struct Migrated {
    pub yaml: String,
    /// Everything that sluice cannot do in the same way, without places.
    pub lost: Vec<String>,
}

const BOTH: &str = "`fragments` of the aggregation rules, or the bootstrap's `server` and `origin_server`";

impl Migration {
    /// Reads a file: the aggregation rules or the bootstrap. Returns everything that cannot be translated,
    /// with its place.
    ///
    /// # Errors
    /// The file is neither, or breaks xds-relay's own rules.
    pub fn add(&mut self, text: &str) -> Result<Vec<Warning>, ConfigError> {
        let node = syntax::parse_literally(text, Format::Yaml)?;
        let ((), warnings) = walk(&node, |map| {
            if map.has("fragments") {
                self.fragments = Some(fragment::read(map));
            } else if map.has("origin_server") || map.has("originServer") || map.has("server") {
                self.bootstrap = Some(Bootstrap::read(map));
            } else {
                map.allow_unknown_keys();
                map.invalid(BOTH);
            }
            Some(())
        })?;
        Ok(warnings)
    }

    /// The translation of the files so far.
    pub fn finish(self) -> Migrated {
        let (mut yaml, mut lost) = (HEAD.to_owned(), Vec::new());
        let classes = self.fragments.map(|fragments| combine::classes(&fragments)).unwrap_or_default();
        lost.extend(classes.lost);
        if self.bootstrap.is_none() {
            lost.push(format!(
                "no bootstrap was given; set ${{{CONTROL_PLANE}}} to the control plane's HOST:PORT"
            ));
        }
        yaml.push_str(&self.bootstrap.unwrap_or_default().render(classes.has_v2));
        if !classes.rules.is_empty() {
            yaml.push_str("node_classes:\n");
        }
        for rule in &classes.rules {
            rule.render(&mut yaml);
        }
        Migrated { yaml, lost }
    }
}

const HEAD: &str = "\
# Made by `sluice migrate xds-relay`. `sluice check --offline --config FILE` checks this file.
";

/// The variable that stands for an unknown control plane.
const CONTROL_PLANE: &str = "CONTROL_PLANE";

/// A field of which a message has exactly one, like the others in `fields`.
fn one_of<'a>(
    map: &mut Map<'a>,
    fields: &[(&'static str, &'static str)],
) -> Option<(&'static str, Item<'a>)> {
    let mut items: Vec<_> =
        fields.iter().filter_map(|(key, camel)| Some((*key, either(map, key, camel)?))).collect();
    if items.len() != 1 {
        let names: Vec<_> = fields.iter().map(|(key, _)| *key).collect();
        map.invalid(&format!("one of {}", names.join(", ")));
    }
    items.truncate(1);
    items.pop()
}

/// A JSON string, which is always valid YAML, too. Dollars are text.
fn quoted(text: &str) -> String {
    json!(text.replace('$', "$$")).to_string()
}

fn line(yaml: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String can't fail.
    let _ = writeln!(yaml, "{text}");
}
