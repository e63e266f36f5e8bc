//! `admin`: the admin listener, and who may ask for what there (AUT-14).

use std::path::Path;

use super::authorization::read_identity;
use super::error::Problem;
use super::listener::{Address, ListenerSettings};
use super::reader::{Item, Map};
use super::tls::{read_path, read_server_tls};
use super::units::{boolean, text, word};
use crate::admin::ContentMode;
use crate::admin::access::{Area, Areas, Auth, IdentityGrant, TokenGrant};
use crate::trust::identity::IdentityKind;
use crate::trust::server::{ClientCertificate, ServerTls};
use crate::trust::tokens::TokenFile;
use sluice_engine::authorization::IdentityPattern;

/// The admin server: health, metrics, dumps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminListener {
    pub address: Address,
    /// Whether `/ready` also requires that an upstream has answered.
    pub ready_requires_upstream: bool,
    /// Host names accepted in requests, besides IP addresses and `localhost` (ADM-2). In lower case.
    pub hosts: Vec<String>,
    /// `None`: plaintext.
    pub tls: Option<ServerTls>,
    pub auth: Option<Auth>,
    /// By default, contents are shown to this host alone (ADM-12).
    pub content: ContentMode,
}

impl Default for AdminListener {
    fn default() -> Self {
        AdminListener {
            address: Address::loopback(19000),
            ready_requires_upstream: false,
            hosts: Vec::new(),
            tls: None,
            auth: None,
            content: ContentMode::Redacted,
        }
    }
}

const MODE: u32 = 0o600;

/// The longest list of tokens, and of identities. A request is compared with every entry.
const ENTRIES_MAX: usize = 256;

const PUBLIC: &[(&str, Area)] =
    &[("health", Area::Health), ("ready", Area::Ready), ("metrics", Area::Metrics), ("view", Area::View)];
const ROLES: &[(&str, Area)] = &[("metrics", Area::Metrics), ("view", Area::View), ("act", Area::Act)];

const CONTENT: &[(&str, ContentMode)] = &[("redacted", ContentMode::Redacted), ("off", ContentMode::Off)];

const PLAINTEXT: &str = "open to the network without `admin.tls`: only the public paths are answered there \
    (admin.auth.public; by default health and readiness)";
const NO_AUTH: &str =
    "open to the network without `admin.auth`: only health and readiness are answered there";

impl AdminListener {
    pub(super) fn read(map: &mut Map<'_>, listeners: &[ListenerSettings], directory: &Path) -> AdminListener {
        let default = AdminListener::default();
        let (tls_item, auth_item) = (map.item("tls"), map.item("auth"));
        let warning = match (&tls_item, &auth_item) {
            (None, _) => Some(PLAINTEXT),
            (Some(_), None) => Some(NO_AUTH),
            (Some(_), Some(_)) => None,
        };
        let address = Address::read(map, Some(default.address.clone()), MODE, warning, directory);
        let address = address.unwrap_or(default.address);
        // With an error in `tls`, the whole configuration is refused: nothing falls back to plaintext
        // (TLS-8).
        let tls = tls_item.and_then(|item| item.map(|map| read_server_tls(map, directory)).flatten());
        let way = AdminWay { address: &address, tls: tls.as_ref(), directory };
        let auth = auth_item.and_then(|item| item.map(|map| read_auth(map, way)));
        if let Some(listener) = listeners.iter().find(|listener| listener.address.collides(&address)) {
            let taken = address.taken(&format!("the address of listener {:?}", listener.name));
            map.error("address", taken);
        }
        let is_local = address.is_local();
        let content = if is_local { ContentMode::Redacted } else { ContentMode::Off };
        AdminListener {
            content: map.or("content", content, word(CONTENT)),
            ready_requires_upstream: map.or(
                "ready_requires_upstream",
                default.ready_requires_upstream,
                boolean(),
            ),
            hosts: map.list("hosts").iter().filter_map(read_host).collect(),
            address,
            tls,
            auth,
        }
    }
}

/// The way of callers to the listener.
#[derive(Clone, Copy)]
struct AdminWay<'a> {
    address: &'a Address,
    tls: Option<&'a ServerTls>,
    directory: &'a Path,
}

impl AdminWay<'_> {
    /// Whether others could read a token on the way.
    fn is_open(&self) -> bool {
        self.tls.is_none() && !self.address.is_local()
    }

    /// The reason why no caller can have an identity that matches.
    fn excludes(&self, pattern: &IdentityPattern) -> Option<&'static str> {
        let kind =
            self.tls.filter(|tls| tls.client_certificate != ClientCertificate::None).map(|tls| tls.identity);
        match (pattern, kind) {
            (IdentityPattern::Any | IdentityPattern::Anonymous, _) => {
                Some("has no proof of anybody; name the areas that are for everybody in admin.auth.public")
            }
            (IdentityPattern::Unix(_), _) => {
                (!matches!(self.address, Address::Unix { .. })).then_some("the address is no unix socket")
            }
            (IdentityPattern::Spiffe { .. }, Some(IdentityKind::Spiffe)) => None,
            (IdentityPattern::Dns(_), Some(IdentityKind::Dns)) => None,
            (IdentityPattern::TrustDomain(_), Some(IdentityKind::Spiffe | IdentityKind::TrustDomain)) => None,
            (_, Some(_)) => Some("not the kind of admin.tls.identity"),
            (_, None) => Some("no client certificate is asked for: admin.tls has no authorities of clients"),
        }
    }
}

fn read_auth(map: &mut Map<'_>, way: AdminWay<'_>) -> Auth {
    let public = match map.item("public") {
        Some(item) => read_areas(&item, PUBLIC),
        None => [Area::Health, Area::Ready].into_iter().collect(),
    };
    let (token_items, identity_items) = (map.list("tokens"), map.list("identities"));
    for (key, items) in [("tokens", &token_items), ("identities", &identity_items)] {
        if items.len() > ENTRIES_MAX {
            let value = format!("{} entries", items.len());
            map.error(key, Problem::Invalid { value, expected: format!("at most {ENTRIES_MAX}") });
        }
        // A token would be shown to everybody on the way.
        if !items.is_empty() && way.is_open() {
            map.contradiction(
                key,
                format!("no effect: {} is open to the network, which needs admin.tls", way.address),
            );
        }
    }
    let mut tokens: Vec<TokenGrant> = Vec::new();
    for item in &token_items {
        let Some(Some(grant)) = item.map(|map| read_token(map, way.directory)) else { continue };
        if tokens.iter().any(|other| other.file.name == grant.file.name) {
            let reason = format!("{:?} is also the name of another token", grant.file.name);
            item.error_at("name", Problem::Contradiction { reason });
        }
        tokens.push(grant);
    }
    let read_identity = |item: &Item<'_>| item.map(|map| read_identity_grant(map, way)).flatten();
    Auth { public, tokens, identities: identity_items.iter().filter_map(read_identity).collect() }
}

fn read_areas(item: &Item<'_>, words: &'static [(&'static str, Area)]) -> Areas {
    let items = item.list().unwrap_or_default();
    items.iter().filter_map(|item| item.parse(word(words))).collect()
}

fn read_roles(map: &mut Map<'_>) -> Option<Areas> {
    const EXPECTED: &str = "a list of metrics, view and act";
    let item = map.required("roles", EXPECTED)?;
    let roles = read_areas(&item, ROLES);
    if item.list().is_some_and(|items| items.is_empty()) {
        item.invalid(EXPECTED);
    }
    (!roles.is_empty()).then_some(roles)
}

fn read_token(map: &mut Map<'_>, directory: &Path) -> Option<TokenGrant> {
    let name = map.required("name", "a name for the log").and_then(|item| item.parse(text));
    let path = map.required("token_file", "a file with one token a line");
    let path = path.and_then(|item| read_path(&item, directory));
    map.unsupported(&[("token", "a token belongs in a file of its own: token_file")]);
    let roles = read_roles(map);
    Some(TokenGrant { file: TokenFile { name: name?.into(), path: path? }, roles: roles? })
}

fn read_identity_grant(map: &mut Map<'_>, way: AdminWay<'_>) -> Option<IdentityGrant> {
    let item =
        map.required("match", "a SPIFFE ID, { dns: NAME }, { trust_domain: NAME } or { unix_uid: [ 0 ] }");
    let pattern = item.as_ref().and_then(read_identity);
    if let (Some(item), Some(reason)) = (&item, pattern.as_ref().and_then(|pattern| way.excludes(pattern))) {
        item.error(Problem::Contradiction { reason: format!("no caller matches: {reason}") });
    }
    let roles = read_roles(map);
    Some(IdentityGrant { pattern: pattern?, roles: roles? })
}

/// A host name without a port, normalized for comparison.
fn read_host(item: &Item<'_>) -> Option<String> {
    let text = item.text()?;
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
    {
        item.invalid("a host name without a port");
        return None;
    }
    Some(text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase())
}
