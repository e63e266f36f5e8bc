//! Peers that speak the protocol of the hand-over as no build of ours does: they die, are silent, or are of another age.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice::handover::message::{Hello, NEWEST};
use sluice::handover::{Channel, HandoverMessage};

/// The variable that tells a stand-in its part.
const PART: &str = "STAND_IN";

/// A program that starts this test binary as a successor with a part to play.
pub fn successor(directory: &Path, part: &str) -> PathBuf {
    program(directory, &format!("{PART}={part}"), "upgrade::stand_in::plays_a_successor")
}

/// A program that runs an ignored test of this binary, under these variables of its shell.
pub fn program(directory: &Path, variables: &str, test: &str) -> PathBuf {
    let path = directory.join("successor");
    let own = std::env::current_exe().unwrap().display().to_string();
    let script = format!("#!/bin/sh\n{variables} exec {own:?} --ignored --exact {test} --nocapture\n");
    // Written beside and renamed: the file must not be open for writing when it is started.
    let mut file = std::fs::File::create(path.with_extension("new")).unwrap();
    file.write_all(script.as_bytes()).unwrap();
    file.set_permissions(std::fs::Permissions::from_mode(0o755)).unwrap();
    drop(file);
    std::fs::rename(path.with_extension("new"), &path).unwrap();
    path
}

/// Sends a head as another build would write it.
pub fn send_raw(socket: &UnixStream, head: &str) {
    send_head(socket, head, 0).unwrap();
}

/// Sends a head, which `count` descriptors follow.
pub fn send_head(mut socket: &UnixStream, head: &str, count: usize) -> std::io::Result<()> {
    let length = u32::try_from(head.len()).unwrap().to_le_bytes();
    let count = u16::try_from(count).unwrap().to_le_bytes();
    socket.write_all(&[&length[..], &count, head.as_bytes()].concat())
}

/// No single wait of the old process is long.
fn chatter(socket: &UnixStream) {
    while send_head(socket, r#"{"message":"weather","is":"fine"}"#, 0).is_ok() {
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Started by [`successor`] only.
#[test]
#[ignore = "a part of other tests"]
fn plays_a_successor() {
    let Ok(part) = std::env::var(PART) else { return };
    let stdin: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let socket = UnixStream::from(stdin);
    let channel = Channel::new(socket.try_clone().unwrap());
    let has = |step: &str| part == step;
    if has("ends_at_once") {
        std::process::exit(7);
    }
    if has("another_protocol") {
        let next = NEWEST + 1;
        let hello = Hello { protocol: next, oldest: next, ..Hello::of_this_build() };
        channel.send(&HandoverMessage::Hello(hello), &[]).unwrap();
        let _ = channel.receive();
        return;
    }
    if has("of_tomorrow") {
        let hello =
            r#"{"message":"hello","protocol":99,"oldest":1,"version":"9.9.9","pid":PID,"mood":"good"}"#;
        send_raw(&socket, r#"{"message":"weather","is":"fine"}"#);
        send_raw(&socket, &hello.replace("PID", &std::process::id().to_string()));
    } else {
        channel.send(&HandoverMessage::Hello(Hello::of_this_build()), &[]).unwrap();
    }
    let (offer, descriptors) = channel.receive().unwrap();
    let HandoverMessage::Offer(offer) = offer else { panic!("{offer:?}") };
    assert_eq!(offer.protocol, NEWEST);
    assert_eq!(descriptors.len(), offer.sockets.len() + usize::from(offer.lock.is_some()));
    if has("ends_after_the_offer") {
        std::process::exit(7);
    }
    for number in 0..offer.sources {
        let (HandoverMessage::Source(_), memory) = channel.receive().unwrap() else { panic!("no source") };
        assert!(!sluice::handover::memory::read(memory.into_iter().next().unwrap()).unwrap().is_empty());
        if has("ends_amid_the_state") {
            std::process::exit(7);
        }
        channel.send(&HandoverMessage::Taken { number }, &[]).unwrap();
    }
    match &*part {
        "is_silent" => _ = channel.receive(),
        "chatters" => return chatter(&socket),
        "refuses" => {
            let reason = "listeners[0].address: no such interface".to_owned();
            channel.send(&HandoverMessage::Refused { reason }, &[]).unwrap();
            let _ = channel.receive();
        }
        _ => {}
    }
    channel.send(&HandoverMessage::Ready, &[]).unwrap();
    let Ok((HandoverMessage::Accept, _)) = channel.receive() else { return };
    if has("ends_before_it_accepts") {
        std::process::exit(7);
    }
    if has("never_accepts") {
        let _ = channel.receive();
        return;
    }
    // Serves by an answer to one connection, to show that the socket is usable.
    send_raw(&socket, r#"{"message":"accepting","since":"now"}"#);
    let listener = std::net::TcpListener::from(descriptors.into_iter().next().unwrap());
    listener.set_nonblocking(false).unwrap();
    let (mut client, _) = listener.accept().unwrap();
    client.write_all(b"a successor").unwrap();
    while channel.receive().is_ok() {}
}
