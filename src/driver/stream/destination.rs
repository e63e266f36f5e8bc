//! The source that a configuration gives to a part of a stream's subscriptions.

use std::collections::{BTreeMap, BTreeSet};

use crate::driver::ground::context::DriverSettings;
use crate::driver::ground::registry::lock;
use crate::driver::ground::servers::ListedServer;
use crate::driver::ground::source_key::{Owner, SourceKey};
use crate::driver::source::handle::SourceHandle;
use crate::driver::source::table::source_key;
use crate::driver::stream::state::{Inner, StreamState};
use crate::engine::authority::NameGroup;
use crate::engine::class::{NameStyle, NodeClass};
use crate::engine::downstream::{ListId, Part, SourceId};
use crate::xds::{Code, Kind, Node, ResourceName, Status, TypeUrl, Variant};

/// A source that need not exist.
pub(crate) struct Destination<'a> {
    pub list: ListId,
    pub listed: ListedServer<'a>,
    pub class: NodeClass,
    pub owner: Owner,
    /// The class is split by client only because of Secrets (RLY-21).
    pub is_for_secrets: bool,
}

impl Destination<'_> {
    pub fn key(&self) -> SourceKey {
        source_key(self.listed, self.class.clone(), self.owner)
    }
}

impl DriverSettings {
    /// Finds the source of a part at the server with this position in its list.
    pub(crate) fn destination(
        &self,
        (stream, node): (&StreamState, Option<&Node>),
        type_url: &TypeUrl,
        group: NameGroup,
        server: u16,
    ) -> Result<Destination<'_>, Status> {
        let list = self.lists.route(type_url, group.authority);
        let mut listed = list.at(server);
        let is_hosts = type_url.kind() == Kind::VirtualHost;
        if is_hosts && stream.kind().variant == Variant::Sotw {
            let text = "virtual hosts (VHDS) are served in the delta variant only";
            return Err(Status::new(Code::InvalidArgument, text));
        }
        let has_no_delta = is_hosts && listed.server().is_sotw();
        // Virtual hosts are matched by prefix and answered by alias, for each client alone (RLY-20). A
        // directory gives all clients the same answers.
        let is_private = (is_hosts || group.private) && !listed.server().is_local() && !has_no_delta;
        if has_no_delta {
            listed = self.lists.nobody();
        }
        let (names, client) = (group.authority.names(), (node, &*stream.peer.identity));
        Ok(Destination {
            list: list.id,
            listed,
            class: self.classify(client, type_url, names, listed.server())?,
            owner: if is_private { Owner::Stream(stream.session()) } else { Owner::Everyone },
            is_for_secrets: self.is_apart_for_secrets(node, type_url, names),
        })
    }
}

/// A part of a stream, with its present source and the source by another configuration.
pub(crate) struct PartDestination<'a> {
    pub type_url: &'a TypeUrl,
    pub part: &'a Part,
    pub source: &'a SourceHandle,
    pub to: Result<Destination<'a>, Status>,
    /// The names of the part that go there; `None`: all.
    pub names: Option<BTreeSet<&'a ResourceName>>,
}

impl PartDestination<'_> {
    /// Whether the part has another source by the other configuration.
    pub fn moves(&self) -> bool {
        self.to.as_ref().is_ok_and(|to| to.key() != *self.source.key())
    }

    /// Whether nothing changes: neither the source nor the list with its other servers.
    pub fn stays(&self) -> bool {
        self.to.as_ref().is_ok_and(|to| to.list == self.part.asked.list) && !self.moves()
    }
}

/// The parts of a stream by another configuration. A part whose names have several groups there comes once for each.
pub(crate) fn destinations<'a>(
    stream: &'a StreamState,
    inner: &'a Inner,
    settings: &'a DriverSettings,
) -> impl Iterator<Item = PartDestination<'a>> {
    let of = |id: SourceId| inner.sources.iter().find(|(known, _)| *known == id).map(|(_, handle)| &**handle);
    let subscriptions = inner.session.subscriptions().iter();
    let parts = subscriptions.flat_map(|of| of.parts.iter().map(move |part| (&of.type_url, part)));
    let groups = parts.flat_map(move |(type_url, part)| {
        groups_of(part, type_url, inner, settings).into_iter().map(move |group| (type_url, part, group))
    });
    groups.filter_map(move |(type_url, part, (group, names))| {
        let source = of(part.source())?;
        let list = settings.lists.route(type_url, group.authority);
        let server = match list.id == part.asked.list {
            true => part.asked.serving(),
            false => list.position_of(source.key().place).unwrap_or(0),
        };
        let client = (stream, inner.node.as_deref());
        let to = settings.destination(client, type_url, group, server);
        Some(PartDestination { type_url, part, source, to, names })
    })
}

type NamesOfGroup<'a> = (NameGroup, Option<BTreeSet<&'a ResourceName>>);

/// The groups of a part's names, if rules for classes list other names by the other configuration.
fn groups_of<'a>(
    part: &'a Part,
    type_url: &TypeUrl,
    inner: &Inner,
    settings: &DriverSettings,
) -> Vec<NamesOfGroup<'a>> {
    let Some(names) = part.names().filter(|_| lists_other_names(inner, settings)) else {
        return vec![(part.group, None)];
    };
    let mut groups: BTreeMap<NameGroup, BTreeSet<&ResourceName>> = BTreeMap::new();
    for name in names.iter() {
        let authority = match part.group.authority.style() {
            NameStyle::Old => settings.authority_of(inner.node.as_deref(), type_url, name),
            NameStyle::Xdstp => part.group.authority,
        };
        groups.entry(NameGroup { authority, ..part.group }).or_default().insert(name);
    }
    groups.into_iter().map(|(group, names)| (group, Some(names))).collect()
}

impl StreamState {
    /// Passes each part, with its source by another configuration, to `see`, under the lock.
    pub(crate) fn each_destination(&self, settings: &DriverSettings, see: impl FnMut(PartDestination<'_>)) {
        let inner = &*lock(&self.inner);
        destinations(self, inner, settings).for_each(see);
    }
}

/// Whether names may belong to another list by other authorities (FED-3), or to another rule for classes.
pub(crate) fn regroups(inner: &Inner, settings: &DriverSettings) -> bool {
    let has_authority = |part: &Part| part.group.authority.style() == NameStyle::Xdstp;
    let mut parts = inner.session.subscriptions().iter().flat_map(|subscription| &subscription.parts);
    lists_other_names(inner, settings)
        || inner.routing.lists.authorities() != settings.lists.authorities() && parts.any(has_authority)
}

/// Whether rules for classes may list other names of the client than those of its present configuration.
pub(crate) fn lists_other_names(inner: &Inner, settings: &DriverSettings) -> bool {
    let (now, then) = (&inner.routing.classes, &settings.classes);
    (now.list_names() || then.list_names()) && now.rules != then.rules
}
