//! The metadata of calls to a server: `call_creds` and `initial_metadata`.

use std::path::{Path, PathBuf};

use http::{HeaderName, header};

use super::error::Problem;
use super::form::Form;
use super::reader::{Item, Map};
use super::tree::Tree;
use crate::client::{CallMetadata, InitialMetadata, MetadataValue, VALUE_BYTES_MAX};

/// Keys that belong to gRPC and HTTP (IDN-12): the protocol's own, and those of single connections.
const RESERVED: &[&str] = &[
    "te",
    "content-type",
    "host",
    "user-agent",
    "accept",
    "accept-encoding",
    "content-length",
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
];

/// The maximum number of entries. Servers want one or two; many are a mistake.
const ENTRIES_MAX: usize = 16;

/// The way of calls to a server.
pub(super) struct CallWay<'a> {
    /// Nobody on the path can read the calls: TLS, loopback, or a unix socket.
    pub is_private: bool,
    /// As errors name the server.
    pub host: String,
    /// Relative paths are relative to this directory.
    pub directory: &'a Path,
}

impl CallWay<'_> {
    /// A secret is only for a private way (IDN-9, IDN-12).
    fn check(&self, item: &Item<'_>, secret: &str) {
        if !self.is_private {
            let host = &self.host;
            let reason =
                format!("{secret} would leave in plaintext to {host}; expected channel_creds of type tls");
            item.error(Problem::Contradiction { reason });
        }
    }

    fn file(&self, item: &Item<'_>) -> Option<PathBuf> {
        item.text().map(|file| self.directory.join(file))
    }
}

pub(super) fn read_calls(map: &mut Map<'_>, way: &CallWay<'_>) -> CallMetadata {
    let token = read_call_creds(map, way);
    let list = map.item("initial_metadata");
    let items = list.as_ref().and_then(Item::list).unwrap_or_default();
    if let Some(list) = &list
        && items.len() > ENTRIES_MAX
    {
        let value = format!("{} entries", items.len());
        list.error(Problem::Invalid { value, expected: format!("at most {ENTRIES_MAX}") });
    }
    let initial: Vec<_> = items.iter().filter_map(|item| read_entry(item, way)).collect();
    if let (Some(list), true) = (&list, token.is_some())
        && initial.iter().any(|entry| entry.key == header::AUTHORIZATION)
    {
        let reason = "`authorization` is the token of call_creds; leave out one of the two".to_owned();
        list.error(Problem::Contradiction { reason });
    }
    CallMetadata { token_file: token, initial }
}

/// A97: unknown types are skipped.
fn read_call_creds(map: &mut Map<'_>, way: &CallWay<'_>) -> Option<PathBuf> {
    let mut token = None;
    for item in map.list("call_creds") {
        let file = item.map(|map| {
            map.belongs("config", "type", &["jwt_token_file"]);
            let kind = map.required("type", "jwt_token_file")?;
            if kind.text()? != "jwt_token_file" {
                map.allow_unknown_keys();
                kind.warn(format!("{} is not supported; skipped, as gRPC does", kind.describe()));
                return None;
            }
            let config = map.required("config", "{jwt_token_file: FILE}")?;
            config.map(|map| map.required("jwt_token_file", "the file of the token")).flatten()
        });
        let Some(file) = file.flatten() else { continue };
        way.check(&item, "a token");
        if token.is_some() {
            item.error(Problem::Contradiction { reason: "a call has one token".to_owned() });
        }
        token = token.or(way.file(&file));
    }
    token
}

fn read_entry(item: &Item<'_>, way: &CallWay<'_>) -> Option<InitialMetadata> {
    item.map(|map| {
        let key = map.required("key", "the name of a header").and_then(|item| read_key(&item));
        let (value, file) = (map.item("value"), map.item("value_file"));
        let value = match (value, file) {
            (Some(value), None) => read_value(&value),
            (None, Some(file)) => {
                way.check(&file, "the content of a file");
                way.file(&file).map(MetadataValue::File)
            }
            _ => {
                map.invalid("one of `value` and `value_file`");
                None
            }
        };
        Some(InitialMetadata { key: key?, value: value? })
    })
    .flatten()
}

fn read_key(item: &Item<'_>) -> Option<HeaderName> {
    let text = item.text()?;
    let lower = text.to_ascii_lowercase();
    if lower.starts_with(':') || lower.starts_with("grpc-") || RESERVED.contains(&lower.as_str()) {
        item.error(Problem::Contradiction { reason: format!("{} belongs to gRPC or HTTP", item.describe()) });
        return None;
    }
    let name = HeaderName::from_bytes(lower.as_bytes()).ok();
    if name.is_none() {
        item.invalid("the name of a header: letters, digits, - and _");
    }
    name
}

/// The value appears in no error (IDN-12).
fn read_value(item: &Item<'_>) -> Option<MetadataValue> {
    item.can_be(&[Form::Text]);
    let value = match item.tree {
        Tree::Text(text) if !text.is_empty() => MetadataValue::text(text),
        _ => None,
    };
    if value.is_none() {
        let expected = format!(
            "text without line breaks, of at most {VALUE_BYTES_MAX} bytes; in quotes if it looks like a number"
        );
        item.error(Problem::Invalid { value: "a value that no header can have".to_owned(), expected });
    }
    value
}
