//! Rejections of clients, for the server (`report_rejections`).

use super::Source;
use crate::engine::Time;
use crate::engine::source::attachment::Attachment;
use crate::xds::TypeUrl;

impl Source {
    /// Tells the server of clients' rejections of a type. False: no stream has an accepted response.
    pub fn report_rejections(&mut self, type_url: &TypeUrl, words: &str, now: Time) -> bool {
        match &mut self.attachment {
            Attachment::Streams(streams) => streams.report_rejections(type_url, words, now),
            Attachment::Files(_) => false,
        }
    }
}
