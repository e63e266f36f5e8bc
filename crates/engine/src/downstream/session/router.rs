//! The session's view of routing: the sources of names, and the server lists.

use std::sync::Arc;
use std::time::Duration;

use crate::authority::NameGroup;
use crate::collection::{Collection, CollectionKey, NameSet};
use crate::downstream::answer::client_features::ClientFeatures;
use crate::downstream::sources::{ListId, SourceId};
use crate::fallback::{FallbackSettings, RESOLVE_TIMEOUT};
use crate::view::View;
use sluice_xds::{ResourceName, Status, TypeUrl};

/// A change of a session's collections that the driver brings to a source.
#[derive(Clone, Debug)]
pub enum Watch {
    Watch {
        source: SourceId,
        type_url: TypeUrl,
        collection: Collection,
        /// The session's previous names, if the session made the new names from them.
        previous: Option<Arc<NameSet>>,
    },
    Unwatch {
        source: SourceId,
        type_url: TypeUrl,
        key: CollectionKey,
    },
}

/// The routing of a client's subscriptions: the group of a name, the source for a group of a type, and the
/// meaning of an empty first request (SUB-15).
pub trait Router {
    /// The group of a name of a type; for `None`, the group of the wildcard.
    fn group_of(&self, type_url: &TypeUrl, name: Option<&ResourceName>) -> NameGroup;
    /// The source for a group of a type. `server` is the position in the server list; server 0 is
    /// preferred.
    fn source(&mut self, type_url: &TypeUrl, group: NameGroup, server: u16) -> Result<SourceId, Status>;
    /// The number of the latest change of the source's content.
    fn last_change(&self, _source: SourceId) -> u64 {
        0
    }
    fn legacy_wildcard(&self, type_url: &TypeUrl) -> Result<bool, Status>;

    /// Shares the client's initial versions (RLY-6) with other clients that presented the same versions.
    fn presented(&self, view: View) -> Arc<View> {
        Arc::new(view)
    }

    /// The client's capabilities for a type.
    fn client_features(&self, _type_url: &TypeUrl) -> ClientFeatures {
        ClientFeatures::default()
    }

    /// The server list for names of a group of a type.
    fn list(&self, _type_url: &TypeUrl, _group: NameGroup) -> ListId {
        ListId(0)
    }

    /// The fallback between the servers of a list; `None` for a list of one server.
    fn fallback(&self, _list: ListId) -> Option<List> {
        None
    }

    /// The position in a list of the server behind a source, in whatever list the source was found; `None` if
    /// the list has no such server.
    fn position_of(&self, _list: ListId, _source: SourceId) -> Option<u16> {
        None
    }

    /// The time that a session waits for the sources of another configuration (REL-6).
    fn resolve_timeout(&self, _list: ListId) -> Duration {
        RESOLVE_TIMEOUT.default
    }
}

/// The properties of a server list of several servers, as a session needs them.
#[derive(Clone, Debug)]
pub struct List {
    pub id: ListId,
    pub servers: u16,
    /// The servers are reached type by type, and so is the fallback between them (ADR 18).
    pub by_type: bool,
    pub settings: FallbackSettings,
    /// One bit per server: absence at this server counts although a higher server supplied the name
    /// (`fail_on_data_errors`, RLY-42).
    pub deleting: u64,
}
