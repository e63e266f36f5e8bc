//! A look at everything on this host that the start needs.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{admin, facts, servers, tls};
use crate::client::{FileServer, FileSettings, MetadataValue};
use crate::config::{self, Config, Endpoint, FactsSource, ServerKind};
use crate::kubernetes::{ClusterAccess, Interest};
use crate::ledger::{KubernetesSettings, LedgerStore};
use crate::trust::contents::PlaceFile;
use sluice_checkpoint::store::check_usable;
use sluice_engine::class::facts::Facts;
use sluice_identity::Identity;
use sluice_xds::Node;

/// The faults of this host: one line each, beginning with the key.
#[derive(Debug, Default)]
pub struct Faults {
    /// Files with certificates, tokens and facts that cannot be used.
    pub files: Vec<String>,
    /// Directories and files that are missing or not accessible.
    pub host: Vec<String>,
}

/// Reads all files with certificates and tokens once, as the start does.
///
/// # Errors
/// One line for each place with a file that cannot be used, beginning with the key.
pub(super) fn check_certificates(config: &Config) -> Result<(), Vec<String>> {
    let faults = [servers::faults(&config.servers), tls::faults(config), admin::faults(config)].concat();
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// As [`check_certificates`], the file of the facts, and the kubeconfig of the ledger.
///
/// # Errors
/// One line for each file that cannot be used, beginning with the key.
pub fn check_files(config: &Config) -> Result<(), Vec<String>> {
    let mut faults = check_certificates(config).err().unwrap_or_default();
    faults.extend(facts::load(config).err());
    if let Some(LedgerStore::Kubernetes(KubernetesSettings { access, .. })) = store(config) {
        faults.extend(access.check().err().map(|fault| format!("ledger.kubernetes.kubeconfig: {fault}")));
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// The effect of the class rules on one node (see [`config::explain_classes`]), with the facts of the node's
/// client. `has_files`: the files of this host are those of the relay. Otherwise nothing is known of the
/// client.
///
/// # Errors
/// The fault of the file with the facts.
pub fn explain_classes(
    config: &Config,
    node: &Node,
    identity: &Identity,
    has_files: bool,
) -> Result<String, String> {
    let table = if has_files { facts::load(config)? } else { Arc::default() };
    let classes = config.node_classes.clone().with_facts(table);
    let missing = facts::missing_fields(&classes);
    let mut text = config::explain_classes(&classes, node, identity);
    if let Some(source) = &config.facts {
        // Writing to a String can't fail.
        let _ = writeln!(text, "facts.key: {}", explain_key(&classes.facts, node, source));
    }
    for field in missing {
        // Writing to a String can't fail.
        let _ = writeln!(text, "split_by.facts: no entry of `facts` has the field {field}");
    }
    Ok(text)
}

/// The keys of a node in the table of facts, and the one that counts.
fn explain_key(facts: &Facts, node: &Node, source: &FactsSource) -> String {
    let keys = facts.key.texts(node);
    let quoted = keys.iter().map(|key| format!("{key:?}")).collect::<Vec<_>>().join(", ");
    match (keys.iter().find(|key| facts.table.has(key)), source) {
        _ if keys.is_empty() => "the node has none".to_owned(),
        (_, FactsSource::Kubernetes(_)) => {
            format!("{quoted}; the cluster is not asked here, so nothing is known")
        }
        (Some(key), FactsSource::File(_)) => format!("{key:?}"),
        (None, FactsSource::File(_)) => format!("no entry for {quoted}"),
    }
}

/// Looks at all files and directories that the start needs. Binds no address, and asks no server.
pub fn check_host(config: &Config) -> Faults {
    let mut host = Vec::new();
    for (path, kind) in servers_of(config) {
        match kind {
            ServerKind::Directory { path: directory, .. } => {
                let read = FileServer::check(directory, &FileSettings::default());
                host.extend(
                    read.err().into_iter().flatten().map(|fault| format!("{path}.server_uri: file:{fault}")),
                );
            }
            ServerKind::Grpc(_) | ServerKind::Rest(_) => {
                for (key, file) in secrets_of(kind) {
                    let read = readable(file);
                    host.extend(read.err().map(|error| {
                        format!("{path}.{key}: {}: cannot read the file: {error}", file.display())
                    }));
                }
            }
        }
    }
    if let Some(checkpoint) = &config.checkpoint {
        let fault = check_usable(&checkpoint.directory).err();
        host.extend(
            fault.map(|error| format!("checkpoint.directory: {}: {error}", checkpoint.directory.display())),
        );
    }
    Faults { files: check_files(config).err().unwrap_or_default(), host }
}

/// # Errors
/// The file is none, or no reader could have it.
fn readable(file: &Path) -> io::Result<()> {
    // Looked at first: to open a pipe waits for a writer.
    match fs::metadata(file)?.is_file() {
        true => File::open(file).map(drop),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

/// Everything that only the host can know, for a check on another host: one line each, beginning with the
/// key.
pub fn needs_of_host(config: &Config) -> Vec<String> {
    let mut needs = Vec::new();
    for (index, listener) in config.listeners.iter().enumerate() {
        needs.push(format!("listeners[{index}].address: whether {} is free", listener.address));
        let files = listener.tls.iter().flat_map(|tls| tls.files());
        needs.extend(files.map(|file| need_of_file(&format!("listeners[{index}].tls"), &file)));
    }
    needs.push(format!("admin.address: whether {} is free", config.admin.address));
    let files = config.admin.tls.iter().flat_map(|tls| tls.files());
    needs.extend(files.map(|file| need_of_file("admin.tls", &file)));
    for token in config.admin.auth.iter().flat_map(|auth| &auth.tokens) {
        needs.push(format!("admin.auth.tokens: the file {}", token.file.path.display()));
    }
    for (path, kind) in servers_of(config) {
        let tls = match kind {
            ServerKind::Directory { path: directory, .. } => {
                needs.push(format!("{path}.server_uri: the directory {}", directory.display()));
                continue;
            }
            ServerKind::Grpc(server) => {
                if let Endpoint::Tcp { host, .. } = &server.endpoint {
                    needs.push(format!("{path}.server_uri: whether {host} can be reached"));
                }
                &server.credentials.tls
            }
            ServerKind::Rest(server) => {
                needs.push(format!("{path}.server_uri: whether {} can be reached", server.host));
                &server.credentials.tls
            }
        };
        let files = tls.iter().flat_map(|tls| tls.files());
        needs.extend(files.map(|file| need_of_file(&format!("{path}.channel_creds[tls].config"), &file)));
        needs
            .extend(secrets_of(kind).map(|(key, file)| format!("{path}.{key}: the file {}", file.display())));
    }
    needs.extend(config.facts.iter().map(|source| match source {
        FactsSource::File(file) => format!("facts.file: the file {}", file.display()),
        FactsSource::Kubernetes(Interest {
            access: ClusterAccess { kubeconfig: Some(file), .. }, ..
        }) => {
            format!("facts.kubernetes: the file {}, and whether it may list Pods", file.display())
        }
        FactsSource::Kubernetes(_) => "facts.kubernetes: whether the Pod may list Pods".to_owned(),
    }));
    needs.extend(match store(config) {
        Some(LedgerStore::Kubernetes(settings)) => Some(match &settings.access.kubeconfig {
            Some(file) => format!("ledger.kubernetes: the file {}, and its rights", file.display()),
            None => "ledger.kubernetes: whether the Pod may write ConfigMaps and Leases".to_owned(),
        }),
        _ => None,
    });
    if let Some(checkpoint) = &config.checkpoint {
        needs.push(format!("checkpoint.directory: whether {} is writable", checkpoint.directory.display()));
    }
    needs
}

fn store(config: &Config) -> Option<&LedgerStore> {
    config.ledger.as_ref().map(|ledger| &ledger.store)
}

fn need_of_file(path: &str, file: &PlaceFile) -> String {
    format!("{path}.{}: the file {}", file.key, file.path.display())
}

/// All servers with the paths of their entries.
fn servers_of(config: &Config) -> impl Iterator<Item = (String, &ServerKind)> {
    config.servers.lists().flat_map(|(list, servers)| {
        let list = if list == "xds_servers" { list } else { format!("{list}.xds_servers") };
        let entry = move |(index, server)| (format!("{list}[{index}]"), server);
        servers.servers.iter().map(|server| &server.kind).enumerate().map(entry)
    })
}

/// The files with the tokens of calls to a server.
fn secrets_of(kind: &ServerKind) -> impl Iterator<Item = (&'static str, &Path)> {
    let calls = match kind {
        ServerKind::Grpc(server) => Some(&server.credentials.calls),
        ServerKind::Rest(server) => Some(&server.credentials.calls),
        ServerKind::Directory { .. } => None,
    };
    let token = calls.and_then(|calls| calls.token_file.as_deref()).map(|file| ("call_creds", file));
    let values = calls.into_iter().flat_map(|calls| &calls.initial).filter_map(|entry| match &entry.value {
        MetadataValue::File(file) => Some(("initial_metadata", file.as_path())),
        _ => None,
    });
    token.into_iter().chain(values)
}
