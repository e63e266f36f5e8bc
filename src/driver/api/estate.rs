//! The state of a source, as a process passes it to its successor (HND-2).

use std::io;

use sluice_checkpoint::Header;
use sluice_checkpoint::format::encode_with_secrets;
use sluice_engine::class::Attributes;
use sluice_engine::source::Image;

/// The class of a source. The node may be confidential: it goes to the successor alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassHead {
    /// A `core.v3.Node` in JSON.
    pub node: String,
    pub attributes: Attributes,
    pub identity: Option<String>,
    pub identity_metadata: Option<String>,
    /// The class is split by client only because of Secrets.
    pub is_for_secrets: bool,
}

/// A source at one moment.
#[derive(Debug)]
pub struct Estate {
    pub class: ClassHead,
    pub(crate) header: Header,
    pub(crate) image: Image,
}

impl Estate {
    /// Writes the state in the format of the checkpoint, with Secrets. Blocks.
    ///
    /// # Errors
    /// Errors of the sink.
    pub fn write(&self, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        encode_with_secrets(&self.header, &self.image, &mut |piece| sink(piece)).map(|_| ())
    }
}

/// The result of a part of an inheritance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bequest {
    /// The source runs, with this number of resources.
    Kept { resources: usize },
    /// The state waits for the first client of its class.
    Waits { resources: usize },
    /// The configuration has no such server any more, or another node.
    Unwanted,
}
