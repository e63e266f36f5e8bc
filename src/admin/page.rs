//! Pages of lists (ADM-5): a limit, and a cursor.
//!
//! A cursor names the last item of the page before, so items that come or go meanwhile neither repeat nor
//! hide others. The form is no part of the API.

use axum::http::{HeaderMap, Uri, header};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_admin_api::parameters::PageParameters;

use super::params::{Declined, bad_request, read};
use crate::driver::api::status::{ResourcePlace, ResourceStatus};
use sluice_xds::{ResourceName, TypeUrl};

/// The length of a page without `limit`, and the greatest: some 500 KiB of JSON, little enough to read at
/// once.
pub(super) const LIMIT_MAX: usize = 1_000;

/// The form of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListForm {
    /// One JSON document.
    Document,
    /// One JSON document a line, and nothing else.
    Lines,
}

impl ListForm {
    /// The form by the header `Accept`.
    pub fn accepted(headers: &HeaderMap) -> ListForm {
        let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let kinds = accepts.flat_map(|value| value.split(','));
        let is_lines = |kind: &str| kind.split(';').next().is_some_and(|kind| kind.trim() == LINES);
        if kinds.into_iter().any(is_lines) { ListForm::Lines } else { ListForm::Document }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            ListForm::Document => "application/json",
            ListForm::Lines => LINES,
        }
    }
}

const LINES: &str = "application/x-ndjson";

/// The requested part of a list.
#[derive(Debug)]
pub(super) struct Page {
    pub form: ListForm,
    /// `usize::MAX`: all items.
    pub limit: usize,
    after: Option<String>,
}

impl Page {
    /// Without `limit`, lines have all items.
    pub fn read(after: Option<String>, limit: Option<String>, headers: &HeaderMap) -> Result<Page, Declined> {
        let form = ListForm::accepted(headers);
        let limit = match limit.as_deref() {
            None if form == ListForm::Lines => usize::MAX,
            None => LIMIT_MAX,
            Some("all") => usize::MAX,
            Some(text) => {
                text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit)).ok_or_else(|| {
                    bad_request(format!(
                        "limit is {text:?}; allowed: a whole number from 1 up to {LIMIT_MAX}, or all"
                    ))
                })?
            }
        };
        Ok(Page { form, limit, after })
    }

    /// The page of a list without filters.
    pub fn parse(uri: &Uri, headers: &HeaderMap) -> Result<Page, Declined> {
        let PageParameters { after, limit } = read(uri)?;
        Page::read(after, limit, headers)
    }

    pub fn is_unlimited(&self) -> bool {
        self.limit == usize::MAX
    }

    /// The place before the page.
    pub fn after<T: DeserializeOwned>(&self) -> Result<Option<T>, Declined> {
        let Some(text) = &self.after else { return Ok(None) };
        let place = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let text = || format!("after is {text:?}; allowed: `next` of a page of the same list");
        place.map(Some).ok_or_else(|| bad_request(text()))
    }
}

/// The cursor of a place.
pub(super) fn cursor(place: &impl Serialize) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(place).unwrap_or_default())
}

/// The place of a page in the list of resources.
pub(super) fn resource_place(page: &Page) -> Result<Option<ResourcePlace>, Declined> {
    let Some((source, type_url, number, name)) = page.after::<(u64, String, usize, String)>()? else {
        return Ok(None);
    };
    let Some(collection) = ResourceStatus::COLLECTIONS.get(number) else {
        return Err(bad_request("after is no cursor of a resource".to_owned()));
    };
    let (type_url, name) = (TypeUrl::new(&type_url), ResourceName::new(&name));
    Ok(Some(ResourcePlace { source, type_url, collection, name }))
}

/// The cursor of a resource.
pub(super) fn resource_cursor(resource: &ResourceStatus) -> String {
    let number = ResourceStatus::COLLECTIONS.iter().position(|collection| *collection == resource.collection);
    cursor(&(resource.source, resource.type_url.as_str(), number, resource.name.as_str()))
}
