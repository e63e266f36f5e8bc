//! `sluice classes learn --nodes`: asks a control plane as the nodes of a file, without a relay (LRN-2).
//!
//! 1. `nodes`: the file. `target`: the server.
//! 2. `inquiry`: the questions.

mod nodes;
mod target;
mod inquiry;

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use self::inquiry::inquire;
use self::nodes::read_nodes;
use self::target::target;
use crate::app::facts;
use crate::command::learn::{HEAD, Learn, conclude, may_write, write_account};
use crate::command::outcome::Failure;
use crate::config;
use crate::driver::AskedTypes;
use crate::driver::study::coarse::judge;
use crate::driver::study::findings::Findings;
use crate::driver::study::nodes::NodeList;
use sluice_engine::class::NodeClasses;
use sluice_proof::learning::{Fleet, is_lossless, propose};

/// Carries out the command. `hostname`: for the files of the configuration.
///
/// # Errors
/// With the exit code: 64 for arguments and files, 65 for rules of `--check` that are too coarse, 69 for a
/// server that cannot be asked.
pub fn learn(order: &Learn, hostname: &str, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), Failure> {
    let types = AskedTypes::of_words(order.types.iter().map(String::as_str));
    let types = types.map_err(|fault| Failure::Usage(format!("--types: {fault}")))?;
    let target = target(order, hostname)?;
    let rules = match &order.check {
        Some(None) => return Err(Failure::Usage("--check needs a FILE with --nodes".to_owned())),
        Some(Some(file)) => Some(rules_of(file, hostname)?),
        None => None,
    };
    order.write.as_deref().map_or(Ok(()), may_write)?;
    let Some(file) = &order.nodes else {
        return Err(Failure::Internal("without --nodes, a relay is asked".to_owned()));
    };
    let list = read_list(file)?;
    write_account(&list.account(), err)?;
    if list.nodes.is_empty() {
        let text = format!("{}: no node to ask as, of {} entries", file.display(), list.entries);
        return Err(Failure::Usage(text));
    }
    let fleet = Fleet::new(list.nodes.clone());
    writeln!(
        err,
        "sluice: asking {} as {} nodes ({} fingerprints), {} at once; at most {}",
        target.uri,
        fleet.nodes.len(),
        fleet.fingerprints().count(),
        order.streams,
        sluice_text::span(order.longest)
    )?;
    let server = target.uri.clone();
    let inquiry = inquire(target, &list, &fleet, types, order)?;
    let evidence = inquiry.study.evidence();
    if evidence.types().next().is_none() {
        return Err(Failure::Unavailable(format!("{server}: {}", inquiry.reason())));
    }
    let proposal = propose(&fleet, evidence);
    if !is_lossless(&fleet, evidence, &proposal.rules) {
        return Err(Failure::Internal("the rules that were found lose answers".to_owned()));
    }
    let coarse = rules.map(|rules| judge(&rules, &fleet, &list.identities, evidence));
    let findings = Findings {
        server: &server,
        list: &list,
        fleet: &fleet,
        inquiry: &inquiry,
        proposal: &proposal,
        coarse: coarse.as_deref(),
        head: HEAD,
    };
    conclude(order, &findings.report(), out, err)
}

/// The rules of a configuration, with its facts.
fn rules_of(file: &Path, hostname: &str) -> Result<NodeClasses, Failure> {
    let config = load(file, hostname)?;
    let table = facts::load(&config).map_err(Failure::Usage)?;
    Ok(config.node_classes.with_facts(table))
}

/// The nodes of a file.
fn read_list(file: &Path) -> Result<NodeList, Failure> {
    let text = match file.as_os_str() == "-" {
        true => io::read_to_string(io::stdin()),
        false => fs::read_to_string(file),
    };
    let text = text.map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?;
    let list = read_nodes(&text).map_err(|fault| Failure::Usage(format!("{}: {fault}", file.display())))?;
    Ok(list)
}

fn load(file: &Path, hostname: &str) -> Result<config::Config, Failure> {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
    let loaded = config::load(&absolute, hostname).map_err(|error| Failure::Usage(error.in_file(file)))?;
    Ok(loaded.config)
}
