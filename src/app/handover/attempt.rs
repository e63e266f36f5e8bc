//! A single hand-over to a new process, up to success or failure (HND-3). All calls block.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::time::Duration;

use tracing::warn;

use crate::driver::api::estate::Estate;
use crate::handover::message::{Hello, Offer, SocketHead, Source};
use crate::handover::{Channel, HandoverFault, HandoverMessage, memory};

/// Milliseconds from the end of a connection to the end of the process.
const ENDS_WITHIN: u32 = 1_000;

/// An answer, and the refusal behind it, are the most that can lie unread.
const UNREAD_MAX: u32 = 2;

/// A new process before the word to accept. The drop ends the process.
pub(super) struct Attempt {
    child: Option<Child>,
    pub channel: Channel,
}

/// The property of the old process.
pub(super) struct Property {
    pub sockets: Vec<SocketHead>,
    pub descriptors: Vec<OwnedFd>,
    /// The checkpoint directory, and the lock.
    pub lock: Option<(String, OwnedFd)>,
    pub estates: Vec<Estate>,
}

impl Attempt {
    pub fn new(child: Child, channel: Channel) -> Attempt {
        Attempt { child: Some(child), channel }
    }

    /// Waits until the new process has introduced itself.
    ///
    /// # Errors
    /// The new process has ended, or speaks another protocol.
    pub fn greeted(&mut self) -> Result<Hello, HandoverFault> {
        match self.channel.receive() {
            Ok((HandoverMessage::Hello(hello), _)) => hello.agree().map(|_| hello),
            Ok((other, _)) => Err(other.instead_of("hello")),
            Err(fault) => Err(self.explain(fault)),
        }
    }

    /// Passes everything on, and waits until the new process can serve.
    ///
    /// # Errors
    /// The new process has ended, cannot serve, or takes too long.
    pub fn prepare(&mut self, property: Property, protocol: u32) -> Result<u64, HandoverFault> {
        let passed = pass(&self.channel, property, protocol);
        passed.map_err(|fault| self.explain(fault))
    }

    /// Lets the new process accept and decide about pushes, and resolves when the new process does. The
    /// caller must not accept any more. `decisions`: see
    /// [`Relay::pass_decisions`](crate::driver::relay::handle::Relay::pass_decisions).
    ///
    /// # Errors
    /// The new process has ended, or takes too long. After an error the new process never accepts.
    pub fn let_accept(&mut self, decisions: &[Vec<u8>]) -> Result<(), HandoverFault> {
        let talk = |channel: &Channel| {
            let sealed = decisions.iter().map(|state| memory::sealed(|sink| sink(state)));
            let sealed = sealed.collect::<Result<Vec<_>, _>>()?;
            let memories: Vec<_> = sealed.iter().map(AsFd::as_fd).collect();
            channel.send(&HandoverMessage::Accept, &memories)?;
            match channel.receive()?.0 {
                HandoverMessage::Accepting => Ok(()),
                other => Err(other.instead_of("accepting")),
            }
        };
        let accepts = talk(&self.channel);
        accepts.map_err(|fault| self.explain(fault))
    }

    /// The new process serves, and needs no parent any more.
    pub fn succeed(mut self) -> (Option<Child>, io::Result<Channel>) {
        (self.child.take(), self.channel.another())
    }

    /// The end of the connection is the end of the process. Its last words say more, or else its exit code.
    fn explain(&mut self, fault: HandoverFault) -> HandoverFault {
        if !matches!(fault, HandoverFault::Closed | HandoverFault::Cut { .. }) {
            return fault;
        }
        if let Some(refused) = last_words(&self.channel) {
            return refused;
        }
        self.channel.close();
        match self.child.as_mut().and_then(end_of) {
            Some(status) => {
                HandoverFault::Refused(format!("the new process ended early: {status}; see its log"))
            }
            None => fault,
        }
    }
}

impl Drop for Attempt {
    /// A late process must not accept after the old process has begun to accept again.
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        self.channel.close();
        if let Err(error) = child.kill().and_then(|()| child.wait()) {
            warn!(%error, pid = child.id(), "cannot end the new process");
        }
    }
}

/// The refusal of a process that has ended, if it lies unread: the end shows first to a process that is
/// sending.
fn last_words(channel: &Channel) -> Option<HandoverFault> {
    for _ in 0..UNREAD_MAX {
        match channel.receive() {
            Ok(_) => {}
            Err(refused @ HandoverFault::Refused(_)) => return Some(refused),
            Err(_) => return None,
        }
    }
    None
}

/// The end of a process after the end of the connection; `None` if the process goes on nevertheless.
fn end_of(child: &mut Child) -> Option<ExitStatus> {
    for _ in 0..ENDS_WITHIN {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    None
}

fn pass(channel: &Channel, property: Property, protocol: u32) -> Result<u64, HandoverFault> {
    let Property { sockets, mut descriptors, lock, estates } = property;
    let (directory, lock) = lock.unzip();
    descriptors.extend(lock);
    let sources = u64::try_from(estates.len()).unwrap_or(u64::MAX);
    let offer = Offer {
        protocol,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        sockets,
        lock: directory,
        sources,
    };
    let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    channel.send(&HandoverMessage::Offer(offer), &borrowed)?;
    for (number, estate) in (0..).zip(estates) {
        let memory = memory::sealed(|sink| estate.write(sink))?;
        let class = estate.class;
        let source = Source {
            number,
            node: class.node,
            attributes: class.attributes,
            identity: class.identity,
            identity_metadata: class.identity_metadata,
            is_for_secrets: class.is_for_secrets,
        };
        channel.send(&HandoverMessage::Source(source), &[memory.as_fd()])?;
        // A single state at a time: both processes hold all of the content already.
        drop(memory);
        match channel.receive()?.0 {
            HandoverMessage::Taken { .. } => {}
            other => return Err(other.instead_of("taken")),
        }
    }
    match channel.receive()?.0 {
        HandoverMessage::Ready => Ok(sources),
        other => Err(other.instead_of("ready")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    use super::*;

    /// A process that ended after these messages, and the old process that has not read them yet.
    fn ended_after(words: &[HandoverMessage]) -> Attempt {
        let (old, new) = UnixStream::pair().unwrap();
        let child = Command::new("true").stdin(Stdio::null()).spawn().unwrap();
        let new = Channel::new(new);
        for word in words {
            new.send(word, &[]).unwrap();
        }
        // A child of another test may have the socket, too, for a moment.
        new.close();
        Attempt::new(child, Channel::new(old))
    }

    fn property() -> Property {
        Property { sockets: Vec::new(), descriptors: Vec::new(), lock: None, estates: Vec::new() }
    }

    /// HND-2: the words of a process that ended while the old one was sending are read.
    #[test]
    fn hnd_2_the_last_words_of_a_process_are_read_when_nothing_can_be_sent_to_it() {
        let refused = || HandoverMessage::Refused { reason: "offer: no".to_owned() };
        for words in [vec![refused()], vec![HandoverMessage::Taken { number: 0 }, refused()]] {
            let mut attempt = ended_after(&words);
            let fault = attempt.prepare(property(), 1).unwrap_err();
            assert_eq!(fault.to_string(), "offer: no");
        }
        let mut attempt = ended_after(&[HandoverMessage::Ready]);
        let fault = attempt.prepare(property(), 1).unwrap_err().to_string();
        assert!(fault.starts_with("the new process ended early: exit status: 0"), "{fault}");
    }
}
