//! A class that shows its server the node of a member shows that of another one.

use super::{Attachment, Source};
use crate::engine::Time;

impl Source {
    /// Streams begin with another node from now on: those that are open make way for new ones.
    pub fn succeed(&mut self, now: Time) {
        if let Attachment::Streams(streams) = &mut self.attachment {
            streams.machines_mut().for_each(|(_, machine)| machine.succeed());
        }
        self.after(now);
    }
}
