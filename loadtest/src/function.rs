//! The answers of a control plane: a function of the labels in a node's metadata.
//!
//! Clients take the values of each label in turn. The value of the first label decides about the content of every
//! resource. A *rule* selects clients by further values, and once it is in force, the selected clients have a first
//! resource of their own. Content says for whom it was made, its *audience*, so a client that has another's content
//! is noticed.

use anyhow::{Context, Result, ensure};

use crate::proto::{Fields, Malformed};

/// Content with this audience is for the clients that the rule selects.
pub const SELECTED: usize = 4095;

/// The first resource is the only one that the rule changes.
pub const RULED: usize = 0;

/// A label: a key of the metadata, and the number of its values, which are the key with a number: `zone-0` for `zone`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub key: String,
    pub values: usize,
}

/// The labels of clients, and the rule as pairs of a label's place and the number of a value. Without labels all
/// content has the audience 0, and without a rule nobody is selected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    labels: Vec<Label>,
    rule: Vec<(usize, usize)>,
}

/// The values that the function looks at in a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Who {
    /// The audience of content for this client, before the rule.
    pub audience: usize,
    pub is_selected: bool,
}

impl Who {
    /// The audience of the content of a resource for this client.
    pub fn audience_of(self, index: usize, is_in_force: bool) -> usize {
        if is_in_force && self.is_selected && index == RULED { SELECTED } else { self.audience }
    }
}

impl Function {
    /// From `KEY=COUNT` for each label, and `KEY=NUMBER` for each condition of the rule.
    pub fn new(labels: &[(String, String)], rule: &[(String, String)]) -> Result<Function> {
        let mut function = Function::default();
        for (key, count) in labels {
            let values =
                count.parse().with_context(|| format!("--labels {key}={count}: that is no number"))?;
            ensure!(
                (1..SELECTED - 1).contains(&values),
                "--labels {key}={count}: 1 to {} values",
                SELECTED - 2
            );
            function.labels.push(Label { key: key.clone(), values });
        }
        for (key, number) in rule {
            let place = function.labels.iter().position(|label| label.key == *key);
            let place = place.with_context(|| format!("--rule {key}: --labels has no such key"))?;
            let value: usize =
                number.parse().with_context(|| format!("--rule {key}={number}: that is no number"))?;
            ensure!(value < function.labels[place].values, "--rule {key}={number}: no client has this value");
            function.rule.push((place, value));
        }
        Ok(function)
    }

    /// The number of audiences before the rule, with that of nodes that lack the first label.
    pub fn audiences(&self) -> usize {
        1 + self.labels.first().map_or(0, |label| label.values)
    }

    pub fn has_labels(&self) -> bool {
        !self.labels.is_empty()
    }

    pub fn has_rule(&self) -> bool {
        !self.rule.is_empty()
    }

    /// The metadata of a client.
    pub fn metadata(&self, client: usize) -> impl Iterator<Item = (&str, String)> {
        let keys = self.labels.iter().map(|label| label.key.as_str());
        keys.zip(self.values(client)).map(|(key, value)| (key, format!("{key}-{value}")))
    }

    /// The number of the value of each label: the values of the first label change with each client, those of the
    /// second after a round of the first.
    fn values(&self, client: usize) -> impl Iterator<Item = usize> {
        self.labels.iter().scan(client, |rest, label| {
            let value = *rest % label.values;
            *rest /= label.values;
            Some(value)
        })
    }

    pub fn who(&self, client: usize) -> Who {
        self.look(self.values(client).map(Some))
    }

    /// The values that the function looks at in a node, an encoded core.v3.Node.
    pub fn read(&self, node: &[u8]) -> Result<Who, Malformed> {
        let mut values = vec![None; self.labels.len()];
        let mut fields = Fields(node);
        while let Some((field, metadata)) = fields.next_bytes()? {
            let mut entries = Fields(if field == 3 { metadata } else { &[] });
            while let Some((_, entry)) = entries.next_bytes()? {
                let (key, text) = string_entry(entry)?;
                let place = self.labels.iter().position(|label| label.key.as_bytes() == key);
                if let Some(place) = place {
                    values[place] = self.labels[place].value(text);
                }
            }
        }
        Ok(self.look(values.into_iter()))
    }

    fn look(&self, values: impl Iterator<Item = Option<usize>>) -> Who {
        let values: Vec<_> = values.collect();
        let is_selected =
            self.has_rule() && self.rule.iter().all(|(place, value)| values[*place] == Some(*value));
        let first = values.first().copied().flatten();
        Who { audience: first.map_or(0, |value| value + 1), is_selected }
    }
}

impl Label {
    /// The number of a value in a node.
    fn value(&self, text: &[u8]) -> Option<usize> {
        let number = std::str::from_utf8(text).ok()?.strip_prefix(self.key.as_str())?.strip_prefix('-')?;
        number.parse().ok().filter(|value| *value < self.values)
    }
}

/// Key and text of an entry of a google.protobuf.Struct; values that are no strings are empty.
fn string_entry(entry: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let (mut key, mut text) = (&[][..], &[][..]);
    let mut fields = Fields(entry);
    while let Some((field, bytes)) = fields.next_bytes()? {
        if field == 1 {
            key = bytes;
            continue;
        }
        let mut value = Fields(bytes);
        while let Some((kind, bytes)) = value.next_bytes()? {
            text = if kind == 3 { bytes } else { &[] };
        }
    }
    Ok((key, text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::client::{Node, Profile, Requests};
    use crate::xds::Variant;

    fn pairs(text: &str) -> Vec<(String, String)> {
        let pair = |pair: &str| pair.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        text.split(',').filter_map(pair).collect()
    }

    fn function(labels: &str, rule: &str) -> Result<Function, String> {
        Function::new(&pairs(labels), &pairs(rule)).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn clients_take_values_in_turn_and_a_rule_selects_by_all_of_its_conditions() {
        let function = function("app=3,team=2", "app=1,team=1").unwrap();
        let all: Vec<_> = (0..7).map(|client| function.who(client)).collect();
        assert_eq!(all.iter().map(|who| who.audience).collect::<Vec<_>>(), [1, 2, 3, 1, 2, 3, 1]);
        let selected: Vec<_> = (0..7).filter(|client| all[*client].is_selected).collect();
        assert_eq!(selected, [4]);
        assert_eq!([false, true].map(|is_in_force| all[4].audience_of(RULED, is_in_force)), [2, SELECTED]);
        assert_eq!(all[4].audience_of(1, true), 2, "another resource is as before");
        assert_eq!((function.audiences(), Function::default().audiences()), (4, 1));
        assert_eq!(Function::default().who(5), Who::default());
    }

    #[test]
    fn a_node_says_what_its_client_is() {
        let function = function("app=3,team=2", "team=1").unwrap();
        let mut profile = Profile::plain(Variant::Delta, 1);
        profile.node = Node { metadata: pairs("zone=z1"), ..profile.node };
        profile.function = function.clone();
        let requests = Requests::new(profile);
        for client in 0..7 {
            let node = requests.node(client);
            assert_eq!(function.read(&node).unwrap(), function.who(client), "client {client}");
        }
        assert_eq!(function.read(&[]).unwrap(), Who::default());
        assert!(function.read(&[0x1a, 5]).is_err());
    }

    #[test]
    fn what_no_client_can_have_is_refused() {
        let cases = [
            ("app=x", "", "that is no number"),
            ("app=0", "", "1 to 4093 values"),
            ("app=4", "team=1", "no such key"),
            ("app=4", "app=4", "no client has this value"),
            ("app=4", "app=b", "that is no number"),
        ];
        for (labels, rule, words) in cases {
            let error = function(labels, rule).unwrap_err();
            assert!(error.contains(words), "{labels} {rule}: {error}");
        }
    }
}
