//! The proposal as `node_classes`, with the evidence in comments (LRN-21).

use std::fmt::Write;

use super::field::{Derived, Field};
use super::proposal::{ClassList, Decisive, Endpoints, Grouping, Proposal};
use super::rule::ProposedRule;
use sluice_engine::class::{IdPart, LocalityDepth, MetadataParts, VersionPart};

/// The bound of classes without a word in the configuration (`limits.node_classes`).
const CLASSES_DEFAULT: usize = 1_000;

/// The key `node_classes` with the proposed rules. `head`: lines for the comment at the top.
pub fn yaml(proposal: &Proposal, head: &[String]) -> String {
    let mut text = String::new();
    for line in head {
        comment(&mut text, 0, line);
    }
    line(&mut text, 0, "node_classes:");
    for (rule, classes) in proposal.rules.iter().zip(&proposal.classes) {
        write_rule(&mut text, proposal, rule, classes);
    }
    let most = proposal.classes.iter().map(|classes| classes.count).sum::<usize>();
    if most > CLASSES_DEFAULT {
        comment(&mut text, 0, &format!("These rules make {most} classes, and need this key:"));
        comment(&mut text, 0, &format!("limits: {{ node_classes: {} }}", most + most / 4));
    }
    text
}

/// A number with a noun.
fn quantity(number: usize, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

// Writing to a String can't fail.
fn line(text: &mut String, depth: usize, content: &str) {
    let _ = writeln!(text, "{:depth$}{content}", "", depth = depth * 2);
}

fn comment(text: &mut String, depth: usize, content: &str) {
    let safe: String = content.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    line(text, depth, &format!("# {safe}"));
}

/// A text, in quotes where YAML needs quotes.
fn quote(text: &str) -> String {
    if is_safe(text) {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() || !letter.is_ascii() => {
                let code = u32::from(letter);
                let _ = match code <= 0xffff {
                    true => write!(quoted, "\\u{code:04x}"),
                    false => write!(quoted, "\\U{code:08x}"),
                };
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// Letters and underscores alone, and no word of YAML's.
fn is_safe(text: &str) -> bool {
    const WORDS: [&str; 8] = ["true", "false", "null", "yes", "no", "on", "off", "y"];
    let lower = text.to_ascii_lowercase();
    text.len() > 1
        && text.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_')
        && !WORDS.contains(&lower.as_str())
}

fn path(path: &[String]) -> String {
    match path {
        [key] => quote(key),
        keys => format!("[{}]", keys.iter().map(|key| quote(key)).collect::<Vec<_>>().join(", ")),
    }
}

fn write_rule(text: &mut String, proposal: &Proposal, rule: &ProposedRule, classes: &ClassList) {
    let grouping = grouping(proposal, rule);
    comment(text, 1, &title(proposal, rule, classes));
    let types: Vec<&str> = rule.types.iter().map(|type_url| type_url.message()).collect();
    let mut begin = "- ";
    if !types.is_empty() {
        line(text, 1, &format!("- match: {{ types: [{}] }}", types.join(", ")));
        begin = "  ";
    }
    line(text, 1, &format!("{begin}split_by:"));
    if rule.is_personal() {
        line(text, 3, "id: true");
        line(text, 3, "cluster: true");
        line(text, 3, "locality: sub_zone");
        line(text, 3, "metadata: all");
        line(text, 3, "user_agent_name: true");
        line(text, 3, "user_agent_version: full");
    } else {
        write_split(text, proposal, rule, grouping);
    }
    comment(text, 2, "The server was asked with the whole nodes of clients: so it goes on.");
    line(text, 2, "upstream_node: member");
}

fn grouping<'a>(proposal: &'a Proposal, rule: &ProposedRule) -> Option<&'a Grouping> {
    match &proposal.endpoints {
        Some(Endpoints::Finer(finer)) if finer.types == rule.types => Some(finer),
        _ => proposal.shared.as_ref(),
    }
}

fn title(proposal: &Proposal, rule: &ProposedRule, classes: &ClassList) -> String {
    let count = quantity(classes.count, "class", "classes");
    let nodes = quantity(proposal.nodes, "node", "nodes");
    match (rule.is_personal(), rule.types.is_empty()) {
        (true, _) => format!(
            "Each client has answers of its own: {count} for {nodes}, on upstream streams apart from those of other types."
        ),
        (false, true) => format!("{count} for {nodes}."),
        (false, false) => format!(
            "{count} for {nodes}, on upstream streams apart from those of other types: only the order of types joins the two."
        ),
    }
}

/// The keys of `split_by`, each behind the evidence of the fields.
fn write_split(text: &mut String, proposal: &Proposal, rule: &ProposedRule, grouping: Option<&Grouping>) {
    let projection = &rule.projection;
    let say = |text: &mut String, depth, field: &Field| {
        comment(text, depth, &evidence(proposal, grouping, field));
    };
    if let IdPart::At { separator, places } = &projection.id {
        let numbers: Vec<String> = places.iter().map(usize::to_string).collect();
        for field in derived(grouping, |derived| matches!(derived, Derived::IdPart { .. })) {
            say(text, 3, field);
        }
        line(text, 3, &format!("id: {{ separator: {}, parts: [{}] }}", quote(separator), numbers.join(", ")));
    }
    if projection.cluster {
        say(text, 3, &Field::Cluster);
        line(text, 3, "cluster: true");
    }
    if let Some(depth) = projection.locality {
        let levels = [Field::Region, Field::Zone, Field::SubZone];
        let (word, count) = match depth {
            LocalityDepth::Region => ("region", 1),
            LocalityDepth::Zone => ("zone", 2),
            LocalityDepth::SubZone => ("sub_zone", 3),
        };
        levels.iter().take(count).for_each(|field| say(text, 3, field));
        line(text, 3, &format!("locality: {word}"));
    }
    write_metadata(text, proposal, &projection.metadata, &say);
    if projection.user_agent_name {
        say(text, 3, &Field::UserAgentName);
        line(text, 3, "user_agent_name: true");
    }
    if projection.user_agent_version != VersionPart::None {
        say(text, 3, &Field::UserAgentVersion);
        line(text, 3, "user_agent_version: full");
    }
    for facts in &proposal.fields {
        let is_metadata = matches!(facts.field, Field::Metadata(_));
        let is_split = grouping.is_some_and(|grouping| grouping.split.contains(&facts.field));
        if !is_metadata && !is_split && facts.values > 1 {
            comment(text, 3, &format!("left out: {}", evidence(proposal, grouping, &facts.field)));
        }
    }
    for field in derived(grouping, |derived| matches!(derived, Derived::Family(_))) {
        if let Field::Derived(Derived::Family(base)) = field {
            say(text, 3, field);
            line(text, 3, &format!("address_family: {}", base.yaml(&quote)));
        }
    }
}

fn derived(grouping: Option<&Grouping>, is_it: impl Fn(&Derived) -> bool) -> Vec<&Field> {
    let split = grouping.into_iter().flat_map(|grouping| &grouping.split);
    split.filter(|field| matches!(field, Field::Derived(derived) if is_it(derived))).collect()
}

fn write_metadata(
    text: &mut String,
    proposal: &Proposal,
    parts: &MetadataParts,
    say: &dyn Fn(&mut String, usize, &Field),
) {
    let hidden = match parts {
        MetadataParts::AllBut(hidden) => hidden,
        MetadataParts::Paths(_) => return line(text, 3, "metadata: none"),
    };
    for facts in &proposal.fields {
        if let Field::Metadata(path) = &facts.field
            && parts.covers(path)
            && facts.values > 1
        {
            say(text, 3, &facts.field);
        }
    }
    if hidden.is_empty() {
        return line(text, 3, "metadata: all");
    }
    line(text, 3, "metadata:");
    line(text, 4, "all_but:");
    for hidden in hidden {
        say(text, 5, &Field::Metadata(hidden.clone()));
        line(text, 5, &format!("- {}", path(hidden)));
    }
}

/// `metadata.LABELS.app: 38 values, 12 counterexamples without it`.
fn evidence(proposal: &Proposal, grouping: Option<&Grouping>, field: &Field) -> String {
    let facts = proposal.fields.iter().find(|facts| facts.field == *field);
    let decisive = grouping.and_then(|grouping| grouping.minimum.iter().find(|one| one.field == *field));
    let values = facts.map(|facts| facts.values).or(decisive.map(|decisive| decisive.values));
    let values = quantity(values.unwrap_or_default(), "value", "values");
    let is_split = grouping.is_some_and(|grouping| grouping.split.contains(field));
    let reason = match (decisive, facts) {
        (Some(decisive), _) => counterexamples(decisive),
        (None, Some(facts)) if facts.is_unique => "unique: never splits".to_owned(),
        (None, Some(facts)) if facts.values < 2 => "as all nodes have it".to_owned(),
        _ if is_split => "follows from the answers today".to_owned(),
        _ => "makes no difference".to_owned(),
    };
    format!("{field}: {values}, {reason}")
}

fn counterexamples(decisive: &Decisive) -> String {
    let count = usize::try_from(decisive.counterexamples).unwrap_or(usize::MAX);
    format!("{} without it", quantity(count, "counterexample", "counterexamples"))
}
