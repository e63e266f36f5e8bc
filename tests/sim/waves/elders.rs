//! The contents that the plan refuses, and first answers of a unit whose clients come from the other server of the list (WAV-22): the work
//! of the driver, and the model.

use sluice_engine::lanes::Elder;
use sluice_fleet::evidence::Content;
use sluice_fleet::rollout::{Refused, RolloutState, UnitId};

use super::reference::Contents;
use super::world::World;
use crate::words::version;

/// The content for all clients of the other server, for the model, and the contents that the plan refuses.
pub struct ElderContents<'a> {
    pub of: &'a Contents,
    pub refuses: &'a dyn Fn(usize, usize, u32) -> bool,
}

impl ElderContents<'_> {
    /// The content that is given in the place of a refused one.
    pub fn instead(&self, (ty, name): (usize, usize), new: u32, is_member: bool) -> Option<u32> {
        if new == 0 || !(self.refuses)(ty, name, new) {
            return None;
        }
        let (names, members) = (&self.of.names, self.of.members[ty]);
        let member = members.map(|members| members[name]);
        let by_name = names.get(&(ty, name)).copied();
        let own = member.filter(|_| is_member).or(by_name).or(member.filter(|of| *of != 0))?;
        (own != new && !(own != 0 && (self.refuses)(ty, name, own))).then_some(own)
    }
}

impl World {
    /// The other unit of the list.
    fn sibling(&self, unit: usize) -> Option<usize> {
        let lists = self.plan.lists;
        (self.plan.siblings && self.plan.servers > 1)
            .then(|| if unit < lists { unit + lists } else { unit - lists })
    }

    /// The content of the other unit for the first answers of this one.
    pub fn elder(&self, unit: usize) -> Option<Elder> {
        let content = self.units[self.sibling(unit)?].published.stable().clone();
        let gated = &self.pilot.plan.gated;
        let has_content = content.types().any(|(type_url, _)| gated.contains(type_url));
        has_content.then_some(Elder { content, holds_all: false })
    }

    /// The same, for the model. A unit that nobody has asked for anything gated is no elder.
    pub fn elder_contents(&self, unit: usize) -> Option<Contents> {
        self.elder(unit)?;
        Some(self.reference.units[self.sibling(unit)?].stable().clone())
    }

    /// Whether the plan refuses a content of a list.
    pub fn is_refused(&self, list: usize, (ty, name): (usize, usize), content: u32) -> bool {
        let version = version(ty, name, list, content);
        let name = self.words.names[ty][name].clone();
        self.pilot.refused.contains(&(self.words.types[ty].clone(), name, version))
    }

    /// The units come to know what the plan refuses: the condemned contents, and those of the push that stands halted.
    pub fn refuse(&mut self) {
        let halted = self.pilot.rollout.under_way().filter(|push| push.state == RolloutState::Halted);
        let stable =
            |unit: UnitId| self.unit_of(unit).map(|unit| self.units[unit].published.stable().clone());
        let set = halted.map(|push| self.pilot.known.changes(&self.pilot.plan, &push.units, &stable).0);
        let types = set.iter().flat_map(|set| set.units()).flat_map(|unit| &unit.types);
        let halted = types.flat_map(|of| {
            of.names().filter_map(|name| Some((of.type_url.clone(), name.name.clone(), name.version()?)))
        });
        let condemned = self.pilot.rejecters.condemned().latest_first().map(|(_, content)| content.clone());
        let refused = Refused::of(condemned.chain(halted).collect::<Vec<Content>>().into_iter());
        self.units.iter_mut().for_each(|unit| unit.lanes.refuse(&refused));
        self.pilot.refused = refused;
    }
}
