//! The endpoints about clients (ADR 30).

mod item;
mod sorted;
mod one;
mod compare;
mod diff;
mod explain;

use std::time::SystemTime;

use axum::extract::State as Shared;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use sluice_admin_api::clients::Client;
use sluice_admin_api::lists::Listed;

use super::list::{self, ITEMS_PER_TURN};
use super::page::{Page, cursor};
use super::params::{Declined, bad_request};
use super::query::{ClientsQuery, Sort};
use super::state::Admin;
use super::types;
use crate::driver::api::status::SessionStatus;

pub(super) use diff::{diff, difference};
pub(super) use explain::{canonical, class as class_text, explain, explanation};
pub(super) use one::one;

/// `GET /clients`.
pub(super) async fn clients(
    Shared(admin): Shared<Admin>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Declined> {
    let (query, page) = ClientsQuery::parse(&uri, &headers)?;
    types::check(&admin, query.type_name.as_deref()).await.map_err(bad_request)?;
    let now = admin.relay.now();
    if query.sort == Sort::Id {
        let after: Option<u64> = page.after()?;
        return Ok(list::respond(Client::KEY, &page, move |writer| async move {
            admin.relay.refresh().await;
            let render = |session: &_, out: &mut _| list::append(out, item::client(session, &query, now));
            let cursor = |session: &SessionStatus| cursor(&session.id);
            writer.write_all(admin.relay.sessions_after(after), cursor, render).await
        }));
    }
    let after: Option<sorted::SortKey> = page.after()?;
    Ok(list::respond(Client::KEY, &page, move |writer| async move {
        admin.relay.refresh().await;
        let first = sorted::first(&*admin.relay, &query, after, page.limit + 1, now).await;
        let rows = first.into_iter().filter_map(|key| Some((key, admin.relay.session(key.id())?)));
        let render = |row: &(_, _), out: &mut _| list::append(out, item::client(&row.1, &query, now));
        writer.write_all(rows, |row| cursor(&row.0), render).await
    }))
}

/// Clients, and the cursor of the next page.
pub(super) struct GatheredClients {
    pub sessions: Vec<SessionStatus>,
    pub next: Option<String>,
}

/// The clients of one page. The limit of `page` is a number.
pub(super) async fn gather(
    admin: &Admin,
    query: &ClientsQuery,
    page: &Page,
    now: SystemTime,
) -> Result<GatheredClients, Declined> {
    if query.sort != Sort::Id {
        let after: Option<sorted::SortKey> = page.after()?;
        let mut keys = sorted::first(&*admin.relay, query, after, page.limit.saturating_add(1), now).await;
        let has_more = keys.len() > page.limit;
        keys.truncate(page.limit);
        let next = keys.last().filter(|_| has_more).map(cursor);
        let sessions = keys.iter().filter_map(|key| admin.relay.session(key.id())).collect();
        return Ok(GatheredClients { sessions, next });
    }
    let after: Option<u64> = page.after()?;
    let mut gathered = GatheredClients { sessions: Vec::new(), next: None };
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
