//! A client's stream of load reports that goes to the server as it is (LRS-14).

use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::uplink::LoadUplink;
use crate::client::StreamEvent;
use crate::driver::api::downstream::LoadWord;
use sluice_wire::frame::framed;

/// A stream of the relay for one client. Answers and the end pass at once, and messages one at a time: the
/// client is not read while HTTP/2 has no room for the message before.
pub struct ForwardedStream {
    uplink: LoadUplink,
    is_sending: bool,
}

impl ForwardedStream {
    pub fn new(uplink: LoadUplink) -> ForwardedStream {
        ForwardedStream { uplink, is_sending: false }
    }

    pub fn is_sending(&self) -> bool {
        self.is_sending
    }

    pub fn report(&mut self, message: &Bytes) {
        self.is_sending = true;
        self.uplink.send(message);
    }

    pub fn half_close(&self) {
        self.uplink.finish();
    }

    pub fn poll_word(&mut self, context: &mut Context<'_>) -> Poll<LoadWord> {
        loop {
            match ready!(self.uplink.poll_event(context)) {
                StreamEvent::Message(message) => {
                    let Some(answer) = framed(&message) else { continue };
                    return Poll::Ready(LoadWord::Answer(answer));
                }
                StreamEvent::Flushed => self.is_sending = false,
                StreamEvent::Closed(status) | StreamEvent::Ended(status) => {
                    return Poll::Ready(LoadWord::End(status));
                }
                // The stream waits for a connection, like other streams to servers.
                _ => {}
            }
        }
    }
}
