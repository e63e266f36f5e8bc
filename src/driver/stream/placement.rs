//! The sources of a stream, and the configuration for the choice.

use std::sync::Arc;

use arc_swap::Guard;
use thin_vec::ThinVec;
use tracing::debug;

use crate::driver::ground::context::{DriverContext, DriverSettings};
use crate::driver::ground::encoder::{BodyTimes, Maker};
use crate::driver::ground::fallback_log::FallbackEpisode;
use crate::driver::ground::servers::ServerLists;
use crate::driver::ground::source_key::Owner;
use crate::driver::source::changes::TrackedChange;
use crate::driver::source::handle::SourceHandle;
use crate::driver::stream::changes;
use crate::driver::stream::context::StreamContext;
use crate::driver::stream::destination::{Destination, PartDestination, groups_of};
use crate::driver::stream::diversions::Diversions;
use crate::driver::stream::own_sources::OwnSources;
use crate::driver::stream::private_part::session_at;
use crate::driver::stream::refused_types::RefusedTypes;
use crate::driver::stream::routes::Routes;
use crate::telemetry::metrics::GaugePart;
use sluice_engine::cache::SessionId;
use sluice_engine::class::NameStyle;
use sluice_engine::downstream::{Answer, ListId, Moved, Part, Session};
use sluice_setting::Epoch;
use sluice_xds::{Node, TypeUrl};

/// The sources of a stream, and everything for the choice of a source. What each update reads comes last.
#[repr(C)]
pub(crate) struct Placement {
    pub fallbacks: Fallbacks,
    /// Boxed: few streams have resources for one client alone.
    pub diversions: Option<Box<Diversions>>,
    /// The node of the first request, with the dynamic parameters of the newest.
    pub node: Option<Arc<Node>>,
    pub refused: RefusedTypes,
    pub routing: Routing,
    pub sources: OwnSources,
}

impl Placement {
    pub fn new(is_relay: bool, settings: Arc<Epoch<DriverSettings>>) -> Placement {
        Placement {
            node: None,
            sources: OwnSources::new(is_relay),
            routing: Routing { followed: settings.number(), in_use: settings, moving_to: None },
            refused: RefusedTypes::default(),
            fallbacks: Fallbacks::default(),
            diversions: None,
        }
    }

    pub fn node(&self) -> Option<&Node> {
        self.node.as_deref()
    }

    /// Routes by the configuration in use. A class without room makes a refused type.
    pub fn routes<'a>(&'a mut self, context: &'a StreamContext) -> Routes<'a> {
        Routes {
            context,
            settings: &self.routing.in_use,
            node: self.node.as_deref(),
            sources: &mut self.sources,
            refused: Some(&mut self.refused),
        }
    }

    /// Routes by a given configuration. A class without room is an error.
    pub fn routes_by<'a>(
        &'a mut self,
        context: &'a StreamContext,
        settings: &'a DriverSettings,
    ) -> Routes<'a> {
        let (node, sources) = (self.node.as_deref(), &mut self.sources);
        Routes { context, settings, node, sources, refused: None }
    }

    /// Routes by the configuration to which the stream moves; `None` if it does not. A class without room is
    /// an error.
    pub fn routes_of_move<'a>(&'a mut self, context: &'a StreamContext) -> Option<Routes<'a>> {
        let settings: &DriverSettings = self.routing.moving_to.as_ref()?;
        let (node, sources) = (self.node.as_deref(), &mut self.sources);
        Some(Routes { context, settings, node, sources, refused: None })
    }

    /// Leaves the sources without a part of the session.
    pub fn leave_unused(
        &mut self,
        session: &Session,
        context: &StreamContext,
        leave: impl Fn(&SourceHandle, SessionId),
    ) {
        self.sources.retain(|(id, source)| {
            let is_used = session.uses(*id);
            if !is_used {
                leave(source, session_at(context.session(), *id));
                context.sources.release(source, &context.holder());
            }
            is_used
        });
    }

    /// The parts of a session by another configuration. A part whose names have several groups there comes
    /// once for each.
    pub fn destinations<'a>(
        &'a self,
        session: &'a Session,
        context: &'a StreamContext,
        settings: &'a DriverSettings,
    ) -> impl Iterator<Item = PartDestination<'a>> {
        let subscriptions = session.subscriptions().iter();
        let parts = subscriptions.flat_map(|subscription| {
            subscription.parts.iter().map(move |part| (&subscription.type_url, part))
        });
        let lists_other_names = self.routing.lists_other_names(settings);
        let groups = parts.flat_map(move |(type_url, part)| {
            let groups = match lists_other_names {
                true => groups_of(part, type_url, self.node(), settings),
                false => vec![(part.group, None)],
            };
            groups.into_iter().map(move |group| (type_url, part, group))
        });
        groups.filter_map(move |(type_url, part, (group, names))| {
            let source = self.sources.get(part.source())?;
            let list = settings.lists.route(type_url, group.authority);
            let server = match list.id == part.asked.list {
                true => part.asked.serving(),
                false => list.position_of(source.key().place).unwrap_or(0),
            };
            let to = Destination::find(settings, context, self.node(), type_url, group, server);
            Some(PartDestination { type_url, part, source, to, names })
        })
    }

    /// Whether some part of a subscription may not be shared.
    pub fn is_private(&self, session: &Session, subscription: usize) -> bool {
        let is_private = |part: &Part| {
            self.sources.get(part.source()).is_some_and(|source| source.key().owner != Owner::Everyone)
        };
        let subscription = session.subscriptions().get(subscription);
        subscription.is_some_and(|subscription| subscription.parts.iter().any(is_private))
    }

    /// The maker of a body for this stream. With traces, the maker notes the making in the changes that the
    /// body brings (OBS-2).
    pub fn maker(
        &self,
        session: &Session,
        context: &StreamContext,
        subscription: usize,
        answer: &Answer,
    ) -> Maker {
        let changes = || changes::changes_in(session, &self.sources, subscription, answer);
        let ready = context.shared.metrics.traces.is_on().then(|| note_making(changes()));
        Maker { identifier: self.identifier(session, subscription), ready }
    }

    /// The identifiers of the sources of a subscription, mostly a single source.
    fn identifier(&self, session: &Session, subscription: usize) -> String {
        let parts = session.subscriptions().get(subscription).map(|subscription| &subscription.parts);
        let mut names: Vec<Arc<str>> = Vec::new();
        for part in parts.into_iter().flatten() {
            names.extend(self.sources.get(part.source()).map(|source| source.identifier()));
        }
        names.dedup();
        names.join(", ")
    }
}

/// Notes the making of a body in the changes.
fn note_making(changes: Vec<Arc<TrackedChange>>) -> Box<dyn Fn(BodyTimes) + Send + Sync> {
    Box::new(move |times| changes.iter().for_each(|change| change.encoded(times)))
}

/// The configuration of a stream, and the move to the next one.
pub(crate) struct Routing {
    /// The number of the configuration with the stream's limits.
    followed: u64,
    /// The configuration by which the session is routed, until the end of the move.
    pub in_use: Arc<Epoch<DriverSettings>>,
    /// The configuration to which the session moves (REL-6).
    pub moving_to: Option<Arc<Epoch<DriverSettings>>>,
}

impl Routing {
    /// The configuration in force, if the limits are new to the stream. Mostly a comparison of two numbers.
    pub fn follow(&mut self, shared: &DriverContext) -> Option<Guard<Arc<Epoch<DriverSettings>>>> {
        if self.followed == shared.settings_number() {
            return None;
        }
        let settings = shared.settings();
        self.followed = settings.number();
        Some(settings)
    }

    /// The configuration to which the session moves, or else the one in use.
    pub fn newest(&self) -> Arc<Epoch<DriverSettings>> {
        self.moving_to.clone().unwrap_or_else(|| self.in_use.clone())
    }

    /// Whether names of a session may belong to another list by other authorities (FED-3), or to another rule
    /// for classes.
    pub fn regroups(&self, session: &Session, settings: &DriverSettings) -> bool {
        let has_authority = |part: &Part| part.group.authority.style() == NameStyle::Xdstp;
        let mut parts = session.subscriptions().iter().flat_map(|subscription| &subscription.parts);
        self.lists_other_names(settings)
            || self.in_use.lists.authorities() != settings.lists.authorities() && parts.any(has_authority)
    }

    /// Whether rules for classes may list other names of the client than those of its present configuration.
    pub fn lists_other_names(&self, settings: &DriverSettings) -> bool {
        let (now, then) = (&self.in_use.classes, &settings.classes);
        (now.list_names() || then.list_names()) && now.rules != then.rules
    }
}

/// The lists, or types of lists, with a server other than the preferred server.
#[derive(Default)]
pub(crate) struct Fallbacks(ThinVec<ListOnFallback>);

struct ListOnFallback {
    list: ListId,
    type_url: Option<TypeUrl>,
    _counted: GaugePart,
    _episode: Arc<FallbackEpisode>,
}

impl Fallbacks {
    /// Notes the moves of a stream between the servers of its lists.
    pub fn note(&mut self, context: &StreamContext, lists: &ServerLists, moves: &[Moved]) {
        for Moved { list: id, type_url, from, to } in moves {
            let Some(list) = lists.list(*id) else { continue };
            let (from_uri, to_uri) = (&list.at(*from).server().uri, &list.at(*to).server().uri);
            debug!(stream = context.id, list = %list.label, ?type_url, from = %from_uri, to = %to_uri,
                "a stream moved to another server");
            let shared = &context.shared;
            let counted = shared.metrics.fallback.moved(&list.label, to_uri, *to == 0);
            let fallback = counted.map(|counted| ListOnFallback {
                list: *id,
                type_url: type_url.clone(),
                _counted: counted,
                _episode: shared.once.fallbacks.join(
                    list.at(*to),
                    from_uri,
                    &shared.throttle,
                    &shared.metrics.events,
                ),
            });
            self.0.retain(|entry| (&entry.list, &entry.type_url) != (id, type_url));
            self.0.extend(fallback);
        }
    }

    /// Forgets the servers of former lists.
    pub fn leave_lists(&mut self, session: &Session) {
        self.0.retain(|entry| session.served_by().any(|(list, server)| list == entry.list && server > 0));
    }
}
