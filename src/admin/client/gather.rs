//! One page of clients in memory, for the operator's page.

use std::time::SystemTime;

use super::sorted;
use crate::admin::list::ITEMS_PER_TURN;
use crate::admin::page::{Page, cursor};
use crate::admin::query::{ClientsQuery, Sort};
use crate::admin::state::Admin;
use crate::driver::api::status::SessionStatus;

/// Clients, and the cursor of the next page.
pub(in crate::admin) struct Gathered {
    pub sessions: Vec<SessionStatus>,
    pub next: Option<String>,
}

/// The clients of one page. The limit of `page` is a number.
pub(in crate::admin) async fn gather(
    admin: &Admin,
    query: &ClientsQuery,
    page: &Page,
    now: SystemTime,
) -> Result<Gathered, String> {
    if query.sort != Sort::Id {
        let after: Option<sorted::Place> = page.after()?;
        let mut places = sorted::first(&*admin.relay, query, after, page.limit.saturating_add(1), now).await;
        let has_more = places.len() > page.limit;
        places.truncate(page.limit);
        let next = places.last().filter(|_| has_more).map(cursor);
        let sessions = places.iter().filter_map(|place| admin.relay.session(place.id())).collect();
        return Ok(Gathered { sessions, next });
    }
    let after: Option<u64> = page.after()?;
    let mut found = Gathered { sessions: Vec::new(), next: None };
    for (number, session) in admin.relay.sessions_after(after).enumerate() {
        if query.matching(&session, now).is_some() {
            if found.sessions.len() == page.limit {
                found.next = found.sessions.last().map(|last: &SessionStatus| cursor(&last.id));
                break;
            }
            found.sessions.push(session);
        }
        if number % ITEMS_PER_TURN == ITEMS_PER_TURN - 1 {
            tokio::task::yield_now().await;
        }
    }
    Ok(found)
}
