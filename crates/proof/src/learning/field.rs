//! Fields: the parts of a node by which a control plane may tell clients apart (LRN-3).

use core::net::IpAddr;
use std::fmt::{self, Display, Formatter, Write};

use sluice_engine::class::NodeKey;
use sluice_xds::{Node, UserAgentVersion, Value};

/// A field of a node. The order of the variants is the order in reports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    Id,
    Cluster,
    Region,
    Zone,
    SubZone,
    UserAgentName,
    UserAgentVersion,
    /// Splits classes whatever the rules say.
    ClientFeatures,
    /// Split classes whatever the rules say.
    DynamicParameters,
    /// A leaf of the metadata, or several leaves folded together; the empty path is all of the metadata.
    Metadata(Vec<String>),
    /// A part of another field.
    Derived(Derived),
}

/// A part of a field, for control planes that look at no whole field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Derived {
    /// The text at a place of the id, from 0, between the separators.
    IdPart { separator: char, place: usize },
    /// Whether the addresses of a field are IPv4, IPv6 or both.
    Family(AddressField),
    /// The id without the random end of a pod's name.
    IdStem,
    /// The first bits of the first address of a field: as many for IPv4, and as many for IPv6.
    Network { base: AddressField, v4: u8, v6: u8 },
}

/// A field with addresses, possibly.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressField {
    Id,
    IdPart { separator: char, place: usize },
    Metadata(Vec<String>),
}

/// The characters at which ids are cut.
pub(super) const SEPARATORS: [char; 5] = ['~', '.', '/', ':', '@'];

/// The lengths of networks, for IPv4 and IPv6.
pub(super) const NETWORKS: [(u8, u8); 3] = [(16, 48), (20, 56), (24, 64)];

impl Field {
    /// The fields of every node beside the metadata.
    pub(super) const PLAIN: [Field; 9] = [
        Field::Id,
        Field::Cluster,
        Field::Region,
        Field::Zone,
        Field::SubZone,
        Field::UserAgentName,
        Field::UserAgentVersion,
        Field::ClientFeatures,
        Field::DynamicParameters,
    ];

    /// The value in a node, as a text unlike every other value; `None` where the node lacks the field.
    pub fn value(&self, node: &Node) -> Option<String> {
        let stated = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let place = node.locality.as_ref();
        match self {
            Field::Id => stated(&node.id),
            Field::Cluster => stated(&node.cluster),
            Field::Region => stated(&place?.region),
            Field::Zone => stated(&place?.zone),
            Field::SubZone => stated(&place?.sub_zone),
            Field::UserAgentName => stated(&node.user_agent_name),
            Field::UserAgentVersion => node.user_agent_version.as_ref().map(version),
            Field::ClientFeatures => stated(&node.client_features.join(" ")),
            Field::DynamicParameters => {
                (!node.dynamic_parameters.is_empty()).then(|| format!("{:?}", node.dynamic_parameters))
            }
            Field::Metadata(path) if path.is_empty() => {
                Some(Value::Struct(node.metadata.clone()).to_string())
            }
            Field::Metadata(path) => node.metadata_at(path).map(Value::to_string),
            Field::Derived(derived) => derived.value(node),
        }
    }

    /// Whether `node_classes` splits by the field without a key.
    pub fn always_splits(&self) -> bool {
        matches!(self, Field::ClientFeatures | Field::DynamicParameters)
    }

    /// Whether a rule of `node_classes` can name the field.
    pub fn has_word(&self) -> bool {
        !matches!(self, Field::Derived(Derived::IdStem | Derived::Network { .. }))
    }
}

fn version(version: &UserAgentVersion) -> String {
    match version {
        UserAgentVersion::Text(text) => format!("{text:?}"),
        UserAgentVersion::Build { major, minor, patch } => format!("{major}.{minor}.{patch}"),
    }
}

/// The path as in the other reports about nodes: `metadata.LABELS.app`. Control characters are escaped.
impl Display for Field {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Field::Id => f.write_str("id"),
            Field::Cluster => f.write_str("cluster"),
            Field::Region => f.write_str("locality.region"),
            Field::Zone => f.write_str("locality.zone"),
            Field::SubZone => f.write_str("locality.sub_zone"),
            Field::UserAgentName => f.write_str("user_agent_name"),
            Field::UserAgentVersion => f.write_str("user_agent_version"),
            Field::ClientFeatures => f.write_str("client_features"),
            Field::DynamicParameters => f.write_str("dynamic_parameters"),
            Field::Metadata(path) => write_path(f, path),
            Field::Derived(derived) => derived.fmt(f),
        }
    }
}

fn write_path(f: &mut Formatter<'_>, path: &[String]) -> fmt::Result {
    f.write_str("metadata")?;
    for key in path {
        f.write_char('.')?;
        for letter in key.chars() {
            match letter.is_control() {
                true => write!(f, "{}", letter.escape_default())?,
                false => f.write_char(letter)?,
            }
        }
    }
    Ok(())
}

impl Derived {
    fn value(&self, node: &Node) -> Option<String> {
        match self {
            Derived::IdPart { separator, place } => id_part(&node.id, *separator, *place).map(str::to_owned),
            Derived::Family(base) => Some(base.key().address_family(node).to_owned()),
            Derived::IdStem => stem(&node.id).map(str::to_owned),
            Derived::Network { base, v4, v6 } => {
                let first = *base.key().texts(node).first()?;
                network(first.split('%').next()?.parse().ok()?, *v4, *v6)
            }
        }
    }
}

impl Display for Derived {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Derived::IdPart { separator, place } => write!(f, "part {place} of id at {separator:?}"),
            Derived::Family(base) => write!(f, "address family of {base}"),
            Derived::IdStem => f.write_str("id without its random end"),
            Derived::Network { base, v4, v6 } => write!(f, "network /{v4} (/{v6}) of {base}"),
        }
    }
}

impl AddressField {
    pub(super) fn key(&self) -> NodeKey {
        match self {
            AddressField::Id => NodeKey::Id,
            AddressField::IdPart { separator, place } => {
                NodeKey::IdPart { separator: separator.to_string().into(), place: *place }
            }
            AddressField::Metadata(path) => NodeKey::Metadata(path.clone()),
        }
    }
}

impl Display for AddressField {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            AddressField::Id => f.write_str("id"),
            AddressField::IdPart { separator, place } => write!(f, "part {place} of id at {separator:?}"),
            AddressField::Metadata(path) => write_path(f, path),
        }
    }
}

/// `None` for an id without the separator.
fn id_part(id: &str, separator: char, place: usize) -> Option<&str> {
    id.contains(separator).then(|| id.split(separator).nth(place))?
}

/// `web-5d9c7b6f48-x7k2p` without the hashes of replica set and pod; `None` without a random end.
fn stem(id: &str) -> Option<&str> {
    let is_random = |text: &str| {
        (5..=10).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    let (before, _) = id.rsplit_once('-').filter(|(_, end)| is_random(end) && end.len() == 5)?;
    let has_digit = |set: &str| set.bytes().any(|b| b.is_ascii_digit());
    let of_set = before.rsplit_once('-').filter(|(_, set)| is_random(set) && has_digit(set));
    Some(of_set.map_or(before, |(stem, _)| stem))
}

fn network(address: IpAddr, v4: u8, v6: u8) -> Option<String> {
    let keep = |bits: u128, width: u8, length: u8| bits >> (width - length.min(width));
    Some(match address.to_canonical() {
        IpAddr::V4(address) => format!("v4 {:x}", keep(address.to_bits().into(), 32, v4)),
        IpAddr::V6(address) => format!("v6 {:x}", keep(address.to_bits(), 128, v6)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: &str) -> Node {
        Node { id: id.into(), ..Node::default() }
    }

    #[test]
    fn lrn_3_parts_of_the_id_are_fields() {
        let part = |place| Field::Derived(Derived::IdPart { separator: '~', place });
        let sidecar = node("sidecar~10.1.1.1~web-5d9c7b6f48-x7k2p.prod~prod.svc");
        assert_eq!(part(0).value(&sidecar).as_deref(), Some("sidecar"));
        assert_eq!(part(3).value(&sidecar).as_deref(), Some("prod.svc"));
        assert_eq!((part(9).value(&sidecar), part(0).value(&node("web"))), (None, None));
        let stem = |id: &str| Field::Derived(Derived::IdStem).value(&node(id));
        assert_eq!(stem("web-5d9c7b6f48-x7k2p").as_deref(), Some("web"));
        assert_eq!(stem("web-main-x7k2p").as_deref(), Some("web-main"));
        assert_eq!((stem("web-1"), stem("web")), (None, None));
    }

    #[test]
    fn lrn_3_networks_of_addresses_are_fields() {
        let base = AddressField::IdPart { separator: '~', place: 1 };
        let network = |id: &str| {
            Field::Derived(Derived::Network { base: base.clone(), v4: 24, v6: 64 }).value(&node(id))
        };
        assert_eq!(network("sidecar~10.1.1.1~a"), network("sidecar~10.1.1.200~b"));
        assert_ne!(network("sidecar~10.1.1.1~a"), network("sidecar~10.1.2.1~a"));
        assert_eq!(network("sidecar~fd00::1~a"), network("sidecar~fd00::2~b"));
        assert_eq!(network("sidecar~web~a"), None);
    }

    #[test]
    fn lrn_3_values_of_different_kinds_differ() {
        let with = |value| Node { metadata: [("V".to_owned(), value)].into(), ..Node::default() };
        let field = Field::Metadata(vec!["V".into()]);
        assert_ne!(
            field.value(&with(Value::String("1".into()))),
            field.value(&with(Value::Number(1_f64.to_bits())))
        );
        assert_ne!(field.value(&with(Value::Null)), field.value(&Node::default()));
        assert_eq!(Field::Metadata(vec!["A".into(), "b\n".into()]).to_string(), "metadata.A.b\\n");
    }
}
