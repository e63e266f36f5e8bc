//! The responses that a client has not answered, and the content that it rejected.

use std::collections::VecDeque;

use super::held::Sent;
use super::words::{Content, Mask, NAMES, bit, of_other_class};

/// The responses of one type on one stream that a client has not answered.
#[derive(Debug, Default)]
pub struct Flight {
    unanswered: VecDeque<(String, Vec<(usize, Content)>)>,
    latest: Option<String>,
    /// What the client rejected.
    rejected: [Content; NAMES],
}

impl Flight {
    pub fn is_waiting(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// The names in unanswered responses.
    pub fn carried(&self) -> Mask {
        let put = self.unanswered.iter().flat_map(|(_, put)| put);
        put.fold(0, |mask, (name, _)| mask | bit(*name))
    }

    /// The stream moved to another class.
    pub fn come_from_other_class(&mut self) {
        let put = self.unanswered.iter_mut().flat_map(|(_, put)| put);
        put.for_each(|(_, content)| *content = of_other_class(*content));
        self.rejected = self.rejected.map(of_other_class);
    }

    /// The client is sent a response.
    pub fn send(&mut self, sent: &Sent) {
        self.unanswered.push_back((sent.nonce.clone(), sent.put.clone()));
        self.latest = Some(sent.nonce.clone());
    }

    /// The content of a name that the client rejected.
    pub fn rejected(&self, name: usize) -> Content {
        self.rejected[name]
    }

    pub fn has_rejected(&self, name: usize) -> bool {
        self.rejected[name] != 0
    }

    /// What the relay should make of a nonce (NON-1, NON-5, NON-6).
    pub fn judge(&mut self, nonce: &str, is_error: bool) -> &'static str {
        let Some(at) = self.unanswered.iter().position(|(sent, _)| sent == nonce) else {
            return if self.latest.as_deref() == Some(nonce) { "none" } else { "stale" };
        };
        let put = self.unanswered[at].1.clone();
        if self.latest.as_deref() == Some(nonce) {
            self.unanswered.clear();
        } else {
            self.unanswered.remove(at);
        }
        if !is_error {
            return "ACK";
        }
        for (name, content) in put {
            self.rejected[name] = content;
        }
        "NACK"
    }
}
