//! Event streams of a relay, message by message.

use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::address::Target;
use super::request::{Caller, Missing, Open};

/// The longest message. Those of a relay have a few KiB.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The longest silence. A relay says something each 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(45);

/// One message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SseMessage {
    /// `message` without another name.
    pub event: String,
    pub data: String,
}

/// A stream of messages.
pub(super) struct Messages {
    open: Open,
    read: Lines,
}

/// The bytes up to the end of a message.
#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    message: SseMessage,
}

impl Caller {
    pub(super) async fn messages(&self, relay: &Target, path: &str) -> Result<Messages, Missing> {
        let open = self.open(relay, &Method::GET, path, "text/event-stream").await?;
        Ok(Messages { open, read: Lines::default() })
    }
}

impl Messages {
    /// The next message. An error is the end of the stream.
    pub(super) async fn next(&mut self) -> Result<SseMessage, Missing> {
        let silent = |reason: String| Missing::Silent(reason);
        loop {
            if let Some(message) = self.read.message() {
                return Ok(message);
            }
            if self.read.bytes.len() > MESSAGE_BYTES_MAX {
                return Err(silent("sends a message without end, so is no relay".to_owned()));
            }
            let frame = timeout(SILENCE_MAX, self.open.response.body_mut().frame()).await;
            let frame = frame.map_err(|_| silent(format!("silent for {SILENCE_MAX:?}")))?;
            let frame = frame.ok_or_else(|| silent("the stream ended".to_owned()))?;
            let frame = frame.map_err(|error| silent(format!("the stream broke off: {error}")))?;
            self.read.bytes.extend(frame.data_ref().into_iter().flatten());
        }
    }
}

impl Lines {
    /// The first whole message, if its last line has come.
    fn message(&mut self) -> Option<SseMessage> {
        let mut taken = 0;
        let mut first = None;
        for line in self.bytes.split_inclusive(|byte| *byte == b'\n') {
            let Some(line) = line.strip_suffix(b"\n") else { break };
            taken += line.len() + 1;
            let line = String::from_utf8_lossy(line);
            let line = line.trim_end_matches('\r');
            if let Some(event) = line.strip_prefix("event: ") {
                event.clone_into(&mut self.message.event);
            } else if let Some(data) = line.strip_prefix("data: ") {
                data.clone_into(&mut self.message.data);
            } else if line.is_empty() && !self.message.data.is_empty() {
                let mut message = std::mem::take(&mut self.message);
                if message.event.is_empty() {
                    "message".clone_into(&mut message.event);
                }
                first = Some(message);
                break;
            }
        }
        self.bytes.drain(..taken);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_at_any_byte() {
        let text = "event: begin\ndata: {\"streams\":[]}\n\n:\n\nid: 7\ndata: {\"text\":\"ü\"}\n\ndata: {}\r\n\r\nda";
        let new = |event: &str, data: &str| SseMessage { event: event.to_owned(), data: data.to_owned() };
        let expected =
            [new("begin", "{\"streams\":[]}"), new("message", "{\"text\":\"ü\"}"), new("message", "{}")];
        for cut in 0..text.len() {
            let (mut lines, mut messages) = (Lines::default(), Vec::new());
            let (first, second) = text.as_bytes().split_at(cut);
            for part in [first, second] {
                lines.bytes.extend(part);
                messages.extend(std::iter::from_fn(|| lines.message()));
            }
            assert_eq!(messages, expected, "{cut}");
            assert_eq!(lines.bytes, b"da");
        }
    }
}
