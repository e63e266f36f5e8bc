//! `node_classes:`: the clients that may share upstream answers (RLY-10 to RLY-12).

use super::error::Problem;
use super::form::{Form, Shaped};
use super::node::to_value;
use super::reader::{Item, Map};
use super::tree::Tree;
use super::units::{boolean, text, word};
use super::upstream_node::{check_upstream_node, read_upstream_node};
use sluice_engine::class::{
    ClassRule, IdPart, IdentityPart, LocalityDepth, MetadataMatch, MetadataParts, NameStyle, NodeClasses,
    NodeKey, NodeMatch, Paths, Projection, Resources, RuleId, ShareSecrets, TextMatch, ValueMatch,
    VersionPart,
};
use sluice_xds::{Kind, TypeUrl};

const STYLES: &[(&str, NameStyle)] = &[("old", NameStyle::Old), ("xdstp", NameStyle::Xdstp)];

const DEPTHS: &[(&str, Option<LocalityDepth>)] = &[
    ("none", None),
    ("region", Some(LocalityDepth::Region)),
    ("zone", Some(LocalityDepth::Zone)),
    ("sub_zone", Some(LocalityDepth::SubZone)),
];

const VERSIONS: &[(&str, VersionPart)] =
    &[("none", VersionPart::None), ("major", VersionPart::Major), ("full", VersionPart::Full)];

/// `has_facts`: there is a table of facts.
pub(super) fn read_classes(items: &[Item<'_>], has_facts: bool) -> NodeClasses {
    let mut rules: Vec<ClassRule> = Vec::new();
    for (entry, item) in items.iter().enumerate() {
        let before = item.error_count();
        let read = item.map(|map| read_rule(entry, has_facts, map)).unwrap_or_default();
        // Without its invalid conditions, the rule would seem to match too much.
        if item.error_count() != before {
            continue;
        }
        // A rule for both styles becomes two rules; one of them may still be reachable.
        if !read.is_empty() && read.iter().all(|rule| is_shadowed(rule, &rules)) {
            let reason = "never reached: earlier rules match all of its nodes and types".into();
            item.error(Problem::Contradiction { reason });
        }
        rules.extend(read);
    }
    NodeClasses::new(rules)
}

fn is_shadowed(rule: &ClassRule, before: &[ClassRule]) -> bool {
    let caught = |style| before.iter().any(|earlier| earlier.catches_all(style));
    match rule.names {
        Some(style) => caught(style),
        None => caught(NameStyle::Old) && caught(NameStyle::Xdstp),
    }
}

/// Reads one entry. Without `split_by`, the rule has RLY-11's projections. They differ by style, so the entry
/// becomes two rules.
fn read_rule(entry: usize, has_facts: bool, map: &mut Map<'_>) -> Vec<ClassRule> {
    let Match { nodes, types, names, resources } = map.section("match", read_match).unwrap_or_default();
    let projection = map.item("split_by");
    let projection =
        projection.map(|item| item.map(|map| read_projection(map, has_facts)).unwrap_or_default());
    let share_secrets =
        map.or("share_secrets", ShareSecrets::No, Shaped(&[Form::Boolean, Form::Word("identity")], share));
    let legacy_wildcard = map.or("legacy_wildcard", true, boolean());
    let resource_errors_alone = map.or("resource_errors_alone", false, boolean());
    if share_secrets != ShareSecrets::No {
        check_share_secrets(map, &types, projection.as_ref());
    }
    let identity_metadata = map.optional("identity_metadata", text);
    let splits = projection.as_ref().is_some_and(|projection| projection.identity != IdentityPart::None);
    if identity_metadata.is_some() && !splits {
        let reason = "needs `split_by.identity`: a class of several identities has none to show";
        map.contradiction("identity_metadata", reason);
    }
    if names == Some(NameStyle::Xdstp) && map.has("legacy_wildcard") {
        map.contradiction(
            "legacy_wildcard",
            "does not apply to `names: xdstp`: the wildcard is an old-style name",
        );
    }
    if !resources.is_empty() && map.has("legacy_wildcard") {
        map.contradiction(
            "legacy_wildcard",
            "does not apply to `resources`: the wildcard is no name in a list",
        );
    }
    let node = map.item("upstream_node");
    let upstream_node = node.as_ref().and_then(read_upstream_node).unwrap_or_default();
    let rule = |names, projection| ClassRule {
        id: RuleId { entry, is_default: false },
        nodes: nodes.clone(),
        types: types.clone(),
        names,
        resources: resources.clone(),
        projection,
        share_secrets,
        identity_metadata: identity_metadata.as_deref().map(Box::from),
        legacy_wildcard,
        resource_errors_alone,
        upstream_node: upstream_node.clone(),
    };
    let rules: Vec<_> = match projection {
        Some(projection) => vec![rule(names, projection)],
        None => [NameStyle::Xdstp, NameStyle::Old]
            .into_iter()
            .filter(|style| names.is_none_or(|names| names == *style))
            .map(|style| rule(Some(style), style.default_projection()))
            .collect(),
    };
    if let Some(item) = node {
        let projections: Vec<_> = rules.iter().map(|rule| rule.projection.clone()).collect();
        check_upstream_node(&item, &upstream_node, &projections);
    }
    rules
}

/// `false`, `true` or `identity`.
fn share(tree: &Tree) -> Result<ShareSecrets, String> {
    match tree {
        Tree::Bool(false) => Ok(ShareSecrets::No),
        Tree::Bool(true) => Ok(ShareSecrets::Yes),
        Tree::Text(text) if text == "identity" => Ok(ShareSecrets::Identity),
        _ => Err("false, true or identity".into()),
    }
}

/// The longest path of a SPIFFE ID has fewer segments than this.
const SEGMENTS_MAX: i128 = 1024;
const SEGMENTS: &[Form] = &[Form::Integer { least: 1, most: SEGMENTS_MAX as u64 - 1 }];

/// `none`, `trust_domain`, `full` or `{ segments: N }`.
fn read_identity_part(item: &Item<'_>) -> IdentityPart {
    item.can_be(&[Form::Word("none"), Form::Word("trust_domain"), Form::Word("full")]);
    let part = match item.tree {
        Tree::Text(text) => match text.as_str() {
            "none" => Some(IdentityPart::None),
            "trust_domain" => Some(IdentityPart::TrustDomain),
            "full" => Some(IdentityPart::Full),
            _ => None,
        },
        Tree::Map(_) => {
            let count = |tree: &Tree| match tree {
                Tree::Integer(count) if (1..SEGMENTS_MAX).contains(count) => {
                    usize::try_from(*count).map_err(|error| error.to_string())
                }
                _ => Err(format!("an integer from 1 to {}", SEGMENTS_MAX - 1)),
            };
            let read = |map: &mut Map<'_>| {
                map.required("segments", "a number of segments")?.parse(Shaped(SEGMENTS, count))
            };
            return item.map(read).flatten().map(IdentityPart::Segments).unwrap_or_default();
        }
        _ => None,
    };
    part.unwrap_or_else(|| {
        item.invalid("none, trust_domain, full or { segments: N }");
        IdentityPart::None
    })
}

/// Secrets are split by `id` unless the operator says otherwise, and must say so explicitly (RLY-21).
fn check_share_secrets(map: &Map<'_>, types: &[TypeUrl], projection: Option<&Projection>) {
    if !types.iter().any(TypeUrl::is_secret) {
        let reason = "needs the Secret type in `match.types`: sharing Secrets must be explicit";
        map.contradiction("share_secrets", reason);
    }
    if projection.is_none_or(|projection| projection.id == IdPart::Whole) {
        map.contradiction(
            "share_secrets",
            "needs a `split_by` without the whole `id`; classes split by `id` share nothing",
        );
    }
}

#[derive(Default)]
struct Match {
    nodes: NodeMatch,
    types: Vec<TypeUrl>,
    names: Option<NameStyle>,
    resources: Resources,
}

fn read_match(map: &mut Map<'_>) -> Match {
    let nodes = read_node_match(map);
    let types: Vec<_> = map.list("types").iter().filter_map(read_type).collect();
    let names = map.optional("names", word(STYLES));
    let resources = read_resources(map, &types, names);
    // Names in the style of `xdstp:` mean the same for every node (NAM-12).
    let names = if resources.is_empty() { names } else { Some(NameStyle::Old) };
    Match { nodes, types, names, resources }
}

/// The names that the rule is for. A name belongs to a type.
fn read_resources(map: &mut Map<'_>, types: &[TypeUrl], names: Option<NameStyle>) -> Resources {
    map.can_be("resources", &[Form::List]);
    let Some(item) = map.item("resources") else { return Resources::default() };
    let Some(items) = item.list() else { return Resources::default() };
    if items.is_empty() {
        item.invalid("at least one name; without `resources` the rule is for all names");
    }
    if types.is_empty() {
        map.contradiction("resources", "needs `types`: a name is that of a resource of one type");
    }
    if types.iter().any(|type_url| type_url.kind() == Kind::VirtualHost) {
        let reason = "does not apply to virtual hosts, which have aliases";
        map.contradiction("resources", reason);
    }
    if names == Some(NameStyle::Xdstp) {
        map.contradiction(
            "resources",
            "does not apply to `names: xdstp`, which mean the same for every client",
        );
    }
    Resources::new(items.iter().filter_map(read_text_pattern).collect())
}

/// Conditions on a node.
pub(super) fn read_node_match(map: &mut Map<'_>) -> NodeMatch {
    let mut nodes = NodeMatch {
        id: read_text_match(map, "id"),
        cluster: read_text_match(map, "cluster"),
        user_agent_name: read_text_match(map, "user_agent_name"),
        ..NodeMatch::default()
    };
    map.section("locality", |map| {
        nodes.region = read_text_match(map, "region");
        nodes.zone = read_text_match(map, "zone");
        nodes.sub_zone = read_text_match(map, "sub_zone");
    });
    for item in map.list("metadata") {
        nodes.metadata.extend(item.map(read_metadata_match).flatten());
    }
    nodes
}

/// Plain text must match exactly; `{prefix: …}` and `{suffix: …}` match the beginning or the end.
fn read_text_match(map: &mut Map<'_>, key: &'static str) -> Option<TextMatch> {
    map.can_be(key, &[Form::AnyText]);
    let item = map.item(key)?;
    read_text_pattern(&item)
}

fn read_text_pattern(item: &Item<'_>) -> Option<TextMatch> {
    item.can_be(&[Form::AnyText]);
    match item.tree {
        Tree::Text(text) => Some(TextMatch::Exact(text.clone())),
        Tree::Map(_) => item.map(read_pattern).flatten(),
        _ => {
            item.invalid("text, {prefix: TEXT} or {suffix: TEXT}");
            None
        }
    }
}

fn read_pattern(map: &mut Map<'_>) -> Option<TextMatch> {
    let prefix = map.optional("prefix", text).map(TextMatch::Prefix);
    let suffix = map.optional("suffix", text).map(TextMatch::Suffix);
    if map.has("prefix") == map.has("suffix") {
        map.invalid("one of `prefix` and `suffix`");
        return None;
    }
    prefix.or(suffix)
}

fn read_metadata_match(map: &mut Map<'_>) -> Option<MetadataMatch> {
    let path = map.required("path", "a list of keys").and_then(|item| read_path(&item));
    map.can_be("exact", &[Form::Any]);
    let exact = map.item("exact").filter(Item::has_all_variables);
    let exact = exact.map(|item| ValueMatch::Equal(to_value(item.free())));
    let present = map.optional("present", boolean());
    if present == Some(false) {
        map.contradiction("present", "must be true; omit the condition to match any node");
    }
    let pattern = |text| ValueMatch::Text(text);
    let prefix = map.optional("prefix", text).map(TextMatch::Prefix).map(pattern);
    let suffix = map.optional("suffix", text).map(TextMatch::Suffix).map(pattern);
    if ["exact", "present", "prefix", "suffix"].iter().filter(|key| map.has(key)).count() != 1 {
        map.invalid("one of `exact`, `prefix`, `suffix` and `present`");
        return None;
    }
    let value = exact.or(present.map(|_| ValueMatch::Present)).or(prefix).or(suffix)?;
    Some(MetadataMatch { path: path?, value })
}

/// A list of keys, outermost first, or a single key as text. Keys may contain dots, so the text is not split.
pub(super) fn read_path(item: &Item<'_>) -> Option<Vec<String>> {
    item.can_be(&[Form::Text, Form::List]);
    if let Tree::Text(_) = item.tree {
        return Some(vec![item.text()?.to_string()]);
    }
    read_keys(item)
}

/// A list of keys, outermost first.
pub(super) fn read_keys(item: &Item<'_>) -> Option<Vec<String>> {
    let keys = item.list()?;
    if keys.is_empty() {
        item.invalid("at least one key");
        return None;
    }
    keys.iter().map(|key| key.text().map(str::to_string)).collect()
}

pub(super) fn read_type(item: &Item<'_>) -> Option<TypeUrl> {
    read_type_name(item, item.text()?)
}

/// A type by the message name at `item`.
pub(super) fn read_type_name(item: &Item<'_>, text: &str) -> Option<TypeUrl> {
    let message = text.strip_prefix("type.googleapis.com/").unwrap_or(text);
    let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_');
    if !message.contains('.') || !message.bytes().all(is_name) {
        item.invalid("a full message name, such as envoy.config.cluster.v3.Cluster");
        return None;
    }
    let url = TypeUrl::of_message(message);
    if url.kind() == Kind::Other && message.starts_with("envoy.") {
        item.warn("not a resource type known to sluice; used by exactly this name");
    }
    Some(url)
}

fn read_projection(map: &mut Map<'_>, has_facts: bool) -> Projection {
    let facts = map.item("facts").and_then(|item| read_metadata_parts(&item)).unwrap_or_default();
    if facts.keeps_any() && !has_facts {
        map.contradiction("facts", "needs the key `facts` of the file, with the table of the clients' facts");
    }
    Projection {
        id: map.item("id").map(|item| read_id_part(&item)).unwrap_or_default(),
        cluster: map.or("cluster", false, boolean()),
        locality: map.or("locality", None, word(DEPTHS)),
        metadata: map.item("metadata").and_then(|item| read_metadata_parts(&item)).unwrap_or_default(),
        user_agent_name: map.or("user_agent_name", false, boolean()),
        user_agent_version: map.or("user_agent_version", VersionPart::None, word(VERSIONS)),
        identity: map.item("identity").map(|item| read_identity_part(&item)).unwrap_or_default(),
        address_family: map.item("address_family").and_then(|item| read_key(&item)),
        facts,
    }
}

/// Ids have fewer parts than this.
const PLACES: u64 = 64;
const PLACE: &[Form] = &[Form::Integer { least: 0, most: PLACES - 1 }];

/// The number of a part of the id, from 0.
fn read_place(item: &Item<'_>) -> Option<usize> {
    let place = |tree: &Tree| match tree {
        Tree::Integer(place) if (0..i128::from(PLACES)).contains(place) => {
            usize::try_from(*place).map_err(|error| error.to_string())
        }
        _ => Err(format!("the number of a part, from 0 to {}", PLACES - 1)),
    };
    item.parse(Shaped(PLACE, place))
}

pub(super) const NODE_KEY: &str = "id, { id: { separator: TEXT, part: NUMBER } } or { metadata: PATH }";

/// `id`, `{ id: { separator: TEXT, part: NUMBER } }` or `{ metadata: PATH }`.
pub(super) fn read_key(item: &Item<'_>) -> Option<NodeKey> {
    if item.is_word("id") {
        return Some(NodeKey::Id);
    }
    if !matches!(item.tree, Tree::Map(_)) {
        item.invalid(NODE_KEY);
        return None;
    }
    item.map(|map| {
        map.can_be("metadata", &[Form::Text, Form::List]);
        map.can_be("metadata[]", &[Form::Text]);
        let of_id = map.item("id").map(|item| item.map(read_part).flatten());
        let metadata = map.item("metadata").map(|item| read_path(&item).map(NodeKey::Metadata));
        match (of_id, metadata) {
            (Some(key), None) | (None, Some(key)) => key,
            (None, None) | (Some(_), Some(_)) => {
                map.invalid("one of `id` and `metadata`");
                None
            }
        }
    })
    .flatten()
}

fn read_part(map: &mut Map<'_>) -> Option<NodeKey> {
    let separator = map.required("separator", "a text").and_then(|item| Some(item.text()?.into()));
    let place = map.required("part", "the number of a part").and_then(|item| read_place(&item));
    Some(NodeKey::IdPart { separator: separator?, place: place? })
}

/// `true`, `false`, or `{ separator: TEXT, parts: [NUMBER, …] }`.
fn read_id_part(item: &Item<'_>) -> IdPart {
    let whole_or_none = |tree: &Tree| match tree {
        Tree::Bool(true) => Ok(IdPart::Whole),
        Tree::Bool(false) => Ok(IdPart::None),
        _ => Err("true, false, or { separator: TEXT, parts: [NUMBER, …] }".to_owned()),
    };
    let read = match item.tree {
        Tree::Map(_) => item.map(read_parts_of_id).flatten(),
        _ => item.parse(Shaped(&[Form::Boolean], whole_or_none)),
    };
    read.unwrap_or_default()
}

fn read_parts_of_id(map: &mut Map<'_>) -> Option<IdPart> {
    let separator = map.required("separator", "a text").and_then(|item| Some(item.text()?.into()));
    map.can_be("parts", &[Form::List]);
    let parts = map.required("parts", "a list of numbers, from 0")?;
    let items = parts.list()?;
    if items.is_empty() {
        parts.invalid("at least one number; `id: false` keeps nothing of the id");
        return None;
    }
    let mut places = items.iter().map(read_place).collect::<Option<Vec<_>>>()?;
    places.sort_unstable();
    places.dedup();
    Some(IdPart::At { separator: separator?, places })
}

/// `all`, `none`, a list of paths, or `{ all_but: [PATH, …] }`.
fn read_metadata_parts(item: &Item<'_>) -> Option<MetadataParts> {
    item.can_be(&[Form::Word("all"), Form::Word("none"), Form::List]);
    match item.tree {
        Tree::Text(text) if text == "all" => Some(MetadataParts::ALL),
        Tree::Text(text) if text == "none" => Some(MetadataParts::default()),
        Tree::List(_) => read_paths(item).map(MetadataParts::Paths),
        Tree::Map(_) => item.map(read_all_but).flatten(),
        _ => {
            item.invalid("all, none, a list of paths, each a key or a list of keys, or { all_but: PATHS }");
            None
        }
    }
}

fn read_all_but(map: &mut Map<'_>) -> Option<MetadataParts> {
    map.can_be("all_but", &[Form::List]);
    let item = map.required("all_but", "a list of paths")?;
    if item.list()?.is_empty() {
        item.invalid("at least one path; `all` leaves nothing out");
        return None;
    }
    read_paths(&item).map(MetadataParts::AllBut)
}

fn read_paths(item: &Item<'_>) -> Option<Paths> {
    let mut paths: Vec<_> = item.list()?.iter().filter_map(read_path).collect();
    paths.sort();
    paths.dedup();
    Some(paths)
}
