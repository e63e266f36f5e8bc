//! The source that a configuration gives to a part of a stream's subscriptions.

use std::collections::{BTreeMap, BTreeSet};

use crate::driver::ground::context::DriverSettings;
use crate::driver::ground::servers::ListedServer;
use crate::driver::ground::source_key::{Owner, SourceKey};
use crate::driver::source::handle::SourceHandle;
use crate::driver::source::table::source_key;
use crate::driver::stream::context::StreamContext;
use sluice_engine::authority::NameGroup;
use sluice_engine::class::{NameStyle, NodeClass};
use sluice_engine::downstream::{ListId, Part};
use sluice_xds::{Code, Kind, Node, ResourceName, Status, TypeUrl, Variant};

/// A source that need not exist.
pub(crate) struct Destination<'a> {
    pub list: ListId,
    pub listed: ListedServer<'a>,
    pub class: NodeClass,
    pub owner: Owner,
    /// The class is split by client only because of Secrets (RLY-21).
    pub is_for_secrets: bool,
}

impl<'a> Destination<'a> {
    /// Finds the source of a part at the server with this position in its list.
    ///
    /// # Errors
    /// The status of a request for such a part.
    pub fn find(
        settings: &'a DriverSettings,
        context: &StreamContext,
        node: Option<&Node>,
        type_url: &TypeUrl,
        group: NameGroup,
        server: u16,
    ) -> Result<Destination<'a>, Status> {
        let list = settings.lists.route(type_url, group.authority);
        let mut listed = list.at(server);
        let is_hosts = type_url.kind() == Kind::VirtualHost;
        if is_hosts && context.kind.variant == Variant::Sotw {
            let text = "virtual hosts (VHDS) are served in the delta variant only";
            return Err(Status::new(Code::InvalidArgument, text));
        }
        let has_no_delta = is_hosts && listed.server().is_sotw();
        // Virtual hosts are matched by prefix and answered by alias, for each client alone (RLY-20). A
        // directory gives all clients the same answers.
        let is_private = (is_hosts || group.private) && !listed.server().is_local() && !has_no_delta;
        if has_no_delta {
            listed = settings.lists.nobody();
        }
        let (names, identity) = (group.authority.names(), &context.peer.identity);
        Ok(Destination {
            list: list.id,
            listed,
            class: settings.classify(node, identity, type_url, names, listed.server())?,
            owner: if is_private { Owner::Stream(context.session()) } else { Owner::Everyone },
            is_for_secrets: settings.is_apart_for_secrets(node, type_url, names),
        })
    }

    pub fn key(&self) -> SourceKey {
        source_key(self.listed, self.class.clone(), self.owner)
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

/// Some names of a part, with their group by another configuration; `None`: all names.
pub(crate) type NamesOfGroup<'a> = (NameGroup, Option<BTreeSet<&'a ResourceName>>);

/// The groups of a part's names by another configuration.
pub(crate) fn groups_of<'a>(
    part: &'a Part,
    type_url: &TypeUrl,
    node: Option<&Node>,
    settings: &DriverSettings,
) -> Vec<NamesOfGroup<'a>> {
    let Some(names) = part.names() else { return vec![(part.group, None)] };
    let mut groups: BTreeMap<NameGroup, BTreeSet<&ResourceName>> = BTreeMap::new();
    for name in names.iter() {
        let authority = match part.group.authority.style() {
            NameStyle::Old => settings.authority_of(node, type_url, name),
            NameStyle::Xdstp => part.group.authority,
        };
        groups.entry(NameGroup { authority, ..part.group }).or_default().insert(name);
    }
    groups.into_iter().map(|(group, names)| (group, Some(names))).collect()
}
