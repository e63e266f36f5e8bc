//! `ledger`, the store through which several replicas decide together (LDG-1).

use std::path::Path;

use super::address::{Endpoint, parse_endpoint, warn_of_plaintext};
use super::facts::read_access;
use super::reader::{Item, Map};
use super::server_tls::read_tls_config;
use super::tree::Tree;
use super::units::{text, word};

use crate::client::GrpcAddress;
use crate::kubernetes::is_dns_label;
use crate::ledger::{EtcdSettings, EtcdUser, KubernetesSettings, LEASE, LedgerSettings, LedgerStore};
use sluice_setting::Read;

const STORES: &str = "one of `etcd` and `kubernetes`; `ledger: local` shares nothing";
const LABEL: &str = "a name of at most 63 lowercase letters, digits and `-`";
const ENDPOINTS: &str = "the addresses of an etcd, as [\"etcd-0:2379\"]";
const ENDPOINT: &str = "HOST:PORT or unix:PATH";
const REPLICA: &str = "a name of at most 253 letters, digits, `.`, `-` and `_`";
const PREFIX: &str = "a text, as /sluice/";

/// Whether the clients of newcomers wait (LDG-3).
const JOIN: &[(&str, bool)] = &[("wait", true), ("live", false)];

/// `None`: each plan decides for this replica only, or an error was reported.
pub(super) fn read_ledger(item: &Item<'_>, directory: &Path, hostname: &str) -> Option<LedgerSettings> {
    if item.is_word("local") {
        return None;
    }
    item.map(|map| {
        let replica = map.or("replica", hostname.to_owned(), replica);
        let lease = map.value(&LEASE);
        let newcomers_wait = map.or("join", true, word(JOIN));
        let etcd = map.item("etcd").map(|item| item.map(|map| read_etcd(map, directory)).flatten());
        let kubernetes = map.item("kubernetes").map(|item| item.map(|map| read_kubernetes(map, directory)));
        let store = match (etcd, kubernetes) {
            (Some(etcd), None) => LedgerStore::Etcd(Box::new(etcd?)),
            (None, Some(kubernetes)) => LedgerStore::Kubernetes(kubernetes?),
            (None, None) | (Some(_), Some(_)) => {
                map.invalid(STORES);
                return None;
            }
        };
        Some(LedgerSettings { replica, lease, newcomers_wait, store })
    })
    .flatten()
}

fn read_kubernetes(map: &mut Map<'_>, directory: &Path) -> KubernetesSettings {
    KubernetesSettings {
        access: read_access(map, directory),
        namespace: map.item("namespace").and_then(|item| item.parse(label)),
        name: map.or("name", KubernetesSettings::NAME.to_owned(), label),
    }
}

fn label(tree: &Tree) -> Result<String, String> {
    match tree {
        Tree::Text(text) if is_dns_label(text) => Ok(text.clone()),
        _ => Err(LABEL.into()),
    }
}

fn read_etcd(map: &mut Map<'_>, directory: &Path) -> Option<EtcdSettings> {
    let endpoints = map.required("endpoints", ENDPOINTS);
    let prefix = map.or("prefix", EtcdSettings::PREFIX.to_owned(), prefix);
    if !prefix.ends_with('/') {
        map.warn_at("prefix", format!("the ledger has all keys that begin with {prefix:?}, also those of another prefix like \"{prefix}2/\"; end it with `/`"));
    }
    let tls = map.item("tls").and_then(|item| item.map(|map| read_tls_config(map, directory)));
    let user = map.item("user").and_then(|item| item.map(|map| read_user(map, directory)).flatten());
    let items = endpoints.and_then(|item| item.list())?;
    let endpoints: Option<Vec<GrpcAddress>> =
        items.iter().map(|item| read_endpoint(item, directory, tls.is_some())).collect();
    let endpoints = endpoints?;
    if endpoints.is_empty() {
        map.error("endpoints", super::error::Problem::Missing { expected: ENDPOINTS.into() });
        return None;
    }
    Some(EtcdSettings { endpoints, prefix, tls, user })
}

fn read_endpoint(item: &Item<'_>, directory: &Path, has_tls: bool) -> Option<GrpcAddress> {
    let endpoint = item.text().and_then(parse_endpoint);
    match endpoint {
        Some(Endpoint::Tcp { host, port }) => {
            if !has_tls {
                warn_of_plaintext(item, &host);
            }
            Some(GrpcAddress::Tcp { host, port })
        }
        Some(Endpoint::Unix(path)) => Some(GrpcAddress::Unix(directory.join(path))),
        None => {
            item.invalid(ENDPOINT);
            None
        }
    }
}

fn read_user(map: &mut Map<'_>, directory: &Path) -> Option<EtcdUser> {
    let name = map.required("name", "the name of the user").and_then(|item| item.parse(text));
    let file = map.required("password_file", "the path of a file with the password");
    let file = file.and_then(|item| item.parse(text));
    Some(EtcdUser { name: name?.to_owned(), password_file: directory.join(file?) })
}

/// A name is a part of keys, so it has no slash.
fn replica(tree: &Tree) -> Result<String, String> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    match tree {
        Tree::Text(name) if (1..=253).contains(&name.len()) && name.bytes().all(is_letter) => {
            Ok(name.clone())
        }
        _ => Err(REPLICA.into()),
    }
}

fn prefix(tree: &Tree) -> Result<String, String> {
    match tree {
        Tree::Text(prefix) if !prefix.is_empty() && prefix.len() <= 200 => Ok(prefix.clone()),
        _ => Err(PREFIX.into()),
    }
}
