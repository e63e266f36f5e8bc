//! A connection to a relay: TCP or a unix socket, in plaintext or TLS.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::address::{RelayPlace, Target};
use super::outcome::Failure;
use crate::trust::anchors::AnchorFiles;
use crate::trust::client::{ClientTls, Protocol, ServerAuthorities, place};
use crate::trust::pair::PairFiles;

/// The files and the name of arguments about TLS.
#[derive(Clone, Debug, Default)]
pub(super) struct TlsFiles {
    pub authorities: Option<PathBuf>,
    pub pair: Option<(PathBuf, PathBuf)>,
    pub server_name: Option<String>,
}

/// TLS towards relays.
#[derive(Clone, Debug)]
pub(super) struct RelayTls {
    config: Arc<ClientConfig>,
    server_name: Option<String>,
}

impl RelayTls {
    /// `None` if no argument asks for TLS.
    pub(super) fn read(files: TlsFiles) -> Result<Option<RelayTls>, Failure> {
        let TlsFiles { authorities, pair, server_name } = files;
        if authorities.is_none() && pair.is_none() && server_name.is_none() {
            return Ok(None);
        }
        let authorities = authorities.map_or(ServerAuthorities::System, |file| {
            ServerAuthorities::Files(AnchorFiles::Authorities { file, trust_domain: None })
        });
        let pair = pair.map(|(certificate, private_key)| PairFiles { certificate, private_key });
        let settings = ClientTls { authorities, pair, ..ClientTls::default() };
        let read = place("command".to_owned(), &settings, Protocol::Http1).read();
        let config = read.map_err(|fault| Failure::Usage(fault.to_string()))?.config;
        Ok(Some(RelayTls { config, server_name }))
    }
}

pub(super) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// Connects to a relay. The second value is the `Host` of requests: an address, because the relay refuses
/// other names than its own (ADM-2).
///
/// # Errors
/// The reason, for people.
pub(super) async fn connect(relay: &Target, tls: Option<&RelayTls>) -> Result<(Box<dyn Io>, String), String> {
    let (io, host): (Box<dyn Io>, String) = match &relay.place {
        RelayPlace::Nowhere(reason) => return Err(reason.clone()),
        RelayPlace::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(|error| error.to_string())?;
            (Box::new(stream), "localhost".to_owned())
        }
        RelayPlace::Tcp(addresses) => {
            let mut last = Err("the name has no address".to_owned());
            for address in addresses {
                last = TcpStream::connect(address).await.map_err(|error| error.to_string());
                if let Ok(stream) = last {
                    return secure(Box::new(stream), address.to_string(), relay, tls).await;
                }
            }
            return Err(last.err().unwrap_or_default());
        }
    };
    secure(io, host, relay, tls).await
}

async fn secure(
    io: Box<dyn Io>,
    host: String,
    relay: &Target,
    tls: Option<&RelayTls>,
) -> Result<(Box<dyn Io>, String), String> {
    let Some(tls) = tls else { return Ok((io, host)) };
    let name = tls.server_name.as_deref().unwrap_or(&relay.name);
    let name =
        ServerName::try_from(name.to_owned()).map_err(|_| format!("{name:?} is no name of a server"))?;
    let connecting = TlsConnector::from(tls.config.clone()).connect(name, io);
    let io = connecting.await.map_err(|error| format!("TLS: {error}"))?;
    Ok((Box::new(io), host))
}
