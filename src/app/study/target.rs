//! The server of a study.

use crate::command::learn::Learn;
use crate::command::outcome::Failure;
use crate::config::{self, Config, FileContext, Format, ServerKind, Servers};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lrn_2_a_server_without_a_configuration_is_asked_in_plaintext() {
        assert!(plaintext("127.0.0.1:15010", "host").is_ok());
        let fault = plaintext("127.0.0.1", "host").unwrap_err();
        assert!(fault.starts_with("--server 127.0.0.1: "), "{fault}");
    }
}
