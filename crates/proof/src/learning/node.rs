//! The fields of a node, for the proof of classes in use (LRN-3).

use std::sync::Arc;

use super::field::Field;
use super::fleet::{derived_fields, is_well_known};
use super::leaves::leaves;
use crate::node_fields::{FieldRank, NodeField, NodeFields};
use sluice_identity::Identity;
use sluice_xds::Node;

/// The fields of a client: the leaves of the node, derived fields, and the parts of the proved identity. A
/// client without a proved identity lacks the latter.
pub fn node_fields(node: &Node, identity: &Identity) -> NodeFields {
    let paths = leaves([node].into_iter());
    let derived = derived_fields(&[node], paths.iter()).into_iter().map(Field::Derived);
    let plain = Field::PLAIN.into_iter().chain(paths.into_iter().map(Field::Metadata));
    let of_node = plain.chain(derived).filter_map(|field| {
        let value = field.value(node)?.into();
        let rank = match &field {
            Field::Derived(_) => FieldRank::Derived,
            field if is_well_known(field) => FieldRank::Unique,
            _ => FieldRank::Plain,
        };
        Some(NodeField { path: field.to_string().into(), value, rank })
    });
    let mut fields: Vec<NodeField> = of_node.chain(identity_fields(identity)).collect();
    fields.sort_by(|one, other| one.path.cmp(&other.path));
    // Keys with dots may read as the path of another leaf.
    fields.dedup_by(|later, first| later.path == first.path);
    NodeFields(fields)
}

/// The whole identity; of a SPIFFE ID also the trust domain, and the beginnings of the path.
fn identity_fields(identity: &Identity) -> Vec<NodeField> {
    let field = |path: &str, value: &str| {
        let value = Arc::from(value);
        NodeField { path: path.into(), value, rank: FieldRank::Plain }
    };
    let mut fields = Vec::new();
    if *identity == Identity::Anonymous {
        return fields;
    }
    fields.push(field("identity", &identity.key()));
    if let Identity::Spiffe(id) = identity {
        let mut text = id.trust_domain().to_owned();
        fields.push(field("identity.trust_domain", &text));
        for (number, segment) in (1..=SEGMENTS_MAX).zip(id.segments()) {
            text = format!("{text}/{segment}");
            fields.push(field(&format!("identity.segments[{number}]"), &text));
        }
    }
    fields
}

/// The first segments of an identity, each with a field.
const SEGMENTS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_identity::SpiffeId;
    use sluice_xds::Value;

    #[test]
    fn lrn_3_a_client_has_the_fields_of_its_node_and_of_its_identity() {
        let metadata = [
            ("LABELS".to_owned(), Value::Struct([("team".to_owned(), Value::String("blue".into()))].into())),
            ("POD_IP".to_owned(), Value::String("10.0.0.7".into())),
        ];
        let node = Node { id: "web-1".into(), metadata: metadata.into(), ..Node::default() };
        let identity = SpiffeId::parse("spiffe://prod.example/ns/web").map(Identity::Spiffe);
        let NodeFields(fields) = node_fields(&node, &identity.unwrap_or(Identity::Anonymous));
        let shown: Vec<String> =
            fields.iter().map(|field| format!("{} {:?} {}", field.path, field.rank, field.value)).collect();
        let expected = [
            "address family of metadata.POD_IP Derived v4",
            "id Unique web-1",
            "identity Plain spiffe://prod.example/ns/web",
            "identity.segments[1] Plain prod.example/ns",
            "identity.segments[2] Plain prod.example/ns/web",
            "identity.trust_domain Plain prod.example",
            "metadata.LABELS.team Plain \"blue\"",
            "metadata.POD_IP Unique \"10.0.0.7\"",
            "network /16 (/48) of metadata.POD_IP Derived v4 a00",
            "network /20 (/56) of metadata.POD_IP Derived v4 a000",
            "network /24 (/64) of metadata.POD_IP Derived v4 a0000",
        ];
        assert_eq!(shown, expected);
        let NodeFields(without) = node_fields(&Node::default(), &Identity::Anonymous);
        assert_eq!(without, []);
    }
}
