//! `GET /who`: the clients of a resource, by possession.

use axum::Json;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use sluice_admin_api::Text;
use sluice_admin_api::clients::ClientRef;
use sluice_admin_api::names::{ClientGroup, Who};
use sluice_admin_api::parameters::WhoParameters;

use super::client::canonical;
use super::list::{ITEMS_PER_TURN, WALKS};
use super::page::{Page, cursor};
use super::params::{Declined, bad_request, not_found, read};
use super::state::Admin;
use super::types;
use super::unknown::nearest_name;
use crate::driver::api::clients::{HeldVersion, Holding};
use crate::driver::api::status::Why;
use sluice_xds::{ResourceName, TypeUrl, Version};

/// The least number of digits of a selected version.
const VERSION_DIGITS_MIN: usize = 8;

/// `has`, `lacks`, `rejected` and `not_subscribed`.
const GROUPS: usize = 4;

/// The group of a client, by its number. `digits`: the begin of the version that the operator asks for.
fn group(holding: &Holding, digits: Option<&str>) -> usize {
    let Some(name) = &holding.name else { return 3 };
    let begins = |version: Version| digits.is_none_or(|digits| version.to_string().starts_with(digits));
    let has = match (name.has, name.should, digits) {
        (Some(HeldVersion::Known(has)), _, Some(_)) => begins(has),
        (has, Some(should), None) => has == Some(HeldVersion::Known(should)),
        // The resource is gone, and some clients still have a copy.
        (has, None, None) => has.is_some(),
        (Some(HeldVersion::Unknown) | None, _, Some(_)) => false,
    };
    let rejected = name.why == Some(Why::Rejected) && name.should.is_some_and(begins);
    if has {
        0
    } else if rejected {
        2
    } else {
        1
    }
}

/// `GET /who?type=&name=&version=&after=&limit=`.
pub(super) async fn who(
    Shared(admin): Shared<Admin>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Declined> {
    Ok(Json(clients(&admin, &uri, &headers).await?).into_response())
}

/// The answer of `/who`.
pub(super) async fn clients(admin: &Admin, uri: &Uri, headers: &HeaderMap) -> Result<Who, Declined> {
    let params: WhoParameters = read(uri)?;
    let missing = |text: &str| bad_request(text.to_owned());
    let type_name = params.r#type.ok_or_else(|| missing("type is missing: the type of the resource"))?;
    let name = params.name.ok_or_else(|| missing("name is missing: the name of the resource"))?;
    let is_version = |text: &String| {
        (VERSION_DIGITS_MIN..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    if let Some(text) = params.version.as_ref().filter(|text| !is_version(text)) {
        return Err(bad_request(format!("version is {text:?}; allowed: 8 to 32 hexadecimal digits")));
    }
    let version = params.version.map(|text| text.to_lowercase());
    let page = Page::read(params.after, params.limit, headers)?;
    let after: Option<(usize, u64)> = page.after()?;
    if page.is_unlimited() {
        let text = "limit is \"all\"; allowed: a whole number, for each group of clients";
        return Err(bad_request(text.to_owned()));
    }
    let type_url = types::resolve(admin, &type_name).await.map_err(bad_request)?;
    if type_url.is_secret() && version.is_some() {
        let text = "version does not go with Secrets, whose versions are not shown";
        return Err(bad_request(text.to_owned()));
    }
    let name = canonical(&type_url, &name);
    if !admin.relay.knows(&type_url, &name) {
        return Err(not_found(unknown_name(admin, &type_url, &name).await));
    }
    let _turn = WALKS.acquire().await;
    let (groups, should) = sort(admin, &type_url, &name, version.as_deref(), &page, after).await;
    let [has, lacks, rejected, not_subscribed] = groups;
    let version = version.or(should).filter(|_| !type_url.is_secret());
    let (r#type, name) = (type_url.message().to_owned(), name.as_str().to_owned());
    Ok(Who { r#type, name, version, has, lacks, rejected, not_subscribed })
}

/// All clients in groups, and the due version, if there is a single one.
async fn sort(
    admin: &Admin,
    type_url: &TypeUrl,
    name: &ResourceName,
    digits: Option<&str>,
    page: &Page,
    after: Option<(usize, u64)>,
) -> ([ClientGroup; GROUPS], Option<String>) {
    let mut groups: [ClientGroup; GROUPS] = Default::default();
    let (mut should, mut is_one) = (None, true);
    for (number, holding) in admin.relay.holdings(type_url, name).enumerate() {
        let index = group(&holding, digits);
        if let Some(version) = holding.name.as_ref().and_then(|name| name.should) {
            is_one &= *should.get_or_insert(version) == version;
        }
        if let Some(group) = groups.get_mut(index) {
            group.count += 1;
            if after.is_none_or(|(first, id)| first == index && holding.id > id) {
                add(group, index, &holding, page.limit);
            }
        }
        if number % ITEMS_PER_TURN == ITEMS_PER_TURN - 1 {
            tokio::task::yield_now().await;
        }
    }
    (groups, should.filter(|_| is_one).map(|version| version.to_string()))
}

/// Adds a client to the page of its group.
fn add(group: &mut ClientGroup, index: usize, holding: &Holding, limit: usize) {
    if group.clients.len() < limit {
        group.clients.push(ClientRef { id: holding.id, node: Text::Owned(holding.node_id.to_string()) });
    } else if let Some(last) = group.clients.last().filter(|_| group.next.is_none()) {
        group.next = Some(cursor(&(index, last.id)));
    }
}

/// The error for a name without a source, with the nearest name.
pub(super) async fn unknown_name(admin: &Admin, type_url: &TypeUrl, name: &ResourceName) -> String {
    let (near, _) = nearest_name(admin, type_url.as_str(), name.as_str(), |_| true).await;
    let near = near.map(|near| format!("; nearest: {near}")).unwrap_or_default();
    format!("no source knows {} {:?}{near}", type_url.short(), name.as_str())
}
