//! Clients in another order than by id. A walk over all clients keeps the keys of a page only.

use std::collections::BinaryHeap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::admin::list::ITEMS_PER_TURN;
use crate::admin::query::{ClientsQuery, Sort};
use crate::driver::api::control::Controls;
use crate::driver::api::status::{SessionStatus, SessionTypeStatus};

/// The place of a client in a sorted list: the key of the order, and the id. The keys are times, so a key
/// stays while the client's state stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct SortKey(char, u64, u64);

impl SortKey {
    fn new(session: &SessionStatus, types: &[&SessionTypeStatus], sort: Sort) -> SortKey {
        let micros = |time: SystemTime| {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
        };
        let behind =
            || types.iter().filter(|status| status.why.is_some()).map(|status| micros(status.since)).min();
        match sort {
            Sort::Id => SortKey('i', session.id, session.id),
            // Clients without a delay come last.
            Sort::Behind => SortKey('b', behind().unwrap_or(u64::MAX), session.id),
            Sort::Opened => SortKey('o', u64::MAX - micros(session.opened_at), session.id),
        }
    }

    pub fn id(self) -> u64 {
        self.2
    }
}

/// The first `count` matching clients behind `after`.
pub(super) async fn first(
    relay: &dyn Controls,
    query: &ClientsQuery,
    after: Option<SortKey>,
    count: usize,
    now: SystemTime,
) -> Vec<SortKey> {
    // The greatest key is on top.
    let mut first = BinaryHeap::with_capacity(count + 1);
    for (number, session) in relay.sessions().enumerate() {
        if let Some(types) = query.matching(&session, now) {
            let key = SortKey::new(&session, &types, query.sort);
            if after.is_none_or(|after| key > after) {
                first.push(key);
                if first.len() > count {
                    first.pop();
                }
            }
        }
        if number % ITEMS_PER_TURN == ITEMS_PER_TURN - 1 {
            tokio::task::yield_now().await;
        }
    }
    first.into_sorted_vec()
}
