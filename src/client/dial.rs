//! One attempt to connect: resolve, connect, and wait for the server's SETTINGS.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout};

use super::tls::{OwnLeaf, Secured};
use super::transport::{ByteStream, Traffic, UpstreamTransport};
use super::{ClientSettings, GrpcAddress, ServerChannel};
use crate::telemetry::metrics::ClientMetrics;
use crate::trust::refusal::Reason;
use sluice_setting::InForce;
use sluice_xds::{Code, Status};

/// The longest list of response headers or trailers accepted.
const HEADER_BYTES_MAX: u32 = 64 << 10;

/// The maximum number of an attempt's failures in its status.
const FAILURES_NAMED: usize = 4;

pub(super) type Http2 = h2::client::Connection<UpstreamTransport, Bytes>;

/// The way to the server of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConnectionWay {
    /// `None`: a unix socket.
    pub(super) remote: Option<SocketAddr>,
    /// The address for which another one was sought.
    pub(super) avoided: Option<SocketAddr>,
}

impl ConnectionWay {
    /// Whether the connection leads elsewhere than to this address, or was sought in vain.
    pub(super) fn is_apart_from(self, address: SocketAddr) -> bool {
        self.remote != Some(address) || self.avoided == Some(address)
    }
}

/// An HTTP/2 connection with the server's SETTINGS received.
pub(super) struct Dialed {
    pub(super) send: h2::client::SendRequest<Bytes>,
    pub(super) h2: Http2,
    pub(super) traffic: Arc<Traffic>,
    /// The relay's certificate on the connection.
    pub(super) leaf: Option<OwnLeaf>,
    pub(super) way: ConnectionWay,
}

/// An HTTP/1.1 connection.
pub(super) struct Http1 {
    pub(super) transport: UpstreamTransport,
    pub(super) leaf: Option<OwnLeaf>,
}

/// The steps from a socket to a ready connection.
pub(super) trait Ready: Sized {
    fn make(
        dialer: &Dialer,
        secured: Secured,
        way: ConnectionWay,
    ) -> impl Future<Output = Result<Self, String>> + Send;
}

impl Ready for Dialed {
    async fn make(dialer: &Dialer, secured: Secured, way: ConnectionWay) -> Result<Dialed, String> {
        dialer.handshake(secured, way).await
    }
}

/// HTTP/1.1 begins without a greeting.
impl Ready for Http1 {
    async fn make(dialer: &Dialer, secured: Secured, _: ConnectionWay) -> Result<Http1, String> {
        let Secured { socket, leaf } = secured;
        Ok(Http1 {
            transport: UpstreamTransport::of_bytes(socket, Traffic::new(dialer.metrics.clone())),
            leaf,
        })
    }
}

/// Connects to one server.
#[derive(Debug)]
pub(super) struct Dialer {
    channel: ServerChannel,
    settings: InForce<ClientSettings>,
    metrics: Arc<ClientMetrics>,
    /// The last addresses of the name, for use when resolution fails (FU31).
    last_good: Mutex<Vec<SocketAddr>>,
}

impl Dialer {
    pub(super) fn new(
        channel: ServerChannel,
        settings: InForce<ClientSettings>,
        metrics: Arc<ClientMetrics>,
    ) -> Dialer {
        if channel.tls.is_some() {
            metrics.expect_tls_failures(Reason::ALL.map(Reason::name));
        }
        Dialer { channel, settings, metrics, last_good: Mutex::new(Vec::new()) }
    }

    pub(super) fn channel(&self) -> &ServerChannel {
        &self.channel
    }

    /// Tries every address of the server once. The first connection to become ready wins. `avoided`: an
    /// address that is tried last.
    pub(super) async fn dial<T: Ready>(&self, avoided: Option<SocketAddr>) -> Result<T, Status> {
        let address = &self.channel.address;
        let result = match address {
            GrpcAddress::Unix(path) => match self.within_connect(UnixStream::connect(path)).await {
                Ok(stream) => self.make_ready(Box::new(stream), ConnectionWay::default()).await,
                Err(problem) => Err(problem),
            },
            GrpcAddress::Tcp { host, port } => match self.resolve(host, *port).await {
                Ok(addresses) => self.race(&ordered(addresses, avoided), avoided).await,
                Err(problem) => Err(problem),
            },
        };
        result.map_err(|problem| Status::new(Code::Unavailable, format!("{address}: {problem}")))
    }

    async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
        let answer = self.within_connect(tokio::net::lookup_host((host, port))).await;
        let mut last_good = self.last_good.lock();
        resolved(&mut last_good, answer.map(Iterator::collect))
    }

    /// Starts the addresses in order; the next when an attempt fails or takes too long.
    async fn race<T: Ready>(
        &self,
        addresses: &[SocketAddr],
        avoided: Option<SocketAddr>,
    ) -> Result<T, String> {
        let mut remaining = addresses.iter();
        let mut attempts = FuturesUnordered::new();
        let mut failures = Vec::new();
        loop {
            attempts.extend(remaining.next().map(|address| self.attempt(*address, avoided)));
            tokio::select! {
                result = attempts.next() => match result {
                    Some(Ok(dialed)) => return Ok(dialed),
                    Some(Err(failure)) => failures.push(failure),
                    None => {
                        failures.truncate(FAILURES_NAMED);
                        return Err(failures.join("; "));
                    }
                },
                () = sleep(self.settings.get().address_stagger), if remaining.len() > 0 => {}
            }
        }
    }

    async fn attempt<T: Ready>(&self, address: SocketAddr, avoided: Option<SocketAddr>) -> Result<T, String> {
        let connect = async {
            let stream = self.within_connect(TcpStream::connect(address)).await?;
            self.set_options(&stream).map_err(|error| error.to_string())?;
            let way = ConnectionWay { remote: Some(address), avoided };
            self.make_ready(Box::new(stream), way).await
        };
        connect.await.map_err(|problem: String| format!("{address}: {problem}"))
    }

    /// From a connected socket to a ready connection. TLS has a time limit of its own (TLS-7).
    async fn make_ready<T: Ready>(
        &self,
        socket: Box<dyn ByteStream>,
        way: ConnectionWay,
    ) -> Result<T, String> {
        let secured = match &self.channel.tls {
            // TLS-8: nothing falls back to plaintext.
            None if self.channel.credentials.tls.is_some() => {
                return Err("the certificates were not read".to_owned());
            }
            None => Secured { socket, leaf: None },
            Some(tls) => {
                let limit = self.settings.get().handshake_timeout;
                tls.secure(socket, limit, &self.metrics).await?
            }
        };
        T::make(self, secured, way).await
    }

    /// A half-open connection must be noticed within seconds (FU3).
    fn set_options(&self, stream: &TcpStream) -> std::io::Result<()> {
        let settings = self.settings.get().tcp_keepalive;
        let keepalive = TcpKeepalive::new()
            .with_time(settings.time)
            .with_interval(settings.interval)
            .with_retries(settings.probes);
        let socket = SockRef::from(stream);
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_keepalive(&keepalive)?;
        socket.set_tcp_user_timeout(Some(settings.user_timeout))
    }

    /// The library's handshake does not wait for the server's SETTINGS. So the connection starts without
    /// permission to open streams. The arrival of SETTINGS raises the permission, to infinity if they don't
    /// state a number.
    async fn handshake(&self, secured: Secured, way: ConnectionWay) -> Result<Dialed, String> {
        let Secured { socket, leaf } = secured;
        let traffic = Traffic::new(self.metrics.clone());
        let transport = UpstreamTransport::of_frames(socket, traffic.clone());
        let handshake = async {
            let (send, mut h2) = h2::client::Builder::new()
                .initial_max_send_streams(0)
                .initial_window_size(self.settings.get().stream_window)
                .initial_connection_window_size(self.settings.get().connection_window)
                .max_header_list_size(HEADER_BYTES_MAX)
                .enable_push(false)
                .handshake::<_, Bytes>(transport)
                .await
                .map_err(|error| error.to_string())?;
            poll_fn(|context| match Pin::new(&mut h2).poll(context) {
                Poll::Ready(Ok(())) => Poll::Ready(Err("the server closed the connection".to_owned())),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error.to_string())),
                Poll::Pending if h2.max_concurrent_send_streams() > 0 => Poll::Ready(Ok(())),
                Poll::Pending => Poll::Pending,
            })
            .await?;
            Ok(Dialed { send, h2, traffic, leaf, way })
        };
        let limit = self.settings.get().settings_timeout;
        timeout(limit, handshake)
            .await
            .unwrap_or_else(|_| Err(format!("no HTTP/2 SETTINGS that allow a stream within {limit:?}")))
    }

    async fn within_connect<T>(&self, work: impl Future<Output = std::io::Result<T>>) -> Result<T, String> {
        let limit = self.settings.get().connect_timeout;
        match timeout(limit, work).await {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {limit:?}")),
        }
    }
}

/// The addresses to try: the resolver's answer, or the last good addresses if there is none (FU31).
fn resolved(
    last_good: &mut Vec<SocketAddr>,
    answer: Result<Vec<SocketAddr>, String>,
) -> Result<Vec<SocketAddr>, String> {
    match answer {
        Ok(addresses) if !addresses.is_empty() => {
            last_good.clone_from(&addresses);
            Ok(addresses)
        }
        _ if !last_good.is_empty() => Ok(last_good.clone()),
        Ok(_) => Err("the name resolves to no address".to_owned()),
        Err(problem) => Err(format!("the name does not resolve: {problem}")),
    }
}

/// The addresses with this one last, if it is one of them: another address may be another replica of the
/// server (PRF-18).
fn ordered(mut addresses: Vec<SocketAddr>, last: Option<SocketAddr>) -> Vec<SocketAddr> {
    addresses.sort_by_key(|address| Some(*address) == last);
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prf_18_an_avoided_address_is_tried_last() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let all = || vec![address(1), address(2), address(3)];
        assert_eq!(ordered(all(), Some(address(1))), [address(2), address(3), address(1)]);
        assert_eq!((ordered(all(), None), ordered(all(), Some(address(9)))), (all(), all()));
    }

    #[test]
    fn fu31_the_last_good_addresses_are_kept() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let mut last_good = Vec::new();
        assert!(resolved(&mut last_good, Ok(vec![])).is_err());
        assert!(resolved(&mut last_good, Err("SERVFAIL".to_owned())).is_err());
        assert_eq!(
            resolved(&mut last_good, Ok(vec![address(1), address(2)])),
            Ok(vec![address(1), address(2)])
        );
        assert_eq!(resolved(&mut last_good, Err("SERVFAIL".to_owned())), Ok(vec![address(1), address(2)]));
        assert_eq!(resolved(&mut last_good, Ok(vec![])), Ok(vec![address(1), address(2)]));
        assert_eq!(resolved(&mut last_good, Ok(vec![address(3)])), Ok(vec![address(3)]));
    }
}
