//! The state of a source, for a successor of the process (HND-2).

use super::SourceTask;
use crate::checkpoint::Header;
use crate::driver::api::estate::{ClassHead, Estate};
use crate::driver::ground::checkpoint_writer::digest_of_relay;
use crate::engine::Time;
use crate::telemetry::wall_now;
use crate::wire::json::encode_rest_node;

impl SourceTask {
    /// `None` for a private source, for files, and for a node that JSON cannot express.
    pub(super) fn estate(&self, now: Time) -> Option<Estate> {
        let (identity, class) = (self.identity.clone()?, &self.handle.key().class);
        let node = String::from_utf8(encode_rest_node(&class.node).ok()?).ok()?;
        let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
        let (identity_text, metadata) = (text(&class.identity), text(&class.identity_metadata));
        // The table of sources knows the reason for a split.
        let class = ClassHead {
            node,
            attributes: class.attributes.clone(),
            identity: identity_text,
            identity_metadata: metadata,
            is_for_secrets: false,
        };
        let relay = digest_of_relay(&self.shared.settings().node);
        let confirmed_at = self.report.confirmed_at(&self.shared.clock).at;
        let header = Header { identity, relay, written_at: wall_now(), confirmed_at };
        let image = self.source.image_with_secrets(now);
        let image = match self.stable() {
            Some(stable) => image.serving(&stable),
            None => image,
        };
        Some(Estate { class, header, image })
    }
}
