//! TLS towards one server: the handshake, and the errors of the connection in words (TLS-7).

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::first_bytes::FirstBytes;
use super::transport::ByteStream;
use crate::telemetry::metrics::{ClientMetrics, TlsMetrics};
use crate::telemetry::wall_now;
use crate::trust::certificate::Certificate;
use crate::trust::client::{ClientTls, Failures, Generation, Protocol, place};
use crate::trust::fault::Fault;
use crate::trust::refusal::{Reason, Refusal};
use crate::trust::rotation::Watched;
use sluice_setting::InForce;

/// The part of our certificate's life after which connections made with it are replaced (CRT-10).
const LIFE_USED: f64 = 0.9;

/// The longest pause between two looks at the clock: wall time may jump (CRT-12).
const LOOK: Duration = Duration::from_secs(60);

/// The pause between two looks for a new certificate once the old one is nearly over.
const LOOK_FOR_NEW: Duration = Duration::from_secs(1);

/// Reads for an alert behind a failed write. An alert is one record, behind those that the server sent
/// before.
const ALERT_READS: usize = 4;

/// TLS towards one server, with its files in force.
pub(super) struct UpstreamTls {
    files: Watched<Generation>,
    failures: Arc<Failures>,
    protocol: Protocol,
    name: ServerName<'static>,
}

impl fmt::Debug for UpstreamTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamTls").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A socket that is ready for HTTP.
pub(super) struct Secured {
    pub(super) socket: Box<dyn ByteStream>,
    /// The relay's certificate on this connection.
    pub(super) leaf: Option<OwnLeaf>,
}

impl UpstreamTls {
    /// Reads the files, and watches them from then on. `host` is the host of the address, and `place` the
    /// name of the files in logs and metrics.
    pub(super) fn new(
        settings: &ClientTls,
        host: Option<&str>,
        protocol: Protocol,
        place_name: &str,
        metrics: &TlsMetrics,
    ) -> Result<UpstreamTls, Fault> {
        let files = place(place_name.to_owned(), settings, protocol).watch(metrics.clone())?;
        let name = settings.server_name.as_deref().or(host).map(|name| name.trim_end_matches('.'));
        // Without a name, `match_sans` decides, and an address sends no SNI (IDN-7).
        let unnamed = || ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
        let name = name.and_then(|name| ServerName::try_from(name.to_owned()).ok()).unwrap_or_else(unnamed);
        Ok(UpstreamTls { files, failures: Arc::new(Failures::new(settings)), protocol, name })
    }

    pub(super) fn files(&self) -> Watched<Generation> {
        self.files.clone()
    }

    /// The handshake on a connected socket, within `limit`.
    ///
    /// # Errors
    /// The reason in words. Plaintext is never tried instead (TLS-8).
    pub(super) async fn secure(
        &self,
        socket: Box<dyn ByteStream>,
        limit: Duration,
        metrics: &Arc<ClientMetrics>,
    ) -> Result<Secured, String> {
        let failed = |refusal: Refusal| {
            metrics.tls_failures(refusal.reason.name()).inc();
            refusal.text
        };
        let generation = self.files.in_force().epoch();
        let connector = TlsConnector::from(generation.config.clone());
        let handshake = connector.connect(self.name.clone(), FirstBytes::new(socket)).into_fallible();
        let stream = match timeout(limit, handshake).await {
            Ok(Ok(stream)) => stream,
            Ok(Err((error, socket))) => return Err(failed(self.reason_of(&error, &socket))),
            Err(_) => {
                let text = format!("the TLS handshake did not end within {limit:?}");
                return Err(failed(Refusal::new(Reason::Timeout, text)));
            }
        };
        let (_, connection) = stream.get_ref();
        // HTTP/1.1 is the default of servers without ALPN; HTTP/2 is not (TLS-3).
        if self.protocol == Protocol::Http2 && connection.alpn_protocol() != Some(self.protocol.alpn()) {
            let text = "the server did not select HTTP/2 by ALPN; expected a gRPC server";
            return Err(failed(Refusal::new(Reason::Alpn, text)));
        }
        let leaf = generation
            .leaf()
            .map(|leaf| OwnLeaf { leaf: Arc::new(leaf.clone()), in_force: self.files.in_force().clone() });
        let (failures, metrics) = (self.failures.clone(), metrics.clone());
        let is_framed = self.protocol == Protocol::Http2;
        let socket = Box::new(TlsSocket {
            stream,
            failures,
            metrics,
            is_framed,
            has_spoken: false,
            is_told: false,
            failed_write: None,
        });
        Ok(Secured { socket, leaf })
    }

    fn reason_of(&self, error: &io::Error, socket: &FirstBytes) -> Refusal {
        if let Some(protocol) = socket.not_tls() {
            let text = format!("the server does not speak TLS: its first bytes are {protocol}");
            return Refusal::new(Reason::NotTls, text);
        }
        self.failures.reason_of(error).unwrap_or_else(|| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.failures.silent_end("during the TLS handshake"),
            _ => Refusal::new(Reason::Other, format!("the TLS handshake failed: {error}")),
        })
    }
}

/// The relay's certificate on one connection.
#[derive(Clone)]
pub(super) struct OwnLeaf {
    leaf: Arc<Certificate>,
    in_force: InForce<Generation>,
}

impl fmt::Debug for OwnLeaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnLeaf").field("not_after", &self.leaf.not_after).finish_non_exhaustive()
    }
}

impl OwnLeaf {
    /// Waits until the connection must be replaced: its certificate is nearly over, and there is a newer one
    /// (CRT-10). Without a newer one, another connection would be no better.
    pub(super) async fn is_over(&self) {
        while !self.is_over_at(wall_now()) {
            let left = self.replace_at().duration_since(wall_now()).unwrap_or_default();
            sleep(left.clamp(LOOK_FOR_NEW, LOOK)).await;
        }
    }

    pub(super) fn is_over_at(&self, now: SystemTime) -> bool {
        now >= self.replace_at() && self.in_force.get().leaf() != Some(&self.leaf)
    }

    fn replace_at(&self) -> SystemTime {
        let life = self.leaf.not_after.duration_since(self.leaf.not_before).unwrap_or_default();
        self.leaf.not_before + life.mul_f64(LIFE_USED)
    }
}

/// A TLS connection whose errors have words.
struct TlsSocket {
    stream: TlsStream<FirstBytes>,
    failures: Arc<Failures>,
    metrics: Arc<ClientMetrics>,
    /// HTTP/2 tells the end of each message by itself.
    is_framed: bool,
    /// The server has sent something above TLS.
    has_spoken: bool,
    /// The failure was counted.
    is_told: bool,
    /// The error of a write, while the server's last bytes are awaited.
    failed_write: Option<io::Error>,
}

impl TlsSocket {
    /// The end of the connection. HTTP/2 servers speak first: an end before is a refusal without an alert
    /// (TLS-7).
    fn end(&mut self) -> io::Result<()> {
        if !self.is_framed || self.has_spoken {
            return Ok(());
        }
        let Refusal { reason, text } = self.failures.silent_end("after the TLS handshake");
        self.count(reason);
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, text))
    }

    fn count(&mut self, reason: Reason) {
        if !self.is_told {
            self.is_told = true;
            self.metrics.tls_failures(reason.name()).inc();
        }
    }

    /// The error in words.
    fn explain(&mut self, error: io::Error) -> io::Error {
        let Some(Refusal { reason, text }) = self.failures.reason_of(&error) else { return error };
        self.count(reason);
        io::Error::new(error.kind(), text)
    }

    /// The alert that explains a failed write. A server that refuses our certificate sends the alert and
    /// closes, and our next write fails before we have read (TLS 1.3). Pending until the server's last bytes
    /// or its end are read.
    fn alert_behind(&mut self, context: &mut Context<'_>, error: io::Error) -> Poll<io::Error> {
        let mut bytes = [0; 1024];
        for _ in 0..ALERT_READS {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(Err(error)) if self.failures.reason_of(&error).is_some() => {
                    return Poll::Ready(self.explain(error));
                }
                Poll::Ready(_) => break,
                Poll::Pending => {
                    self.failed_write = Some(error);
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(self.explain(error))
    }

    fn write<T>(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut TlsStream<FirstBytes>>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let error = match self.failed_write.take() {
            Some(error) => error,
            None => match ready!(write(Pin::new(&mut self.stream), context)) {
                Ok(done) => return Poll::Ready(Ok(done)),
                Err(error) => error,
            },
        };
        self.alert_behind(context, error).map(Err)
    }
}

impl AsyncRead for TlsSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let error = match ready!(Pin::new(&mut self.stream).poll_read(context, buffer)) {
            Ok(()) if buffer.filled().len() > before => {
                self.has_spoken = true;
                return Poll::Ready(Ok(()));
            }
            Ok(()) => return Poll::Ready(self.end()),
            Err(error) => error,
        };
        Poll::Ready(match error.kind() {
            // The end without close_notify. HTTP/2 knows by itself whether a stream was cut (TLS-10).
            io::ErrorKind::UnexpectedEof if self.is_framed => self.end(),
            io::ErrorKind::UnexpectedEof => Err(io::Error::new(
                error.kind(),
                "the server closed the connection without TLS's close_notify",
            )),
            _ => Err(self.explain(error)),
        })
    }
}

impl AsyncWrite for TlsSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |stream, context| stream.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write(context, |stream, context| stream.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
