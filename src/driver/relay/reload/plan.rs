//! The effects of a configuration, before it is in force (REL-7).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::driver::api::reload::{MovedInPlan, NAMES_LISTED, NamesGone, ReloadPlan, ReloadRefusal};
use crate::driver::ground::context::{DriverContext, DriverSettings};
use crate::driver::ground::servers::Place;
use crate::driver::ground::source_key::{Owner, SourceKey};
use crate::driver::relay::reload::loosened::{ClientMoves, plans_loosened};
use crate::driver::rollout::table::Rollouts;
use crate::driver::source::handle::SourceHandle;
use crate::driver::source::table::Sources;
use crate::driver::stream::destination::{Destination, PartDestination};
use crate::driver::stream::state::{StreamState, Tables};
use sluice_engine::cache::Known;
use sluice_engine::collection::Collection;
use sluice_engine::downstream::{Part, SourceId};
use sluice_engine::snapshot::TypeSnapshot;
use sluice_xds::{ResourceName, TypeUrl};

/// Finds the effects of a configuration, and changes nothing. Locks one stream at a time.
pub fn plan(
    shared: &DriverContext,
    tables: &Tables,
    rollouts: &Rollouts,
    settings: &DriverSettings,
) -> ReloadPlan {
    let has_other_classes = shared.settings().classes != settings.classes;
    let mut draft = Draft { has_other_classes, ..Draft::new(settings, &tables.sources) };
    let mut last = None;
    while let Some(stream) = tables.streams.next(last) {
        last = Some(stream.number());
        draft.add(&stream);
    }
    let statuses = rollouts.all(shared, tables);
    let clients = ClientMoves {
        in_force: &shared.settings(),
        settings,
        may_lose_clients: &|source| draft.may_lose_clients(source),
    };
    let plans_loosened = plans_loosened(shared, tables, &statuses, &clients);
    ReloadPlan { plans_loosened, ..draft.plan() }
}

/// The facts of all streams so far.
struct Draft<'a> {
    settings: &'a DriverSettings,
    sources: &'a Sources,
    has_other_classes: bool,
    plan: ReloadPlan,
    /// The sources that streams use now, and those that they will use.
    used: HashSet<SourceId>,
    needed: HashSet<SourceKey>,
    /// The sources that some stream moves away from.
    moved_from: HashSet<SourceId>,
    /// The new classes at a place: all, or those for Secrets.
    classes: HashMap<(Place, bool), usize>,
    gone: BTreeMap<TypeUrl, BTreeSet<ResourceName>>,
    /// By plan: the sessions that move and have other content by steps, and at once.
    moved_in_plans: BTreeMap<Box<str>, (usize, usize)>,
}

impl<'a> Draft<'a> {
    fn new(settings: &'a DriverSettings, sources: &'a Sources) -> Draft<'a> {
        Draft {
            settings,
            sources,
            has_other_classes: false,
            plan: ReloadPlan::default(),
            used: HashSet::new(),
            needed: HashSet::new(),
            moved_from: HashSet::new(),
            classes: HashMap::new(),
            gone: BTreeMap::new(),
            moved_in_plans: BTreeMap::new(),
        }
    }

    fn add(&mut self, stream: &StreamState) {
        let (mut moves, mut is_undecided, mut covered) = (false, false, BTreeMap::new());
        stream.each_destination(self.settings, |part| {
            self.used.insert(part.source.id());
            // A type without room looks for room by itself.
            if part.source.key().place == Place::REFUSED {
                return;
            }
            let Ok(to) = &part.to else { return };
            let key = to.key();
            let next = self.sources.find(&key);
            if part.moves() {
                moves = true;
                self.note_plan(part.source, to, &mut covered);
                self.moved_from.insert(part.source.id());
                is_undecided |= !self.note_gone(&part, next.as_deref());
            }
            self.need(key, to, next.is_some());
        });
        self.plan.sessions += 1;
        self.plan.sessions_moved += usize::from(moves);
        self.plan.sessions_undecided += usize::from(is_undecided);
        for (plan, goes_by_steps) in covered {
            let (by_steps, at_once) = self.moved_in_plans.entry(plan).or_default();
            *(if goes_by_steps { by_steps } else { at_once }) += 1;
        }
    }

    /// Notes how an enforcing plan of a source treats the content of the source that a stream moves to.
    /// `covered`: by plan, whether all of its parts go by steps.
    fn note_plan(&self, source: &SourceHandle, to: &Destination<'_>, covered: &mut BTreeMap<Box<str>, bool>) {
        let Some(plan) = source.judge().map(|plan| plan.plan()).filter(|plan| plan.enforces()) else {
            return;
        };
        let (key, list) = (to.key(), &to.listed.list.label);
        let next = self.settings.rollouts.iter().find(|next| next.units.matches(list, &key.class.node));
        let is_same_class = key.class == source.key().class && *source.status().list == **list;
        let goes_by_steps =
            is_same_class && next.is_some_and(|next| next.name == plan.name && next.enforces());
        *covered.entry(plan.name.clone()).or_insert(true) &= goes_by_steps;
    }

    fn need(&mut self, key: SourceKey, to: &Destination<'_>, is_open: bool) {
        let (place, is_class) = (key.place, key.owner == Owner::Everyone && !to.listed.server().is_local());
        if !self.needed.insert(key) || is_open || to.listed.server().is_made_up() {
            return;
        }
        self.plan.sources_opened += 1;
        self.plan.upstream_streams_opened += usize::from(!to.listed.server().is_local());
        if is_class {
            *self.classes.entry((place, to.is_for_secrets)).or_default() += 1;
        }
    }

    /// Notes the names that the client has and that its new source knows to be absent. False if the new
    /// source does not know everything yet.
    fn note_gone(&mut self, part: &PartDestination<'_>, source: Option<&SourceHandle>) -> bool {
        let is_nobody = part.to.as_ref().is_ok_and(|to| to.listed.place() == Place::NOBODY);
        let (snapshot, gone) = (source.map(SourceHandle::snapshot), self.gone.entry(part.type_url.clone()));
        let gone = gone.or_default();
        let types = snapshot.as_ref().and_then(|snapshot| snapshot.of(part.type_url));
        let mut is_decided = true;
        let goes = |name: &&ResourceName| part.names.as_ref().is_none_or(|names| names.contains(*name));
        for name in part.part.held.names().filter(goes) {
            match types.map_or(Fate::Unknown, |types| fate(part.part, types, name)) {
                _ if is_nobody => drop(gone.insert(name.clone())),
                Fate::Gone => drop(gone.insert(name.clone())),
                Fate::Unknown => is_decided = false,
                Fate::Stays => {}
            }
        }
        is_decided
    }

    /// Whether all streams of a source leave it.
    fn is_left(&self, source: &SourceHandle) -> bool {
        self.used.contains(&source.id()) && !self.needed.contains(source.key())
    }

    /// Whether clients of a source may come to another source. Clients of a class that sleeps may come back
    /// as another class.
    fn may_lose_clients(&self, source: &SourceHandle) -> bool {
        let is_asleep = !self.used.contains(&source.id());
        match is_asleep {
            true => self.has_other_classes,
            false => self.moved_from.contains(&source.id()),
        }
    }

    fn plan(mut self) -> ReloadPlan {
        for source in self.sources.all() {
            let (server, key) = (source.server(0), source.key());
            if server.is_made_up() {
                continue;
            }
            let is_left = self.is_left(&source);
            let is_removed = self.settings.lists.find(key.place).is_none();
            let (streams, closed) = (usize::from(!server.is_local()), usize::from(is_left || is_removed));
            self.plan.sources += 1;
            self.plan.sources_closed += closed;
            self.plan.upstream_streams += streams;
            self.plan.upstream_streams_closed += streams * closed;
        }
        let gone = self.gone.into_iter().filter(|(_, names)| !names.is_empty());
        self.plan.names_gone = gone
            .map(|(type_url, names)| NamesGone {
                type_url,
                count: names.len(),
                names: names.into_iter().take(NAMES_LISTED).collect(),
            })
            .collect();
        let moved = self.moved_in_plans.into_iter();
        self.plan.moved_in_plans =
            moved.map(|(plan, (by_steps, at_once))| MovedInPlan { plan, by_steps, at_once }).collect();
        self.plan.refused = refusal(&self.classes, self.settings, self.sources);
        self.plan
    }
}

enum Fate {
    Stays,
    Gone,
    Unknown,
}

/// The state of a client's name at its new source.
fn fate(part: &Part, types: &TypeSnapshot, name: &ResourceName) -> Fate {
    let (has, is_gone) = match &part.collection {
        Collection::Wildcard => {
            let is_whole = types.wildcard.is_whole();
            let has = types.wildcard.members.get(name).is_some();
            (has, is_whole && !has)
        }
        Collection::Globs(_) => {
            let view = types.view(&part.collection);
            let has = types.globs.members.get(name).is_some();
            (has, view.is_some_and(|view| view.is_complete()) && !has)
        }
        Collection::Names(_) => {
            let entry = types.names.entries.get(name);
            let has = entry.is_some_and(|entry| entry.resource().is_some());
            (has, entry.is_some_and(|entry| matches!(entry, Known::Absent(_))))
        }
    };
    match (has, is_gone) {
        (true, _) => Fate::Stays,
        (false, true) => Fate::Gone,
        (false, false) => Fate::Unknown,
    }
}

/// REL-6: during the moves the old and the new classes of a server exist together.
fn refusal(
    classes: &HashMap<(Place, bool), usize>,
    settings: &DriverSettings,
    sources: &Sources,
) -> Option<ReloadRefusal> {
    let limits = &settings.limits;
    let over = classes.iter().filter_map(|((place, for_secrets), opened)| {
        let (max, key) = match for_secrets {
            true => (limits.secret_classes, "limits.secret_classes"),
            false => (limits.node_classes, "limits.node_classes"),
        };
        let used = sources.used_classes(*place, *for_secrets);
        (used + opened > max).then_some((key, used, *opened, max, *place))
    });
    let (key, used, opened, max, place) = over.max_by_key(|(_, used, opened, ..)| used + opened)?;
    let uri = settings.lists.find(place).map(|listed| listed.server().uri.clone()).unwrap_or_default();
    let text = format!(
        "clients would need {opened} new node classes at {uri}, beside {used} in use until all clients have moved; \
            {key} is {max}"
    );
    Some(ReloadRefusal { key, text })
}
