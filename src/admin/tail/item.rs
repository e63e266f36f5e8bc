//! The lines of a tail, as JSON with a text for people. Peers chose names and words, so readers escape the text.

use std::fmt::Write;
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::admin::item::rfc_3339;
use crate::driver::api::change_name::ChangeName;
use crate::driver::api::status::{ConfigStatus, SessionTypeStatus, Why};
use crate::driver::api::tail::{Answered, Asked, Fact, Sent, SomeNames, TailLine};
use crate::text::{size, version};

/// A line at its time.
pub(super) struct Item {
    pub at: SystemTime,
    pub json: Value,
}

impl Item {
    fn new((at, stream): (SystemTime, u64), kind: &str, text: String, mut json: Value) -> Item {
        if let Some(members) = json.as_object_mut() {
            members.retain(|_, value| !value.is_null());
            let head = [
                ("at", Value::from(rfc_3339(at))),
                ("stream", Value::from(stream)),
                ("kind", Value::from(kind)),
                ("text", Value::from(text)),
            ];
            members.extend(head.map(|(key, value)| (key.to_owned(), value)));
        }
        Item { at, json }
    }
}

pub(super) fn line(line: &TailLine) -> Item {
    let head = (line.at, line.stream);
    match &line.fact {
        Fact::Opened { service, listener, peer } => {
            let from = peer.map_or_else(|| "a unix socket".to_owned(), |peer| peer.to_string());
            let text =
                format!("** stream {} opened, {service} on listener {listener}, from {from}", line.stream);
            let json = json!({ "service": service, "listener": **listener, "peer": peer });
            Item::new(head, "opened", text, json)
        }
        Fact::Ended(status) => {
            let reason = status.as_ref().map_or_else(|| "the client left".to_owned(), ToString::to_string);
            let text = format!("** stream {} ended: {reason}", line.stream);
            Item::new(
                head,
                "ended",
                text,
                json!({ "code": status.as_ref().map(|of| of.code.name()), "detail": reason }),
            )
        }
        Fact::Request(asked) => request(head, asked),
        Fact::Response(sent) => response(head, sent),
    }
}

fn request(head: (SystemTime, u64), asked: &Asked) -> Item {
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
    let mut json = json!({
        "type": asked.type_name,
        "nonce": Some(nonce).filter(|nonce| !nonce.is_empty()),
        "version": asked.version,
        "detail": detail,
    });
    match asked.is_delta {
        true => {
            json["subscribe"] = names(&asked.subscribe);
            json["subscribe_count"] = asked.subscribe.count.into();
            json["unsubscribe"] = names(&asked.unsubscribe);
            json["unsubscribe_count"] = asked.unsubscribe.count.into();
            json["presented_count"] = asked.presented.into();
        }
        false => {
            json["names"] = names(&asked.subscribe);
            json["names_count"] = asked.subscribe.count.into();
        }
    }
    Item::new(head, kind, text, json)
}

fn response(head: (SystemTime, u64), sent: &Sent) -> Item {
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
    let json = json!({
        "type": sent.type_name,
        "version": sent.version.map(|version| version.to_string()),
        "nonce": sent.nonce,
        "names": names(&sent.names),
        "names_count": sent.names.count,
        "removed": names(&sent.removed),
        "removed_count": sent.removed.count,
        "bytes": sent.bytes,
        "message": message,
        "messages": messages,
        "changes": changes,
    });
    Item::new(head, "response", text, json)
}

/// A state of a type.
pub(super) fn state(stream: u64, of: &SessionTypeStatus) -> Item {
    let has = of.has.filter(|_| !of.type_url.is_secret());
    let why = of.why.map(Why::name);
    let mut text = format!("== {}  now {}", of.type_url.short(), of.state.name());
    if let Some(why) = why {
        text.extend(["/", why]);
    }
    if let Some(has) = has {
        let verb = if of.state == ConfigStatus::Synced { "has" } else { "keeps" };
        // A String takes every write.
        let _ = write!(text, "; {verb} {}", version(&has.to_string()));
    }
    if of.state == ConfigStatus::Error {
        text.push_str("; nothing is resent until it changes");
    }
    if let Some(awaited) = of.held.as_ref().and_then(|held| held.what.as_deref()) {
        text.extend(["; waits for ", awaited]);
    }
    let json = json!({
        "type": of.type_url.message(),
        "state": of.state.name(),
        "why": why,
        "has": has.map(|version| version.to_string()),
    });
    Item::new((of.since, stream), "state", text, json)
}

fn names(of: &SomeNames) -> Value {
    of.first.iter().map(|name| Value::from(&**name)).collect()
}

fn add_names(text: &mut String, sign: &str, of: &SomeNames) {
    if of.count == 0 {
        return;
    }
    let plural = if of.count == 1 { "name" } else { "names" };
    // A String takes every write.
    let _ = write!(text, "{sign}{} {plural}", of.count);
    if !of.first.is_empty() {
        let _ = write!(text, " ({}", of.first.join(", "));
        text.push_str(if of.first.len() < of.count { ", …)" } else { ")" });
    }
}

fn short(type_name: &str) -> &str {
    type_name.rsplit(['.', '/']).next().unwrap_or(type_name)
}
