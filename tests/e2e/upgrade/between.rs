//! Real processes on both sides, and this test binary between them: it cuts the conversation at each message by the death of
//! either side, and speaks as a build of another age would (HND-2, HND-3).

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, getppid, kill_process};
use serde_json::{Value, json};
use sluice::handover::{Channel, HandoverFault, HandoverMessage};
use tokio::net::TcpStream;

use super::site::Site;
use super::stand_in::{program, send_head};
use crate::support::control_plane::eventually;
use crate::support::relay::BINARY;
use crate::support::{CDS, Client, Variant};

/// Two variables that tell the process in between its part, and the command line of the successor.
const PART: &str = "BETWEEN";
const COMMAND: &str = "BETWEEN_COMMAND";
/// The file with the number of the real successor.
const PID: &str = "BETWEEN_PID";

/// A program that starts this test binary between the processes, with a part to play.
fn wrapper(directory: &Path, part: &str) -> PathBuf {
    let pid = directory.join("pid").display().to_string();
    let variables = format!("{PART}='{part}' {PID}={pid:?} {COMMAND}=\"$*\"");
    program(directory, &variables, "upgrade::between::stands_between")
}

/// One direction of the conversation, or both.
struct Between {
    /// `old MESSAGE` or `new MESSAGE`: the process that dies, and the last message that comes through. Otherwise the name
    /// of a change to every message.
    part: String,
    old: Pid,
    new: Pid,
    /// Nothing comes through after a death.
    is_cut: Mutex<bool>,
}

impl Between {
    fn forward(&self, from: &Channel, to: &UnixStream) {
        loop {
            let (message, descriptors) = match from.receive() {
                Ok(received) => received,
                Err(HandoverFault::Refused(reason)) => (HandoverMessage::Refused { reason }, Vec::new()),
                Err(_) => break,
            };
            let mut is_cut = self.is_cut.lock().unwrap();
            if *is_cut {
                break;
            }
            let mut head = serde_json::to_value(&message).unwrap();
            let name = head["message"].as_str().unwrap().to_owned();
            self.change(&mut head, to);
            if send(to, &head, &descriptors).is_err() {
                break;
            }
            *is_cut = self.kill_after(&name);
        }
        // The death of one side is the end of the connection for the other.
        let _ = to.shutdown(std::net::Shutdown::Both);
    }

    fn kill_after(&self, message: &str) -> bool {
        let victim = match self.part.split_once(' ') {
            Some(("old", last)) if last == message => self.old,
            Some(("new", last)) if last == message => self.new,
            _ => return false,
        };
        kill_process(victim, Signal::KILL).unwrap();
        true
    }

    fn change(&self, head: &mut Value, to: &UnixStream) {
        let keys = head.as_object_mut().unwrap();
        match &*self.part {
            // A newer build has more keys and messages.
            "newer" => {
                keys.insert("colour".to_owned(), json!({ "of": ["tomorrow"] }));
                for socket in keys.get_mut("sockets").and_then(Value::as_array_mut).into_iter().flatten() {
                    socket["backlog"] = json!(7);
                }
                let _ = send(to, &json!({ "message": "weather", "is": "fine" }), &[]);
            }
            // An older build lacks the keys with a default.
            "older" => {
                keys.retain(|_, value| !matches!(value, Value::Null | Value::Bool(false)));
                for socket in keys.get_mut("sockets").and_then(Value::as_array_mut).into_iter().flatten() {
                    socket.as_object_mut().unwrap().remove("is_lent");
                }
            }
            "lacking" => _ = keys.remove("sources"),
            "protocol" if keys.contains_key("oldest") => {
                keys.insert("protocol".to_owned(), json!(0));
                keys.insert("oldest".to_owned(), json!(0));
            }
            "offered" if keys.contains_key("sockets") => _ = keys.insert("protocol".to_owned(), json!(99)),
            _ => {}
        }
    }
}

fn send(to: &UnixStream, head: &Value, descriptors: &[OwnedFd]) -> std::io::Result<()> {
    send_head(to, &head.to_string(), descriptors.len())?;
    for descriptor in descriptors {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let one = [descriptor.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&one)));
        sendmsg(to, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

/// Started by [`wrapper`] only.
#[test]
#[ignore = "a part of other tests"]
fn stands_between() {
    let Ok(part) = std::env::var(PART) else { return };
    let old_pid = getppid().unwrap();
    let old = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null").unwrap()).unwrap();
    let (new, theirs) = UnixStream::pair().unwrap();
    let arguments = std::env::var(COMMAND).unwrap();
    let mut child = Command::new(BINARY)
        .args(arguments.split(' '))
        .env("SLUICE_HANDOVER", "1")
        .stdin(OwnedFd::from(theirs))
        .spawn()
        .unwrap();
    let file = PathBuf::from(std::env::var_os(PID).unwrap());
    std::fs::write(file.with_extension("new"), child.id().to_string()).unwrap();
    std::fs::rename(file.with_extension("new"), &file).unwrap();
    let new_pid = Pid::from_child(&child);
    let between = Arc::new(Between { part, old: old_pid, new: new_pid, is_cut: Mutex::default() });
    // The death before the first word.
    *between.is_cut.lock().unwrap() = between.kill_after("start");
    let [to_old, to_new] = [&old, &new].map(|socket| socket.try_clone().unwrap());
    let of_thread = between.clone();
    let from_new = Channel::new(new.try_clone().unwrap());
    let other = std::thread::spawn(move || of_thread.forward(&from_new, &to_old));
    between.forward(&Channel::new(old), &to_new);
    child.wait().unwrap();
    drop(new);
    other.join().unwrap();
}

struct Story {
    site: Site,
    client: Client,
    directory: tempfile::TempDir,
}

impl Story {
    async fn begin(part: &str) -> Story {
        Story::with_window(part, "300ms").await
    }

    async fn with_window(part: &str, window: &str) -> Story {
        let directory = tempfile::tempdir().unwrap();
        let script = wrapper(directory.path(), part);
        let line = format!("handover: {{ timeout: 20s, drain: {window}, binary: {script:?} }}");
        let site = Site::start(&[&line]).await;
        site.origin.set(CDS, "a", "1");
        let mut client = Client::open(&site.relay.address, Variant::Delta, "one").await;
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        Story { site, client, directory }
    }

    /// The number of the real successor.
    fn successor(&self) -> u32 {
        std::fs::read_to_string(self.directory.path().join("pid")).unwrap().parse().unwrap()
    }

    async fn successor_is_gone(&self) {
        let process = PathBuf::from(format!("/proc/{}", self.successor()));
        eventually("the end of the new process", || async { !process.exists() }).await;
    }

    /// The old process serves its clients and new ones.
    async fn serves_on(mut self, part: &str) {
        self.site.origin.set(CDS, "a", "2");
        self.client.settle(CDS, &[("a", "2")]).await;
        self.newcomer("2").await;
        assert_eq!(self.site.relay.get("/ready").await.0, 200, "{part}");
        assert_eq!(self.site.relay.children(), 0, "{part}: the failed process is gone");
        assert_eq!(self.site.relay.get("/ready").await.0, 200, "{part}");
    }

    async fn newcomer(&self, version: &str) {
        let mut newcomer = Client::open(&self.site.relay.address, Variant::Sotw, "two").await;
        newcomer.want(CDS, &["*"]);
        newcomer.settle(CDS, &[("a", version)]).await;
    }
}

/// HND-3: the new process is killed after each message until it accepts: nothing has happened.
#[tokio::test]
async fn hnd_3_the_old_process_serves_on_wherever_the_new_one_is_killed() {
    let steps = ["start", "hello", "offer", "source", "taken", "ready", "accept"];
    let tried = steps.map(|step| async move {
        let story = Story::begin(&format!("new {step}")).await;
        let (status, text) = story.site.relay.post("/upgrade").await;
        let is_told = text.contains("the new process ended early") && text.contains("this process serves on");
        assert_eq!((status, is_told), (502, true), "{step}: {text}");
        story.successor_is_gone().await;
        story.serves_on(step).await;
    });
    futures_util::future::join_all(tried).await;
}

/// HND-3: the old process is killed after each message until its word: the new one ends, too, and leaves the address to a
/// supervisor's next start.
#[tokio::test]
async fn hnd_3_the_new_process_never_serves_if_the_old_one_is_killed_before_its_word() {
    let steps = ["start", "hello", "offer", "source", "taken", "ready"];
    let tried = steps.map(|step| async move {
        let mut story = Story::begin(&format!("old {step}")).await;
        let admin = story.site.relay.admin.clone();
        // The answer is cut off with the process.
        let asked = tokio::spawn(async move { crate::support::net::http(&admin, "POST", "/upgrade").await });
        assert_eq!(story.site.relay.exit().await.code(), None, "{step}: killed");
        story.successor_is_gone().await;
        let refused = TcpStream::connect(&story.site.relay.address).await;
        assert!(refused.is_err(), "{step}: nobody has the socket");
        drop(asked.await);
    });
    futures_util::future::join_all(tried).await;
}

/// HND-3: from the word on the new process serves, with the state of the old one, wherever the old one is killed.
#[tokio::test]
async fn hnd_3_the_new_process_serves_if_the_old_one_is_killed_after_its_word() {
    let tried = ["accept", "accepting", "done", "draining"].map(|step| async move {
        let mut story = Story::begin(&format!("old {step}")).await;
        let admin = story.site.relay.admin.clone();
        let asked = tokio::spawn(async move { crate::support::net::http(&admin, "POST", "/upgrade").await });
        assert_eq!(story.site.relay.exit().await.code(), None, "{step}: killed");
        story.site.processes.push(story.successor());
        eventually("the new process is ready", || async { story.site.relay.get("/ready").await.0 == 200 })
            .await;
        story.newcomer("1").await;
        story.site.origin.set(CDS, "a", "2");
        story.newcomer("2").await;
        eventually("no predecessor", || async {
            story.site.relay.get("/overview").await.1.contains("\"predecessor\":null")
        })
        .await;
        let streams = story.site.relay.metric("sluice_handover_predecessor_streams", &[]).await;
        assert_eq!(streams, 0.0, "{step}: those of a dead process");
        drop(asked.await);
    });
    futures_util::future::join_all(tried).await;
}

/// HND-3: after `accepting`, too: the old process takes its drain back.
#[tokio::test]
async fn hnd_3_the_old_process_serves_again_if_the_new_one_is_killed_after_it_accepts() {
    let story = Story::with_window("new accepting", "1h").await;
    assert_eq!(story.site.relay.post("/upgrade").await.0, 200);
    story.successor_is_gone().await;
    story.serves_on("accepting").await;
}

/// HND-2: more keys and messages from both sides, or fewer keys, change nothing.
#[tokio::test]
async fn hnd_2_builds_of_other_ages_replace_each_other() {
    let tried = ["newer", "older"].map(|part| async move {
        let mut story = Story::begin(part).await;
        let (status, text) = story.site.relay.post("/upgrade").await;
        assert_eq!(status, 200, "{part}: {text}");
        let upgraded: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (upgraded["sources"].as_u64(), upgraded["pid"].as_u64()),
            (Some(1), Some(story.successor().into()))
        );
        story.site.processes.push(story.successor());
        let versions = story.client.versions(CDS);
        story.client.ended().await;
        let mut again = Client::open(&story.site.relay.address, Variant::Delta, "one").await;
        again.send(crate::support::Ask {
            initial: versions,
            ..crate::support::Ask::of(CDS).subscribe(&["*"])
        });
        again.silence(Duration::from_millis(100)).await;
        story.site.origin.set(CDS, "a", "2");
        again.settle(CDS, &[("a", "2")]).await;
        story.site.first_is_gone().await;
        let log = story.site.relay.log();
        assert!(log.contains("took the state of the predecessor over") && log.contains("cold=0"), "{log}");
    });
    futures_util::future::join_all(tried).await;
}

/// HND-2: a peer that no build can understand is named, and nothing has happened.
#[tokio::test]
async fn hnd_2_a_peer_that_is_not_understood_changes_nothing() {
    let tried = [
        ("lacking", "missing field `sources`"),
        ("protocol", "speaks the protocols 0 to 0, this one 1 to 1"),
        ("offered", "speaks the protocols 99 to 99, this one 1 to 1"),
    ]
    .map(|(part, reason)| async move {
        let story = Story::begin(part).await;
        let (status, text) = story.site.relay.post("/upgrade").await;
        assert_eq!((status, text.contains(reason)), (502, true), "{part}: {text}");
        story.successor_is_gone().await;
        story.serves_on(part).await;
    });
    futures_util::future::join_all(tried).await;
}
