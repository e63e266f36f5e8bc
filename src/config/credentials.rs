//! `channel_creds` and `server_features` of a server.

use std::path::Path;

use super::address::{is_local, warn_of_plaintext};
use super::calls::{CallWay, read_calls};
use super::reader::{Item, Map};
use super::server_tls::{read_tls, read_tls_config};
use crate::client::{ClientSettings, Credentials};
use crate::trust::client::ClientTls;

/// The channel credentials that the server's connections use.
pub(super) enum ChosenCredentials {
    Plaintext,
    Tls(ClientTls),
}

const EXPECTED: &str = "[{type: tls}], or [{type: insecure}]; plaintext must be explicit";

/// An entry of the list: the name of its type, the item with the name, and the configuration.
type Entry<'a> = (String, Item<'a>, Option<Item<'a>>);

/// Chooses the first supported type of the list, as gRPC does (FED-2). An unsupported type before `tls` is
/// skipped. Before `insecure` it is refused: the operator put something stronger than plaintext first
/// (TLS-8). `None` after an error.
pub(super) fn read_channel_creds(map: &mut Map<'_>, directory: &Path) -> Option<ChosenCredentials> {
    let list = map.required("channel_creds", EXPECTED)?;
    let items = list.list()?;
    if items.is_empty() {
        list.invalid(EXPECTED);
    }
    let entries: Vec<Entry<'_>> = items.iter().filter_map(read_entry).collect();
    let supported = entries.iter().position(|(name, ..)| matches!(name.as_str(), "tls" | "insecure"));
    let (mut chosen, mut is_refused) = (None, false);
    for (index, (name, kind, config)) in entries.iter().enumerate() {
        match supported.and_then(|supported| Some((supported, entries.get(supported)?.0.as_str()))) {
            Some((supported, first)) if index > supported => {
                kind.warn(format!("never used: `{first}` comes first"))
            }
            Some((supported, _)) if index == supported => {
                chosen = Some(read_chosen(name, config.as_ref(), directory))
            }
            Some((_, "tls")) => {
                kind.warn(format!("{} is not supported; skipped, as `tls` comes after it", kind.describe()));
            }
            _ => {
                is_refused = true;
                kind.unsupported("use `tls`, or `insecure` as the first entry if plaintext is acceptable");
            }
        }
    }
    chosen.filter(|_| !is_refused)
}

fn read_entry<'a>(item: &Item<'a>) -> Option<Entry<'a>> {
    item.map(|map| {
        // The configuration belongs to the type.
        let config = map.item("config");
        map.belongs("config", "type", &["tls", "insecure"]);
        let kind = map.required("type", "tls or insecure")?;
        Some((kind.text()?.to_owned(), kind, config))
    })
    .flatten()
}

fn read_chosen(name: &str, config: Option<&Item<'_>>, directory: &Path) -> ChosenCredentials {
    if name == "insecure" {
        if let Some(config) = config.filter(|config| !config.is_empty_map()) {
            config.invalid("nothing: `insecure` has no configuration");
        }
        return ChosenCredentials::Plaintext;
    }
    let tls = config.and_then(|config| config.map(|map| read_tls_config(map, directory)));
    ChosenCredentials::Tls(tls.unwrap_or_default())
}

/// Reads the other keys of credentials, and of the connections that carry them. `host`: `None` for a unix
/// socket, empty after an error in the address; `chosen`: `None` after an error in the list.
pub(super) fn read_credentials(
    map: &mut Map<'_>,
    uri: Option<&Item<'_>>,
    chosen: Option<ChosenCredentials>,
    host: Option<&str>,
    directory: &Path,
    connection: ClientSettings,
) -> (Credentials, ClientSettings) {
    if let (Some(ChosenCredentials::Plaintext), Some(uri), Some(host)) = (&chosen, uri, host) {
        warn_of_plaintext(uri, host);
    }
    let is_plain = matches!(chosen, Some(ChosenCredentials::Plaintext));
    let (tls, handshake_timeout) = match chosen {
        Some(ChosenCredentials::Plaintext) => {
            map.reject_inapplicable(&["tls"], "plaintext");
            (None, connection.handshake_timeout)
        }
        Some(ChosenCredentials::Tls(config)) => {
            let (tls, timeout) = read_tls(map, config, host);
            (Some(tls), timeout)
        }
        // The errors of the other keys are reported, too.
        None => (None, read_tls(map, ClientTls::default(), Some("")).1),
    };
    let is_private = !is_plain || host.is_none_or(|host| host.is_empty() || is_local(host));
    let host = host.unwrap_or_default().to_owned();
    let calls = read_calls(map, &CallWay { is_private, host, directory });
    (Credentials { tls, calls }, ClientSettings { handshake_timeout, ..connection })
}

/// The server features with an effect on sluice.
#[derive(Default)]
pub(super) struct Features {
    /// `resource_timer_is_transient_error`, in both spellings.
    pub transient: bool,
    /// `fail_on_data_errors`.
    pub fail: bool,
}

/// A88, FED-9. Unknown features have no effect, as in gRPC.
pub(super) fn read_features(map: &mut Map<'_>) -> Features {
    let mut features = Features::default();
    for item in map.list("server_features") {
        match item.text() {
            Some("resource_timer_is_transient_error" | "resource_timer_is_transient_failure") => {
                features.transient = true;
            }
            Some("fail_on_data_errors") => features.fail = true,
            None | Some("xds_v3") => {}
            Some("trusted_xds_server") => {
                item.warn(
                    "has no effect: each client decides whether to trust its own server, here the relay",
                );
            }
            Some("ignore_resource_deletion") => {
                item.warn("has no effect: the relay forwards deletions, and clients decide");
            }
            Some(_) => item.warn(format!("{} is an unknown feature, without effect", item.describe())),
        }
    }
    features
}
