//! The lines of a tail, as JSON with a text for people. Peers chose names and words, so readers escape the
//! text.

use std::fmt::Write;
use std::time::SystemTime;

use sluice_admin_api::tail::TailLine as ApiLine;

use crate::admin::item::rfc_3339;
use crate::driver::api::change_name::ChangeName;
use crate::driver::api::status::{ConfigStatus, SessionTypeStatus, Why};
use crate::driver::api::tail::{Answered, Asked, Fact, Sent, SomeNames, TailLine};
use sluice_text::{size, version};

/// A line at its time.
pub(super) struct TimedLine {
    pub at: SystemTime,
    pub line: ApiLine,
}

pub(super) fn line(line: &TailLine) -> TimedLine {
    let facts = match &line.fact {
        Fact::Opened { service, listener, peer } => {
            let from = peer.map_or_else(|| "a unix socket".to_owned(), |peer| peer.to_string());
            let text =
                format!("** stream {} opened, {service} on listener {listener}, from {from}", line.stream);
            ApiLine {
                service: Some(service.to_string()),
                listener: Some(listener.to_string()),
                peer: *peer,
                ..new("opened", text)
            }
        }
        Fact::Ended(status) => {
            let reason = status.as_ref().map_or_else(|| "the client left".to_owned(), ToString::to_string);
            let text = format!("** stream {} ended: {reason}", line.stream);
            let code = status.as_ref().map(|status| status.code.name().to_owned());
            ApiLine { code, detail: Some(reason), ..new("ended", text) }
        }
        Fact::Request(asked) => request(asked),
        Fact::Response(sent) => response(sent),
    };
    TimedLine { at: line.at, line: ApiLine { at: rfc_3339(line.at), stream: line.stream, ..facts } }
}

fn new(kind: &str, text: String) -> ApiLine {
    ApiLine { kind: kind.to_owned(), text, ..ApiLine::default() }
}

fn request(asked: &Asked) -> ApiLine {
    let nonce = &asked.nonce;
    let (kind, words, detail) = match &asked.answered {
        Answered::Ack => ("ack", format!("ACK nonce {nonce}"), None),
        Answered::Nack(detail) => ("nack", format!("NACK nonce {nonce}: {detail}"), Some(detail)),
        Answered::Stale => ("stale", format!("answers no response in flight, nonce {nonce}"), None),
        Answered::Nothing => ("request", "asks".to_owned(), None),
        Answered::Report(detail) if detail.is_empty() => ("report", "report".to_owned(), None),
        Answered::Report(detail) => ("report", format!("report: {detail}"), Some(detail)),
        Answered::Refused(detail) => ("refused", format!("refused: {detail}"), Some(detail)),
    };
    let mut text = format!("<- {}  {words}", short(&asked.type_name));
    // A SotW client repeats its names in each request.
    if asked.is_delta || kind == "request" {
        add_names(&mut text, "  +", &asked.subscribe);
        add_names(&mut text, "  -", &asked.unsubscribe);
    }
    if asked.presented > 0 {
        // A String takes every write.
        let _ = write!(text, "  has {} from before", asked.presented);
    }
    let line = ApiLine {
        r#type: Some(asked.type_name.to_string()),
        nonce: Some(nonce.to_string()).filter(|nonce| !nonce.is_empty()),
        version: asked.version.as_ref().map(ToString::to_string),
        detail: detail.map(ToString::to_string),
        ..new(kind, text)
    };
    match asked.is_delta {
        true => ApiLine {
            subscribe: Some(first(&asked.subscribe)),
            subscribe_count: Some(asked.subscribe.count),
            unsubscribe: Some(first(&asked.unsubscribe)),
            unsubscribe_count: Some(asked.unsubscribe.count),
            presented_count: Some(asked.presented),
            ..line
        },
        false => {
            ApiLine { names: Some(first(&asked.subscribe)), names_count: Some(asked.subscribe.count), ..line }
        }
    }
}

fn response(sent: &Sent) -> ApiLine {
    let changes = sent.changes.iter().map(|(source, number)| ChangeName { source: *source, number: *number });
    let changes: Vec<_> = changes.map(|name| name.to_string()).collect();
    let mut text = format!("-> {}", short(&sent.type_name));
    add_names(&mut text, "  ", &sent.names);
    add_names(&mut text, "  -", &sent.removed);
    let (message, messages) = sent.message;
    let words = [
        Some(size(sent.bytes)),
        sent.version.map(|sent| format!("v {}", version(&sent.to_string()))),
        sent.nonce.as_ref().map(|nonce| format!("nonce {nonce}")),
        (messages > 1).then(|| format!("message {message} of {messages}")),
        (!changes.is_empty()).then(|| format!("change {}", changes.join(" "))),
    ];
    for words in words.into_iter().flatten() {
        text.extend(["  ", &words]);
    }
    ApiLine {
        r#type: Some(sent.type_name.to_string()),
        version: sent.version.map(|version| version.to_string()),
        nonce: sent.nonce.as_ref().map(ToString::to_string),
        names: Some(first(&sent.names)),
        names_count: Some(sent.names.count),
        removed: Some(first(&sent.removed)),
        removed_count: Some(sent.removed.count),
        bytes: Some(sent.bytes),
        message: Some(message),
        messages: Some(messages),
        changes: Some(changes),
        ..new("response", text)
    }
}

/// A state of a type.
pub(super) fn state(stream: u64, status: &SessionTypeStatus) -> TimedLine {
    let has = status.has.filter(|_| !status.type_url.is_secret());
    let why = status.why.map(Why::name);
    let mut text = format!("== {}  now {}", status.type_url.short(), status.state.name());
    if let Some(why) = why {
        text.extend(["/", why]);
    }
    if let Some(has) = has {
        let verb = if status.state == ConfigStatus::Synced { "has" } else { "keeps" };
        // A String takes every write.
        let _ = write!(text, "; {verb} {}", version(&has.to_string()));
    }
    if status.state == ConfigStatus::Error {
        text.push_str("; nothing is resent until it changes");
    }
    if let Some(awaited) = status.held.as_ref().and_then(|held| held.what.as_deref()) {
        text.extend(["; waits for ", awaited]);
    }
    let line = ApiLine {
        at: rfc_3339(status.since),
        stream,
        r#type: Some(status.type_url.message().to_owned()),
        state: Some(status.state.name().to_owned()),
        why: why.map(str::to_owned),
        has: has.map(|version| version.to_string()),
        ..new("state", text)
    };
    TimedLine { at: status.since, line }
}

/// The first names of a list.
fn first(names: &SomeNames) -> Vec<String> {
    names.first.iter().map(ToString::to_string).collect()
}

fn add_names(text: &mut String, sign: &str, names: &SomeNames) {
    if names.count == 0 {
        return;
    }
    let plural = if names.count == 1 { "name" } else { "names" };
    // A String takes every write.
    let _ = write!(text, "{sign}{} {plural}", names.count);
    if !names.first.is_empty() {
        let _ = write!(text, " ({}", names.first.join(", "));
        text.push_str(if names.first.len() < names.count { ", …)" } else { ")" });
    }
}

fn short(type_name: &str) -> &str {
    type_name.rsplit(['.', '/']).next().unwrap_or(type_name)
}
