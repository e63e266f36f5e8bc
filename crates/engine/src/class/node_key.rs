//! The part of a node by which a client is found elsewhere.

use core::net::IpAddr;

use sluice_xds::{Node, Value};

/// The part of a node with one or several keys of a client: a name, or addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NodeKey {
    #[default]
    Id,
    /// The text at this place of the id, from 0, between the separators.
    IdPart { separator: Box<str>, place: usize },
    /// The metadata value under a path: a text, several with commas between, or a list of texts.
    Metadata(Vec<String>),
}

impl NodeKey {
    /// The keys, in the order of the node, trimmed. An empty text is no key.
    pub fn texts<'a>(&self, node: &'a Node) -> Vec<&'a str> {
        let texts = match self {
            NodeKey::Id => vec![node.id.as_str()],
            NodeKey::IdPart { separator, place } => {
                node.id.split(&**separator).nth(*place).into_iter().collect()
            }
            NodeKey::Metadata(path) => match node.metadata_at(path) {
                Some(Value::String(texts)) => texts.split(',').collect(),
                Some(Value::List(texts)) => texts.iter().filter_map(text).collect(),
                Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Struct(_)) | None => Vec::new(),
            },
        };
        texts.into_iter().map(str::trim).filter(|text| !text.is_empty()).collect()
    }

    /// The family of all addresses among the keys. An IPv4 address that is written as IPv6 is of the latter,
    /// as for istiod.
    pub fn address_family(&self, node: &Node) -> &'static str {
        let without_zone = |text: &'_ str| text.split('%').next().unwrap_or(text).parse::<IpAddr>().ok();
        let addresses = self.texts(node).into_iter().filter_map(without_zone);
        let families = addresses.fold((false, false), |(v4, v6), address| match address {
            IpAddr::V4(_) => (true, v6),
            IpAddr::V6(_) => (v4, true),
        });
        match families {
            (true, false) => "v4",
            (false, true) => "v6",
            (true, true) => "dual",
            (false, false) => "none",
        }
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Istio gives a proxy other listeners for each of the three.
    #[test]
    fn rly_11_the_family_of_addresses_is_that_of_all_of_them() {
        let by_ips = NodeKey::Metadata(vec!["IPS".into()]);
        let with = |value: Value| Node { metadata: [("IPS".to_owned(), value)].into(), ..Node::default() };
        let text = |text: &str| Value::String(text.into());
        for (value, family) in [
            (text("10.1.1.1"), "v4"),
            (text("fd00::1"), "v6"),
            (text("10.1.1.1,fd00::1"), "dual"),
            (text("fd00::1, 10.1.1.1"), "dual"),
            (text("::ffff:10.1.1.1"), "v6"),
            (text("fe80::1%eth0"), "v6"),
            (Value::List(vec![text(" 10.1.1.1"), text("10.1.1.2"), Value::Null]), "v4"),
            (text("web-1"), "none"),
            (Value::Null, "none"),
        ] {
            assert_eq!(by_ips.address_family(&with(value.clone())), family, "{value}");
        }
        let node = Node { id: "sidecar~fd00::1~a.b~c".into(), ..Node::default() };
        let part = |place| NodeKey::IdPart { separator: "~".into(), place };
        assert_eq!((part(1).address_family(&node), part(9).address_family(&node)), ("v6", "none"));
        assert_eq!(by_ips.address_family(&node), "none");
    }
}
