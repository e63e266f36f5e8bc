//! Requests of both variants in both directions, and the responses of servers.
//!
//! sluice reads its clients' requests, and writes its own in the same structs. Responses are read only:
//! clients get answers in a form of their own, made by the engine. [`sluice_wire`] encodes and decodes
//! requests, and decodes responses.

use std::sync::Arc;
use std::time::Duration;

use super::{Node, Resource, ResourceName, Status, TypeUrl};

/// The two variants of the streaming transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    Sotw,
    Delta,
}

/// A SotW `DiscoveryRequest`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SotwRequest {
    pub version_info: String,
    /// Guaranteed in the first message of a stream only (STR-2).
    pub node: Option<Box<Node>>,
    pub resource_names: Vec<ResourceName>,
    /// The type URL as sent; may be empty on a per-type stream (RPC-6).
    pub type_url: String,
    pub response_nonce: String,
    /// `Some` makes the request a NACK (ACK-1).
    pub error_detail: Option<Status>,
}

/// A `DeltaDiscoveryRequest`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeltaRequest {
    pub node: Option<Box<Node>>,
    pub type_url: String,
    pub subscribe: Vec<ResourceName>,
    pub unsubscribe: Vec<ResourceName>,
    /// Sorted by name. Meaningful only in the first request of the type on a stream (DEL-5).
    pub initial_resource_versions: Vec<(ResourceName, String)>,
    pub response_nonce: String,
    pub error_detail: Option<Status>,
}

/// A request of either variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Sotw(SotwRequest),
    Delta(DeltaRequest),
}

impl DeltaRequest {
    /// Whether the request names anything to subscribe to or to give up.
    pub fn asks(&self) -> bool {
        !(self.subscribe.is_empty() && self.unsubscribe.is_empty())
    }
}

impl Request {
    /// The type URL as sent.
    pub fn type_url(&self) -> &str {
        match self {
            Request::Sotw(request) => &request.type_url,
            Request::Delta(request) => &request.type_url,
        }
    }

    /// The node, if the request has one.
    pub fn node(&self) -> Option<&Node> {
        match self {
            Request::Sotw(request) => request.node.as_deref(),
            Request::Delta(request) => request.node.as_deref(),
        }
    }

    /// Whether the request rejects a response (ACK-1).
    pub fn is_nack(&self) -> bool {
        self.error().is_some()
    }

    /// The error in the request.
    pub fn error(&self) -> Option<&Status> {
        match self {
            Request::Sotw(request) => request.error_detail.as_ref(),
            Request::Delta(request) => request.error_detail.as_ref(),
        }
    }

    /// The number of names in the request, of all its lists together.
    pub fn names_len(&self) -> usize {
        match self {
            Request::Sotw(request) => request.resource_names.len(),
            Request::Delta(request) => {
                let named = request.subscribe.len() + request.unsubscribe.len();
                named + request.initial_resource_versions.len()
            }
        }
    }
}

/// One usable resource of an upstream response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub name: ResourceName,
    /// The upstream's own version string, meaningful to that upstream only (STR-8, RLY-64).
    pub upstream_version: Arc<str>,
    /// `None`: a heartbeat or, from old servers, an absence (TTL-10, DEL-12).
    pub resource: Option<Arc<Resource>>,
    /// The time to live in the element; a heartbeat has one, too (TTL-4).
    pub ttl: Option<Duration>,
}

/// An unusable element of a response, with the reason (RLY-37).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadElement {
    /// `None`: the element has no readable name, so the relay must not derive any deletion from the response.
    pub name: Option<ResourceName>,
    pub reason: String,
    /// The element was an instance of the resource, rather than a removal or an error entry (DAT-1).
    pub is_instance: bool,
}

pub type Element = Result<Received, BadElement>;

/// One entry of `resource_errors` (ERR-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceError {
    pub name: ResourceName,
    pub status: Status,
}

/// A SotW `DiscoveryResponse` from an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SotwResponse {
    pub version_info: String,
    pub type_url: TypeUrl,
    /// Whether the response states its type. Only the answer to a poll may leave it out, because the path
    /// implies it (RST-1).
    pub states_type: bool,
    pub nonce: String,
    pub resources: Vec<Element>,
    pub errors: Vec<ResourceError>,
    pub control_plane: String,
}

/// A `DeltaDiscoveryResponse` from an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaResponse {
    /// For display only (DEL-15).
    pub system_version_info: String,
    pub type_url: TypeUrl,
    pub nonce: String,
    pub resources: Vec<Element>,
    pub removed: Vec<ResourceName>,
    pub errors: Vec<ResourceError>,
    pub control_plane: String,
}

/// A response of either variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    Sotw(SotwResponse),
    Delta(DeltaResponse),
}

impl Response {
    pub fn type_url(&self) -> &TypeUrl {
        match self {
            Response::Sotw(response) => &response.type_url,
            Response::Delta(response) => &response.type_url,
        }
    }

    /// The server's version of the content.
    pub fn version(&self) -> &str {
        match self {
            Response::Sotw(response) => &response.version_info,
            Response::Delta(response) => &response.system_version_info,
        }
    }

    pub fn control_plane(&self) -> &str {
        match self {
            Response::Sotw(response) => &response.control_plane,
            Response::Delta(response) => &response.control_plane,
        }
    }
}
