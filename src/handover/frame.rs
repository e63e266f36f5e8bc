//! A message as bytes: lengths, the head, and a byte with each descriptor.
//!
//! ```text
//! length of the head: u32 LE | number of descriptors: u16 LE | head | one byte per descriptor
//! ```

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use super::HandoverFault;
use super::message::HandoverMessage;

/// Thousands of listeners fit.
pub const HEAD_BYTES_MAX: usize = 1 << 20;
/// A listener, the admin socket, a lock and a part of the state are a descriptor each.
pub const DESCRIPTORS_MAX: usize = 1024;

const START_BYTES: usize = 6;

/// One end of the socketpair.
#[derive(Debug)]
pub struct Channel(UnixStream);

impl Channel {
    pub fn new(socket: UnixStream) -> Channel {
        Channel(socket)
    }

    /// A second handle to the same end.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn another(&self) -> io::Result<Channel> {
        self.0.try_clone().map(Channel)
    }

    /// Sets the longest wait for each read and write from now on; `None`: no bound.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn wait_at_most(&self, time: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(time)?;
        self.0.set_write_timeout(time)
    }

    /// Ends the conversation for both sides, also for a call that waits.
    pub fn close(&self) {
        // The other side may have closed first.
        let _ = self.0.shutdown(Shutdown::Both);
    }

    /// Ends the waits of this side for messages. The other side notices nothing.
    pub fn stop_reading(&self) {
        // The other side may have closed first.
        let _ = self.0.shutdown(Shutdown::Read);
    }

    /// # Errors
    /// The other process has gone, or does not read.
    pub fn send(
        &self,
        message: &HandoverMessage,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), HandoverFault> {
        let head = serde_json::to_vec(message)?;
        send(&self.0, &head, descriptors)
    }

    /// The next known message.
    ///
    /// # Errors
    /// The other process has gone, is silent, or sends something else than messages.
    pub fn receive(&self) -> Result<(HandoverMessage, Vec<OwnedFd>), HandoverFault> {
        loop {
            let (head, descriptors) = receive(&self.0)?;
            match serde_json::from_slice(&head)? {
                HandoverMessage::Unknown => {}
                HandoverMessage::Refused { reason } => return Err(HandoverFault::Refused(reason)),
                message => return Ok((message, descriptors)),
            }
        }
    }
}

fn send(mut socket: &UnixStream, head: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), HandoverFault> {
    if head.len() > HEAD_BYTES_MAX {
        return Err(HandoverFault::TooLong(head.len()));
    }
    if descriptors.len() > DESCRIPTORS_MAX {
        return Err(HandoverFault::TooMany(descriptors.len()));
    }
    let length = u32::try_from(head.len()).unwrap_or(u32::MAX).to_le_bytes();
    let count = u16::try_from(descriptors.len()).unwrap_or(u16::MAX).to_le_bytes();
    socket.write_all(&[&length[..], &count, head].concat()).map_err(silence)?;
    for descriptor in descriptors {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let one = [*descriptor];
        if !control.push(SendAncillaryMessage::ScmRights(&one)) {
            return Err(HandoverFault::NoDescriptor);
        }
        let byte = [IoSlice::new(&[0])];
        retry_on_intr(|| sendmsg(socket, &byte, &mut control, SendFlags::NOSIGNAL)).map_err(of_kernel)?;
    }
    Ok(())
}

fn receive(socket: &UnixStream) -> Result<(Vec<u8>, Vec<OwnedFd>), HandoverFault> {
    let mut start = [0; START_BYTES];
    fill(socket, &mut start, 0, START_BYTES).map_err(|fault| match fault {
        HandoverFault::Cut { got: 0, .. } => HandoverFault::Closed,
        fault => fault,
    })?;
    let [a, b, c, d, e, f] = start;
    let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    let count = usize::from(u16::from_le_bytes([e, f]));
    if length > HEAD_BYTES_MAX {
        return Err(HandoverFault::TooLong(length));
    }
    if count > DESCRIPTORS_MAX {
        return Err(HandoverFault::TooMany(count));
    }
    let expected = START_BYTES + length + count;
    let mut head = vec![0; length];
    fill(socket, &mut head, START_BYTES, expected)?;
    let mut descriptors = Vec::with_capacity(count);
    for index in 0..count {
        let got = START_BYTES + length + index;
        descriptors.push(descriptor(socket)?.ok_or(HandoverFault::Cut { got, expected })?);
    }
    Ok((head, descriptors))
}

/// Fills the buffer. `before` bytes of `expected` have come.
fn fill(
    mut socket: &UnixStream,
    buffer: &mut [u8],
    before: usize,
    expected: usize,
) -> Result<(), HandoverFault> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match socket.read(rest) {
            Ok(0) => return Err(HandoverFault::Cut { got: before + filled, expected }),
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A killed process leaves unread bytes behind.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Err(HandoverFault::Cut { got: before + filled, expected });
            }
            Err(error) => return Err(silence(error)),
        }
    }
    Ok(())
}

/// The descriptor of the next byte, closed at exec; `None` at the end of the stream.
fn descriptor(socket: &UnixStream) -> Result<Option<OwnedFd>, HandoverFault> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = retry_on_intr(|| {
        recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
    });
    match received {
        Ok(received) if received.bytes == 0 => return Ok(None),
        Ok(_) => {}
        Err(Errno::CONNRESET) => return Ok(None),
        Err(error) => return Err(of_kernel(error)),
    }
    let descriptors = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    descriptors.map(Some).ok_or(HandoverFault::NoDescriptor)
}

fn of_kernel(error: Errno) -> HandoverFault {
    silence(error.into())
}

fn silence(error: io::Error) -> HandoverFault {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => HandoverFault::Silent,
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => HandoverFault::Closed,
        _ => HandoverFault::Io(error),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use rustix::io::{FdFlags, fcntl_getfd};

    use super::*;

    fn pair() -> (Channel, Channel) {
        let (one, other) = UnixStream::pair().unwrap();
        (Channel::new(one), Channel::new(other))
    }

    /// A message with two descriptors, as bytes.
    fn recorded() -> Vec<u8> {
        let head = br#"{"message":"taken","number":7}"#;
        let (length, count) = (u32::try_from(head.len()).unwrap().to_le_bytes(), 2_u16.to_le_bytes());
        [&length[..], &count, head, &[0, 0]].concat()
    }

    #[test]
    fn hnd_2_a_message_takes_its_descriptors_along() {
        let (old, new) = pair();
        let directory = tempfile::tempdir().unwrap();
        let files: Vec<File> =
            (0..5).map(|index| File::create(directory.path().join(index.to_string())).unwrap()).collect();
        let descriptors: Vec<_> = files.iter().map(File::as_fd).collect();
        old.send(&HandoverMessage::Taken { number: 7 }, &descriptors).unwrap();
        old.send(&HandoverMessage::Ready, &[]).unwrap();
        let (message, taken) = new.receive().unwrap();
        assert!(matches!(message, HandoverMessage::Taken { number: 7 }));
        assert_eq!(taken.len(), 5);
        for (taken, file) in taken.into_iter().zip(files) {
            assert!(fcntl_getfd(&taken).unwrap().contains(FdFlags::CLOEXEC), "no other child may have it");
            let (found, own) = (rustix::fs::fstat(&taken).unwrap(), rustix::fs::fstat(&file).unwrap());
            assert_eq!(found.st_ino, own.st_ino, "in their order");
        }
        assert!(matches!(new.receive().unwrap(), (HandoverMessage::Ready, none) if none.is_empty()));
    }

    /// HND-2: a message that is cut at any byte is an error that tells the place.
    #[test]
    fn hnd_2_a_cut_is_told_at_every_byte() {
        let whole = recorded();
        for cut in 0..whole.len() - 2 {
            let (old, new) = pair();
            (&old.0).write_all(&whole[..cut]).unwrap();
            old.close();
            match (cut, new.receive()) {
                (0, Err(HandoverFault::Closed)) => {}
                (1..6, Err(HandoverFault::Cut { got, expected: 6 })) => assert_eq!(got, cut),
                (_, Err(HandoverFault::Cut { got, expected })) => {
                    assert_eq!((got, expected), (cut, whole.len()))
                }
                (_, other) => panic!("cut at {cut}: {other:?}"),
            }
        }
        // The bytes of the descriptors came without descriptors.
        for cut in whole.len() - 2..whole.len() {
            let (old, new) = pair();
            (&old.0).write_all(&whole[..cut]).unwrap();
            old.close();
            let result = new.receive();
            let is_told = matches!(result, Err(HandoverFault::Cut { .. } | HandoverFault::NoDescriptor));
            assert!(is_told, "cut at {cut}: {result:?}");
        }
    }

    #[test]
    fn hnd_2_lengths_are_bounded_before_memory_is_taken() {
        let (old, new) = pair();
        (&old.0).write_all(&[0xff, 0xff, 0xff, 0xff, 0, 0]).unwrap();
        assert!(matches!(new.receive(), Err(HandoverFault::TooLong(0xffff_ffff))));
        let (old, new) = pair();
        (&old.0).write_all(&[2, 0, 0, 0, 0xff, 0xff]).unwrap();
        assert!(matches!(new.receive(), Err(HandoverFault::TooMany(0xffff))));
        let (old, new) = pair();
        super::send(&old.0, b"[]", &[]).unwrap();
        assert!(matches!(new.receive(), Err(HandoverFault::Malformed(_))));
    }

    /// HND-2: another build adds keys and messages.
    #[test]
    fn hnd_2_unknown_keys_and_messages_are_skipped() {
        let (old, new) = pair();
        super::send(&old.0, br#"{"message":"news of tomorrow","of":[1]}"#, &[]).unwrap();
        super::send(&old.0, br#"{"message":"taken","number":7,"mood":"good"}"#, &[]).unwrap();
        assert!(matches!(new.receive().unwrap().0, HandoverMessage::Taken { number: 7 }));
        super::send(&old.0, br#"{"message":"refused","reason":"listeners[0]: no"}"#, &[]).unwrap();
        assert!(matches!(new.receive(), Err(HandoverFault::Refused(reason)) if reason == "listeners[0]: no"));
    }

    #[test]
    fn hnd_3_silence_is_bounded() {
        let (_old, new) = pair();
        new.wait_at_most(Some(Duration::from_millis(20))).unwrap();
        assert!(matches!(new.receive(), Err(HandoverFault::Silent)));
        let waiting = new.another().unwrap();
        waiting.wait_at_most(None).unwrap();
        let ended = std::thread::spawn(move || waiting.receive());
        new.close();
        assert!(matches!(ended.join().unwrap(), Err(HandoverFault::Closed)));
    }
}
