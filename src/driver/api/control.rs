//! Commands of an operator to a running relay.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::driver::api::status::{SourceStatus, SourceTypeStatus, StatusView, names_type};

/// The relay as an operator sees and steers it.
pub trait Controls: StatusView {
    /// Has the status of sources brought up to date, for who is about to read it. A source that takes longer than a moment
    /// is read as it was shown last.
    fn refresh(&self) -> BoxFuture<'_, ()>;

    /// Says that mass deletions were meant which are held back (FU18): clients are told of them. Returns the sources that
    /// held something back, and how much; none, if there was nothing.
    fn confirm_deletions(&self, filter: DeletionFilter) -> BoxFuture<'_, Vec<ConfirmedDeletion>>;
}

/// Which deletions are meant; `None` means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeletionFilter {
    /// `server_uri` of the configuration.
    pub server: Option<String>,
    /// See [`names_type`].
    pub type_name: Option<String>,
}

/// What went of one source.
#[derive(Clone, Debug)]
pub struct ConfirmedDeletion {
    pub source: Arc<SourceStatus>,
    pub removed: usize,
}

impl DeletionFilter {
    /// Whether a source holds something back that this may concern.
    pub fn concerns(&self, source: &SourceStatus) -> bool {
        let is_type = |of: &&SourceTypeStatus| {
            self.type_name.as_deref().is_none_or(|text| names_type(text, &of.type_url))
        };
        self.server.as_deref().is_none_or(|server| *server == *source.server)
            && source.types.iter().filter(is_type).any(|of| of.held_back > 0)
    }
}
