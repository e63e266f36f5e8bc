//! The facts of a file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::keeper::FactKeeper;
use crate::app::watched_file::{Look, WatchedFile};
use crate::config;

/// A client is in its right class some two seconds after the file has changed.
const LOOK: Duration = Duration::from_millis(500);

pub(super) async fn follow(path: PathBuf, mut keeper: FactKeeper) {
    let source = path.display().to_string();
    let mut file = WatchedFile::new(path, LOOK);
    loop {
        match file.look(config::load_facts).await {
            Look::Content(table) => {
                keeper.confirm();
                keeper.take(&source, Arc::new(table)).await;
            }
            Look::Confirmed => keeper.confirm(),
            Look::Fault(reason) => keeper.tell(&source, &reason),
            Look::Nothing => {}
        }
    }
}
