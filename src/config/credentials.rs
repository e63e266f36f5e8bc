//! `channel_creds` and `server_features` of a server.

use super::reader::Map;

/// Checks that plaintext satisfies the list.
///
/// gRPC takes the first type that it supports (FED-2). This version supports only `insecure`. By gRPC's rule,
/// `[tls, insecure]` would select plaintext, although the operator put TLS first. So an unsupported type is
/// refused, unless `insecure` stands before it.
pub(super) fn read_channel_creds(map: &mut Map<'_>) {
    const EXPECTED: &str = "[{type: insecure}]; plaintext must be explicit";
    let Some(list) = map.required("channel_creds", EXPECTED) else { return };
    let Some(items) = list.list() else { return };
    if items.is_empty() {
        list.invalid(EXPECTED);
    }
    let mut chosen = false;
    for item in items {
        let kind = item.map(|map| {
            // The configuration belongs to the credentials type; `insecure` has none.
            let config = map.item("config");
            map.required("type", "insecure").and_then(|kind| Some((kind.text()?.to_string(), kind, config)))
        });
        let Some(Some((name, kind, config))) = kind else { continue };
        if name == "insecure" {
            chosen = true;
            if let Some(config) = config.filter(|config| !config.is_empty_map()) {
                config.invalid("nothing: `insecure` has no configuration");
            }
        } else if chosen {
            kind.warn("never used: `insecure` comes first");
        } else {
            kind.unsupported("use `insecure` as the first entry if plaintext is acceptable");
        }
    }
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
            Some(_) => item.warn("unknown feature, without effect"),
        }
    }
    features
}
