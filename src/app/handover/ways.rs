//! The sockets of the process, and the way to a successor.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::handover::Fault;
use crate::handover::message::SocketHead;
use crate::server::{self, Passage};

/// The sockets of all listeners in service, for clients and for operators.
#[derive(Default)]
pub(in crate::app) struct Ways(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    ways: Vec<(String, Passage)>,
    /// New listeners wait for the hand-over.
    is_paused: bool,
}

impl Ways {
    /// `address`: as in the configuration.
    pub fn add(&self, address: String, listener: &server::Listener) {
        let mut inner = self.lock();
        let passage = listener.passage();
        if inner.is_paused {
            passage.pause();
        }
        inner.ways.retain(|(_, passage)| passage.descriptor().is_some());
        inner.ways.push((address, passage));
    }

    /// Descriptors for a successor, in the order of the heads. Closed sockets are left out.
    pub fn descriptors(&self) -> Result<(Vec<SocketHead>, Vec<OwnedFd>), Fault> {
        let (mut heads, mut descriptors) = (Vec::new(), Vec::new());
        for (address, passage) in &self.lock().ways {
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
        let mut inner = self.lock();
        inner.is_paused = true;
        inner.ways.iter().for_each(|(_, passage)| passage.pause());
    }

    pub fn resume(&self) {
        let mut inner = self.lock();
        inner.is_paused = false;
        inner.ways.iter().for_each(|(_, passage)| passage.resume());
    }

    /// The sockets are the successor's.
    pub fn give_up(&self) {
        self.lock().ways.iter().for_each(|(_, passage)| passage.give_up());
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every critical section leaves the list consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
