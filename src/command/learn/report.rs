//! The findings of a study, for people.

use std::fmt::Write;

use super::{Learn, count};
use crate::command::text::{safe, short_type};
use sluice_admin_api::learning::{
    CoarsePair, DecisiveField, Grouping, LearnedRule, StudiedField, StudyReport,
};
use sluice_text::grouped;

/// Lists in the text: classes, names, refused nodes.
const LIST_MAX: usize = 20;
/// Names of resources in a sentence.
const NAMES_MAX: usize = 5;

// Writing to a String can't fail.
macro_rules! say {
    ($text:expr, $($line:tt)*) => { let _ = writeln!($text, $($line)*); };
}

/// The sentences and tables. Texts of clients are harmless to a terminal (CMD-3).
pub(super) fn text(order: &Learn, report: &StudyReport) -> String {
    let mut text = String::new();
    // The account of a file was told before the questions.
    if order.nodes.is_none() {
        write_left_out(&mut text, report);
    }
    write_asked(&mut text, report);
    write_summary(&mut text, report);
    if let Some(shared) = &report.shared {
        write_grouping(&mut text, report, shared);
    }
    let endpoints = report.endpoints.as_ref();
    if let Some(finer) = endpoints.and_then(|endpoints| endpoints.finer.as_ref()) {
        say!(
            text,
            "\n{} depends on more: with it, there are {}. A rule of its own puts the type on upstream streams apart, \
             and only the order of types joins the two.",
            short(&finer.types),
            count(finer.answers, "different answer", "different answers")
        );
        write_grouping(&mut text, report, finer);
    }
    if let Some(coarser) = endpoints.and_then(|endpoints| endpoints.coarser.as_ref()) {
        say!(
            text,
            "\n{} depends on less: on {} alone. A rule of its own would have {}, on upstream streams apart; none is \
             proposed.",
            short(&coarser.types),
            listed(&coarser.minimum),
            count(coarser.classes, "class", "classes")
        );
    }
    write_hidden(&mut text, report);
    write_personal(&mut text, report);
    write_restless(&mut text, report);
    write_refused(&mut text, report);
    report.rules.iter().for_each(|rule| write_classes(&mut text, rule));
    write_check(&mut text, order, report);
    text
}

fn short(types: &[String]) -> String {
    let short: Vec<&str> = types.iter().map(|message| short_type(message)).collect();
    safe(&short.join(", ")).into_owned()
}

fn listed(texts: &[impl AsRef<str>]) -> String {
    let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
    if texts.is_empty() { "none".to_owned() } else { safe(&texts.join(", ")).into_owned() }
}

/// The first of some texts, and the number of the others.
fn first(texts: &[String], count: usize) -> String {
    let shown: Vec<&str> = texts.iter().take(NAMES_MAX).map(String::as_str).collect();
    match count.saturating_sub(shown.len()) {
        0 => listed(&shown),
        more => format!("{} and {} more", listed(&shown), grouped(more)),
    }
}

fn pair(nodes: &[String]) -> String {
    safe(&nodes.join(" and ")).into_owned()
}

fn write_left_out(text: &mut String, report: &StudyReport) {
    for left_out in &report.left_out {
        let places = left_out.places.join("; ");
        let more = match left_out.count.saturating_sub(left_out.places.len()) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        say!(text, "{} left out, because {}: {}{more}", left_out.count, left_out.why, safe(&places));
    }
}

fn write_asked(text: &mut String, report: &StudyReport) {
    say!(
        text,
        "{}: {} in {}, {} asked",
        safe(&report.server),
        count(report.nodes, "node", "nodes"),
        count(report.fingerprints, "fingerprint", "fingerprints"),
        grouped(report.asked)
    );
    let unasked = report.nodes.saturating_sub(report.asked);
    if unasked > 0 {
        let is_any_shown = report.left_out.iter().any(|left_out| left_out.reason == "shown");
        let reason = match report.end.as_str() {
            "complete" if is_any_shown => "the server gave them no answer, or a class shows them",
            "complete" => "the server gave them no answer",
            _ => report.reason.as_str(),
        };
        say!(text, "{} without evidence: {}", count(unasked, "node", "nodes"), safe(reason));
    }
}

fn write_summary(text: &mut String, report: &StudyReport) {
    let nodes = count(report.asked, "node", "nodes");
    match &report.shared {
        Some(shared) => {
            say!(
                text,
                "\nYour {nodes} have {} ({}).",
                count(shared.answers, "different answer", "different answers"),
                short(&shared.types)
            );
        }
        None => {
            say!(text, "\nEach of your {nodes} has answers of its own.");
        }
    }
    let saved = report.nodes.saturating_sub(report.streams) * 100 / report.nodes.max(1);
    say!(
        text,
        "With the rules below, sluice keeps {} to the server in place of {}: {saved} % fewer.",
        count(report.streams, "stream", "streams"),
        grouped(report.nodes)
    );
}

fn write_grouping(text: &mut String, report: &StudyReport, grouping: &Grouping) {
    let decisive: Vec<&str> = grouping.minimum.iter().map(|decisive| decisive.field.as_str()).collect();
    match decisive.is_empty() {
        true => {
            say!(text, "No field decides: all nodes are told the same.");
        }
        false => {
            say!(text, "These fields decide: {}.", listed(&decisive));
        }
    }
    grouping.minimum.iter().for_each(|decisive| write_decisive(text, decisive));
    let varies = |field: &&String| {
        let facts = report.fields.iter().find(|facts| facts.field == **field);
        facts.is_some_and(|facts| facts.values > 1)
    };
    let follow = grouping.closure.iter().filter(|field| !decisive.contains(&field.as_str())).filter(varies);
    let follow: Vec<&String> = follow.collect();
    if !follow.is_empty() {
        say!(
            text,
            "These follow from the answers today, and split too, so that a new value is never a wrong guess: {}.",
            listed(&follow)
        );
    }
    if grouping.classes > grouping.answers {
        say!(
            text,
            "Lossless, but finer than the answers: {} more than different answers.",
            count(grouping.classes - grouping.answers, "class", "classes")
        );
    }
}

fn write_decisive(text: &mut String, decisive: &DecisiveField) {
    let numbers = format!(
        "{}, {} without it",
        count(decisive.values, "value", "values"),
        count(
            usize::try_from(decisive.counterexamples).unwrap_or(usize::MAX),
            "counterexample",
            "counterexamples"
        )
    );
    let example = decisive.example.as_ref().map(|example| {
        let nodes =
            example.nodes.iter().zip(&example.values).map(|(node, value)| {
                format!("{} ({})", safe(node), safe(value.as_deref().unwrap_or("absent")))
            });
        let nodes = nodes.collect::<Vec<_>>().join(" and ");
        match decisive.decisive {
            true => format!(": {nodes} are told two things, and differ in nothing else that could split"),
            false => format!(": {nodes} are told two things"),
        }
    });
    say!(text, "  {}: {numbers}{}", safe(&decisive.field), example.unwrap_or_default());
}

/// The fields of no rule.
fn write_hidden(text: &mut String, report: &StudyReport) {
    let finer = report.endpoints.as_ref().and_then(|endpoints| endpoints.finer.as_ref());
    let groupings: Vec<&Grouping> = report.shared.iter().chain(finer).collect();
    let is_hidden =
        |facts: &&StudiedField| groupings.iter().all(|grouping| !grouping.split.contains(&facts.field));
    let (unique, idle): (Vec<_>, Vec<_>) =
        report.fields.iter().filter(is_hidden).partition(|facts| facts.unique);
    if !groupings.is_empty() && !idle.is_empty() {
        let idle = idle
            .iter()
            .map(|facts| format!("{} ({})", facts.field, count(facts.values, "value", "values")))
            .collect::<Vec<_>>();
        say!(text, "\nThese make no difference, and do not split: {}.", listed(&idle));
    }
    let unique: Vec<&String> = unique.iter().map(|facts| &facts.field).collect();
    say!(text, "Unique to each client: {}.", listed(&unique));
}

fn write_personal(text: &mut String, report: &StudyReport) {
    for personal in &report.personal {
        let example = personal.example.as_ref().map(|nodes| {
            format!(" ({} are told two things, and no shared field tells them apart)", pair(nodes))
        });
        say!(
            text,
            "\n{} is personal: only what each client has alone explains the answers{}. A rule of its own gives each client a \
             class: {}, and the content of the type once for each.",
            safe(short_type(&personal.r#type)),
            example.unwrap_or_default(),
            count(report.nodes, "upstream stream", "upstream streams")
        );
        if let Some(field) = &personal.explained_by {
            let remedy = match personal.derived {
                true => "and `split_by` has no word for that; a table of `facts` can say the same",
                false => "and has a value for every second node; split by it by hand if that is no accident",
            };
            say!(text, "  {} explains it, {remedy}", safe(field));
        }
    }
}

fn write_restless(text: &mut String, report: &StudyReport) {
    for restless in &report.restless {
        say!(
            text,
            "\n{} {} cannot be compared: the server said two things to one node, by chance or because its configuration \
             changed meanwhile: {}",
            safe(short_type(&restless.r#type)),
            count(restless.count, "name", "names"),
            first(&restless.names, restless.count)
        );
    }
}

fn write_refused(text: &mut String, report: &StudyReport) {
    let refused = &report.refused;
    if refused.count == 0 {
        return;
    }
    say!(text, "\nThe server gave {} no answer:", count(refused.count, "node", "nodes"));
    for node in refused.nodes.iter().take(LIST_MAX) {
        say!(text, "  {}: {}", safe(&node.node), safe(&node.status));
    }
    if refused.count > LIST_MAX {
        say!(text, "  and {} more", grouped(refused.count - LIST_MAX));
    }
}

fn write_classes(text: &mut String, rule: &LearnedRule) {
    let what = if rule.types.is_empty() { "all other types".to_owned() } else { short(&rule.types) };
    say!(text, "\nClasses for {what}: {}", grouped(rule.classes));
    if rule.personal {
        return;
    }
    for (values, clients) in rule.largest.iter().zip(&rule.clients) {
        say!(text, "  {:>8}  {}", count(*clients, "client", "clients"), safe(&values.join(" ")));
    }
    if rule.classes > rule.largest.len() {
        say!(text, "  and {} more", grouped(rule.classes - rule.largest.len()));
    }
}

fn write_check(text: &mut String, order: &Learn, report: &StudyReport) {
    let Some(coarse) = &report.check else { return };
    if coarse.is_empty() {
        let rules = order.check_file().map_or("in force".to_owned(), |file| format!("of {}", file.display()));
        say!(text, "\n--check: the rules {rules} lose nothing of this evidence.");
    }
    for rule in coarse {
        let explained = match rule.explained_by.is_empty() {
            true => "no field explains all of them".to_owned(),
            false => format!("explained by {}", listed(&rule.explained_by)),
        };
        say!(
            text,
            "\n--check: {} is too coarse for {}: {} of its classes have clients that the server tells two things; {explained}",
            safe(&rule.rule),
            safe(short_type(&rule.r#type)),
            grouped(rule.classes)
        );
        rule.pairs.iter().take(NAMES_MAX).for_each(|pair| write_pair(text, pair));
    }
}

fn write_pair(text: &mut String, coarse: &CoarsePair) {
    say!(
        text,
        "  {} are told two things about {}; the nodes differ in {}",
        pair(&coarse.nodes),
        first(&coarse.names, coarse.count),
        listed(&coarse.differ)
    );
}
