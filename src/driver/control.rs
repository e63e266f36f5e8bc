//! What an operator may have a running relay do, beside looking at it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::hub::Hub;
use super::source::Command;
use super::status::{SourceStatus, StatusView, names_type};

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
        let is_type = |of: &&super::status::SourceTypeStatus| {
            self.type_name.as_deref().is_none_or(|text| names_type(text, &of.type_url))
        };
        self.server.as_deref().is_none_or(|server| *server == *source.server)
            && source.types.iter().filter(is_type).any(|of| of.held_back > 0)
    }
}

/// A source answers at once unless it has a large response at hand, and no one who looks should wait for that.
const REFRESH_MAX: Duration = Duration::from_millis(100);

impl Controls for Hub {
    fn refresh(&self) -> BoxFuture<'_, ()> {
        async move {
            let shown: Vec<_> = self.tables.sources.all().iter().map(|source| source.show()).collect();
            // A source that ends meanwhile has nothing to show.
            let all = async {
                for shown in shown {
                    let _ = shown.await;
                }
            };
            let _ = timeout(REFRESH_MAX, all).await;
        }
        .boxed()
    }

    fn confirm_deletions(&self, filter: DeletionFilter) -> BoxFuture<'_, Vec<ConfirmedDeletion>> {
        async move {
            let type_name: Option<Arc<str>> = filter.type_name.as_deref().map(Arc::from);
            self.refresh().await;
            let mut asked = Vec::new();
            for source in self.tables.sources.all() {
                let status = source.status();
                if filter.concerns(&status) {
                    let (done, removed) = oneshot::channel();
                    let type_name = type_name.clone();
                    source.send(Command::ConfirmDeletions { type_name, done }).await;
                    asked.push((status, removed));
                }
            }
            let mut confirmed = Vec::new();
            for (source, removed) in asked {
                match removed.await {
                    Ok(removed) if removed > 0 => confirmed.push(ConfirmedDeletion { source, removed }),
                    // What was held back has come back or gone meanwhile, or the source has ended.
                    Ok(_) | Err(_) => {}
                }
            }
            confirmed
        }
        .boxed()
    }
}
