//! `sluice classes learn`: asks a control plane as the nodes of a file, and proposes rules (LRN-2).
//!
//! 1. `nodes`: the file. `target`: the server.
//! 2. `inquiry`: the questions.
//! 3. `check`: rules in force against the evidence. `report`: the findings, for people and for scripts.

mod nodes;
mod target;
mod inquiry;
mod check;
mod report;

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use self::check::Check;
use self::inquiry::{Inquiry, inquire};
use self::nodes::{NodeList, read_nodes};
use self::report::Findings;
use self::target::{asked_types, target};
use crate::command::learn::{Learn, LearnForm};
use crate::command::outcome::Failure;
use crate::config;
use sluice_proof::learning::{Fleet, StudyEnd, is_lossless, propose};

/// The first line of a written file. A file with another first line is not replaced.
const HEAD: &str = "Written by `sluice classes learn`.";

/// Carries out the command. `hostname`: for the files of the configuration.
///
/// # Errors
/// With the exit code: 64 for arguments and files, 65 for rules of `--check` that are too coarse, 69 for a
/// server that cannot be asked.
pub fn learn(order: &Learn, hostname: &str, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), Failure> {
    let types = asked_types(&order.types).map_err(Failure::Usage)?;
    let target = target(order, hostname)?;
    let check = order.check.as_deref().map(|file| Check::load(file, hostname)).transpose()?;
    order.write.as_deref().map_or(Ok(()), may_write)?;
    let list = read_list(&order.nodes)?;
    let fleet = Fleet::new(list.nodes.clone());
    let begin = format!(
        "asking {} as {} nodes ({} fingerprints), {} at once; at most {}",
        target.uri,
        fleet.nodes.len(),
        fleet.fingerprints().count(),
        order.streams,
        sluice_text::span(order.longest)
    );
    tell(err, &begin)?;
    let uri = target.uri.clone();
    let inquiry = inquire(target, &fleet, types, order)?;
    let evidence = inquiry.study.evidence();
    if evidence.types().next().is_none() {
        return Err(Failure::Unavailable(format!("{uri}: {}", inquiry.reason())));
    }
    let proposal = propose(&fleet, evidence);
    if !is_lossless(&fleet, evidence, &proposal.rules) {
        return Err(Failure::Internal("the rules that were found lose answers".to_owned()));
    }
    let coarse = check.as_ref().map(|check| check.judge(&fleet, evidence));
    let findings = Findings {
        uri: &uri,
        list: &list,
        fleet: &fleet,
        inquiry: &inquiry,
        proposal: &proposal,
        coarse: coarse.as_ref(),
    };
    show(order, &findings, out)?;
    if let Some(file) = &order.write {
        fs::write(file, findings.yaml(HEAD)).map_err(|error| unavailable(file, &error))?;
        tell(
            err,
            &format!("{} is written; put its key into the configuration of the relay", file.display()),
        )?;
    }
    judge(&inquiry, &uri, check.as_ref(), coarse.as_ref().is_some_and(|coarse| !coarse.is_empty()))
}

/// The end of the command, once everything is shown.
fn judge(inquiry: &Inquiry, uri: &str, check: Option<&Check>, is_coarse: bool) -> Result<(), Failure> {
    if let Some(check) = check.filter(|_| is_coarse) {
        let text = format!("{}: the rules are coarser than the evidence", check.file().display());
        return Err(Failure::Conflict(text));
    }
    match inquiry.end {
        StudyEnd::Complete | StudyEnd::TimeIsUp => Ok(()),
        StudyEnd::Refused | StudyEnd::Lost | StudyEnd::TooLarge => {
            Err(Failure::Unavailable(format!("{uri}: {}", inquiry.reason())))
        }
    }
}

fn show(order: &Learn, findings: &Findings<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let text = match order.form {
        LearnForm::Text if order.write.is_some() => findings.text(),
        LearnForm::Text => format!("{}\n{}", findings.text(), findings.yaml(HEAD)),
        LearnForm::Json => format!("{:#}\n", findings.json()),
        LearnForm::Yaml => findings.yaml(HEAD),
    };
    out.write_all(text.as_bytes()).map_err(|error| closed(&error))
}

/// The nodes of a file.
fn read_list(file: &Path) -> Result<NodeList, Failure> {
    let text = match file.as_os_str() == "-" {
        true => io::read_to_string(io::stdin()),
        false => fs::read_to_string(file),
    };
    let text = text.map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?;
    let list = read_nodes(&text).map_err(|fault| Failure::Usage(format!("{}: {fault}", file.display())))?;
    if list.nodes.is_empty() {
        let account = list.account().join("; ");
        let text = format!("{}: no node to ask as, of {} entries; {account}", file.display(), list.entries);
        return Err(Failure::Usage(text));
    }
    Ok(list)
}

/// Looks before half an hour of work is done: another file of the operator's is never replaced.
fn may_write(file: &Path) -> Result<(), Failure> {
    let opened = OpenOptions::new().read(true).open(file);
    let mut begin = String::new();
    match opened.map(|file| file.take(HEAD.len() as u64 + 2).read_to_string(&mut begin)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(unavailable(file, &error)),
        Ok(_) if begin.is_empty() || begin == format!("# {HEAD}") => Ok(()),
        Ok(_) => {
            Err(Failure::Usage(format!("{} exists, and is none of mine; pass another FILE", file.display())))
        }
    }
}

fn load(file: &Path, hostname: &str) -> Result<config::Config, Failure> {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
    let loaded = config::load(&absolute, hostname).map_err(|error| Failure::Usage(error.in_file(file)))?;
    Ok(loaded.config)
}

fn unavailable(file: &Path, error: &io::Error) -> Failure {
    Failure::Unavailable(format!("{}: {error}", file.display()))
}

fn closed(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::Closed,
        _ => Failure::Unavailable(format!("cannot print: {error}")),
    }
}

fn tell(err: &mut dyn Write, text: &str) -> Result<(), Failure> {
    writeln!(err, "sluice: {text}").map_err(|error| closed(&error))
}
