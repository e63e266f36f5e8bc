//! The environment of a process at the start.

use std::io;
use std::sync::Arc;

use crate::handover::start::{self, Invocation};
use crate::handover::supervisor::{LentSocket, Supervisor, lent_sockets};
use crate::handover::{Channel, HandoverMessage};

/// Read once, before the configuration.
pub struct Start {
    pub(in crate::app) invocation: Invocation,
    pub(in crate::app) predecessor: Option<Channel>,
    pub(in crate::app) lent: Vec<LentSocket>,
    pub(in crate::app) supervisor: Arc<Supervisor>,
}

impl Start {
    /// The environment, and a way to tell the predecessor the reason of a failure.
    ///
    /// # Errors
    /// The variables of the environment are wrong.
    pub fn of_environment() -> io::Result<(Start, StartRefusal)> {
        let predecessor = start::predecessor()?;
        let refusal = StartRefusal(predecessor.as_ref().map(Channel::another).transpose()?);
        let start = Start {
            invocation: Invocation::of_this_process()?,
            predecessor,
            lent: lent_sockets()?,
            supervisor: Arc::new(Supervisor::of_environment()?),
        };
        Ok((start, refusal))
    }
}

/// See [`Start::of_environment`].
pub struct StartRefusal(Option<Channel>);

impl StartRefusal {
    /// The operator of the upgrade reads the reason.
    pub fn tell(&self, reason: &str) {
        if let Some(channel) = &self.0 {
            // The predecessor may have given up before.
            let _ = channel.send(&HandoverMessage::Refused { reason: reason.to_owned() }, &[]);
        }
    }
}
