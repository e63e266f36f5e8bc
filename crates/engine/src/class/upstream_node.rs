//! The node with which the streams of a class begin (RLY-15).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::projection::{IdPart, LocalityDepth, Projection};
use sluice_xds::{Node, Value};

/// The kind of node that the server of a class sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UpstreamNode {
    /// The parts that split the class, and the relay's own node for the rest. The node identifies no client.
    #[default]
    Projection,
    /// As `Projection`, with fields that the operator wrote.
    Template(Arc<NodeTemplate>),
    /// The whole node of one client of the class.
    Member,
}

/// The operator's fields of a node; `None`: as in [`UpstreamNode::Projection`].
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeTemplate {
    pub id: Option<TemplateText>,
    pub cluster: Option<TemplateText>,
    pub metadata: Option<BTreeMap<String, TemplateValue>>,
}

/// A value of the metadata.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TemplateValue {
    Constant(Value),
    Text(TemplateText),
    List(Vec<TemplateValue>),
    Struct(BTreeMap<String, TemplateValue>),
}

/// A text with fields, as [`TemplateText::parse`] reads the text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateText(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Piece {
    Constant(String),
    Field(TemplateField),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum TemplateField {
    /// The digest of the class.
    Class,
    Relay(NodePart),
    Node(NodePart),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum NodePart {
    Id,
    Cluster,
    UserAgentName,
    Locality(LocalityDepth),
    Metadata(Vec<String>),
}

/// The values for the fields of a template.
#[derive(Clone, Copy, Debug)]
pub struct TemplateInput<'a> {
    pub relay: &'a Node,
    /// The parts of the client's node that split the class.
    pub class: &'a Node,
    pub digest: &'a str,
}

impl NodeTemplate {
    /// Fills the template. `base`: the node without a template.
    pub fn fill(&self, base: Node, parts: TemplateInput<'_>) -> Node {
        let text =
            |text: &Option<TemplateText>, base: String| text.as_ref().map_or(base, |text| text.fill(parts));
        Node {
            id: text(&self.id, base.id),
            cluster: text(&self.cluster, base.cluster),
            metadata: match &self.metadata {
                Some(fields) => fill_all(fields, parts),
                None => base.metadata,
            },
            ..base
        }
    }

    /// Every text of the template, with the path of its key.
    pub fn texts(&self) -> Vec<(String, &TemplateText)> {
        let mut texts = Vec::new();
        texts.extend(self.id.iter().map(|text| ("id".to_owned(), text)));
        texts.extend(self.cluster.iter().map(|text| ("cluster".to_owned(), text)));
        for (key, filling) in self.metadata.iter().flatten() {
            filling.collect(format!("metadata.{key}"), &mut texts);
        }
        texts
    }
}

fn fill_all(fields: &BTreeMap<String, TemplateValue>, parts: TemplateInput<'_>) -> BTreeMap<String, Value> {
    fields.iter().filter_map(|(key, filling)| Some((key.clone(), filling.fill(parts)?))).collect()
}

impl TemplateValue {
    /// `None` if the text names a value that the class lacks.
    fn fill(&self, parts: TemplateInput<'_>) -> Option<Value> {
        match self {
            TemplateValue::Constant(value) => Some(value.clone()),
            TemplateValue::Text(text) => match text.0.as_slice() {
                [Piece::Field(field)] => field.value(parts),
                _ => Some(Value::String(text.fill(parts))),
            },
            TemplateValue::List(list) => {
                Some(Value::List(list.iter().filter_map(|filling| filling.fill(parts)).collect()))
            }
            TemplateValue::Struct(fields) => Some(Value::Struct(fill_all(fields, parts))),
        }
    }

    fn collect<'a>(&'a self, path: String, texts: &mut Vec<(String, &'a TemplateText)>) {
        match self {
            TemplateValue::Constant(_) => {}
            TemplateValue::Text(text) => texts.push((path, text)),
            TemplateValue::List(list) => {
                list.iter()
                    .enumerate()
                    .for_each(|(i, filling)| filling.collect(format!("{path}[{i}]"), texts));
            }
            TemplateValue::Struct(fields) => {
                fields.iter().for_each(|(key, filling)| filling.collect(format!("{path}.{key}"), texts));
            }
        }
    }
}

impl TemplateText {
    /// Parses a text with fields in braces: `{class}`, `{relay.id}`, `{node.cluster}`,
    /// `{node.locality.zone}`, `{node.metadata.LABELS."a.b/c"}`. A literal brace is written twice. Fails with
    /// the reason.
    pub fn parse(text: &str) -> Result<TemplateText, String> {
        let mut pieces = Vec::new();
        let mut constant = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            constant.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                constant.push_str(brace);
                rest = after;
            } else if brace == "{" {
                let (field, after) =
                    rest.split_once('}').ok_or("has a { without a }; a brace is written {{")?;
                if !constant.is_empty() {
                    pieces.push(Piece::Constant(std::mem::take(&mut constant)));
                }
                pieces.push(Piece::Field(TemplateField::parse(field)?));
                rest = after;
            } else {
                return Err("has a } without a {; a brace is written }}".to_owned());
            }
        }
        constant.push_str(rest);
        if !constant.is_empty() {
            pieces.push(Piece::Constant(constant));
        }
        Ok(TemplateText(pieces))
    }

    /// The first field of a client's node that does not split classes, as written in the text.
    pub fn not_kept_by(&self, projection: &Projection) -> Option<String> {
        self.0.iter().find_map(|piece| match piece {
            Piece::Field(TemplateField::Node(part)) if !part.is_kept_by(projection) => {
                Some(format!("node.{}", part.name()))
            }
            _ => None,
        })
    }

    /// Missing values, and values other than text, number or boolean, become empty text.
    fn fill(&self, parts: TemplateInput<'_>) -> String {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Constant(constant) => text.push_str(constant),
                Piece::Field(field) => match field.value(parts) {
                    Some(Value::String(value)) => text.push_str(&value),
                    Some(Value::Number(bits)) => text.push_str(&f64::from_bits(bits).to_string()),
                    Some(Value::Bool(value)) => text.push_str(if value { "true" } else { "false" }),
                    Some(Value::Null | Value::List(_) | Value::Struct(_)) | None => {}
                },
            }
        }
        text
    }
}

impl TemplateField {
    fn parse(text: &str) -> Result<TemplateField, String> {
        let unknown = || {
            format!(
                "has {{{text}}}; a field is class, relay.FIELD or node.FIELD, where FIELD is id, cluster, \
                user_agent_name, locality.region, locality.zone, locality.sub_zone or metadata.KEY"
            )
        };
        let keys = split(text).ok_or_else(unknown)?;
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let part = |keys: &[&str]| match keys {
            ["id"] => Some(NodePart::Id),
            ["cluster"] => Some(NodePart::Cluster),
            ["user_agent_name"] => Some(NodePart::UserAgentName),
            ["locality", "region"] => Some(NodePart::Locality(LocalityDepth::Region)),
            ["locality", "zone"] => Some(NodePart::Locality(LocalityDepth::Zone)),
            ["locality", "sub_zone"] => Some(NodePart::Locality(LocalityDepth::SubZone)),
            ["metadata", path @ ..] if !path.is_empty() => {
                Some(NodePart::Metadata(path.iter().map(|key| (*key).to_owned()).collect()))
            }
            _ => None,
        };
        let field = match keys.as_slice() {
            ["class"] => Some(TemplateField::Class),
            ["relay", keys @ ..] => part(keys).map(TemplateField::Relay),
            ["node", keys @ ..] => part(keys).map(TemplateField::Node),
            _ => None,
        };
        field.ok_or_else(unknown)
    }

    fn value(&self, parts: TemplateInput<'_>) -> Option<Value> {
        match self {
            TemplateField::Class => Some(Value::String(parts.digest.to_owned())),
            TemplateField::Relay(part) => part.of(parts.relay),
            TemplateField::Node(part) => part.of(parts.class),
        }
    }
}

/// Splits a path at its dots. A key with dots stands in quotes.
fn split(path: &str) -> Option<Vec<String>> {
    let mut keys = Vec::new();
    let mut rest = path;
    loop {
        let (key, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_at(rest.find('.').unwrap_or(rest.len())),
        };
        if key.is_empty() || key.contains('"') {
            return None;
        }
        keys.push(key.to_owned());
        if after.is_empty() {
            return Some(keys);
        }
        rest = after.strip_prefix('.')?;
    }
}

impl NodePart {
    fn of(&self, node: &Node) -> Option<Value> {
        let text = |text: &str| Some(Value::String(text.to_owned()));
        match self {
            NodePart::Id => text(&node.id),
            NodePart::Cluster => text(&node.cluster),
            NodePart::UserAgentName => text(&node.user_agent_name),
            NodePart::Locality(depth) => {
                let locality = node.locality.as_ref()?;
                text(match depth {
                    LocalityDepth::Region => &locality.region,
                    LocalityDepth::Zone => &locality.zone,
                    LocalityDepth::SubZone => &locality.sub_zone,
                })
            }
            NodePart::Metadata(path) => node.metadata_at(path).cloned(),
        }
    }

    /// Whether all clients of a class have the same value. For a value with only some parts kept, the parts
    /// count.
    fn is_kept_by(&self, projection: &Projection) -> bool {
        match self {
            NodePart::Id => projection.id == IdPart::Whole,
            NodePart::Cluster => projection.cluster,
            NodePart::UserAgentName => projection.user_agent_name,
            NodePart::Locality(depth) => projection.locality.is_some_and(|kept| kept >= *depth),
            NodePart::Metadata(path) => projection.metadata.covers(path),
        }
    }

    fn name(&self) -> String {
        match self {
            NodePart::Id => "id".to_owned(),
            NodePart::Cluster => "cluster".to_owned(),
            NodePart::UserAgentName => "user_agent_name".to_owned(),
            NodePart::Locality(LocalityDepth::Region) => "locality.region".to_owned(),
            NodePart::Locality(LocalityDepth::Zone) => "locality.zone".to_owned(),
            NodePart::Locality(LocalityDepth::SubZone) => "locality.sub_zone".to_owned(),
            NodePart::Metadata(path) => format!("metadata.{}", path.join(".")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::class::MetadataParts;
    use sluice_xds::Locality;

    fn fields(pairs: &[(&str, Value)]) -> BTreeMap<String, Value> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
    }

    fn text(text: &str) -> Value {
        Value::String(text.into())
    }

    fn class() -> Node {
        let labels = Value::Struct(fields(&[("app", text("web")), ("a.b/c", text("dotted"))]));
        let metadata = fields(&[
            ("NAMESPACE", text("prod")),
            ("LABELS", labels),
            ("N", Value::Number(3_f64.to_bits())),
            ("ON", Value::Bool(true)),
        ]);
        let locality = Locality { region: "eu".into(), zone: "eu-1".into(), sub_zone: String::new() };
        Node { cluster: "web.prod".into(), metadata, locality: Some(locality), ..Node::default() }
    }

    fn fill(template: &str) -> String {
        let relay = Node { id: "relay".into(), cluster: "edge".into(), ..Node::default() };
        let class = class();
        let parts = TemplateInput { relay: &relay, class: &class, digest: "c0ffee" };
        TemplateText::parse(template).unwrap().fill(parts)
    }

    #[test]
    fn rly_15_a_text_is_filled_from_the_class_the_relay_and_constants() {
        let cases = [
            ("constant", "constant"),
            (
                "router~10.0.0.1~{class}.{node.metadata.NAMESPACE}~{node.metadata.NAMESPACE}.svc",
                "router~10.0.0.1~c0ffee.prod~prod.svc",
            ),
            ("{relay.id}/{relay.cluster}/{node.cluster}", "relay/edge/web.prod"),
            ("{node.locality.region}-{node.locality.zone}", "eu-eu-1"),
            ("{node.metadata.LABELS.\"a.b/c\"}{node.metadata.LABELS.app}", "dottedweb"),
            ("{{{node.metadata.N}}}{node.metadata.ON}", "{3}true"),
            ("[{node.metadata.NONE}{node.metadata.LABELS}]", "[]"),
        ];
        for (template, filled) in cases {
            assert_eq!(fill(template), filled, "{template}");
        }
    }

    #[test]
    fn what_is_no_field_is_refused() {
        for wrong in [
            "{",
            "a}",
            "{}",
            "{node}",
            "{node.metadata}",
            "{node.ip}",
            "{client.id}",
            "{relay.id",
            "{class.}",
        ] {
            assert!(TemplateText::parse(wrong).is_err(), "{wrong}");
        }
        for wrong in ["{node.metadata.\"a}", "{node.metadata.a\"b}", "{node..id}", "{node.locality.country}"]
        {
            assert!(TemplateText::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_value_that_stands_alone_keeps_its_kind() {
        let filling = |template: &str| TemplateValue::Text(TemplateText::parse(template).unwrap());
        let template = NodeTemplate {
            id: Some(TemplateText::parse("{class}").unwrap()),
            cluster: None,
            metadata: Some(BTreeMap::from([
                ("LABELS".to_owned(), filling("{node.metadata.LABELS}")),
                ("NONE".to_owned(), filling("{node.metadata.NONE}")),
                ("KIND".to_owned(), TemplateValue::Constant(Value::Bool(false))),
                ("LIST".to_owned(), TemplateValue::List(vec![filling("{node.cluster}!")])),
            ])),
        };
        let (relay, class) = (Node::default(), class());
        let base = Node { id: "base".into(), cluster: "kept".into(), ..Node::default() };
        let node = template.fill(base, TemplateInput { relay: &relay, class: &class, digest: "c0ffee" });
        assert_eq!((node.id.as_str(), node.cluster.as_str()), ("c0ffee", "kept"));
        assert_eq!(node.metadata["LABELS"], class.metadata["LABELS"]);
        assert_eq!(node.metadata["LIST"], Value::List(vec![text("web.prod!")]));
        assert_eq!(node.metadata.keys().collect::<Vec<_>>(), ["KIND", "LABELS", "LIST"]);
    }

    #[test]
    fn a_field_must_split_classes() {
        let kept = |path: &[&str]| path.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        let projection = Projection {
            locality: Some(LocalityDepth::Region),
            metadata: MetadataParts::Paths(vec![kept(&["LABELS", "app"]), kept(&["NAMESPACE"])]),
            ..Projection::default()
        };
        let refused = |template: &str| TemplateText::parse(template).unwrap().not_kept_by(&projection);
        for fine in [
            "{class}{relay.id}",
            "{node.metadata.NAMESPACE.x}",
            "{node.metadata.LABELS}",
            "{node.locality.region}",
        ] {
            assert_eq!(refused(fine), None, "{fine}");
        }
        for wrong in [
            "node.id",
            "node.cluster",
            "node.locality.zone",
            "node.metadata.NAME",
            "node.metadata.LABELS.rev",
        ] {
            assert_eq!(refused(&format!("a-{{{wrong}}}")), Some(wrong.to_owned()));
        }
        let any = TemplateText::parse("{node.metadata.ANY}").unwrap();
        assert_eq!(any.not_kept_by(&Projection::whole_node_but_id()), None);
        let metadata = MetadataParts::AllBut(vec![kept(&["ANY", "x"])]);
        let all_but = Projection { metadata, ..Projection::default() };
        assert_eq!(any.not_kept_by(&all_but), None, "a part is left out");
        let left_out = TemplateText::parse("{node.metadata.ANY.x.y}").unwrap();
        assert_eq!(left_out.not_kept_by(&all_but), Some("node.metadata.ANY.x.y".to_owned()));
        let places = IdPart::At { separator: "~".into(), places: vec![0] };
        let by_parts = Projection { id: places, ..Projection::default() };
        let id = TemplateText::parse("{node.id}").unwrap();
        assert_eq!(id.not_kept_by(&by_parts), Some("node.id".to_owned()), "a part is no id");
    }
}
