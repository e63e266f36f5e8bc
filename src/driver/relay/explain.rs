//! The reasons for a client's content: its class, its server, and the state of a name (ADM-9).

use std::sync::Arc;

use crate::driver::api::clients::{
    ClassChoice, Explanation, Holding, NameExplanation, NameStatus, NodeExplanation, RuleText,
};
use crate::driver::api::status::Why;
use crate::driver::ground::class_identity::class_digest;
use crate::driver::ground::context::DriverContext;
use crate::driver::relay::handle::Relay;
use crate::driver::relay::inspect::{nack_status, session_status};
use crate::driver::relay::splits;
use crate::driver::source::handle::Subscriber;
use crate::driver::stream::own_sources::newest;
use crate::driver::stream::state::StreamState;
use sluice_engine::authority::Authority;
use sluice_engine::cache::EntryState;
use sluice_engine::class::{NameKind, RuleChoice};
use sluice_engine::downstream::{Ledger, NameEntry, NameKnowledge, NameStanding, WhyUnsent};
use sluice_engine::upstream::Cause;
use sluice_identity::Identity;
use sluice_xds::{Node, ResourceName, TypeUrl};

/// Types that are explained even if no rule names them.
const COMMON: [&str; 5] = [
    "envoy.config.cluster.v3.Cluster",
    "envoy.config.endpoint.v3.ClusterLoadAssignment",
    "envoy.config.listener.v3.Listener",
    "envoy.config.route.v3.RouteConfiguration",
    "envoy.extensions.transport_sockets.tls.v3.Secret",
];

pub(super) fn explanation(
    relay: &Relay,
    id: u64,
    type_url: &TypeUrl,
    name: Option<&ResourceName>,
) -> Option<Explanation> {
    let stream = relay.stream(id)?;
    let mut session = session_status(&stream, &relay.shared);
    session.types.retain(|status| status.type_url == *type_url);
    let (ledger, unsent) = match ledger_of(relay, &stream, type_url) {
        Some((ledger, unsent)) => (Some(ledger), unsent),
        None => (None, Why::Unread),
    };
    let settings = relay.shared.settings();
    let node = stream.look(|node, _, _| node.cloned());
    let authority = |name| settings.authority_of(node.as_ref(), type_url, name);
    let authority = name.map_or(Authority::None, authority);
    let list = settings.lists.route(type_url, authority);
    let knowledge = name.and_then(|name| ledger.as_ref()?.knowledge(name).pop());
    let first = ledger.as_ref().and_then(Ledger::first_source);
    let source = knowledge.as_ref().map(|knowledge| knowledge.source).or(first.filter(|_| name.is_none()));
    let handle = source.and_then(|id| stream.look(|_, _, sources| sources.get(id).cloned()));
    let is_local = list.at(0).server().is_local();
    let node = node.unwrap_or_default();
    let rule = rule_text(&relay.shared, &node, &stream.context.peer.identity, type_url, authority.names());
    let status = handle.as_ref().map(|handle| handle.status());
    Some(Explanation {
        session,
        class: ClassChoice {
            digest: status.as_ref().map(|status| status.class.digest.clone()),
            rule: rule.filter(|_| !is_local),
            split: handle.as_ref().and_then(|handle| splits::origin(relay, &handle.key().class)),
            generation: settings.generation,
        },
        list: list.label.clone(),
        servers: list.servers().iter().map(|server| server.uri.clone()).collect(),
        server: handle.as_ref().map(|handle| handle.serving_server().uri.clone()),
        source: status,
        name: name.map(|name| {
            let ledger = ledger.as_ref().filter(|ledger| ledger.covers(name));
            let at_client = ledger.map(|ledger| name_status(ledger, ledger.entry(name.clone()), unsent));
            explain_name(relay, name, at_client, knowledge)
        }),
    })
}

fn explain_name(
    relay: &Relay,
    name: &ResourceName,
    at_client: Option<NameStatus>,
    knowledge: Option<NameKnowledge>,
) -> NameExplanation {
    let state = match &knowledge {
        Some(NameKnowledge { cached: Some(_), .. }) => "PRESENT",
        Some(NameKnowledge {
            state: Some(EntryState::Requested | EntryState::Timeout),
            absent: None,
            ..
        }) => "UNKNOWN",
        Some(NameKnowledge { state: Some(_), .. }) => "ABSENT",
        Some(_) | None => "UNKNOWN",
    };
    let collection = knowledge.as_ref().map(|knowledge| knowledge.kind.label());
    let received_at =
        knowledge.as_ref().and_then(|knowledge| knowledge.cached.as_ref()).map(|cached| cached.received_at);
    NameExplanation {
        name: name.clone(),
        at_client,
        collection,
        state,
        entry: knowledge.as_ref().and_then(|knowledge| knowledge.state).map(EntryState::label),
        cause: knowledge.as_ref().and_then(|knowledge| knowledge.absent).map(cause),
        error: knowledge.and_then(|knowledge| knowledge.error),
        received_at: received_at.map(|at| relay.shared.clock.wall_of(at)),
    }
}

pub(super) fn holding(
    relay: &Relay,
    stream: &Arc<StreamState>,
    type_url: &TypeUrl,
    name: &ResourceName,
) -> Holding {
    let now = relay.shared.clock.now();
    let (node_id, user_agent, ledger, nack) = stream.look(|node, session, sources| {
        let ledger = session.ledger(type_url, &newest(sources), now);
        let subscription = session.subscriptions().iter().find(|other| other.type_url == *type_url);
        let nack = subscription.and_then(|subscription| {
            Some(nack_status(subscription.nack()?, subscription, &relay.shared.clock))
        });
        let user_agent = node.map(Node::user_agent).unwrap_or_default();
        (node.map_or("", |node| &node.id).into(), user_agent, ledger, nack)
    });
    let ledger = ledger.filter(|ledger| ledger.covers(name));
    // The reason for which news are not sent is no part of the answer.
    let name = ledger.map(|ledger| name_status(&ledger, ledger.entry(name.clone()), Why::Unread));
    Holding { id: stream.id().0, node_id, user_agent, name, nack }
}

/// Whether some source knows the name, as present or as absent.
pub(super) fn is_known(relay: &Relay, type_url: &TypeUrl, name: &ResourceName) -> bool {
    relay.tables.sources.all().iter().any(|source| {
        let snapshot = source.snapshot();
        snapshot.of(type_url).is_some_and(|types| {
            types.names.entries.contains_key(name)
                || types.wildcard.members.contains_key(name)
                || types.globs.members.contains_key(name)
        })
    })
}

pub(super) fn node_classes(relay: &Relay, node: &Node) -> Vec<NodeExplanation> {
    let settings = relay.shared.settings();
    let mut types: Vec<TypeUrl> = COMMON.iter().map(|message| TypeUrl::of_message(message)).collect();
    types.extend(settings.classes.rules.iter().flat_map(|rule| rule.types.iter().cloned()));
    types.sort();
    types.dedup();
    let kinds = |type_url: &TypeUrl| settings.classes.kinds(node, type_url);
    let of_type = |type_url: &TypeUrl| {
        kinds(type_url).into_iter().map(|names| node_class(relay, node, type_url, names)).collect::<Vec<_>>()
    };
    types.iter().flat_map(of_type).collect()
}

fn node_class(relay: &Relay, node: &Node, type_url: &TypeUrl, names: NameKind) -> NodeExplanation {
    let (settings, anonymous) = (relay.shared.settings(), Identity::Anonymous);
    let server = settings.lists.route(type_url, Authority::None).at(0).server();
    let class = settings.classify(Some(node), &anonymous, type_url, names, server);
    let rule = rule_text(&relay.shared, node, &anonymous, type_url, names);
    NodeExplanation {
        class: ClassChoice {
            digest: class.as_ref().ok().map(|class| class_digest(class).into()),
            rule: rule.filter(|_| !server.is_local()),
            split: class.as_ref().ok().and_then(|class| splits::origin(relay, class)),
            generation: settings.generation,
        },
        refused: class.err(),
        names: names.style.word(),
        type_url: type_url.clone(),
    }
}

/// The names of one type of a stream, and the reason for which news of the type are not sent.
pub(super) fn ledger_of(relay: &Relay, stream: &StreamState, type_url: &TypeUrl) -> Option<(Ledger, Why)> {
    let now = relay.shared.clock.now();
    stream.look(|_, session, sources| {
        let ledger = session.ledger(type_url, &newest(sources), now)?;
        let index = session.subscriptions().iter().position(|other| other.type_url == *type_url)?;
        let unsent = session.reports(&newest(sources), now).into_iter().nth(index)?.unsent;
        Some((ledger, why_unsent(unsent.map(|unsent| unsent.why))))
    })
}

/// The reason for which one name's news are not sent. Withheld removals concern other names.
fn why_unsent(of_type: Option<WhyUnsent>) -> Why {
    match of_type {
        Some(WhyUnsent::Order(_)) => Why::Order,
        Some(WhyUnsent::Name(_)) => Why::Name,
        Some(WhyUnsent::Withheld(_) | WhyUnsent::Unread) | None => Why::Unread,
    }
}

pub(super) fn name_status(ledger: &Ledger, entry: NameEntry, unsent: Why) -> NameStatus {
    let NameEntry { name, has, should, standing } = entry;
    let why = match standing {
        NameStanding::Current => None,
        NameStanding::Rejected => Some(Why::Rejected),
        NameStanding::Unacked => Some(Why::Unacked),
        NameStanding::Unsent => Some(unsent),
        NameStanding::Withheld => Some(Why::Withheld),
        NameStanding::Doubtful => Some(Why::Name),
        NameStanding::Unknown | NameStanding::Refused => Some(Why::Unknown),
    };
    NameStatus { refused: ledger.refusal(&name), name, has, should, why }
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
