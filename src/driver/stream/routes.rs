//! The routing of a stream's subscriptions to server lists, node classes and sources.

use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use crate::driver::ground::context::DriverSettings;
use crate::driver::ground::servers::{ListedServer, ServerList};
use crate::driver::source::handle::SourceHandle;
use crate::driver::source::table::{Claim, TableIsFull};
use crate::driver::stream::context::{StreamContext, node_id};
use crate::driver::stream::destination::Destination;
use crate::driver::stream::own_sources::OwnSources;
use crate::driver::stream::private_part::private_source;
use crate::driver::stream::refused_types::RefusedTypes;
use crate::telemetry::Limit;
use sluice_engine::authority::{Authority, NameGroup};
use sluice_engine::downstream::{ClientFeatures, List, ListId, Router, SourceId};
use sluice_engine::fallback::RESOLVE_TIMEOUT;
use sluice_engine::view::View;
use sluice_xds::{Kind, Node, ResourceName, Status, TypeUrl};

/// Finds the source of each part of a subscription.
pub(crate) struct Routes<'a> {
    pub context: &'a StreamContext,
    /// The configuration that chooses.
    pub settings: &'a DriverSettings,
    pub node: Option<&'a Node>,
    pub sources: &'a mut OwnSources,
    /// Takes the refusal of a class without room. `None` if the request must fail in that case.
    pub refused: Option<&'a mut RefusedTypes>,
}

impl Router for Routes<'_> {
    fn group_of(&self, type_url: &TypeUrl, name: Option<&ResourceName>) -> NameGroup {
        let (shared, lists) = (&self.context.shared, &self.settings.lists);
        let authority =
            name.map_or(Authority::None, |name| self.settings.authority_of(self.node, type_url, name));
        NameGroup {
            authority,
            private: shared.content.do_not_cache.has(lists.route(type_url, authority).key(), type_url, name),
        }
    }

    fn last_change(&self, source: SourceId) -> u64 {
        self.sources.get(source).map_or(0, |handle| handle.snapshot().last_change())
    }

    fn list(&self, type_url: &TypeUrl, group: NameGroup) -> ListId {
        self.settings.lists.route(type_url, group.authority).id
    }

    fn fallback(&self, list: ListId) -> Option<List> {
        self.settings.lists.list(list)?.fallback()
    }

    fn source(&mut self, type_url: &TypeUrl, group: NameGroup, server: u16) -> Result<SourceId, Status> {
        let (context, settings) = (self.context, self.settings);
        let Destination { listed, class, owner, is_for_secrets, .. } =
            Destination::find(settings, context, self.node, type_url, group, server)?;
        self.warn_of_nobody(type_url, group, server, listed);
        let refusals = &context.shared.clients.refused_classes;
        if let Some(status) = refusals.reason(listed.place(), &class, type_url, context.opened_at) {
            return Err(status);
        }
        let lacks_facts = class.lacks_facts();
        let claim = Claim {
            listed,
            class,
            owner,
            is_for_secrets,
            holder: context.holder(),
            held: self.sources.as_slice(),
        };
        let handle = match context.sources.get(claim, &|| context.streams.count()) {
            Ok((handle, is_new)) => {
                if is_new {
                    context.peer.connection.account().note_opened();
                    if lacks_facts {
                        self.note_no_facts();
                    }
                }
                handle
            }
            Err(refused) => self.refuse(type_url, refused)?,
        };
        let has_private_id = group.private && listed.server().is_local();
        let id = if has_private_id { private_source(handle.id()) } else { handle.id() };
        if self.sources.get(id).is_none() {
            self.sources.push((id, handle));
        }
        Ok(id)
    }

    fn presented(&self, view: View) -> Arc<View> {
        self.context.shared.content.presented_views.share(view)
    }

    fn client_features(&self, type_url: &TypeUrl) -> ClientFeatures {
        self.settings.client_features(self.node, self.context.kind.variant, type_url)
    }

    fn legacy_wildcard(&self, type_url: &TypeUrl) -> Result<bool, Status> {
        if type_url.kind() == Kind::VirtualHost {
            // A client of virtual hosts begins with an empty request, and the control plane has to see the
            // request (VHD-3).
            return Ok(true);
        }
        let listed = self.settings.lists.route(type_url, Authority::None).at(0);
        let (identity, style) = (&self.context.peer.identity, Authority::None.style());
        let class = self.settings.classify(self.node, identity, type_url, style, listed.server())?;
        Ok(class.legacy_wildcard)
    }

    fn position_of(&self, list: ListId, source: SourceId) -> Option<u16> {
        let place = self.sources.get(source)?.key().place;
        self.settings.lists.list(list)?.position_of(place)
    }

    fn resolve_timeout(&self, list: ListId) -> Duration {
        self.settings.lists.list(list).map_or(RESOLVE_TIMEOUT.default, ServerList::resolve_timeout)
    }
}

impl Routes<'_> {
    /// Warns of names that no server is asked for.
    fn warn_of_nobody(&self, type_url: &TypeUrl, group: NameGroup, server: u16, listed: ListedServer<'_>) {
        if group.authority == Authority::Unknown {
            self.warn("unknown authority", type_url, "names of an authority that is not under `authorities`");
        }
        let asked = self.settings.lists.route(type_url, group.authority).at(server);
        if listed.place() != asked.place() {
            self.warn("hosts without delta", type_url, "virtual hosts, which need a server with delta");
        }
    }

    /// Counts a class of one client without facts.
    fn note_no_facts(&self) {
        let shared = &self.context.shared;
        shared.metrics.facts.missed();
        if let Some(suppressed) = shared.throttle.allow("clients without facts") {
            warn!(
                node = node_id(self.node),
                stream = self.context.id,
                suppressed,
                "the table of `facts` has no entry for this client, \
                which has a class of its own"
            );
        }
    }

    /// The source of a type whose class has no room. A stream of a single type ends instead.
    fn refuse(&mut self, type_url: &TypeUrl, no_room: TableIsFull) -> Result<Arc<SourceHandle>, Status> {
        let (context, shared) = (self.context, &self.context.shared);
        let TableIsFull { limit, status } = no_room;
        if !self.refused.as_ref().is_some_and(|refused| refused.has_any()) {
            shared.metrics.limit_hit(limit);
        }
        let (now, id, peer) = (shared.clock.now(), context.session(), context.peer.address);
        context.sources.refusals.note(limit, id, peer, self.node, type_url, now);
        let refused = self.refused.as_mut().filter(|_| context.kind.service.is_none());
        let Some(refused) = refused.filter(|_| limit != Limit::PrivateSources) else { return Err(status) };
        let source = context.sources.of_refused();
        refused.note(status, now);
        Ok(source)
    }

    fn warn(&self, key: &'static str, type_url: &TypeUrl, names: &str) {
        if let Some(suppressed) = self.context.shared.throttle.allow(key) {
            warn!(node = node_id(self.node), stream = self.context.id, %type_url, suppressed,
                "a client asked for {names}; answering that they do not exist");
        }
    }
}
