//! The death or the silence of either process at each step, and peers of another age (HND-2, HND-3).

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::time::Duration;

use sluice::handover::message::{Offer, Source};
use sluice::handover::{Channel, HandoverMessage};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::site::{Doors, Site};
use super::stand_in::{send_raw, successor};
use crate::support::control_plane::eventually;
use crate::support::relay::BINARY;
use crate::support::{CDS, Client, Setup, Variant};

/// A site whose successor is a stand-in.
async fn with_successor(part: &str) -> Site {
    let directory = tempfile::tempdir().unwrap();
    let script = successor(directory.path(), part);
    let site =
        Site::start(&[&format!("handover: {{ timeout: 2s, drain: 300ms, binary: {script:?} }}")]).await;
    // The script is needed until the end of the test.
    std::mem::forget(directory);
    site
}

/// HND-3: a successor that dies, refuses or is late before it accepts: the old process accepts on, and its clients notice
/// nothing.
#[tokio::test]
async fn hnd_3_a_successor_that_fails_changes_nothing() {
    let parts = [
        ("ends_at_once", "ended early: exit status: 7"),
        ("another_protocol", "speaks the protocols 2 to 2, this one 1 to 1"),
        ("ends_after_the_offer", "ended early: exit status: 7"),
        ("ends_amid_the_state", "ended early: exit status: 7"),
        ("is_silent", "was not ready within 2s"),
        ("refuses", "listeners[0].address: no such interface"),
        ("ends_before_it_accepts", "ended early: exit status: 7"),
        ("never_accepts", "was not ready within 2s"),
    ];
    let tried = parts.map(|(part, reason)| async move {
        let site = with_successor(part).await;
        site.origin.set(CDS, "a", "1");
        let mut client = Client::open(&site.relay.address, Variant::Delta, "one").await;
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        let (status, text) = site.relay.post("/upgrade").await;
        assert_eq!((status, text.contains(reason)), (502, true), "{part}: {text}");
        assert!(text.contains("this process serves on"), "{text}");
        // The old stream goes on, and new ones are accepted.
        site.origin.set(CDS, "a", "2");
        client.settle(CDS, &[("a", "2")]).await;
        let mut newcomer = Client::open(&site.relay.address, Variant::Sotw, "one").await;
        newcomer.want(CDS, &["*"]);
        newcomer.settle(CDS, &[("a", "2")]).await;
        assert_eq!(site.relay.get("/ready").await.0, 200, "{part}");
        assert_eq!(site.relay.children(), 0, "{part}: the failed process is gone");
    });
    futures_util::future::join_all(tried).await;
}

/// HND-2: a newer build with more keys and messages takes over.
#[tokio::test]
async fn hnd_2_a_successor_of_tomorrow_takes_over() {
    let mut site = with_successor("of_tomorrow").await;
    let upgraded = site.upgrade("").await;
    assert_eq!(upgraded["version"], "9.9.9");
    let mut text = String::new();
    let mut client = TcpStream::connect(&site.relay.address).await.unwrap();
    let read = client.read_to_string(&mut text);
    let _ = tokio::time::timeout(Duration::from_secs(5), read).await;
    assert!(text.is_empty() || text == "a successor");
    site.first_is_gone().await;
}

/// HND-3: the limit is one for the whole work: a successor that says something all the time is late, too.
#[tokio::test]
async fn hnd_3_a_successor_that_chatters_is_late() {
    let site = with_successor("chatters").await;
    let tried = tokio::time::timeout(Duration::from_secs(20), site.relay.post("/upgrade")).await;
    let (status, text) = tried.expect("an answer");
    assert_eq!((status, text.contains("was not ready within 2s")), (502, true), "{text}");
    assert_eq!(site.relay.children(), 0);
}

fn kill(signal: &str, pid: &impl ToString) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

/// HND-3: a successor dies after the hand-over, again and again. Nobody is refused, and the old process serves with all that it had.
#[tokio::test]
async fn hnd_3_the_old_process_serves_again_when_its_successor_dies() {
    let doors = Doors::new();
    let mut site = Site::of(|setup| doors.open(setup.line("handover: { drain: 1h }"))).await;
    site.origin.set(CDS, "a", "1");
    let mut client = Client::open(&site.relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["*"]);
    client.settle(CDS, &[("a", "1")]).await;
    for text in ["2", "3"] {
        let upgraded = site.upgrade("").await;
        assert_eq!(site.relay.children(), 1);
        kill("-KILL", &upgraded["pid"]);
        // Without a pause: whoever connects waits in the queue of the sockets.
        for _ in 0..13 {
            TcpStream::connect(&site.relay.address).await.unwrap();
            UnixStream::connect(&doors.unix).unwrap();
        }
        eventually("ready", || async { site.relay.get("/ready").await.0 == 200 }).await;
        assert_eq!(site.relay.children(), 0, "no zombie");
        site.processes.pop();
        // The streams to the control plane go on, and new ones are opened.
        site.origin.set(CDS, "a", text);
        for variant in [Variant::Delta, Variant::Sotw] {
            let mut newcomer = Client::open(&site.relay.address, variant, "two").await;
            newcomer.want(CDS, &["*"]);
            newcomer.settle(CDS, &[("a", text)]).await;
        }
        site.origin.close_streams(tonic::Code::Unavailable);
        site.origin.set(CDS, "b", text);
        let mut newcomer = Client::open(&site.relay.address, Variant::Delta, "three").await;
        newcomer.want(CDS, &["*"]);
        newcomer.settle(CDS, &[("a", text), ("b", text)]).await;
        site.origin.remove(CDS, "b");
    }
    let log = site.relay.log();
    assert_eq!(log.matches("the new process has died; this process serves again").count(), 2, "{log}");
    assert!(log.contains("signal: 9"), "{log}");
    let events = site.relay.get("/events?kind=handover").await.1;
    assert!(events.contains("the new process has died"), "{events}");
    // The third successor is good, and takes over.
    site.upgrade("").await;
    site.upgrade_is_refused_while_it_drains().await;
}

/// HND-3: what the old process left to its successor is opened again: streams to servers, and the checkpoint.
#[tokio::test]
async fn hnd_3_streams_that_the_old_process_left_to_its_successor_are_opened_again() {
    let mut site = Site::start(&["handover: { drain: 1h }"]).await;
    site.origin.set(CDS, "a", "1");
    let mut client = Client::open(&site.relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["*"]);
    client.settle(CDS, &[("a", "1")]).await;
    let upgraded = site.upgrade("").await;
    // The old process must not open its stream again, and the new one does.
    site.origin.close_streams(tonic::Code::Unavailable);
    site.origin.wait_for("the new process", |origin| origin.live_streams() >= 1).await;
    kill("-KILL", &upgraded["pid"]);
    site.processes.pop();
    eventually("ready", || async { site.relay.get("/ready").await.0 == 200 }).await;
    site.origin.set(CDS, "a", "2");
    let mut newcomer = Client::open(&site.relay.address, Variant::Delta, "two").await;
    newcomer.want(CDS, &["*"]);
    newcomer.settle(CDS, &[("a", "2")]).await;
}

/// HND-3: whoever stops the relay in an upgrade means both processes.
#[tokio::test]
async fn hnd_3_an_orderly_end_of_the_successor_is_the_end_of_both() {
    let mut site = Site::start(&["drain: 1s", "handover: { drain: 1h }"]).await;
    let upgraded = site.upgrade("").await;
    kill("-TERM", &upgraded["pid"]);
    site.first_is_gone().await;
    let log = site.relay.log();
    assert!(log.contains("the new process stops, and so does this one"), "{log}");
    assert!(TcpStream::connect(&site.relay.address).await.is_err());
}

/// HND-3: SIGTERM to the old process ends its wait alone.
#[tokio::test]
async fn hnd_3_a_signal_to_the_old_process_leaves_the_new_one_alone() {
    let mut site = Site::start(&["drain: 1s", "handover: { drain: 1h }"]).await;
    site.origin.set(CDS, "a", "1");
    site.upgrade("").await;
    site.relay.sigterm();
    site.first_is_gone().await;
    let log = site.relay.log();
    assert!(log.contains("this one does not step in for it any more"), "{log}");
    let mut client = Client::open(&site.relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["*"]);
    client.settle(CDS, &[("a", "1")]).await;
}

/// The old process, played by the test.
struct OldProcess {
    channel: Option<Channel>,
    socket: UnixStream,
    child: Child,
    listener: std::net::TcpListener,
    directory: tempfile::TempDir,
}

impl OldProcess {
    fn start() -> OldProcess {
        let directory = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let config = directory.path().join("sluice.yaml");
        let yaml = format!(
            "xds_servers: [ {{ server_uri: \"127.0.0.1:1\", channel_creds: [ {{ type: insecure }} ] }} ]\n\
             listeners: [ {{ name: main, address: \"{}\" }} ]\nadmin: {{ address: \"unix:admin.sock\" }}\n",
            listener.local_addr().unwrap()
        );
        std::fs::write(&config, yaml).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let log = File::create(directory.path().join("log")).unwrap();
        let mut command = Command::new(BINARY);
        command.args(["serve", "--config"]).arg(&config).env("SLUICE_HANDOVER", "1");
        command.stdin(OwnedFd::from(theirs)).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        let socket = ours.try_clone().unwrap();
        OldProcess { channel: Some(Channel::new(ours)), socket, child, listener, directory }
    }

    fn channel(&self) -> &Channel {
        self.channel.as_ref().unwrap()
    }

    fn offer(&self, sources: u64) {
        let HandoverMessage::Hello(hello) = self.channel().receive().unwrap().0 else { panic!("no hello") };
        assert_eq!(hello.pid, self.child.id());
        let text = format!(
            r#"{{"name":"main","address":"{}","colour":"blue"}}"#,
            self.listener.local_addr().unwrap()
        );
        let head = serde_json::from_str(&text).unwrap();
        let offer =
            Offer { protocol: 1, version: "0.0.1".into(), pid: 1, sockets: vec![head], lock: None, sources };
        self.channel().send(&HandoverMessage::Offer(offer), &[self.listener.as_fd()]).unwrap();
    }

    fn pass_a_source(&self, state: &[u8]) {
        let memory = sluice::handover::memory::sealed(|sink| sink(state)).unwrap();
        let source = Source {
            number: 0,
            node: "{}".into(),
            identity: None,
            identity_metadata: None,
            attributes: BTreeMap::new(),
            is_for_secrets: false,
        };
        self.channel().send(&HandoverMessage::Source(source), &[memory.as_fd()]).unwrap();
    }

    fn receives(&self, expected: &HandoverMessage) {
        assert_eq!(&self.channel().receive().unwrap().0, expected, "{}", self.log());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    /// This process is killed.
    async fn dies(mut self) -> (Option<i32>, String) {
        self.channel().close();
        self.channel = None;
        let child = &mut self.child;
        let mut code = None;
        for _ in 0..500 {
            if let Some(status) = child.try_wait().unwrap() {
                code = status.code();
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        (code, self.log())
    }
}

impl Drop for OldProcess {
    fn drop(&mut self) {
        // Most have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// HND-3: without the word of the old process, the new one never serves: a supervisor may start another meanwhile.
#[tokio::test]
async fn hnd_3_a_predecessor_that_dies_early_takes_its_successor_along() {
    let at_once = OldProcess::start();
    let (code, log) = at_once.dies().await;
    assert_eq!((code, log.contains("has closed the connection")), (Some(69), true), "{log}");

    let after_the_offer = OldProcess::start();
    after_the_offer.offer(1);
    let (code, log) = after_the_offer.dies().await;
    assert_eq!((code, log.contains("has closed the connection")), (Some(69), true), "{log}");

    let after_ready = OldProcess::start();
    after_ready.offer(0);
    after_ready.receives(&HandoverMessage::Ready);
    let (code, log) = after_ready.dies().await;
    assert_eq!((code, log.contains("the predecessor serves on")), (Some(69), true), "{log}");
}

/// HND-3: after the word, the new process serves, whatever becomes of the old one. An older build sends fewer keys, and a
/// state that is not understood only costs the warmth.
#[tokio::test]
async fn hnd_3_after_the_word_the_new_process_serves() {
    let old = OldProcess::start();
    old.offer(1);
    old.pass_a_source(b"SLUICECP of another age");
    old.receives(&HandoverMessage::Taken { number: 0 });
    old.receives(&HandoverMessage::Ready);
    send_raw(&old.socket, r#"{"message":"accept","why":"because"}"#);
    old.receives(&HandoverMessage::Accepting);
    old.channel().close();
    let address = old.listener.local_addr().unwrap().to_string();
    eventually("a connection", || async { TcpStream::connect(&address).await.is_ok() }).await;
    let mut client = Client::open(&address, Variant::Delta, "one").await;
    client.want(CDS, &["*"]);
    client.silence(Duration::from_millis(100)).await;
    let log = old.log();
    assert!(log.contains("cannot use the state of a source"), "{log}");
    assert!(log.contains("the predecessor ended during the hand-over"), "{log}");
}

/// HND-2: the variable alone, without a socket, is an error with its name.
#[tokio::test]
async fn hnd_2_a_start_without_its_socket_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(BINARY)
        .args(["serve", "--config", "missing.yaml"])
        .current_dir(directory.path())
        .env("SLUICE_HANDOVER", "1")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), told.contains("SLUICE_HANDOVER is set")), (Some(69), true), "{told}");
}

/// HND-2: the operator of the old process reads why the new one refuses its configuration, with the key.
#[tokio::test]
async fn hnd_2_a_bad_configuration_is_told_to_the_operator() {
    let site = Site::start(&["handover: { drain: 300ms }"]).await;
    let config = site.relay.path("sluice.yaml");
    let good = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{good}\nlinger: soon\n")).unwrap();
    let (status, text) = site.relay.post("/upgrade").await;
    assert_eq!((status, text.contains("linger")), (502, true), "{text}");
    assert_eq!(site.relay.get("/ready").await.0, 200);
}

/// HND-7: a container ends with its first process.
#[tokio::test]
async fn hnd_7_the_first_process_of_a_container_is_not_upgraded() {
    let unshare = ["unshare", "-rp", "--fork", "--kill-child"];
    if !Command::new(unshare[0]).args(&unshare[1..]).arg("true").status().is_ok_and(|status| status.success())
    {
        #[allow(clippy::print_stderr)]
        {
            eprintln!("skipped: this machine allows no process namespace (unshare -rp)");
        }
        return;
    }
    let wrapper = unshare.map(str::to_owned).to_vec();
    let site = Site::of(|setup| Setup { wrapper, ..setup }).await;
    let (status, text) = site.relay.post("/upgrade").await;
    assert_eq!((status, text.contains("use a rolling update")), (409, true), "{text}");
    assert_eq!(site.relay.get("/ready").await.0, 200);
}
