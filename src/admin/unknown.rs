//! The name nearest to one that nobody knows.

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::state::Admin;
use crate::driver::api::status::{ResourceFilter, ResourceStatus};
use sluice_text::nearest::Near;

/// The names that one search looks at.
const NAMES_MAX: usize = 100_000;

/// One search at a time (ADM-6). Each takes up to 100 ms of a thread that serves no clients.
static SEARCHES: Semaphore = Semaphore::const_new(1);

/// Carries out a search that nobody may have twice at a time. `None`: the search failed.
pub(super) async fn search<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let turn = SEARCHES.acquire().await;
    // The turn ends with the work, also if nobody waits any more.
    let work = spawn_blocking(move || {
        let _turn = turn;
        work()
    });
    work.await.ok()
}

/// The name nearest to another among those of a type that pass, if one is near, and the number of names that
/// were looked at.
pub(super) async fn nearest_name(
    admin: &Admin,
    type_name: &str,
    name: &str,
    passes: fn(&ResourceStatus) -> bool,
) -> (Option<String>, usize) {
    let filter = ResourceFilter { type_name: Some(type_name.to_owned()), ..ResourceFilter::default() };
    let (relay, mut near) = (admin.relay.clone(), Near::new(name));
    let search = search(move || {
        let (mut best, mut count) = (None::<(f64, String)>, 0);
        for resource in relay.resources(&filter).take(NAMES_MAX).filter(passes) {
            count += 1;
            let candidate = resource.name.as_str();
            if let Some(likeness) = near.likeness(candidate)
                && best.as_ref().is_none_or(|(of_best, _)| likeness > *of_best)
            {
                best = Some((likeness, candidate.to_owned()));
            }
        }
        (best.map(|(_, name)| name), count)
    });
    search.await.unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[allow(clippy::disallowed_methods, reason = "the work takes a thread of its own")]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn adm_6_searches_follow_one_another_beside_the_threads_that_serve() {
        let (under_way, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let work = || {
            let (under_way, most) = (under_way.clone(), most.clone());
            move || {
                most.fetch_max(under_way.fetch_add(1, SeqCst) + 1, SeqCst);
                thread::sleep(Duration::from_millis(20));
                under_way.fetch_sub(1, SeqCst);
                thread::current().id()
            }
        };
        // Callers that leave do not make room for others before their searches end.
        for _ in 0..3 {
            let left = tokio::time::timeout(Duration::from_millis(5), search(work())).await;
            assert!(left.is_err());
        }
        let threads = futures_util::future::join_all((0..4).map(|_| search(work()))).await;
        assert!(threads.iter().all(|id| id.is_some_and(|id| id != thread::current().id())), "{threads:?}");
        assert_eq!(most.load(SeqCst), 1);
    }
}
