//! The load reports of the control plane's clients.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;

use crate::load::{Gauges, Received, read_report, wish};

/// The sums of all streams, and the wish that each is answered with.
#[derive(Clone)]
pub struct Loads {
    wish: Bytes,
    received: Arc<Mutex<Received>>,
}

impl Loads {
    pub fn new(interval: Duration) -> Loads {
        Loads { wish: wish(interval).into(), received: Arc::default() }
    }

    pub fn received(&self) -> Received {
        *self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, add: impl FnOnce(&mut Received)) {
        add(&mut self.received.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub fn stream(&self) -> LoadStream {
        self.add(|received| received.streams += 1);
        LoadStream { loads: self.clone(), gauges: Gauges::new(), wish: None, is_new: true }
    }
}

/// The stream of one reporter.
pub struct LoadStream {
    loads: Loads,
    gauges: Gauges,
    wish: Option<Bytes>,
    is_new: bool,
}

impl LoadStream {
    /// Counts a report; the first one is answered, too.
    pub fn request(&mut self, message: &[u8]) -> Result<()> {
        if std::mem::take(&mut self.is_new) {
            self.wish = Some(self.loads.wish.clone());
        }
        let before: u64 = self.gauges.values().sum();
        let mut sums = self.loads.received().sums;
        read_report(message, &mut sums, &mut self.gauges)?;
        let now: u64 = self.gauges.values().sum();
        self.loads.add(|received| {
            received.sums = sums;
            received.messages += 1;
            received.in_progress = received.in_progress + now - before;
        });
        Ok(())
    }

    /// The answer to send, once.
    pub fn response(&mut self) -> Option<Bytes> {
        self.wish.take()
    }
}

impl Drop for LoadStream {
    /// Nothing is in progress at a client that is gone.
    fn drop(&mut self) {
        self.loads.add(|received| received.in_progress -= self.gauges.values().sum::<u64>());
    }
}
