//! Tells the server of clients' rejections of an accepted response (`report_rejections`, RLY-38).
//!
//! A relay accepts a response before clients have seen the content, so a server would never hear of NACKs. A request with an error,
//! the newest nonce and the accepted version tells the server. Nothing is due then: the version is current, the names
//! are the same, and only the error is new.

use crate::engine::Time;
use crate::engine::upstream::machine::{Occasion, Phase, Upstream};
use crate::xds::{Code, Status, TypeUrl};

impl Upstream {
    /// Sends the words to the server. False: the relay has accepted nothing on the stream, or an answer is due first.
    pub fn report_rejections(&mut self, type_url: &TypeUrl, words: &str, now: Time) -> bool {
        if !matches!(self.phase, Phase::Open(_)) || self.polls() {
            return false;
        }
        // A request with other names has an answer, and goes before.
        if self.subscriptions.get(type_url).is_some_and(|of_type| of_type.has_news()) {
            self.write_change(type_url, now);
        }
        let Some(of_type) = self.subscriptions.get(type_url) else { return false };
        if !of_type.said.is_accepted || of_type.has_news() || of_type.said.repetition.owes() {
            return false;
        }
        let words = &words[..words.floor_char_boundary(self.settings.nack_text_max)];
        self.write(type_url, Occasion::Nack(Status::new(Code::InvalidArgument, words)), now)
    }
}
