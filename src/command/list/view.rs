//! The lists, each with its columns.

use serde_json::Value;

use crate::command::rollout::{others, step};
use crate::command::table::{Column, column, list, number, span, state, text, type_name, version, wide};
use crate::text::size;

/// A list of the API as tables.
#[derive(Debug)]
pub(in crate::command) struct View {
    pub path: &'static str,
    /// The key of the list in the answer.
    pub key: &'static str,
    /// The key of the parts with a line each; `None`: a line for each item.
    pub part: Option<&'static str>,
    pub columns: &'static [Column],
    /// The name of an item, for `-o name` and for other commands.
    pub name: fn(&Value) -> Option<String>,
}

pub(super) const RELAY: Column = column("RELAY", |of| text(of.item, "relay"));

pub(in crate::command) const CLIENTS: View = View {
    path: "/clients",
    key: "clients",
    part: Some("types"),
    columns: &[
        column("ID", |of| text(of.item, "id")),
        column("NODE", |of| text(of.item, "node")),
        column("CLUSTER", |of| text(of.item, "cluster")),
        column("TYPE", |of| type_name(of.part)),
        state("STATE", |of| text(of.part, "state")),
        column("WHY", |of| text(of.part, "why")),
        column("FOR", |of| span(of.part, "state_seconds")),
        wide("HAS", |of| version(of.part, "has")),
        wide("SHOULD", |of| version(of.part, "should")),
        wide("VIA", |of| text(of.part, "server")),
        wide("CLASS", |of| text(of.part, "class")),
        wide("PEER", |of| text(of.item, "peer")),
        wide("OPEN", |of| span(of.item, "open_seconds")),
    ],
    name: |item| text(item, "id"),
};

pub(in crate::command) const CHANGES: View = View {
    path: "/changes",
    key: "changes",
    part: None,
    columns: &[
        column("ID", |of| text(of.item, "id")),
        column("TYPE", |of| type_name(of.item)),
        column("VERSION", |of| version(of.item, "version")),
        column("AGE", |of| span(of.item, "age_seconds")),
        column("WANTED", |of| text(of.item, "wanted")),
        column("ACKED", |of| text(of.item, "acked")),
        column("REJECTED", |of| text(of.item, "rejected")),
        column("WAITING", |of| text(of.item, "waiting")),
        column("P50", |of| span(of.item, "p50_seconds")),
        column("P99", |of| span(of.item, "p99_seconds")),
        wide("LAST", |of| span(of.item, "last_seconds")),
        wide("SUPERSEDED", |of| text(of.item, "superseded")),
        wide("SERVER", |of| text(of.item, "server")),
        wide("CLASS", |of| text(of.item, "class")),
        wide("SIZE", |of| number(of.item, "bytes").map(size)),
    ],
    name: |item| text(item, "id"),
};

pub(in crate::command) const ROLLOUTS: View = View {
    path: "/rollouts",
    key: "rollouts",
    part: None,
    columns: &[
        column("PLAN", |of| text(of.item, "name")),
        column("PUSH", |of| text(of.item, "push")),
        state("STATE", |of| text(of.item, "state")),
        column("STEP", |of| step(of.item)),
        column("UNITS", |of| text(of.item, "units")),
        column("CLIENTS", |of| text(of.item, "clients")),
        column("ACCEPTED", |of| text(of.item, "accepted")),
        column("PENDING", |of| text(of.item, "pending")),
        column("REJECTED", |of| text(of.item, "rejected")),
        column("SILENT", |of| text(of.item, "silent")),
        column("LOST", |of| text(of.item, "lost")),
        column("OTHERS", |of| others(of.item)),
        column("WHY", |of| text(of.item, "why")),
        wide("WAITING", |of| text(of.item, "waiting")),
        wide("BLAMED", |of| texts(of.item, "blamed")),
    ],
    name: |item| text(item, "name"),
};

pub(in crate::command) const CLASSES: View = View {
    path: "/classes",
    key: "classes",
    part: None,
    columns: &[
        column("CLASS", |of| text(of.item, "class")),
        column("CLIENTS", |of| text(of.item, "clients")),
        column("RULE", |of| texts(of.item, "rules")),
        column("SERVERS", |of| texts(of.item, "servers")),
        wide("SHOWN AS", |of| text(of.item, "upstream_id")),
    ],
    name: |item| text(item, "class"),
};

fn texts(of: &Value, key: &str) -> Option<String> {
    let texts: Vec<_> = list(of, key).iter().filter_map(Value::as_str).collect();
    Some(texts.join(", "))
}

pub(in crate::command) const EVENTS: View = View {
    path: "/events",
    key: "events",
    part: None,
    columns: &[
        column("AT", |of| text(of.item, "at")),
        column("NUMBER", |of| text(of.item, "number")),
        column("KIND", |of| text(of.item, "kind")),
        state("SEVERITY", |of| text(of.item, "severity")),
        column("COUNT", |of| text(of.item, "count")),
        column("TEXT", |of| text(of.item, "text")),
        wide("SERVER", |of| text(of.item, "server")),
        wide("TYPE", |of| type_name(of.item)),
        wide("NODE", |of| text(of.item, "node")),
        wide("STREAM", |of| text(of.item, "stream")),
        wide("PEER", |of| text(of.item, "peer")),
        wide("CHANGE", |of| text(of.item, "change")),
    ],
    name: |item| text(item, "number"),
};

pub(in crate::command) const SOURCES: View = View {
    path: "/sources",
    key: "sources",
    part: None,
    columns: &[
        column("SERVER", |of| text(of.item, "server")),
        column("LIST", |of| text(of.item, "list")),
        column("CLASS", |of| text(of.item, "class")),
        state("STATE", |of| text(of.item, "state")),
        column("FOR", |of| span(of.item, "state_seconds")),
        column("STALE", |of| span(of.item, "stale_seconds")),
        column("TYPES", |of| Some(list(of.item, "types").len().to_string())),
        column("RESOURCES", |of| {
            Some(
                list(of.item, "types").iter().filter_map(|of| number(of, "present")).sum::<u64>().to_string(),
            )
        }),
        column("ERROR", |of| text(of.item, "last_error")),
        wide("RESTORED", |of| text(of.item, "restored")),
        wide("VARIANT", |of| text(of.item, "variant")),
        wide("FAILURES", |of| text(of.item, "failures")),
        wide("SHOWN AS", |of| text(of.item, "upstream_id")),
    ],
    name: |item| Some(format!("{}/{}", text(item, "server")?, text(item, "class")?)),
};

pub(in crate::command) const RESOURCES: View = View {
    path: "/resources",
    key: "resources",
    part: None,
    columns: &[
        column("TYPE", |of| type_name(of.item)),
        column("NAME", |of| text(of.item, "name")),
        state("STATE", |of| text(of.item, "state")),
        column("VERSION", |of| version(of.item, "version")),
        column("SIZE", |of| number(of.item, "bytes").map(size)),
        column("CHANGED", |of| text(of.item, "received_at")),
        wide("FROM", |of| text(of.item, "server")),
        wide("CLASS", |of| text(of.item, "class")),
        wide("REJECTING", |of| text(of.item, "rejecting_clients")),
        wide("ERROR", |of| text(of.item, "error")),
    ],
    name: |item| Some(format!("{}/{}", type_name(item)?, text(item, "name")?)),
};

pub(in crate::command) const REFUSED: View = View {
    path: "/refused",
    key: "refused",
    part: None,
    columns: &[
        column("NODE", |of| text(of.item, "node")),
        column("CLUSTER", |of| text(of.item, "cluster")),
        column("TYPE", |of| type_name(of.item)),
        column("LIMIT", |of| text(of.item, "limit")),
        column("COUNT", |of| text(of.item, "count")),
        column("LAST", |of| span(of.item, "seconds")),
        wide("STREAM", |of| text(of.item, "stream")),
        wide("PEER", |of| text(of.item, "peer")),
    ],
    name: |item| text(item, "node"),
};
