//! The head of all pages, and the page of a request that fails.

use std::collections::BTreeSet;
use std::time::SystemTime;

use askama::Template;
use axum::http::{HeaderMap, StatusCode, Uri};

use super::assets;
use crate::admin::item::rfc_3339;
use crate::admin::params::Declined;
use crate::admin::state::Admin;
use crate::driver::api::status::SessionStatus;

/// A request for a page.
pub(super) struct Ask<'a> {
    pub admin: &'a Admin,
    pub uri: &'a Uri,
    pub headers: &'a HeaderMap,
    /// The moment that the page shows.
    pub now: SystemTime,
}

impl Ask<'_> {
    /// The types of all sources, for a choice.
    pub fn type_names(&self) -> Vec<String> {
        let sources = self.admin.relay.sources();
        let names =
            sources.iter().flat_map(|source| &source.types).map(|status| status.type_url.short().to_owned());
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// # Errors
    /// A page for a client that is not, or no longer, connected.
    pub fn session(&self, id: &str) -> Result<SessionStatus, PageFault> {
        let session = id.parse().ok().and_then(|id| self.admin.relay.session(id));
        session.ok_or_else(|| {
            PageFault::not_found(format!(
                "There is no client {id:?}, or no longer: the number of a stream ends with the stream."
            ))
        })
    }

    /// The relay's name.
    fn relay_name(&self) -> String {
        let node = self.admin.settings.get().about.node.clone();
        if node.is_empty() { "sluice".to_owned() } else { node }
    }
}

/// The pages of the navigation: path and label.
pub(super) const PLACES: [(&str, &str); 10] = [
    ("", "Overview"),
    ("changes", "Changes"),
    ("rollouts", "Rollouts"),
    ("clients", "Clients"),
    ("resources", "Resources"),
    ("sources", "Sources"),
    ("classes", "Classes"),
    ("load", "Load"),
    ("events", "Events"),
    ("config", "Config"),
];

/// The part of a page around its content.
pub(super) struct Frame {
    pub title: String,
    /// The path of the page's entry in the navigation.
    pub place: &'static str,
    pub build: &'static str,
    pub version: &'static str,
    /// The relay's node id.
    pub relay: String,
    pub shown_at: String,
    /// The live stream that tells when to look again.
    pub stream: String,
}

impl Frame {
    pub fn new(ask: &Ask<'_>, place: &'static str, title: impl Into<String>) -> Frame {
        Frame {
            title: title.into(),
            place,
            build: &assets::HASH,
            version: env!("CARGO_PKG_VERSION"),
            relay: ask.relay_name(),
            shown_at: rfc_3339(ask.now),
            stream: "/events".to_owned(),
        }
    }

    /// The time of day.
    pub fn clock(&self) -> &str {
        self.shown_at.get(11..19).unwrap_or_default()
    }

    pub fn places(&self) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
        PLACES.iter()
    }
}

/// A request without a page.
#[derive(Debug)]
pub(super) struct PageFault {
    pub status: StatusCode,
    text: String,
}

#[derive(Template)]
#[template(path = "fault.html")]
struct FaultPage<'a> {
    frame: Frame,
    text: &'a str,
    /// Ways on: the list of the place, and the overview.
    back: Vec<(String, &'static str)>,
}

impl PageFault {
    pub fn not_found(text: impl Into<String>) -> PageFault {
        PageFault { status: StatusCode::NOT_FOUND, text: text.into() }
    }

    pub fn html(&self, ask: &Ask<'_>) -> String {
        let title = match self.status {
            StatusCode::NOT_FOUND => "Not found",
            StatusCode::BAD_REQUEST => "Not a valid query",
            _ => "Not shown",
        };
        let page = FaultPage { frame: Frame::new(ask, "none", title), text: &self.text, back: back(ask) };
        // A page whose template fails is plain text.
        page.render().unwrap_or_else(|error| error.to_string())
    }
}

/// The list that the failed request is about, and the overview.
fn back(ask: &Ask<'_>) -> Vec<(String, &'static str)> {
    let place =
        ask.uri.path().strip_prefix("/ui/").and_then(|path| path.split('/').next()).unwrap_or_default();
    // The page of one resource has a path of its own.
    let place = if place == "resource" { "resources" } else { place };
    let all = PLACES.into_iter().filter(|(path, _)| *path == place || path.is_empty()).rev();
    all.map(|(path, label)| (format!("/ui/{path}"), label)).collect()
}

/// An invalid query.
impl From<String> for PageFault {
    fn from(text: String) -> PageFault {
        PageFault { status: StatusCode::BAD_REQUEST, text }
    }
}

impl From<Declined> for PageFault {
    fn from(declined: Declined) -> PageFault {
        PageFault { status: declined.status, text: declined.reason }
    }
}

impl From<askama::Error> for PageFault {
    fn from(error: askama::Error) -> PageFault {
        PageFault { status: StatusCode::INTERNAL_SERVER_ERROR, text: error.to_string() }
    }
}
