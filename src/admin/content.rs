//! One resource with its content: the copies of all sources, side by side, without secrets (ADM-12).

use std::time::SystemTime;

use axum::extract::{Path, State as Shared};
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde_json::Value;
use sluice_admin_api::Text;
use sluice_admin_api::lists::Listed;
use sluice_admin_api::parameters::ContentParameters;
use sluice_admin_api::resources::{CandidateResource, CopyFacts, ResourceCopies, ResourceCopy};
use tokio::sync::Semaphore;

use super::item::{rfc_3339, seconds_since};
use super::list;
use super::page::{Page, resource_cursor, resource_place};
use super::params::{Declined, bad_request, not_found, read, word};
use super::rollouts::{find, find_push};
use super::state::{Admin, ContentMode};
use super::types;
use super::unknown::nearest_name;
use crate::driver::api::content::CachedCopy;
use crate::telemetry::wall_now;
use sluice_json::redact::{Reader, redact, sizes};
use sluice_xds::{Resource, TypeUrl};

/// One resource is decoded at a time: a large one takes up to 60 MiB for some 100 ms.
static DECODING: Semaphore = Semaphore::const_new(1);

#[derive(Clone, Copy, PartialEq)]
enum ContentFormat {
    Json,
    Yaml,
    Sizes,
}

const FORMATS: [(&str, ContentFormat); 3] =
    [("json", ContentFormat::Json), ("yaml", ContentFormat::Yaml), ("sizes", ContentFormat::Sizes)];

pub(super) struct ContentQuery {
    /// The number of a source, the URI of its server, or its class.
    source: Option<String>,
    format: ContentFormat,
}

impl ContentQuery {
    pub fn parse(uri: &Uri) -> Result<ContentQuery, Declined> {
        let ContentParameters { source, format } = read(uri)?;
        let format = word("format", format, &FORMATS)?.unwrap_or(ContentFormat::Json);
        Ok(ContentQuery { source, format })
    }

    fn has_source(&self, copy: &CachedCopy) -> bool {
        self.source.as_deref().is_none_or(|text| {
            *text == *copy.status.server || *text == *copy.status.class || text == copy.source.to_string()
        })
    }
}

/// `GET /resources/{type}/{name}`. The name may have slashes.
pub(super) async fn resource(
    Shared(admin): Shared<Admin>,
    Path((type_name, name)): Path<(String, String)>,
    uri: Uri,
) -> Result<Response, Declined> {
    let query = ContentQuery::parse(&uri)?;
    let answer = copies(&admin, &type_name, name, &query).await?;
    Ok(match query.format {
        ContentFormat::Json | ContentFormat::Sizes => list::in_alphabetical_order(&answer),
        ContentFormat::Yaml => {
            let answer = serde_json::to_value(&answer).map_err(|error| bad_request(error.to_string()))?;
            let text = serde_saphyr::to_string(&answer).map_err(|error| bad_request(error.to_string()))?;
            ([(header::CONTENT_TYPE, "application/yaml")], text).into_response()
        }
    })
}

/// The copies of a resource.
pub(super) async fn copies(
    admin: &Admin,
    type_name: &str,
    name: String,
    query: &ContentQuery,
) -> Result<ResourceCopies, Declined> {
    types::check(admin, Some(type_name)).await.map_err(not_found)?;
    let all = admin.relay.copies(type_name, &name);
    if all.is_empty() {
        return Err(not_found(unknown_name(admin, type_name, &name).await));
    }
    let copies: Vec<_> = all.iter().filter(|copy| query.has_source(copy)).collect();
    if let ([], Some(text)) = (copies.as_slice(), &query.source) {
        let sources = all
            .iter()
            .map(|copy| format!("{} ({}, class {})", copy.source, copy.status.server, copy.status.class));
        let sources: Vec<_> = sources.collect();
        return Err(not_found(format!(
            "no source {text:?} has {name:?}; sources with a copy: {}",
            sources.join(", ")
        )));
    }
    let now = wall_now();
    let mode = admin.settings.get().content;
    let mut shown = Vec::with_capacity(copies.len());
    for copy in copies {
        let mut item = item(copy, now);
        if let Some(resource) = copy.resource.as_ref().filter(|_| !copy.status.type_url.is_secret()) {
            match query.format {
                ContentFormat::Sizes => item.sizes = Some(field_sizes(resource)),
                ContentFormat::Json | ContentFormat::Yaml if mode == ContentMode::Off => {}
                ContentFormat::Json | ContentFormat::Yaml => item.resource = Some(show(resource).await),
            }
        }
        shown.push(item);
    }
    let r#type = all.first().map_or("", |copy| copy.status.type_url.message()).to_owned();
    Ok(ResourceCopies { r#type, name, content: mode.name().to_owned(), copies: shown })
}

/// The content of a resource as [`redact`] shows it to people. The caller has asked for `admin.content`
/// before.
pub(super) async fn show(resource: &Resource) -> Value {
    let (type_url, body) = (TypeUrl::new(&resource.body.type_url), resource.body.value.clone());
    let bytes = body.len();
    let turn = DECODING.acquire().await;
    // The turn ends with the work, also if nobody waits any more.
    let shown = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        redact(&type_url, &body, Reader::Person)
    });
    let shown = shown.await;
    shown.unwrap_or_else(|_| format!("[undecodable, {bytes} B]").into())
}

/// `GET /rollouts/{plan}/pushes/{push}/candidate`: the resources that clients are given with the push under
/// way (WAV-20).
pub(super) async fn candidate(
    Shared(admin): Shared<Admin>,
    Path((plan, number)): Path<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Declined> {
    let page = Page::parse(&uri, &headers)?;
    let after = resource_place(&page)?;
    let status = find(&admin.relay.rollouts(), &plan).map_err(not_found)?;
    let push = find_push(&status, &number).map_err(not_found)?;
    if push.end.is_some() {
        return Err(not_found(format!("push {number} of the plan {plan} is over")));
    }
    let is_shown = admin.settings.get().content != ContentMode::Off;
    Ok(list::respond(CandidateResource::KEY, &page, move |writer| async move {
        let units: Vec<u64> = push.units.iter().map(|unit| unit.0).collect();
        let copies = stream::iter(admin.relay.candidate(push.number, &units, after));
        let shown = copies.then(|copy| async move {
            let resource = match &copy.resource {
                Some(resource) if is_shown => Some(show(resource).await),
                _ => None,
            };
            ShownCopy { copy, resource }
        });
        let render = |shown: &ShownCopy, out: &mut _| list::append(out, Some(shown.item()));
        writer.write_stream(shown, |shown| resource_cursor(&shown.copy.status), render).await
    }))
}

fn field_sizes(resource: &Resource) -> Value {
    sizes(&TypeUrl::new(&resource.body.type_url), &resource.body.value).unwrap_or(Value::Null)
}

/// A copy with its content, if contents are shown.
struct ShownCopy {
    copy: CachedCopy,
    resource: Option<Value>,
}

impl ShownCopy {
    fn item(&self) -> CandidateResource<'_> {
        let status = &self.copy.status;
        CandidateResource {
            class: Text::Borrowed(&status.class),
            name: Text::Borrowed(status.name.as_str()),
            resource: self.resource.clone(),
            server: Text::Borrowed(&status.server),
            source: self.copy.source,
            r#type: Text::Borrowed(status.type_url.message()),
            version: status.version.map(|version| version.to_string()),
        }
    }
}

/// A copy without its content. A Secret shows only where it is.
fn item(copy: &CachedCopy, now: SystemTime) -> ResourceCopy {
    let status = &copy.status;
    let facts = || CopyFacts {
        state: status.state.name().to_owned(),
        version: status.version.map(|version| version.to_string()),
        bytes: status.bytes,
        received_at: status.received_at.map(rfc_3339),
        received_seconds: status.received_at.map(|at| seconds_since(at, now)),
        error: status.error.as_ref().map(ToString::to_string),
    };
    ResourceCopy {
        source: copy.source,
        list: copy.list.to_string(),
        server: status.server.to_string(),
        class: status.class.to_string(),
        collection: status.collection.to_owned(),
        facts: (!status.type_url.is_secret()).then(facts),
        resource: None,
        sizes: None,
    }
}

async fn unknown_name(admin: &Admin, type_name: &str, name: &str) -> String {
    match nearest_name(admin, type_name, name, |status| status.version.is_some()).await {
        (Some(near), count) => format!("no {type_name} {name:?}; the nearest of {count} names: {near:?}"),
        (None, count) => format!("no {type_name} {name:?}; names of this type: {count}"),
    }
}
