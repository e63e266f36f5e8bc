//! The events of a watched directory.

use std::collections::BTreeMap;

use super::SourceTask;
use crate::client::FileEvent;
use crate::engine::Time;
use crate::engine::source::Attachment;
use crate::xds::{Code, Status, TypeUrl};

impl SourceTask {
    pub(super) fn take_files(&mut self, event: FileEvent, now: Time) {
        match event {
            FileEvent::State(state, arrival) => {
                self.report.files_read(now);
                self.response = Some((String::new(), arrival));
                let before = self.counts_of_files();
                self.source.handle_files(state, now);
                let after = self.counts_of_files();
                for (type_url, before) in before {
                    let after = after.get(&type_url).copied().unwrap_or_default();
                    self.report.changed(&type_url, before, after);
                }
                self.handle.loaded.send_replace(Some(Ok(())));
            }
            FileEvent::Bad { path, reason } => {
                self.source.handle_bad_files();
                self.report.bad_file(&path, &reason, now);
                let text = format!("{}: {reason}", path.display());
                // Only the first state decides whether the relay may start. After a later failure, the last
                // good state stays.
                self.handle.loaded.send_if_modified(|loaded| {
                    let first = loaded.is_none();
                    loaded.get_or_insert(Err(Status::new(Code::FailedPrecondition, text)));
                    first
                });
            }
        }
    }

    /// The number of resources in the files by type, with those whose deletion is held back.
    fn counts_of_files(&self) -> BTreeMap<TypeUrl, usize> {
        match self.source.attachment() {
            Attachment::Files(files) => files.counts().collect(),
            Attachment::Streams(_) => BTreeMap::new(),
        }
    }
}
