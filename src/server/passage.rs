//! A bound socket on its way to a successor of the process (HND-3, HND-4).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use tokio::sync::watch;

use super::listener::ListeningSocket;

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

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::future::Future;
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use socket2::SockRef;

    use crate::server::Listener;
    use crate::server::listener::Accepted;

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
