//! The reasons for a client's content: its class, its server, and the state of a name (ADM-9).

use std::sync::Arc;

use crate::driver::api::clients::{
    ClassChoice, Explanation, Holding, NameExplanation, NameStatus, NodeExplanation, RuleText,
};
use crate::driver::api::status::Why;
use crate::driver::ground::class_identity::class_digest;
use crate::driver::ground::context::DriverContext;
use crate::driver::relay::Relay;
use crate::driver::relay::clients::name_status;
use crate::driver::relay::inspect::{nack_status, session_status};
use crate::driver::source::handle::Subscriber;
use crate::driver::stream::own_sources::newest;
use crate::driver::stream::state::StreamState;
use crate::engine::authority::Authority;
use crate::engine::cache::EntryState;
use crate::engine::class::{NameKind, RuleChoice};
use crate::engine::collection::CollectionKind;
use crate::engine::downstream::{Ledger, NameKnowledge};
use crate::engine::upstream::Cause;
use crate::identity::Identity;
use crate::xds::{Node, ResourceName, TypeUrl};

/// Types that are explained even if no rule names them.
const COMMON: [&str; 5] = [
    "envoy.config.cluster.v3.Cluster",
    "envoy.config.endpoint.v3.ClusterLoadAssignment",
    "envoy.config.listener.v3.Listener",
    "envoy.config.route.v3.RouteConfiguration",
    "envoy.extensions.transport_sockets.tls.v3.Secret",
];

impl Relay {
    pub(super) fn explanation(
        &self,
        id: u64,
        type_url: &TypeUrl,
        name: Option<&ResourceName>,
    ) -> Option<Explanation> {
        let stream = self.stream(id)?;
        let mut session = session_status(&stream, &self.shared);
        session.types.retain(|of| of.type_url == *type_url);
        let (ledger, unsent) = match self.ledger(&stream, type_url) {
            Some((ledger, unsent)) => (Some(ledger), unsent),
            None => (None, Why::Unread),
        };
        let settings = self.shared.settings();
        let node = stream.look(|node, _, _| node.cloned());
        let authority = |name| settings.authority_of(node.as_ref(), type_url, name);
        let authority = name.map_or(Authority::None, authority);
        let list = settings.lists.route(type_url, authority);
        let known = name.and_then(|name| ledger.as_ref()?.knowledge(name).pop());
        let first = ledger.as_ref().and_then(Ledger::first_source);
        let source = known.as_ref().map(|known| known.source).or(first.filter(|_| name.is_none()));
        let handle = source.and_then(|id| {
            stream
                .look(|_, _, sources| sources.iter().find(|(known, _)| *known == id).map(|(_, h)| h.clone()))
        });
        let is_local = list.at(0).server().is_local();
        let node = node.unwrap_or_default();
        let rule = rule_text(&self.shared, &node, &stream.context.peer.identity, type_url, authority.names());
        let status = handle.as_ref().map(|handle| handle.status());
        Some(Explanation {
            session,
            class: ClassChoice {
                digest: status.as_ref().map(|status| status.class.digest.clone()),
                rule: rule.filter(|_| !is_local),
                generation: settings.generation,
            },
            list: list.label.clone(),
            servers: list.servers().iter().map(|server| server.uri.clone()).collect(),
            server: handle.as_ref().map(|handle| handle.serving_server().uri.clone()),
            source: status,
            name: name.map(|name| {
                let ledger = ledger.as_ref().filter(|ledger| ledger.covers(name));
                let at_client = ledger.map(|of| name_status(of, of.entry(name.clone()), unsent));
                self.explain_name(name, at_client, known)
            }),
        })
    }

    fn explain_name(
        &self,
        name: &ResourceName,
        at_client: Option<NameStatus>,
        known: Option<NameKnowledge>,
    ) -> NameExplanation {
        let state = match &known {
            Some(NameKnowledge { cached: Some(_), .. }) => "PRESENT",
            Some(NameKnowledge {
                state: Some(EntryState::Requested | EntryState::Timeout),
                absent: None,
                ..
            }) => "UNKNOWN",
            Some(NameKnowledge { state: Some(_), .. }) => "ABSENT",
            Some(_) | None => "UNKNOWN",
        };
        let collection = known.as_ref().map(|known| match known.kind {
            CollectionKind::Wildcard => "wildcard",
            CollectionKind::Globs => "globs",
            CollectionKind::Names => "names",
        });
        let received_at =
            known.as_ref().and_then(|known| known.cached.as_ref()).map(|cached| cached.received_at);
        NameExplanation {
            name: name.clone(),
            at_client,
            collection,
            state,
            entry: known.as_ref().and_then(|known| known.state).map(EntryState::label),
            cause: known.as_ref().and_then(|known| known.absent).map(cause),
            error: known.and_then(|known| known.error),
            received_at: received_at.map(|at| self.shared.clock.wall_of(at)),
        }
    }

    pub(super) fn holding(
        &self,
        stream: &Arc<StreamState>,
        type_url: &TypeUrl,
        name: &ResourceName,
    ) -> Holding {
        let now = self.shared.clock.now();
        let (node_id, user_agent, ledger, nack) = stream.look(|node, session, sources| {
            let ledger = session.ledger(type_url, &newest(sources), now);
            let subscription = session.subscriptions().iter().find(|of| of.type_url == *type_url);
            let nack = subscription
                .and_then(|of| Some(nack_status(of.nonces.nack.as_ref()?, of, &self.shared.clock)));
            let user_agent = node.map(Node::user_agent).unwrap_or_default();
            (node.map_or("", |node| &node.id).into(), user_agent, ledger, nack)
        });
        let ledger = ledger.filter(|ledger| ledger.covers(name));
        // The reason for which news are not sent is no part of the answer.
        let name = ledger.map(|ledger| name_status(&ledger, ledger.entry(name.clone()), Why::Unread));
        Holding { id: stream.id().0, node_id, user_agent, name, nack }
    }

    /// Whether some source knows the name, as present or as absent.
    pub(super) fn is_known(&self, type_url: &TypeUrl, name: &ResourceName) -> bool {
        self.tables.sources.all().iter().any(|source| {
            let snapshot = source.snapshot();
            snapshot.of(type_url).is_some_and(|types| {
                types.names.known.contains_key(name)
                    || types.wildcard.members.contains_key(name)
                    || types.globs.members.contains_key(name)
            })
        })
    }

    pub(super) fn node_classes(&self, node: &Node) -> Vec<NodeExplanation> {
        let settings = self.shared.settings();
        let mut types: Vec<TypeUrl> = COMMON.iter().map(|message| TypeUrl::of_message(message)).collect();
        types.extend(settings.classes.rules.iter().flat_map(|rule| rule.types.iter().cloned()));
        types.sort();
        types.dedup();
        let kinds = |type_url: &TypeUrl| settings.classes.kinds(node, type_url);
        let of_type = |type_url: &TypeUrl| {
            kinds(type_url)
                .into_iter()
                .map(|names| self.node_class(node, type_url, names))
                .collect::<Vec<_>>()
        };
        types.iter().flat_map(of_type).collect()
    }

    fn node_class(&self, node: &Node, type_url: &TypeUrl, names: NameKind) -> NodeExplanation {
        let (settings, anonymous) = (self.shared.settings(), Identity::Anonymous);
        let server = settings.lists.route(type_url, Authority::None).at(0).server();
        let class = settings.classify((Some(node), &anonymous), type_url, names, server);
        let rule = rule_text(&self.shared, node, &anonymous, type_url, names);
        NodeExplanation {
            class: ClassChoice {
                digest: class.as_ref().ok().map(|class| class_digest(class).into()),
                rule: rule.filter(|_| !server.is_local()),
                generation: settings.generation,
            },
            refused: class.err(),
            names: names.style.word(),
            type_url: type_url.clone(),
        }
    }
}

fn rule_text(
    shared: &DriverContext,
    node: &Node,
    identity: &Identity,
    type_url: &TypeUrl,
    names: NameKind,
) -> Option<RuleText> {
    let settings = shared.settings();
    let RuleChoice { rule, nearest, not_reached } = settings.classes.choose(node, type_url, names)?;
    let facts = settings.classes.facts.of(node).map(|fields| &**fields);
    let has_facts = facts.is_some() || !rule.projection.facts.keeps_any();
    let splits = rule.projection_of(type_url, identity, has_facts).describe(node, identity, facts);
    Some(RuleText { id: rule.id, matches: rule.describe_match(), splits, nearest, not_reached })
}

/// The cause of an absence, by name (I4).
fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Removed => "removed",
        Cause::Omitted => "omitted",
        Cause::NotFound => "not_found",
        Cause::Timeout => "timeout",
        Cause::Expired => "expired",
        Cause::DataError => "data_error",
    }
}
