//! One page of clients in memory, for the operator's page.

use std::time::SystemTime;

use super::sorted;
use crate::admin::list::ITEMS_PER_TURN;
use crate::admin::page::{Page, cursor};
use crate::admin::params::Declined;
use crate::admin::query::{ClientsQuery, Sort};
use crate::admin::state::Admin;
use crate::driver::api::status::SessionStatus;

/// Clients, and the cursor of the next page.
pub(in crate::admin) struct ClientPage {
    pub sessions: Vec<SessionStatus>,
    pub next: Option<String>,
}

/// The clients of one page. The limit of `page` is a number.
pub(in crate::admin) async fn gather(
    admin: &Admin,
    query: &ClientsQuery,
    page: &Page,
    now: SystemTime,
) -> Result<ClientPage, Declined> {
    if query.sort != Sort::Id {
        let after: Option<sorted::SortKey> = page.after()?;
        let mut keys = sorted::first(&*admin.relay, query, after, page.limit.saturating_add(1), now).await;
        let has_more = keys.len() > page.limit;
        keys.truncate(page.limit);
        let next = keys.last().filter(|_| has_more).map(cursor);
        let sessions = keys.iter().filter_map(|key| admin.relay.session(key.id())).collect();
        return Ok(ClientPage { sessions, next });
    }
    let after: Option<u64> = page.after()?;
    let mut gathered = ClientPage { sessions: Vec::new(), next: None };
    for (number, session) in admin.relay.sessions_after(after).enumerate() {
        if query.matching(&session, now).is_some() {
            if gathered.sessions.len() == page.limit {
                gathered.next = gathered.sessions.last().map(|last: &SessionStatus| cursor(&last.id));
                break;
            }
            gathered.sessions.push(session);
        }
        if number % ITEMS_PER_TURN == ITEMS_PER_TURN - 1 {
            tokio::task::yield_now().await;
        }
    }
    Ok(gathered)
}
