//! The node that a class shows to its server, and the digest that names the class in logs, in the admin's
//! lists and upstream.

use sluice_engine::class::{NodeClass, TemplateInput, UpstreamNode};
use sluice_engine::downstream::upstream_features;
use sluice_wire::upstream::encode_node;
use sluice_xds::Node;

/// Everything that makes a class, as bytes.
pub fn class_bytes(class: &NodeClass) -> Vec<u8> {
    let mut bytes = encode_node(&class.node);
    match &class.upstream_node {
        UpstreamNode::Projection => {}
        // No message has a field 0.
        UpstreamNode::Member => bytes.extend_from_slice(b"\0member"),
        UpstreamNode::Template(template) => {
            // The relay's part is left out, because all relays give the same class the same digest.
            let parts = TemplateInput { relay: &Node::default(), class: &class.node, digest: "" };
            bytes.extend_from_slice(b"\0template");
            bytes.extend_from_slice(&encode_node(&template.fill(Node::default(), parts)));
        }
    }
    for text in class.attributes.iter().flat_map(|(name, value)| [name, value]) {
        // Values are of clients: with its length, none reads as what follows.
        bytes.extend_from_slice(b"\0attribute");
        bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    // ISO-8: also a file of the checkpoint belongs to one identity.
    for (mark, text) in [(&b"\0identity"[..], &class.identity), (b"\0under", &class.identity_metadata)] {
        if let Some(text) = text {
            bytes.extend_from_slice(mark);
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

/// The digest by which a class is known everywhere.
pub fn class_digest(class: &NodeClass) -> String {
    sluice_wire::version::digest(&class_bytes(class))
}

/// The node that a class shows upstream (RLY-15). The default is the class's projection. Its id is the
/// relay's id with the digest of the class, unless the class is split by id. A template replaces fields as
/// the operator says. For a class that shows a member, the result is a placeholder that no server sees.
pub fn of_class(relay: &Node, class: &NodeClass) -> Node {
    let digest = class_digest(class);
    let base = projection(relay, &class.node, &digest);
    class.with_identity(match &class.upstream_node {
        UpstreamNode::Projection | UpstreamNode::Member => base,
        UpstreamNode::Template(template) => {
            template.fill(base, TemplateInput { relay, class: &class.node, digest: &digest })
        }
    })
}

/// The node of a member as the server of the class sees it: complete, except for client features that the
/// relay lacks (RLY-12).
pub fn of_member(node: &Node) -> Node {
    Node { client_features: upstream_features(&node.client_features), ..node.clone() }
}

fn projection(relay: &Node, class: &Node, digest: &str) -> Node {
    let or_default =
        |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
    Node {
        id: if class.id.is_empty() { format!("{}/{digest}", relay.id) } else { class.id.clone() },
        cluster: or_default(&class.cluster, &relay.cluster),
        metadata: if class.metadata.is_empty() { relay.metadata.clone() } else { class.metadata.clone() },
        locality: class.locality.clone().or_else(|| relay.locality.clone()),
        user_agent_name: or_default(&class.user_agent_name, &relay.user_agent_name),
        user_agent_version: match class.user_agent_name.is_empty() {
            true => relay.user_agent_version.clone(),
            false => class.user_agent_version.clone(),
        },
        client_features: upstream_features(&class.client_features),
        dynamic_parameters: class.dynamic_parameters.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ISO-8: the digest names the file of a checkpoint.
    #[test]
    fn iso_8_each_identity_has_a_digest_of_its_own() {
        let class = |identity: Option<&str>, key: Option<&str>| {
            let (identity, identity_metadata) = (identity.map(Box::from), key.map(Box::from));
            class_digest(&NodeClass { identity, identity_metadata, ..NodeClass::of_everybody() })
        };
        let all = [
            class(None, None),
            class(Some("anonymous"), None),
            class(Some("spiffe://d/a"), None),
            class(Some("spiffe://d/a"), Some("WHO")),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one), "{all:?}");
        }
    }

    /// A client writes what it likes into its id.
    #[test]
    fn iso_8_no_value_of_a_client_reads_as_an_identity() {
        let class = |attribute: &str, identity: Option<&str>| {
            let attributes = [("id.parts".into(), attribute.into())].into();
            class_bytes(&NodeClass {
                attributes,
                identity: identity.map(Box::from),
                ..NodeClass::of_everybody()
            })
        };
        assert_ne!(class("a", None), class("b", None));
        assert_ne!(class("a", Some("spiffe://d/a")), class("a\0identityspiffe://d/a", None));
    }

    #[test]
    fn rly_15_the_digest_of_a_class_is_the_one_in_the_id_that_its_server_sees() {
        let relay = Node { id: "relay".into(), ..Node::default() };
        let node = Node { cluster: "web".into(), ..Node::default() };
        let class =
            |upstream_node| NodeClass { node: node.clone(), upstream_node, ..NodeClass::of_everybody() };
        let plain = class(UpstreamNode::Projection);
        assert_eq!(of_class(&relay, &plain).id, format!("relay/{}", class_digest(&plain)));
        let member = class(UpstreamNode::Member);
        assert_ne!(
            class_digest(&plain),
            class_digest(&member),
            "the node shown to the server makes another class"
        );
    }
}
