//! A few connections with the same frames again and again, each until the relay closes; then the next.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::io::{AsyncWriteExt, WriteHalf};
use tokio::time::timeout;

use crate::arena::Wire;
use crate::attack::{CLOSED_WITHIN, Outcome, Strand};
use crate::crowd::{drain, lanes, unopened};
use crate::frames;

/// The attacker shares two cores with the relay and the honest clients. Reconnects at full speed would only measure
/// the machine.
const PAUSE: Duration = Duration::from_millis(100);

/// A relay that has taken nothing for this time holds the attacker back: answers that nobody reads fill the socket, and the flood
/// ends.
const HELD_BACK: Duration = Duration::from_secs(1);

/// The ids of a client's streams.
#[derive(Default)]
pub struct Ids(u32);

impl Ids {
    pub fn next(&mut self) -> u32 {
        let id = 2 * self.0 + 1;
        self.0 += 1;
        id
    }

    /// The last id again.
    pub fn last(&self) -> u32 {
        2 * self.0 - 1
    }
}

#[derive(Clone, Copy)]
pub struct Frames {
    /// After the preface and SETTINGS.
    pub opening: fn(&mut Ids) -> Vec<u8>,
    /// Sent again and again.
    pub flood: fn(&mut Ids) -> Vec<u8>,
    /// The attacker reads all answers.
    pub reads: bool,
}

impl Frames {
    pub const fn of(flood: fn(&mut Ids) -> Vec<u8>) -> Frames {
        Frames { opening: |_| Vec::new(), flood, reads: true }
    }

    pub const fn after(self, opening: fn(&mut Ids) -> Vec<u8>) -> Frames {
        Frames { opening, ..self }
    }

    pub const fn unread(self) -> Frames {
        Frames { reads: false, ..self }
    }
}

pub async fn run(strand: Strand, script: Frames) -> Outcome {
    let count = strand.count(5, 2);
    lanes(strand, count, PAUSE, move |strand| async move {
        match strand.target.connect(strand.mode).await {
            Ok(wire) => attack(wire, script).await,
            Err(error) => unopened(error),
        }
    })
    .await
}

async fn attack(wire: Wire, script: Frames) -> Outcome {
    let begin = Instant::now();
    let taken = Mutex::new(begin);
    let (read, write) = tokio::io::split(wire);
    let closed = async {
        if script.reads {
            tokio::select! {
                () = drain(read) => {}
                () = send(write, script, &taken) => {}
            }
        } else {
            send(write, script, &taken).await;
            drop(read);
        }
    };
    let is_closed = timeout(CLOSED_WITHIN, closed).await.is_ok();
    if !is_closed && !script.reads && taken.into_inner().is_ok_and(|at| at.elapsed() >= HELD_BACK) {
        return Outcome { opened: 1, ..Outcome::default() };
    }
    Outcome::of_close(begin, is_closed)
}

/// Returns when the connection is closed. `taken`: the time at which the relay last took something.
async fn send(mut write: WriteHalf<Wire>, script: Frames, taken: &Mutex<Instant>) {
    let mut ids = Ids::default();
    let opening = [frames::opening(), (script.opening)(&mut ids)].concat();
    if write.write_all(&opening).await.is_err() {
        return;
    }
    loop {
        let bytes = (script.flood)(&mut ids);
        if write.write_all(&bytes).await.is_err() || write.flush().await.is_err() {
            return;
        }
        *taken.lock().expect("one task") = Instant::now();
        tokio::task::yield_now().await;
    }
}
