//! The sockets of the process, and the way to a successor.

use std::os::fd::OwnedFd;

use parking_lot::Mutex;

use crate::handover::HandoverFault;
use crate::handover::message::SocketHead;
use crate::server::{self, Passage};

/// The sockets of all listeners in service, for clients and for operators.
#[derive(Default)]
pub(in crate::app) struct Ways(Mutex<OpenWays>);

#[derive(Default)]
struct OpenWays {
    ways: Vec<(String, Passage)>,
    /// New listeners wait for the hand-over.
    is_paused: bool,
}

impl Ways {
    /// `address`: as in the configuration.
    pub fn add(&self, address: String, listener: &server::Listener) {
        let mut inner = self.0.lock();
        let passage = listener.passage();
        if inner.is_paused {
            passage.pause();
        }
        inner.ways.retain(|(_, passage)| passage.descriptor().is_some());
        inner.ways.push((address, passage));
    }

    /// Descriptors for a successor, in the order of the heads. Closed sockets are left out.
    pub fn descriptors(&self) -> Result<(Vec<SocketHead>, Vec<OwnedFd>), HandoverFault> {
        let (mut heads, mut descriptors) = (Vec::new(), Vec::new());
        for (address, passage) in &self.0.lock().ways {
            let Some(descriptor) = passage.descriptor() else { continue };
            descriptors.push(descriptor?);
            heads.push(SocketHead {
                name: passage.name().to_owned(),
                address: address.clone(),
                is_lent: passage.is_lent(),
            });
        }
        Ok((heads, descriptors))
    }

    /// Nothing is accepted from now on, also by listeners to come.
    pub fn pause(&self) {
        let mut inner = self.0.lock();
        inner.is_paused = true;
        inner.ways.iter().for_each(|(_, passage)| passage.pause());
    }

    pub fn resume(&self) {
        let mut inner = self.0.lock();
        inner.is_paused = false;
        inner.ways.iter().for_each(|(_, passage)| passage.resume());
    }

    /// The sockets are the successor's.
    pub fn give_up(&self) {
        self.0.lock().ways.iter().for_each(|(_, passage)| passage.give_up());
    }

    /// The successor has died: this process accepts again. Whoever connected meanwhile waits in the queue of
    /// the kernel.
    pub fn take_back(&self) {
        self.0.lock().ways.iter().for_each(|(_, passage)| passage.take_back());
        self.resume();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::TcpStream;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::server::Listener;

    /// HND-3: until the word of the predecessor, new listeners accept nobody.
    #[tokio::test]
    async fn hnd_3_a_listener_that_is_added_during_a_pause_leaves_its_clients_in_the_queue() {
        let ways = Ways::default();
        ways.pause();
        let listener = Listener::bind_tcp("main", "127.0.0.1:0".parse().unwrap()).unwrap();
        ways.add("127.0.0.1:0".to_owned(), &listener);
        let _client = TcpStream::connect(listener.address().unwrap()).unwrap();
        let mut accepting = pin!(listener.accept());
        for _ in 0..5 {
            assert!(accepting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            tokio::task::yield_now().await;
        }
        ways.resume();
        accepting.await.unwrap();
    }
}
