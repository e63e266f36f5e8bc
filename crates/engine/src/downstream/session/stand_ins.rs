//! Snapshots for sessions that are not served by the preferred server of a list.
//!
//! All resources come from one server, with one exception for named subscriptions: if this server lacks a
//! name that a higher server supplied, the client is served the higher server's resource (RLY-42, FBK-6).
//! The source's snapshot is changed accordingly, so that the code for answers needs no special case. If no
//! name is lacking, the snapshot is the source's here. Resources that only the former server has, and that
//! the client must keep until its routes have moved, are added in the same way.

use std::sync::Arc;

use crate::Time;
use crate::collection::{Collection, NameSet};
use crate::downstream::order::ORDER_WAIT_MAX;
use crate::downstream::order::turn::Snapshots;
use crate::downstream::session::list_position::{ListPosition, ListPositions, PreviousSources};
use crate::downstream::session::refused::{Kept, without_refused};
use crate::downstream::session::returning::doubt;
use crate::downstream::sources::{Asked, ListId, SourceId};
use crate::downstream::subscription::Subscription;
use crate::downstream::subscription::part::Part;
use crate::snapshot::{LastVersion, Snapshot, TypeSnapshot};
use crate::view::View;
use sluice_xds::{Resource, ResourceName, Variant, Version};

/// The maximum number of snapshots from before the latest move. A session that moves again and again stays
/// with its server after a few moves (FU25).
const FORMER_MAX: usize = 4;

pub(super) type Latest<'a> = &'a dyn Fn(SourceId) -> Option<Arc<Snapshot>>;

/// The state that decides which snapshots serve a session.
pub(super) struct Serving<'a> {
    pub(super) subscriptions: &'a [Subscription],
    pub(super) sources: &'a [SourceId],
    pub(super) positions: &'a ListPositions,
    /// Refused contents of which the client has other versions.
    pub(super) kept: Option<&'a Kept>,
    pub(super) variant: Variant,
    pub(super) is_moving: bool,
    pub(super) is_returning: bool,
}

impl Serving<'_> {
    /// The lists whose former servers alone can tell the resource that a client has for an alias (ALI-2): the
    /// client has not been sent the alias since the session moved. Nearly always none.
    pub(super) fn lists_with_read_aliases(&self, latest: Latest<'_>, now: Time) -> Vec<ListId> {
        let is_over = |previous: &&PreviousSources| previous.until <= now;
        let over = self.positions.iter().filter_map(|position| {
            position.previous.as_deref().filter(is_over).map(|previous| (position, previous))
        });
        let needed = over.filter(|(position, previous)| {
            position.parts(self.subscriptions).any(|(subscription, part)| {
                let here = latest(part.source());
                previous.snapshots.iter().any(|(_, there)| {
                    there
                        .as_ref()
                        .is_some_and(|there| knows_alias_alone(there, here.as_deref(), subscription, part))
                })
            })
        });
        needed.map(|(position, _)| position.list.id).collect()
    }

    /// The sources that served a list until now, as former ones. Those before stay, if they alone know an
    /// alias that the client holds (ALI-2), or alone have bytes that a complete set keeps until the routes
    /// have moved (RLY-51).
    pub(super) fn previous(
        &self,
        position: &ListPosition,
        previous: Snapshots,
        latest: Latest<'_>,
        now: Time,
    ) -> PreviousSources {
        let earlier = position.previous.iter().flat_map(|previous| &previous.snapshots);
        let is_needed = |there: &Snapshot| {
            position.parts(self.subscriptions).any(|(subscription, part)| {
                let here = latest(part.source());
                let others: Vec<_> = previous.iter().filter_map(|(_, other)| other.as_deref()).collect();
                let here = here.as_deref();
                knows_alias_alone(there, here, subscription, part)
                    || subscription.is_full(self.variant)
                        && has_bytes_alone(there, &others, here, subscription, part)
            })
        };
        let needed = earlier.filter(|(_, there)| there.as_deref().is_some_and(is_needed));
        let needed: Vec<_> = needed.take(FORMER_MAX).cloned().collect();
        PreviousSources {
            snapshots: previous.into_iter().chain(needed).collect(),
            until: now + ORDER_WAIT_MAX * 2,
        }
    }

    /// The newest snapshots, one per source for all types, so that no type runs ahead of another.
    pub(super) fn served(&self, latest: Latest<'_>) -> Snapshots {
        self.serve(self.newest(latest))
    }

    /// As [`Serving::served`], from the sources' newest snapshots.
    pub(super) fn serve(&self, newest: Snapshots) -> Snapshots {
        match self.needs_stand_ins() {
            true => self.without_refused(self.with_stand_ins(newest, None)),
            false => newest,
        }
    }

    /// The sources' own snapshots.
    pub(super) fn newest(&self, latest: Latest<'_>) -> Snapshots {
        self.sources.iter().map(|source| (*source, latest(*source))).collect()
    }

    /// The snapshots of a round: the serving sources as of the start of the round, and what other servers
    /// supply in their place as of now, even if they serve other types. With older snapshots, a name that a
    /// higher server came to supply would be reported as gone (RLY-42).
    pub(super) fn served_in(&self, round: &Snapshots, latest: Latest<'_>) -> Snapshots {
        let parts = || self.subscriptions.iter().flat_map(|subscription| &subscription.parts);
        let of_round = |source| match parts().any(|part| part.source() == source) {
            true => snapshot_of(round, source),
            false => latest(source),
        };
        self.without_refused(self.with_stand_ins(self.newest(&of_round), Some(latest)))
    }

    /// `others`: the snapshots of servers that supply what the serving one lacks, if they differ from
    /// `snapshots`.
    fn with_stand_ins(&self, mut snapshots: Snapshots, others: Option<Latest<'_>>) -> Snapshots {
        for position in self.positions.iter().filter(|position| self.is_moving || position.needs_stand_ins())
        {
            for (subscription, part) in position.parts(self.subscriptions) {
                let type_url = &subscription.type_url;
                let here = snapshot_of(&snapshots, part.source());
                let taken = |id| snapshot_of(&snapshots, id);
                let others = others.unwrap_or(&taken);
                let stand_ins = position.stand_ins(subscription, part, &part.asked, here, others);
                let lasts = position.last_bytes(subscription, part, self.variant, &snapshots);
                let aliases = position.with_aliases(subscription, part, &snapshots);
                if stand_ins.is_empty() && lasts.is_empty() && aliases.is_empty() {
                    continue;
                }
                let here = snapshots.iter_mut().find(|(id, _)| *id == part.source());
                let Some((_, Some(here))) = here else { continue };
                if let Some(types) = Arc::make_mut(here).of_mut(type_url) {
                    let there = aliases.iter().filter_map(|snapshot| snapshot.of(type_url));
                    there.for_each(|there| types.add_aliases(&part.collection, there));
                    types.stand_in(&part.collection, stand_ins);
                    types.keep_last(part.kind(), lasts, u64::from(part.asked.serving()));
                }
            }
        }
        if self.is_returning {
            doubt(self.subscriptions, self.variant, &mut snapshots);
        }
        snapshots
    }

    fn without_refused(&self, snapshots: Snapshots) -> Snapshots {
        match self.kept {
            Some(kept) => without_refused(self.subscriptions, kept, snapshots),
            None => snapshots,
        }
    }

    /// Whether the session is served other content than its sources' here.
    pub(super) fn needs_stand_ins(&self) -> bool {
        self.is_returning
            || self.kept.is_some()
            || self.positions.iter().any(|position| self.is_moving || position.needs_stand_ins())
    }
}

/// Whether a resource that would stand in for an alias contradicts other content of the client. One resource
/// has one content, whatever its aliases: that of the serving server if it has the resource, or what is
/// stated for the resource's own name if the client asks for that, too. And the resource's list must not take
/// an alias back that leads elsewhere by now.
fn conflicts<'a>(
    resource: &Resource,
    types: &TypeSnapshot,
    here: &View,
    names: &NameSet,
    stated: &dyn Fn(&ResourceName) -> Option<&'a Arc<Resource>>,
) -> bool {
    let is_other = |by_name: &Arc<Resource>| by_name.version != resource.version;
    let leads_elsewhere = |alias: &ResourceName| {
        let there = types.names.aliases.get(alias);
        here.has(alias) && there.is_some_and(|there| *there.name() != resource.name)
    };
    types.names.has_own(&resource.name)
        || (names.contains(&resource.name) && stated(&resource.name).is_none_or(is_other))
        || resource.aliases.iter().any(leads_elsewhere)
}

/// Whether a snapshot has the resource that the client holds for an alias, and the source's own snapshot has
/// not.
fn knows_alias_alone(
    there: &Snapshot,
    here: Option<&Snapshot>,
    subscription: &Subscription,
    part: &Part,
) -> bool {
    let Some(there) = there.of(&subscription.type_url) else { return false };
    let here = here.and_then(|here| here.of(&subscription.type_url));
    there.names.aliases.iter().filter(|(alias, _)| part.collection.covers(alias)).any(|(alias, aliased)| {
        let is_known = |held| {
            here.is_some_and(|here| here.names.aliases.get(alias).is_some_and(|aliased| aliased.has(held)))
        };
        part.held.version_of(alias).is_some_and(|held| aliased.has(held) && !is_known(held))
    })
}

/// Whether a snapshot has bytes that the client holds, and that the source's own snapshot and the others
/// lack.
fn has_bytes_alone(
    there: &Snapshot,
    others: &[&Snapshot],
    here: Option<&Snapshot>,
    subscription: &Subscription,
    part: &Part,
) -> bool {
    let (type_url, kind) = (&subscription.type_url, part.kind());
    let Some(view) = here.and_then(|here| here.of(type_url)?.view(&part.collection)) else { return false };
    let has = |snapshot: &Snapshot, name: &ResourceName, held: Version| {
        let types = snapshot.of(type_url);
        let mut bodies =
            types.into_iter().flat_map(|types| [types.body(kind, name), types.departed(kind, name)]);
        bodies.any(|body| body.is_some_and(|body| body.version == held))
    };
    let mut held = part.held.beside(view);
    held.any(|(name, held)| {
        has(there, &name, held) && !others.iter().chain(&here).any(|other| has(other, &name, held))
    })
}

fn snapshot_of(snapshots: &Snapshots, source: SourceId) -> Option<Arc<Snapshot>> {
    let (_, snapshot) = snapshots.iter().find(|(id, _)| *id == source)?;
    snapshot.clone()
}

impl ListPosition {
    fn needs_stand_ins(&self) -> bool {
        self.fallback.serving() > 0 || self.previous.is_some()
    }

    /// Names that are lacking at a server other than the preferred server, with the resource of the nearest
    /// higher server that supplied the name (RLY-42).
    fn stand_ins(
        &self,
        subscription: &Subscription,
        part: &Part,
        asked: &Asked,
        here: Option<Arc<Snapshot>>,
        others: Latest<'_>,
    ) -> Vec<(ResourceName, Arc<Resource>)> {
        let type_url = &subscription.type_url;
        let serving = asked.serving();
        let is_deleting =
            self.list.deleting.checked_shr(u32::from(serving)).is_some_and(|bits| bits & 1 == 1);
        let Collection::Names(names) = &part.collection else { return Vec::new() };
        if serving == 0 || is_deleting {
            return Vec::new();
        }
        let Some(types) = here.as_ref().and_then(|here| here.of(type_url)) else { return Vec::new() };
        let Some(here) = types.view(&part.collection) else { return Vec::new() };
        // A name in the server's wildcard or glob is not lacking, although the server has not answered for
        // the name alone.
        let is_beside = |other: &&Part| {
            other.is_broad() && [other.source(), other.bound_for().source].contains(&asked.source)
        };
        let beside = subscription.parts.iter().filter(is_beside);
        let beside: Vec<_> = beside.filter_map(|other| types.view(&other.collection)).collect();
        let higher: Vec<_> = asked.others().rev().filter(|(server, _)| *server < serving).collect();
        let higher: Vec<_> = higher.into_iter().filter_map(|(_, source)| others(source)).collect();
        let stated = |name: &ResourceName| {
            higher.iter().find_map(|snapshot| snapshot.of(type_url)?.names.entries.get(name)?.resource())
        };
        let supplied = |name: &ResourceName| {
            let stand_in = stated(name).filter(|resource| {
                *name == resource.name || !conflicts(resource, types, here, names, &stated)
            });
            // The client has newer content by an alias. Older content would take the alias back (ALI-1).
            let stand_in = types.names.by_alias(name, |alias| here.has(alias)).or(stand_in);
            stand_in.map(|resource| (name.clone(), resource.clone()))
        };
        let unknown = names.iter().filter(|_| here.unknown_len() > 0);
        let unknown = unknown.filter(|name| !here.has(name) && !here.knows_absent(name));
        let lacking = here.absent_names().chain(unknown);
        lacking.filter(|name| !beside.iter().any(|view| view.has(name))).filter_map(supplied).collect()
    }

    /// The other servers with aliases of the type, which serve the session or served it until lately. Nearly
    /// always none.
    fn with_aliases(
        &self,
        subscription: &Subscription,
        part: &Part,
        snapshots: &Snapshots,
    ) -> Vec<Arc<Snapshot>> {
        let has_aliases = |snapshot: &Arc<Snapshot>| {
            snapshot.of(&subscription.type_url).is_some_and(|types| !types.names.aliases.is_empty())
        };
        let others = part.asked.others().filter_map(|(_, source)| snapshot_of(snapshots, source));
        let previous = self.previous.iter().flat_map(|previous| &previous.snapshots);
        others.chain(previous.filter_map(|(_, snapshot)| snapshot.clone())).filter(has_aliases).collect()
    }

    /// The number of names that are UNKNOWN at the serving server and have a stand-in.
    pub(super) fn unknown_stand_ins(
        &self,
        subscription: &Subscription,
        part: &Part,
        asked: &Asked,
        latest: Latest<'_>,
    ) -> usize {
        let type_url = &subscription.type_url;
        let here = latest(asked.source);
        let view = here.as_ref().and_then(|here| here.of(type_url)?.view(&part.collection));
        let Some(view) = view.filter(|view| view.unknown_len() > 0) else { return 0 };
        let stand_ins = self.stand_ins(subscription, part, asked, here.clone(), latest);
        stand_ins.iter().filter(|(name, _)| !view.knows_absent(name)).count()
    }

    /// Last bytes for a client with complete sets: resources that the client holds and that only another
    /// server has, or had: the former one, or one that stood in. The client keeps them until its routes have
    /// moved (RLY-51).
    fn last_bytes(
        &self,
        subscription: &Subscription,
        part: &Part,
        variant: Variant,
        snapshots: &Snapshots,
    ) -> Vec<(ResourceName, LastVersion)> {
        if !subscription.is_full(variant) {
            return Vec::new();
        }
        let type_url = &subscription.type_url;
        let here = snapshot_of(snapshots, part.source());
        let Some(view) = here.as_ref().and_then(|here| here.of(type_url)?.view(&part.collection)) else {
            return Vec::new();
        };
        let held = || part.held.beside(view);
        if held().next().is_none() {
            return Vec::new();
        }
        let kind = part.kind();
        let previous = self.previous.iter().flat_map(|previous| &previous.snapshots);
        let previous: Vec<_> = previous.filter_map(|(_, snapshot)| snapshot.clone()).collect();
        let serving = part.asked.serving();
        let higher = part.asked.others().filter(|(server, _)| *server < serving);
        let higher: Vec<_> = higher.filter_map(|(_, source)| snapshot_of(snapshots, source)).collect();
        // A removal that rested at the other server rests here, too.
        let bytes = |name: &ResourceName, held: Version| {
            let last =
                |resource: &Arc<Resource>, is_open| LastVersion { resource: resource.clone(), is_open };
            let departed = |types: &TypeSnapshot| {
                types.departed_as(kind, name, || Some(held)).map(|resource| last(resource, false))
            };
            // A push may be halted since.
            let body = |types: &TypeSnapshot, push: Option<u64>| {
                types.body(kind, name).map(|resource| last(resource, push.is_none()))
            };
            let of_former = previous.iter().filter_map(|snapshot| {
                let types = snapshot.of(type_url)?;
                Some([body(types, snapshot.lane().push), departed(types)])
            });
            let of_higher = higher.iter().filter_map(|snapshot| Some(departed(snapshot.of(type_url)?)));
            let all: Vec<_> = of_former.flatten().chain(of_higher).flatten().collect();
            let exact = all.iter().find(|last| last.resource.version == held);
            exact.or(all.first()).cloned()
        };
        held().filter_map(|(name, held)| bytes(&name, held).map(|body| (name, body))).collect()
    }
}
