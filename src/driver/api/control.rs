//! An operator's commands to a running relay.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::driver::api::changes::ChangesView;
use crate::driver::api::clients::ClientView;
use crate::driver::api::content::ContentView;
use crate::driver::api::load::LoadsView;
use crate::driver::api::proof::ProofView;
use crate::driver::api::rollouts::RolloutsView;
use crate::driver::api::status::{SourceStatus, SourceTypeStatus, StatusView, names_type};
use crate::driver::api::study::StudyView;
use crate::driver::api::tail::TailView;

/// The operator's view of the relay, and the commands.
pub trait Controls:
    StatusView
    + ClientView
    + ContentView
    + ChangesView
    + RolloutsView
    + ProofView
    + StudyView
    + LoadsView
    + TailView
{
    /// Brings the status of all sources up to date. A source that takes longer than a moment keeps its
    /// previous status.
    fn refresh(&self) -> BoxFuture<'_, ()>;

    /// Confirms mass deletions that are held back (FU18): the relay passes them on to clients. Returns the
    /// affected sources with the number of removed resources; empty if no deletion matched.
    fn confirm_deletions(&self, filter: DeletionFilter) -> BoxFuture<'_, Vec<ConfirmedDeletion>>;

    /// Ends a stream with UNAVAILABLE, by its number; false if there is none. Its client connects again.
    fn end_stream(&self, id: u64) -> bool;

    /// `limits.first_answers_per_second`.
    fn first_answers_per_second(&self) -> u32;
}

/// Selects deletions; `None` selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeletionFilter {
    /// `server_uri` of the configuration.
    pub server: Option<String>,
    /// See [`names_type`].
    pub type_name: Option<String>,
}

/// The resources that a confirmed deletion removed from one source.
#[derive(Clone, Debug)]
pub struct ConfirmedDeletion {
    pub source: Arc<SourceStatus>,
    pub removed: usize,
}

impl DeletionFilter {
    /// Whether a source holds back a deletion that matches.
    pub fn concerns(&self, source: &SourceStatus) -> bool {
        let is_type = |status: &&SourceTypeStatus| {
            self.type_name.as_deref().is_none_or(|text| names_type(text, &status.type_url))
        };
        self.server.as_deref().is_none_or(|server| *server == *source.server)
            && source.types.iter().filter(is_type).any(|status| status.held_back > 0)
    }
}
