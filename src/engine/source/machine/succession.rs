//! A class whose streams present the node of a member switches to another member's node.

use super::Source;
use crate::engine::Time;
use crate::engine::source::attachment::Attachment;

impl Source {
    /// Streams begin with another node from now on: new streams replace the open streams.
    pub fn succeed(&mut self, now: Time) {
        if let Attachment::Streams(streams) = &mut self.attachment {
            streams.machines_mut().for_each(|(_, machine)| machine.succeed());
        }
        self.after(now);
    }
}
