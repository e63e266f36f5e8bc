//! `GET /clients/{id}`: a client with names.

use std::time::SystemTime;

use axum::extract::{Path, State as Shared};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use sluice_admin_api::Text;
use sluice_admin_api::clients::{ClientName, ClientType, ClientWithNames, NameContent, NamePage};
use sluice_admin_api::parameters::ClientParameters;

use super::item;
use crate::admin::list::in_alphabetical_order;
use crate::admin::page::{Page, cursor};
use crate::admin::params::{Declined, bad_request, flag, not_found, read};
use crate::admin::query::ClientsQuery;
use crate::admin::state::Admin;
use crate::admin::types;
use crate::driver::api::clients::{HeldVersion, NameStatus};
use crate::driver::api::status::{NackStatus, SessionStatus, SessionTypeStatus, Why};
use sluice_xds::{ResourceName, TypeUrl};

/// The held version as text.
pub(super) fn held_text(held: HeldVersion) -> String {
    held.known().map_or_else(|| "unknown".to_owned(), |version| version.to_string())
}

fn name<'a>(status: &NameStatus, nack: Option<&'a NackStatus>, is_secret: bool) -> ClientName<'a> {
    let nack =
        nack.filter(|nack| nack.names.contains(&status.name)).map(|nack| Text::Borrowed(&*nack.detail));
    ClientName {
        name: status.name.as_str().to_owned(),
        content: (!is_secret).then(|| NameContent {
            has: status.has.map(held_text),
            should: status.should.map(|version| version.to_string()),
            nack,
        }),
        state: Text::Borrowed(status.state().name()),
        why: status.why.map(Why::name).map(Text::Borrowed),
        refused: status.refused.as_ref().map(ToString::to_string),
    }
}

/// The stream with this id.
pub(super) fn find(admin: &Admin, id: &str) -> Result<SessionStatus, String> {
    let session = id.parse().ok().and_then(|id| admin.relay.session(id));
    session.ok_or_else(|| format!("no client {id:?}; GET /clients has the ids of open streams"))
}

/// The begin of a page of names: the URL of a type, and the name before.
type NamesStart = (String, String);

/// `GET /clients/{id}?type=&names=&after=&limit=`.
pub(in crate::admin) async fn one(
    Shared(admin): Shared<Admin>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Declined> {
    let params: ClientParameters = read(&uri)?;
    let (type_name, has_names) = (params.r#type, flag("names", params.names)?);
    let of_page = [("after", &params.after), ("limit", &params.limit)];
    if let Some((key, _)) = of_page.into_iter().find(|(_, value)| !has_names && value.is_some()) {
        return Err(bad_request(format!("{key} goes with names=1")));
    }
    let page = Page::read(params.after, params.limit, &headers)?;
    let after: Option<NamesStart> = page.after()?;
    if page.is_unlimited() {
        let text = "limit is \"all\"; allowed: a whole number, for the names of one client";
        return Err(bad_request(text.to_owned()));
    }
    types::check(&admin, type_name.as_deref()).await.map_err(bad_request)?;
    admin.relay.refresh().await;
    let session = find(&admin, &id).map_err(not_found)?;
    let query = ClientsQuery { type_name, ..ClientsQuery::default() };
    let now = admin.relay.now();
    let types = query.matching(&session, now).ok_or_else(|| {
        let type_name = query.type_name.as_deref().unwrap_or_default();
        not_found(format!("client {} does not ask for {type_name}", session.id))
    })?;
    if has_names {
        let mut names = NamePages { left: page.limit, after, last: None, next: None };
        let types = types.into_iter().map(|status| names.take(&admin, session.id, status, now)).collect();
        let client = item::with_types(&session, types, now);
        return Ok(in_alphabetical_order(&ClientWithNames { client, next: names.next }));
    }
    Ok(in_alphabetical_order(&item::client(&session, &query, now)))
}

/// One page of names over all types of a client.
struct NamePages {
    left: usize,
    after: Option<NamesStart>,
    /// The last name of the page so far.
    last: Option<NamesStart>,
    /// The cursor of the next page, once the page is full.
    next: Option<String>,
}

impl NamePages {
    /// The type with its part of the page.
    fn take<'a>(
        &mut self,
        admin: &Admin,
        client: u64,
        status: &'a SessionTypeStatus,
        now: SystemTime,
    ) -> ClientType<'a, NamePage<'a>> {
        let url = status.type_url.as_str();
        let is_before = |(type_url, _): &NamesStart| status.type_url < TypeUrl::new(type_url);
        let mut names = Vec::new();
        if !self.after.as_ref().is_some_and(is_before) && self.next.is_none() {
            let start = self.after.as_ref().filter(|(type_url, _)| type_url == url);
            let after = start.map(|(_, name)| ResourceName::new(name));
            let statuses = admin.relay.names(client, &status.type_url, after);
            for name_status in statuses.into_iter().flatten() {
                if self.left == 0 {
                    self.next = self.last.as_ref().map(cursor);
                    break;
                }
                self.left -= 1;
                self.last = Some((url.to_owned(), name_status.name.as_str().to_owned()));
                names.push(name(&name_status, status.nack.as_ref(), status.type_url.is_secret()));
            }
        }
        item::client_type(status, NamePage { names, names_count: status.names }, now)
    }
}
