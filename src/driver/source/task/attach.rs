//! The attachments of sources to their servers.

use crate::driver::ground::servers::Attach;
use crate::engine::source::{Attachment, Files, Streams};
use crate::xds::{Code, Status};

pub(super) fn attachment(attach: &Attach) -> Attachment {
    match attach {
        Attach::Grpc { settings, .. } | Attach::Rest { settings, .. } => {
            Attachment::Streams(Box::new(Streams::new(settings.clone())))
        }
        Attach::Files { mass_deletion_hold, .. } => {
            let mut files = Files::default();
            files.set_hold(*mass_deletion_hold);
            Attachment::Files(files)
        }
        Attach::Nothing => Attachment::Files(Files::nothing()),
        Attach::Refused => Attachment::Files(Files::refused(no_room())),
    }
}

/// The status for a type whose class has no room.
fn no_room() -> Status {
    let text = "there is no room for another node class; the limits are `limits.node_classes`, \
        `limits.node_classes_per_connection` and `limits.secret_classes`";
    Status::new(Code::ResourceExhausted, text)
}
