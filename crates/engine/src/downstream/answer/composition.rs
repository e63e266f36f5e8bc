//! A composed answer: its messages, and their effects on the client's content.

use std::sync::Arc;

use crate::downstream::answer::chunk::Chunk;
use crate::downstream::answer::rest::ToldNames;
use crate::view::View;
use sluice_xds::ResourceName;

/// The messages of an answer: none, one, or several.
#[derive(Clone, Debug, Default)]
pub struct Composition {
    pub chunks: Vec<Chunk>,
    /// The EDS names of new and changed clusters. These endpoints must follow, changed or not (ORD-5).
    pub endpoints: Arc<[ResourceName]>,
    /// The views of the client after this answer; empty if they equal the views of the sources.
    pub targets: Vec<Arc<View>>,
    /// The number of resources that the client cannot be sent (RLY-23).
    pub left_out: usize,
    /// The names in each message of several.
    pub told_names: Arc<[ToldNames]>,
}

impl Composition {
    /// Notes the names of the messages, if there are several. `parts`: the number of parts of the answer.
    pub(super) fn note_told_names(&mut self, parts: usize) {
        if self.chunks.len() > 1 {
            self.told_names = self.chunks.iter().map(|chunk| ToldNames::of(chunk, parts)).collect();
        }
    }
}
