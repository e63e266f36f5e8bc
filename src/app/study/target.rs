//! The server of a study, and the types that are asked for.

use crate::command::learn::Learn;
use crate::command::outcome::Failure;
use crate::config::{self, Config, FileContext, Format, ServerKind, Servers};
use crate::driver::AskedTypes;
use sluice_xds::{Kind, TypeUrl};

/// A server, in a configuration with no other.
pub(super) struct StudyTarget {
    pub uri: String,
    pub config: Config,
}

/// The server of the arguments.
pub(super) fn target(order: &Learn, hostname: &str) -> Result<StudyTarget, Failure> {
    let config = match (&order.config, &order.server) {
        (Some(file), _) => super::load(file, hostname)?,
        (None, Some(server)) => plaintext(server, hostname).map_err(Failure::Usage)?,
        (None, None) => {
            return Err(Failure::Usage("--server or --config names the control plane".to_owned()));
        }
    };
    let mut servers = config.servers.lists().flat_map(|(_, list)| list.servers.iter());
    let server = match &order.server {
        Some(uri) => servers.find(|server| server.server_uri == *uri),
        None => servers.next(),
    };
    let Some(server) = server.cloned() else {
        let uris: Vec<&str> = config
            .servers
            .lists()
            .flat_map(|(_, list)| list.servers.iter().map(|server| server.server_uri.as_str()))
            .collect();
        return Err(Failure::Usage(format!("--server: the configuration has {} only", uris.join(", "))));
    };
    if matches!(server.kind, ServerKind::Directory { .. }) {
        let text = format!(
            "{}: a directory tells all clients the same; there is nothing to learn",
            server.server_uri
        );
        return Err(Failure::Usage(text));
    }
    let uri = server.server_uri.clone();
    Ok(StudyTarget { uri, config: Config { servers: Servers::new(vec![server]), ..config } })
}

/// A configuration with a server that is spoken to in plaintext.
fn plaintext(server: &str, hostname: &str) -> Result<Config, String> {
    let credentials = serde_json::json!([{ "type": "insecure" }]);
    let text = serde_json::json!({ "xds_servers": [{ "server_uri": server, "channel_creds": credentials }] });
    let context = FileContext { directory: "".as_ref(), hostname, variables: &|_| None, policy: None };
    match config::parse(&text.to_string(), Format::Json, context) {
        Ok(loaded) => Ok(loaded.config),
        Err(error) => Err(format!("--server {server}: {error}")),
    }
}

const CLUSTERS: &str = "envoy.config.cluster.v3.Cluster";
const LISTENERS: &str = "envoy.config.listener.v3.Listener";
const ENDPOINTS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";
const ROUTES: &str = "envoy.config.route.v3.RouteConfiguration";

/// The types of the arguments. Endpoints and routes are asked for by the names that clusters and listeners
/// name.
pub(super) fn asked_types(words: &[String]) -> Result<AskedTypes, String> {
    let mut types = AskedTypes { whole: Vec::new(), named: Vec::new() };
    for word in words {
        let message = match word.to_ascii_lowercase().as_str() {
            "cds" => CLUSTERS,
            "lds" => LISTENERS,
            "eds" => ENDPOINTS,
            "rds" => ROUTES,
            _ if word.contains('.') => word.strip_prefix("type.googleapis.com/").unwrap_or(word),
            _ => {
                return Err(format!(
                    "--types: {word} is none of cds, lds, eds, rds, and no full message name"
                ));
            }
        };
        let type_url = TypeUrl::of_message(message);
        if type_url.is_secret() {
            return Err(
                "--types: Secrets are split by client in any case, and never asked for here".to_owned()
            );
        }
        let list = match type_url.kind() {
            Kind::ClusterLoadAssignment | Kind::RouteConfiguration => &mut types.named,
            _ => &mut types.whole,
        };
        if !list.contains(&type_url) {
            list.push(type_url);
        }
    }
    let has = |kind| types.whole.iter().any(|type_url| type_url.kind() == kind);
    for (named, base, text) in [
        (Kind::ClusterLoadAssignment, Kind::Cluster, "eds needs cds: clusters name the endpoints"),
        (Kind::RouteConfiguration, Kind::Listener, "rds needs lds: listeners name the routes"),
    ] {
        if types.named.iter().any(|type_url| type_url.kind() == named) && !has(base) {
            return Err(format!("--types: {text}"));
        }
    }
    Ok(types)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lrn_2_types_have_short_words_and_named_types_need_their_base() {
        let asked = |text: &str| asked_types(&text.split(',').map(str::to_owned).collect::<Vec<_>>());
        let shown = |text: &str| -> Vec<String> {
            let types = asked(text).unwrap();
            types.whole.iter().chain(&types.named).map(|type_url| type_url.short().to_owned()).collect()
        };
        assert_eq!(
            shown("cds,lds,eds,rds,CDS"),
            ["Cluster", "Listener", "ClusterLoadAssignment", "RouteConfiguration"]
        );
        assert_eq!(shown("a.b.Other"), ["Other"]);
        for text in ["eds", "rds,cds", "sds", "envoy.extensions.transport_sockets.tls.v3.Secret"] {
            assert!(asked(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lrn_2_a_server_without_a_configuration_is_asked_in_plaintext() {
        assert!(plaintext("127.0.0.1:15010", "host").is_ok());
        let fault = plaintext("127.0.0.1", "host").unwrap_err();
        assert!(fault.starts_with("--server 127.0.0.1: "), "{fault}");
    }
}
