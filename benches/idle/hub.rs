//! The messages, and the shared state of a server: the newest update, the wakes of connections, the counts of answers.

use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::{Wake, Waker};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use tokio::sync::Notify;

/// Before each gRPC message: no compression, and the length of the message.
pub const PREFIX_BYTES: usize = 5;

const UPDATE_BYTES: usize = 1024;
const REQUEST_BYTES: usize = 200;
const ACK_BYTES: usize = 100;

pub fn prefix(length: usize) -> [u8; PREFIX_BYTES] {
    let [.., a, b, c, d] = (length as u64).to_be_bytes();
    [0, a, b, c, d]
}

/// The update of a round, without its prefix. Each byte depends on the round and on its place.
pub fn update(round: u64) -> Bytes {
    let filler = (8..UPDATE_BYTES as u64).map(|at| (round.wrapping_mul(31) + at * 7 + (at >> 8)) as u8);
    round.to_le_bytes().into_iter().chain(filler).collect()
}

/// The first request of a client for round 0, else the ACK of a round; with the prefix.
pub fn answer(round: u64) -> Bytes {
    let length = if round == 0 { REQUEST_BYTES } else { ACK_BYTES };
    let mut message = prefix(length).to_vec();
    message.extend_from_slice(&round.to_le_bytes());
    message.resize(PREFIX_BYTES + length, b'x');
    message.into()
}

/// The socket has work.
pub const IO: u8 = 1;
/// An update is waiting.
pub const UPDATE: u8 = 2;
/// The task is running.
const WATCHED: u8 = 4;

/// The woken parts of a connection, as in the relay: while the task runs, a wake only marks the part. As a waker, wakes
/// [`IO`].
#[derive(Default)]
pub struct Wakes {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Wakes {
    /// The task begins to run.
    pub fn watch(&self, task: &Waker) {
        self.task.register(task);
        self.state.fetch_or(WATCHED, Ordering::AcqRel);
    }

    /// Returns true if the part was woken since the last call.
    pub fn take(&self, part: u8) -> bool {
        self.state.load(Ordering::Acquire) & part != 0
            && self.state.fetch_and(!part, Ordering::AcqRel) & part != 0
    }

    /// The task is about to wait. Wakes it again if a wake is left.
    pub fn leave(&self, task: &Waker) {
        if self.state.fetch_and(!WATCHED, Ordering::AcqRel) != WATCHED {
            task.wake_by_ref();
        }
    }

    pub fn woke(&self, part: u8) {
        if self.state.fetch_or(part, Ordering::AcqRel) == 0 {
            self.task.wake();
        }
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.woke(IO);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woke(IO);
    }
}

#[derive(Default)]
pub struct Hub {
    newest: RwLock<Bytes>,
    round: AtomicU64,
    clients: Mutex<Vec<Arc<Wakes>>>,
    answers: AtomicUsize,
    expected: AtomicUsize,
    progress: Notify,
    fault: Mutex<Option<io::Error>>,
}

impl Hub {
    /// The wakes of a new connection.
    pub fn join(&self) -> Arc<Wakes> {
        let wakes = Arc::new(Wakes::default());
        wakes.woke(IO);
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).push(wakes.clone());
        wakes
    }

    pub fn newest(&self) -> Bytes {
        self.newest.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Hands an update to all connections.
    pub fn publish(&self, round: u64) {
        self.round.store(round, Ordering::Release);
        *self.newest.write().unwrap_or_else(PoisonError::into_inner) = update(round);
        for client in self.clients.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            client.woke(UPDATE);
        }
    }

    /// Takes the payload of a DATA frame, which has to be one whole answer to the newest round.
    pub fn heard(&self, payload: &[u8]) -> io::Result<()> {
        let round = payload.get(PREFIX_BYTES..PREFIX_BYTES + 8).and_then(|bytes| bytes.try_into().ok());
        let is_expected = round.map(u64::from_le_bytes) == Some(self.round.load(Ordering::Acquire))
            && payload.starts_with(&prefix(payload.len() - PREFIX_BYTES));
        if !is_expected {
            return Err(io::Error::other("a client sent another message than the answer"));
        }
        let answers = self.answers.fetch_add(1, Ordering::AcqRel) + 1;
        if answers == self.expected.load(Ordering::Acquire) {
            self.progress.notify_one();
        }
        Ok(())
    }

    pub fn failed(&self, error: io::Error) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        self.progress.notify_one();
    }

    /// Expects so many answers from now on.
    pub fn expect(&self, answers: usize) {
        self.answers.store(0, Ordering::Release);
        self.expected.store(answers, Ordering::Release);
    }

    /// Waits for the expected answers.
    ///
    /// # Errors
    /// The error of a connection.
    pub async fn answered(&self) -> io::Result<()> {
        self.progress.notified().await;
        let fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner).take();
        fault.map_or(Ok(()), Err)
    }
}
