//! Listening sockets: TCP and unix.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, UnixListener};

use super::handshake::{ListenerTls, Security};
use super::passage::{Accepted, ListeningSocket, Passage, Pause, SocketFile};
use crate::driver::api::downstream::WhenUnavailable;
use crate::trust::rotation::Watched;
use crate::trust::server::ServerFiles;
use sluice_setting::{InForce, Setting, ms, seconds, time};

/// The accept queue. std and tokio ask for 128; in a storm of reconnects, every client whose SYN was dropped
/// would then lose a second. The kernel caps the queue at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Unsent bytes that the kernel may hold. Without the bound, megabytes of old messages gather in the socket
/// of a slow client, instead of the newest message being built just before the write (FLW-2).
const NOTSENT_LOWAT_BYTES: u32 = 16 * 1024;

/// Finds hosts that vanished without a FIN, also before HTTP/2 begins.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(30))
    .with_interval(Duration::from_secs(10))
    .with_retries(3);

/// The time that a REST or `Fetch*` request waits for a change (RST-9). By default clients give up after a
/// second, and their timeout is not on the wire. A poll needs 50 ms to reach its source and return.
pub const REST_HOLD: Setting<Duration> = Setting::new("rest_hold", ms(800), time(ms(50)..=seconds(300)));

/// A bound socket on which [`super::Server`] accepts.
#[derive(Debug)]
pub struct Listener {
    name: Arc<str>,
    options: InForce<ListenerOptions>,
    tls: Option<ListenerTls>,
    socket: Arc<ListeningSocket>,
    pause: Arc<Pause>,
}

/// The options that may differ from listener to listener. A connection reads them for each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerOptions {
    /// Serves methods and types of the v2 API (TYP-5).
    pub v2: bool,
    /// See [`REST_HOLD`].
    pub rest_hold: Duration,
    /// A stream keeps the value from its start.
    pub when_unavailable: WhenUnavailable,
    /// `None`: the server of each cluster decides.
    pub load_reports: Option<LoadReports>,
    pub compression: Compression,
}

/// The clients whose large responses are compressed, if they read that. Never Secrets: a peer that chooses a
/// part of a message could learn the rest by its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Other sluices. Most libraries of gRPC say that they read gzip, and gain nothing nearby.
    #[default]
    Relays,
    All,
    Off,
}

/// The treatment of streams of load reports, whatever the servers take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadReports {
    /// The relay keeps the streams open, and drops the reports.
    Drop,
    /// UNIMPLEMENTED.
    Refuse,
}

impl Default for ListenerOptions {
    fn default() -> Self {
        ListenerOptions {
            v2: false,
            rest_hold: REST_HOLD.default,
            when_unavailable: WhenUnavailable::Hold,
            load_reports: None,
            compression: Compression::default(),
        }
    }
}

impl Listener {
    /// Listens on TCP. An IPv6 wildcard address accepts IPv4 too, unless the host is configured otherwise.
    ///
    /// `name` is the name of the listener in the configuration. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The error of the kernel, e.g. that the address is in use.
    pub fn bind_tcp(name: &str, address: SocketAddr) -> io::Result<Listener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), None)?;
        socket.set_reuse_address(true)?;
        set_options(&socket)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from_std(socket.into())?;
        Ok(Listener::new(name, ListeningSocket::Tcp(listener)))
    }

    /// Takes over a socket that a predecessor or a supervisor has bound (HND-4). Whoever waits in its queue
    /// is served.
    ///
    /// # Errors
    /// The socket does not listen on TCP, or the error of the kernel.
    pub fn adopt_tcp(name: &str, socket: OwnedFd) -> io::Result<Listener> {
        let socket = adopted(socket, &[Domain::IPV4, Domain::IPV6])?;
        set_options(&socket)?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from_std(socket.into())?;
        Ok(Listener::new(name, ListeningSocket::Tcp(listener)))
    }

    /// As [`Listener::adopt_tcp`], for a unix socket with a file at `path`. `is_lent`: the file belongs to
    /// the supervisor, as do its permissions.
    ///
    /// # Errors
    /// The socket does not listen at this path, or the error of the kernel.
    pub fn adopt_unix(
        name: &str,
        path: &Path,
        mode: Option<u32>,
        socket: OwnedFd,
        is_lent: bool,
    ) -> io::Result<Listener> {
        let socket = adopted(socket, &[Domain::UNIX])?;
        if !fs::symlink_metadata(path)?.file_type().is_socket() {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        let file = SocketFile::new(path, is_lent)?;
        if let Some(mode) = mode.filter(|_| !is_lent) {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
        socket.listen(BACKLOG)?;
        let listener = UnixListener::from_std(socket.into())?;
        Ok(Listener::new(name, ListeningSocket::Unix { listener, file }))
    }

    /// Listens on a unix socket. Replaces a stale socket file; the new file is removed when the listener is
    /// dropped. `mode` gives the permissions of the file, e.g. `0o660`; without a mode, the umask decides.
    ///
    /// # Errors
    /// `AddrInUse` if another process listens there; `AlreadyExists` if the path is no socket; else the error
    /// of the kernel.
    pub fn bind_unix(name: &str, path: &Path, mode: Option<u32>) -> io::Result<Listener> {
        remove_stale(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        let file = SocketFile::new(path, false)?;
        // No client can connect before `listen`, so no client meets the wrong permissions.
        if let Some(mode) = mode {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
        socket.listen(BACKLOG)?;
        let listener = UnixListener::from_std(socket.into())?;
        Ok(Listener::new(name, ListeningSocket::Unix { listener, file }))
    }

    fn new(name: &str, socket: ListeningSocket) -> Listener {
        let options = InForce::new(ListenerOptions::default());
        Listener { name: name.into(), options, tls: None, socket: Arc::new(socket), pause: Arc::default() }
    }

    /// The way to pass the socket to a successor of the process.
    pub fn passage(&self) -> Passage {
        Passage::new(self.name.clone(), &self.socket, self.pause.clone())
    }

    #[must_use]
    pub fn with(self, options: ListenerOptions) -> Listener {
        Listener { options: InForce::new(options), ..self }
    }

    /// Speaks TLS, with the certificates in force at each handshake. `ends_at_expiry`: whether a connection
    /// ends with its client's certificate (CRT-9). Whoever holds the handles may put others in force.
    #[must_use]
    pub fn with_tls(self, watched: Watched<ServerFiles>, ends_at_expiry: InForce<bool>) -> Listener {
        Listener { tls: Some(ListenerTls::new(watched, ends_at_expiry)), ..self }
    }

    /// The same socket under another name and without TLS, with these options.
    #[must_use]
    pub fn renamed(self, name: &str, options: ListenerOptions) -> Listener {
        Listener { name: name.into(), tls: None, ..self }.with(options)
    }

    pub(super) fn security(&self) -> Security {
        self.tls.clone().map_or_else(|| Security::Plaintext(Arc::default()), Security::Tls)
    }

    /// The options in force. Whoever holds this handle may publish others.
    pub fn options(&self) -> InForce<ListenerOptions> {
        self.options.clone()
    }

    /// The name in the configuration.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The bound address; `None` for a unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match &*self.socket {
            ListeningSocket::Tcp(listener) => listener.local_addr().ok(),
            ListeningSocket::Unix { .. } => None,
        }
    }

    /// The path of a unix socket.
    pub fn path(&self) -> Option<&Path> {
        match &*self.socket {
            ListeningSocket::Tcp(_) => None,
            ListeningSocket::Unix { file, .. } => Some(&file.path),
        }
    }

    /// Accepts nothing while a hand-over of the socket is under way (HND-3).
    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        loop {
            self.pause.is_over().await;
            tokio::select! {
                biased;
                () = self.pause.begins() => {}
                accepted = self.socket.accept() => return accepted,
            }
        }
    }
}

/// Accepted sockets inherit these options. In a storm of reconnects, each client saves three system calls.
fn set_options(socket: &Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&KEEPALIVE)?;
    socket.set_tcp_notsent_lowat(NOTSENT_LOWAT_BYTES)
}

/// A socket of others, which may block.
fn adopted(socket: OwnedFd, domains: &[Domain]) -> io::Result<Socket> {
    let socket = Socket::from(socket);
    let is_fit = socket.is_listener()? && socket.r#type()? == Type::STREAM;
    if !is_fit || !domains.contains(&socket.domain()?) {
        let text = "the passed descriptor is no listening socket of this kind";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Removes the socket file of a process that no longer exists.
fn remove_stale(path: &Path) -> io::Result<()> {
    let file_type = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !file_type.is_socket() {
        let text = format!("{} exists and is not a socket", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => {
            let text = format!("another process listens on {}", path.display());
            Err(io::Error::new(io::ErrorKind::AddrInUse, text))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use socket2::SockRef;

    #[tokio::test]
    async fn flw_2_accepted_sockets_inherit_the_options() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = Listener::bind_tcp("main", address.parse().unwrap()).unwrap();
            let _client = std::net::TcpStream::connect(listener.address().unwrap()).unwrap();
            let Accepted::Tcp(stream, _) = listener.accept().await.unwrap() else { panic!("not TCP") };
            let socket = SockRef::from(&stream);
            assert!(socket.tcp_nodelay().unwrap());
            assert!(socket.keepalive().unwrap());
            assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(30));
            assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(10));
            assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
            assert_eq!(socket.tcp_notsent_lowat().unwrap(), NOTSENT_LOWAT_BYTES);
        }
    }

    #[tokio::test]
    async fn the_socket_of_a_successor_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("xds.sock");
        let bind = || Arc::into_inner(Listener::bind_unix("local", &path, None).unwrap().socket).unwrap();
        // Most file systems reuse the inode at once; on other file systems the test proves nothing.
        for _ in 0..20 {
            let ListeningSocket::Unix { listener, file } = bind() else { panic!("not unix") };
            drop(listener);
            // Longer than a tick of the clock of the file system.
            tokio::time::sleep(Duration::from_millis(15)).await;
            let successor = bind();
            drop(file);
            assert!(path.exists(), "the successor's");
            drop(successor);
            assert!(!path.exists());
        }
    }

    #[tokio::test]
    async fn a_socket_file_is_replaced_only_if_nobody_listens() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("xds.sock");
        // std leaves its socket file behind.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let listener = Listener::bind_unix("local", &path, Some(0o640)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);

        let error = Listener::bind_unix("local", &path, None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        assert!(!path.exists(), "removed with the listener");

        fs::write(&path, "data").unwrap();
        let error = Listener::bind_unix("local", &path, None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"data");
    }

    #[tokio::test]
    async fn a_file_that_replaced_ours_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("xds.sock");
        let old = Listener::bind_unix("local", &path, None).unwrap();
        fs::rename(&path, directory.path().join("moved")).unwrap();
        let _new = Listener::bind_unix("local", &path, None).unwrap();
        drop(old);
        assert!(path.exists());
    }
}
