//! The end of the admin server, and of its present connections alone.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

/// A handle to the end of an admin server. Clones are the same.
#[derive(Clone, Debug)]
pub struct Shutdown {
    all: CancellationToken,
    /// The token of the connections since the last [`Shutdown::hang_up`].
    present: Arc<ArcSwap<CancellationToken>>,
}

impl From<CancellationToken> for Shutdown {
    fn from(all: CancellationToken) -> Shutdown {
        let present = Arc::new(ArcSwap::from_pointee(all.child_token()));
        Shutdown { all, present }
    }
}

impl Shutdown {
    /// Ends the server, and its connections.
    pub fn cancel(&self) {
        self.all.cancel();
    }

    /// Ends all present connections, each after the answer under way. The server accepts others.
    pub fn hang_up(&self) {
        self.present.swap(Arc::new(self.all.child_token())).cancel();
    }

    pub(super) fn all(&self) -> &CancellationToken {
        &self.all
    }

    /// The end of a new connection.
    pub(super) fn of_connection(&self) -> CancellationToken {
        CancellationToken::clone(&self.present.load())
    }
}
