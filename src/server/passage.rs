//! A bound socket, and its way to a successor of the process (HND-3, HND-4).

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;

/// Steers a listener from outside. A listener that has ended meanwhile is left alone.
#[derive(Clone, Debug)]
pub struct Passage {
    name: Arc<str>,
    socket: Weak<ListeningSocket>,
    pause: Arc<Pause>,
}

impl Passage {
    pub(super) fn new(name: Arc<str>, socket: &Arc<ListeningSocket>, pause: Arc<Pause>) -> Passage {
        Passage { name, socket: Arc::downgrade(socket), pause }
    }

    /// The name of the listener in the configuration.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A descriptor for the successor; `None` if the listener has ended.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn descriptor(&self) -> Option<io::Result<OwnedFd>> {
        Some(self.socket.upgrade()?.descriptor())
    }

    /// Whether the file of a unix socket belongs to a supervisor.
    pub fn is_lent(&self) -> bool {
        self.socket.upgrade().is_some_and(|socket| socket.is_lent())
    }

    /// Accepts nothing from now on; connections wait in the queue of the kernel.
    pub fn pause(&self) {
        self.pause.0.send_replace(true);
    }

    /// The hand-over has failed, or the successor has died: accepts again.
    pub fn resume(&self) {
        self.pause.0.send_replace(false);
    }

    /// The successor accepts: the file of the socket is not removed with the listener.
    pub fn give_up(&self) {
        if let Some(socket) = self.socket.upgrade() {
            socket.own_file(false);
        }
    }

    /// The successor has died: the file of the socket is removed with the listener.
    pub fn take_back(&self) {
        if let Some(socket) = self.socket.upgrade() {
            socket.own_file(true);
        }
    }
}

/// Whether a listener may accept.
#[derive(Debug)]
pub(super) struct Pause(watch::Sender<bool>);

impl Default for Pause {
    fn default() -> Pause {
        Pause(watch::Sender::new(false))
    }
}

impl Pause {
    pub(super) async fn is_over(&self) {
        if *self.0.borrow() {
            // The sender lives as long as `self`.
            let _ = self.0.subscribe().wait_for(|is_paused| !is_paused).await;
        }
    }

    pub(super) async fn begins(&self) {
        let _ = self.0.subscribe().wait_for(|is_paused| *is_paused).await;
    }
}

/// A socket that accepts.
#[derive(Debug)]
pub(super) enum ListeningSocket {
    Tcp(TcpListener),
    Unix { listener: UnixListener, file: SocketFile },
}

/// An accepted connection.
pub(crate) enum Accepted {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

impl Accepted {
    /// The address of the peer; `None` on a unix socket.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match self {
            Accepted::Tcp(_, address) => Some(*address),
            Accepted::Unix(_) => None,
        }
    }

    /// The user at the other end of a unix socket, as the kernel knows it (IDN-1). `None` on TCP.
    pub(super) fn user(&self) -> Option<sluice_identity::Identity> {
        match self {
            Accepted::Tcp(..) => None,
            Accepted::Unix(stream) => {
                let credentials = stream.peer_cred().ok()?;
                Some(sluice_identity::Identity::Unix { uid: credentials.uid() })
            }
        }
    }
}

impl ListeningSocket {
    pub(super) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            ListeningSocket::Tcp(listener) => {
                listener.accept().await.map(|(stream, address)| Accepted::Tcp(stream, address))
            }
            ListeningSocket::Unix { listener, .. } => {
                listener.accept().await.map(|(stream, _)| Accepted::Unix(stream))
            }
        }
    }

    /// A second descriptor of the same socket, closed at exec.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        match self {
            ListeningSocket::Tcp(listener) => listener.as_fd().try_clone_to_owned(),
            ListeningSocket::Unix { listener, .. } => listener.as_fd().try_clone_to_owned(),
        }
    }

    /// Whether the file of the socket belongs to a supervisor.
    pub(super) fn is_lent(&self) -> bool {
        match self {
            ListeningSocket::Tcp(_) => false,
            ListeningSocket::Unix { file, .. } => file.is_lent,
        }
    }

    /// Whether the file of the socket goes when this process closes the socket, unless it is a supervisor's
    /// (HND-4).
    pub(super) fn own_file(&self, is_owned: bool) {
        if let ListeningSocket::Unix { file, .. } = self {
            file.is_ours.store(is_owned, Ordering::Relaxed);
        }
    }
}

/// The file of our socket, removed on drop unless another file has taken its place.
#[derive(Debug)]
pub(super) struct SocketFile {
    pub(super) path: PathBuf,
    identity: Identity,
    /// The file belongs to a supervisor.
    is_lent: bool,
    /// False while another process has the socket.
    is_ours: AtomicBool,
}

/// Device, inode and modification time: the kernel reuses the number of an inode as soon as its socket is
/// closed.
type Identity = (u64, u64, i64, i64);

impl SocketFile {
    pub(super) fn new(path: &Path, is_lent: bool) -> io::Result<Self> {
        let (path, identity, is_ours) = (path.to_owned(), identity(path)?, AtomicBool::new(true));
        Ok(SocketFile { path, identity, is_lent, is_ours })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = !self.is_lent && self.is_ours.load(Ordering::Relaxed);
        if is_ours && identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<Identity> {
    fs::symlink_metadata(path)
        .map(|metadata| (metadata.dev(), metadata.ino(), metadata.mtime(), metadata.mtime_nsec()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::future::Future;
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use socket2::SockRef;

    use super::Accepted;
    use crate::server::Listener;

    /// HND-3: a client that connects while nobody accepts waits, and is served by the same process after a
    /// failure.
    #[tokio::test]
    async fn hnd_3_a_paused_listener_leaves_its_clients_in_the_queue() {
        let listener = Listener::bind_tcp("main", "127.0.0.1:0".parse().unwrap()).unwrap();
        let passage = listener.passage();
        passage.pause();
        let _client = TcpStream::connect(listener.address().unwrap()).unwrap();
        let mut accepting = pin!(listener.accept());
        for _ in 0..5 {
            assert!(accepting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            tokio::task::yield_now().await;
        }
        passage.resume();
        accepting.await.unwrap();
    }

    /// HND-4: the passed socket may block, and has lost nothing of its queue.
    #[tokio::test]
    async fn hnd_4_an_adopted_socket_serves_the_queue_with_our_options() {
        let old = Listener::bind_tcp("main", "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = old.address().unwrap();
        let passed = old.passage().descriptor().unwrap().unwrap();
        SockRef::from(&passed).set_nonblocking(false).unwrap();
        SockRef::from(&passed).set_tcp_nodelay(false).unwrap();
        old.passage().pause();
        let _client = TcpStream::connect(address).unwrap();
        let new = Listener::adopt_tcp("main", passed).unwrap();
        drop(old);
        new.accept().await.unwrap();
        let _later = TcpStream::connect(address).unwrap();
        let Accepted::Tcp(stream, _) = new.accept().await.unwrap() else { panic!("not TCP") };
        assert!(SockRef::from(&stream).tcp_nodelay().unwrap());
        assert_eq!(new.address(), Some(address));
        // Nobody waits: the socket does not block this thread.
        let mut accepting = pin!(new.accept());
        assert!(accepting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }

    /// HND-4: the end of the predecessor's listener would take the file of the successor's socket.
    #[tokio::test]
    async fn hnd_4_the_file_of_a_passed_unix_socket_stays_with_the_successor() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("xds.sock");
        let old = Listener::bind_unix("local", &path, None).unwrap();
        let passed = old.passage().descriptor().unwrap().unwrap();
        let new = Listener::adopt_unix("local", &path, Some(0o600), passed, false).unwrap();
        old.passage().give_up();
        drop(old);
        assert!(path.exists(), "removed by the predecessor");
        let _client = UnixStream::connect(&path).unwrap();
        new.accept().await.unwrap();
        drop(new);
        assert!(!path.exists(), "left by the last owner");
    }

    #[tokio::test]
    async fn hnd_6_a_lent_file_is_the_supervisors() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("xds.sock");
        let lent = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let listener = Listener::adopt_unix("local", &path, Some(0o600), lent.into(), true).unwrap();
        assert!(listener.passage().is_lent());
        drop(listener);
        assert!(path.exists());
    }

    #[tokio::test]
    async fn a_descriptor_of_another_kind_is_refused() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert!(Listener::adopt_tcp("main", one.into()).is_err());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("xds.sock");
        let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(Listener::adopt_tcp("main", unix.try_clone().unwrap().into()).is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(Listener::adopt_unix("local", &path, None, unix.into(), false).is_err());
    }
}
