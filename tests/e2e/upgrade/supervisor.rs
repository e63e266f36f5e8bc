//! systemd, played by the test: its sockets for the relay, and the relay's words for it (HND-6, HND-8).

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt};

use super::site::Site;
use crate::support::control_plane::eventually;
use crate::support::{CDS, Client, Variant};

/// A supervisor that reads each word with its sender.
struct NotifySocket {
    socket: UnixDatagram,
    path: std::path::PathBuf,
    _directory: tempfile::TempDir,
}

impl NotifySocket {
    fn new() -> NotifySocket {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        sockopt::set_socket_passcred(&socket, true).unwrap();
        socket.set_nonblocking(true).unwrap();
        NotifySocket { socket, path, _directory: directory }
    }

    fn try_next(&self) -> Option<(u32, String)> {
        let mut text = [0; 256];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let buffers = &mut [IoSliceMut::new(&mut text)];
        let received = recvmsg(&self.socket, buffers, &mut control, RecvFlags::empty()).ok()?;
        let sender = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmCredentials(credentials) => Some(credentials.pid.as_raw_nonzero().get()),
            _ => None,
        });
        let text = String::from_utf8(text[..received.bytes].to_vec()).unwrap();
        Some((sender.unwrap().unsigned_abs(), text))
    }

    /// The next word besides signs of life, with its sender.
    async fn next(&self) -> (u32, String) {
        let begin = Instant::now();
        loop {
            match self.try_next() {
                Some((_, text)) if text == "WATCHDOG=1" => {}
                Some(word) => return word,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
            assert!(begin.elapsed() < Duration::from_secs(15), "the supervisor hears nothing");
        }
    }
}

/// HND-6: the main process names its successor before the successor is ready, so that the supervisor believes both.
#[tokio::test]
async fn hnd_6_the_supervisor_hears_of_the_new_process_from_the_old_one() {
    let notify = NotifySocket::new();
    let mut site = Site::of(|mut setup| {
        let path = notify.path.display().to_string();
        setup.environment.push(("NOTIFY_SOCKET".to_owned(), path));
        setup.environment.push(("WATCHDOG_USEC".to_owned(), "100000".to_owned()));
        setup.line("handover: { drain: 300ms }")
    })
    .await;
    let old = site.processes[0];
    assert_eq!(notify.next().await, (old, "READY=1".to_owned()));
    site.upgrade("").await;
    let new = site.processes[1];
    assert_eq!(notify.next().await, (old, format!("MAINPID={new}")));
    assert_eq!(notify.next().await, (new, "READY=1".to_owned()));
    site.first_is_gone().await;
    eventually("a sign of life", || async { notify.try_next() == Some((new, "WATCHDOG=1".to_owned())) })
        .await;
    let killed = std::process::Command::new("kill").args(["-TERM", &new.to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(notify.next().await, (new, "STOPPING=1".to_owned()));
}

/// HND-6: the old process is the main one again when its successor has died, and gives signs of life again.
#[tokio::test]
async fn hnd_6_the_supervisor_hears_of_the_step_back() {
    let notify = NotifySocket::new();
    let mut site = Site::of(|mut setup| {
        let path = notify.path.display().to_string();
        setup.environment.push(("NOTIFY_SOCKET".to_owned(), path));
        setup.environment.push(("WATCHDOG_USEC".to_owned(), "100000".to_owned()));
        setup.line("handover: { drain: 1h }")
    })
    .await;
    let old = site.processes[0];
    assert_eq!(notify.next().await, (old, "READY=1".to_owned()));
    site.upgrade("").await;
    let new = site.processes.pop().unwrap();
    assert_eq!(notify.next().await, (old, format!("MAINPID={new}")));
    assert_eq!(notify.next().await, (new, "READY=1".to_owned()));
    let killed = std::process::Command::new("kill").args(["-KILL", &new.to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(notify.next().await, (old, format!("MAINPID={old}\nREADY=1")));
    eventually("a sign of life", || async { notify.try_next() == Some((old, "WATCHDOG=1".to_owned())) })
        .await;
}

/// HND-6: a socket of the supervisor by its name; it goes on to the successor, and outlives both.
#[tokio::test]
async fn hnd_6_a_socket_unit_is_used_and_passed_on() {
    let lent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = lent.local_addr().unwrap().to_string();
    fcntl_setfd(lent.as_fd(), FdFlags::empty()).unwrap();
    let mut site = Site::of(|mut setup| {
        let number = lent.as_raw_fd().to_string();
        let variables = [("LISTEN_FDS", "1"), ("LISTEN_FDS_FIRST_FD", &number), ("LISTEN_FDNAMES", "main")];
        setup.environment.extend(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
        setup.line("handover: { drain: 300ms }")
    })
    .await;
    fcntl_setfd(lent.as_fd(), FdFlags::CLOEXEC).unwrap();
    site.origin.set(CDS, "a", "1");
    for _ in 0..2 {
        let mut client = Client::open(&address, Variant::Delta, "one").await;
        client.want(CDS, &["*"]);
        client.settle(CDS, &[("a", "1")]).await;
        site.upgrade("").await;
        site.settled().await;
    }
}

/// HND-8: after SIGTERM the relay is not ready, and accepts and serves for the delay.
#[tokio::test]
async fn hnd_8_the_drain_waits_for_those_who_have_not_noticed() {
    let mut site = Site::start(&["drain_delay: 1500ms", "drain: 1s"]).await;
    site.origin.set(CDS, "a", "1");
    let begin = Instant::now();
    site.relay.sigterm();
    eventually("not ready", || async { site.relay.get("/ready").await.0 == 503 }).await;
    let mut late = Client::open(&site.relay.address, Variant::Delta, "late").await;
    late.want(CDS, &["*"]);
    late.settle(CDS, &[("a", "1")]).await;
    assert!(begin.elapsed() < Duration::from_millis(1500), "the host is too slow for this test");
    late.ended().await;
    assert!(begin.elapsed() >= Duration::from_millis(1500), "{:?}", begin.elapsed());
    site.first_is_gone().await;
}
