//! One occurrence as its place reports it.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use super::kind::{Kind, Severity};
use sluice_text::secrets;
use sluice_xds::{TypeUrl, Version};

/// The maximum length of a text that a peer or the system chose, in bytes. A full ring of longest texts stays
/// below 4 MiB.
const TEXT_BYTES_MAX: usize = 400;

/// A report for the ring of events. `text` is the cause in the words of the log line. Wide because the fields
/// are the optional keys of an event in the admin API, which is flat.
#[derive(Clone, Debug, PartialEq)]
pub struct Occurrence {
    pub kind: Kind,
    pub severity: Severity,
    pub text: &'static str,
    /// The words of a peer or of the system.
    pub detail: Option<Box<str>>,
    /// How many; more than 1 where the place has counted already.
    pub count: u64,
    pub server: Option<Arc<str>>,
    pub list: Option<Arc<str>>,
    pub class: Option<Arc<str>>,
    pub type_url: Option<TypeUrl>,
    pub version: Option<Version>,
    pub node: Option<Box<str>>,
    pub stream: Option<u64>,
    pub peer: Option<SocketAddr>,
    pub listener: Option<Arc<str>>,
    pub limit: Option<&'static str>,
    /// The name of a change.
    pub change: Option<Box<str>>,
    /// The plan of a push.
    pub plan: Option<Box<str>>,
    /// The number of a push of the plan.
    pub push: Option<u64>,
    /// The number of a configuration in force.
    pub generation: Option<u64>,
    /// The id of the trace that shows more.
    pub trace_id: Option<Box<str>>,
    /// A place in the configuration, or a file.
    pub place: Option<Box<str>>,
}

impl Occurrence {
    fn new(kind: Kind, severity: Severity, text: &'static str) -> Occurrence {
        Occurrence {
            kind,
            severity,
            text,
            detail: None,
            count: 1,
            server: None,
            list: None,
            class: None,
            type_url: None,
            version: None,
            node: None,
            stream: None,
            peer: None,
            listener: None,
            limit: None,
            change: None,
            plan: None,
            push: None,
            generation: None,
            trace_id: None,
            place: None,
        }
    }

    pub fn info(kind: Kind, text: &'static str) -> Occurrence {
        Occurrence::new(kind, Severity::Info, text)
    }

    pub fn warn(kind: Kind, text: &'static str) -> Occurrence {
        Occurrence::new(kind, Severity::Warn, text)
    }

    pub fn error(kind: Kind, text: &'static str) -> Occurrence {
        Occurrence::new(kind, Severity::Error, text)
    }

    /// Without secrets, as texts of peers may quote contents (ADM-12).
    #[must_use]
    pub fn detail(self, detail: impl Display) -> Occurrence {
        let detail = detail.to_string();
        let detail = secrets::hide(&detail).unwrap_or(detail);
        Occurrence { detail: Some(cut(&detail)), ..self }
    }

    #[must_use]
    pub fn count(self, count: u64) -> Occurrence {
        Occurrence { count, ..self }
    }

    #[must_use]
    pub fn at_server(self, server: &Arc<str>, list: &Arc<str>) -> Occurrence {
        Occurrence { server: Some(server.clone()), list: Some(list.clone()), ..self }
    }

    #[must_use]
    pub fn of_class(self, class: &Arc<str>) -> Occurrence {
        Occurrence { class: Some(class.clone()), ..self }
    }

    #[must_use]
    pub fn of_type(self, type_url: &TypeUrl) -> Occurrence {
        Occurrence { type_url: Some(type_url.clone()), ..self }
    }

    /// A version is a hash of the content, so that of a Secret is left out (ADM-12).
    #[must_use]
    pub fn version(self, version: Version) -> Occurrence {
        let is_secret = self.type_url.as_ref().is_some_and(TypeUrl::is_secret);
        Occurrence { version: (!is_secret).then_some(version), ..self }
    }

    /// The configuration in force, and the id of a trace, if there will be one (OBS-13).
    #[must_use]
    pub fn traced(self, generation: u64, trace_id: Option<&str>) -> Occurrence {
        Occurrence { generation: Some(generation), trace_id: trace_id.map(Box::from), ..self }
    }

    #[must_use]
    pub fn of_client(self, stream: u64, node: &str, peer: Option<SocketAddr>) -> Occurrence {
        let node = (!node.is_empty()).then(|| cut(node));
        Occurrence { stream: Some(stream), node, peer, ..self }
    }

    #[must_use]
    pub fn at_listener(self, listener: &Arc<str>) -> Occurrence {
        Occurrence { listener: Some(listener.clone()), ..self }
    }

    #[must_use]
    pub fn limit(self, limit: &'static str) -> Occurrence {
        Occurrence { limit: Some(limit), ..self }
    }

    #[must_use]
    pub fn change(self, change: impl Display) -> Occurrence {
        Occurrence { change: Some(cut(&change.to_string())), ..self }
    }

    #[must_use]
    pub fn of_push(self, plan: &str, push: u64) -> Occurrence {
        Occurrence { plan: Some(cut(plan)), push: Some(push), ..self }
    }

    #[must_use]
    pub fn from_peer(self, peer: Option<SocketAddr>) -> Occurrence {
        Occurrence { peer, ..self }
    }

    #[must_use]
    pub fn place(self, place: impl Display) -> Occurrence {
        Occurrence { place: Some(cut(&place.to_string())), ..self }
    }

    /// Whether both have the same cause. Classes, clients and details may differ: one lost server concerns
    /// many classes, and one bad update many clients.
    pub(super) fn repeats(&self, before: &Occurrence) -> bool {
        let key = |one: &Occurrence| (one.kind, one.severity, one.text, one.version, one.limit);
        key(self) == key(before)
            && self.server == before.server
            && self.list == before.list
            && self.type_url == before.type_url
            && self.place == before.place
            && (&self.plan, self.push) == (&before.plan, before.push)
    }
}

fn cut(text: &str) -> Box<str> {
    let end = text.floor_char_boundary(TEXT_BYTES_MAX);
    text.get(..end).unwrap_or_default().into()
}
