//! `sluice bootstrap`: configurations for clients of the relay.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sluice::bootstrap::{self, BootstrapTls, ClientNode, EnvoyOptions, GrpcOptions, Language};
use sluice::config::{self, Config, Endpoint, ListenerSettings};
use sluice::trust::server::ClientCertificate;

use crate::host::hostname;
use crate::{CONFIG_HELP, Failure, load_or_quickstart};

#[derive(Subcommand)]
pub enum Client {
    /// Envoy: a static configuration in YAML; Envoy gets everything else over ADS.
    Envoy {
        #[command(flatten)]
        options: BootstrapArgs,
        /// Use the state-of-the-world variant of the protocol instead of delta.
        #[arg(long)]
        sotw: bool,
        /// Port of Envoy's own admin listener, on 127.0.0.1.
        #[arg(long, value_name = "PORT", default_value_t = 9901)]
        admin_port: u16,
    },
    /// gRPC: a bootstrap in JSON, for the environment variable GRPC_XDS_BOOTSTRAP.
    Grpc {
        #[command(flatten)]
        options: BootstrapArgs,
        /// The language of the client [default: what works in all, as far as there is such a thing].
        #[arg(long, value_name = "LANGUAGE")]
        language: Option<Language>,
        /// Names of the listeners of gRPC servers; %s stands for the address [default: the configuration's].
        #[arg(long, value_name = "TEMPLATE")]
        server_listener_template: Option<String>,
    },
}

#[derive(Args)]
pub struct BootstrapArgs {
    #[arg(long, value_name = "FILE", help = CONFIG_HELP)]
    config: Option<PathBuf>,
    /// Name of the listener to connect to [default: the first].
    #[arg(long, value_name = "NAME")]
    listener: Option<String>,
    /// The relay's address as the client reaches it: HOST:PORT or unix:PATH [default: the listener's, on this
    /// host].
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// Node id of the client [default: the name of this host].
    #[arg(long, value_name = "ID")]
    node_id: Option<String>,
    /// Node cluster of the client.
    #[arg(long, value_name = "CLUSTER", default_value = "default")]
    node_cluster: String,
    /// Authorities of the relay's certificate, in PEM; for a listener with TLS.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The client's certificate chain, in PEM; for a listener that asks for client certificates.
    #[arg(long, value_name = "FILE", requires = "private_key")]
    certificate: Option<PathBuf>,
    /// The key of the client's certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    private_key: Option<PathBuf>,
}

/// Prints the bootstrap of a client.
pub fn print_bootstrap(client: Client) -> Result<(), Failure> {
    match client {
        Client::Envoy { options, sotw, admin_port } => {
            let (ClientAccess { relay, node, tls }, _) = connection(options)?;
            print!("{}", bootstrap::envoy(&relay, &EnvoyOptions { node, is_sotw: sotw, admin_port, tls }));
        }
        Client::Grpc { options, language, server_listener_template } => {
            let (ClientAccess { relay, node, tls }, config) = connection(options)?;
            let advice = match language {
                Some(language) => {
                    language.check(tls.as_ref()).map_err(|text| Failure::Usage(text.to_owned()))?;
                    language.advice(tls.as_ref())
                }
                None => Language::advice_to_all(tls.as_ref()),
            };
            if let Some(text) = advice {
                eprintln!("sluice: {text}");
            }
            let authorities = config.servers.authorities.keys().cloned().collect();
            let mut templates = config.servers.templates;
            templates.server = server_listener_template.or(templates.server);
            print!(
                "{}",
                bootstrap::grpc(&relay, &GrpcOptions { node, language, tls, authorities, templates })
            );
        }
    }
    Ok(())
}

/// A client's way to a listener.
struct ClientAccess {
    relay: Endpoint,
    node: ClientNode,
    tls: Option<BootstrapTls>,
}

/// The way, and the configuration of the relay.
fn connection(options: BootstrapArgs) -> Result<(ClientAccess, Config), Failure> {
    let config = load_or_quickstart(options.config.clone())?;
    let listener = config::find_listener(&config, options.listener.as_deref()).map_err(Failure::Usage)?;
    let tls = client_tls(listener, &options)?;
    let id = options.node_id.unwrap_or_else(hostname);
    let node = ClientNode { id, cluster: options.node_cluster };
    let relay = match &options.address {
        Some(text) => bootstrap::other_endpoint(text)
            .map_err(|expected| Failure::Usage(format!("--address: found {text:?}; expected {expected}")))?,
        None => bootstrap::local_endpoint(&listener.address),
    };
    Ok((ClientAccess { relay, node, tls }, config))
}

/// The files that a client of the listener needs.
fn client_tls(listener: &ListenerSettings, options: &BootstrapArgs) -> Result<Option<BootstrapTls>, Failure> {
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let pair = options.certificate.as_ref().zip(options.private_key.as_ref());
    let pair = pair.map(|(certificate, key)| (absolute(certificate), absolute(key)));
    let usage = |text: &str| Err(Failure::Usage(format!("listener {}: {text}", listener.name)));
    match (&listener.tls, &options.ca) {
        (None, None) if pair.is_none() => Ok(None),
        (None, _) => usage("speaks plaintext; leave out --ca, --certificate and --private-key"),
        (Some(_), None) => usage("speaks TLS; pass --ca FILE, the authorities of the relay's certificate"),
        (Some(tls), Some(_)) if pair.is_none() && tls.client_certificate == ClientCertificate::Required => {
            usage("requires client certificates; pass --certificate FILE and --private-key FILE")
        }
        (Some(_), Some(ca)) => Ok(Some(BootstrapTls { authorities: absolute(ca), pair })),
    }
}
