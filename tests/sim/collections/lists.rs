//! The server lists of these worlds. Where a list has two servers, sessions move between the two (A71).

use sluice_engine::authority::{Authorities, Authority, NameGroup};
use sluice_engine::cache::SessionId;
use sluice_engine::collection::Collection;
use sluice_engine::downstream::{List, ListId, Router, SourceId, Watch};
use sluice_engine::fallback;
use sluice_xds::{ResourceName, Status, TypeUrl};

use super::names::server_of;
use super::relay::StreamSlot;
use super::{Collections, Job};
use crate::world::Invariant;

/// The number of lists. The source of a list's second server follows those of all first servers.
pub const LISTS: usize = 2;

pub struct Routes<'a> {
    authorities: &'a Authorities,
    has_choice: bool,
}

fn list_of(group: NameGroup) -> u64 {
    u64::from(group.authority != Authority::None)
}

impl Router for Routes<'_> {
    fn group_of(&self, _: &TypeUrl, name: Option<&ResourceName>) -> NameGroup {
        name.map_or(Authority::None, |name| self.authorities.authority_of(name)).shared()
    }

    fn source(&mut self, _: &TypeUrl, group: NameGroup, server: u16) -> Result<SourceId, Status> {
        Ok(SourceId(list_of(group) + LISTS as u64 * u64::from(server)))
    }

    fn legacy_wildcard(&self, _: &TypeUrl) -> Result<bool, Status> {
        Ok(true)
    }

    fn list(&self, _: &TypeUrl, group: NameGroup) -> ListId {
        ListId(list_of(group))
    }

    fn fallback(&self, id: ListId) -> Option<List> {
        let settings = fallback::FallbackSettings::default();
        self.has_choice.then_some(List { id, servers: 2, by_type: false, settings, deleting: 0 })
    }

    fn position_of(&self, list: ListId, source: SourceId) -> Option<u16> {
        let (server, of) = (source.0 / LISTS as u64, source.0 % LISTS as u64);
        (of == list.0).then_some(server as u16)
    }
}

impl Collections {
    pub fn routes(&self) -> Routes<'_> {
        Routes { authorities: &self.authorities, has_choice: self.has_choice() }
    }

    pub fn has_choice(&self) -> bool {
        self.slots.len() > LISTS
    }

    /// The sources that may supply a name.
    pub fn slots_of(&self, listed: usize) -> impl Iterator<Item = usize> + use<> {
        (server_of(listed)..self.slots.len()).step_by(LISTS)
    }

    pub fn queue_watches(&mut self, id: u64, stream: &mut StreamSlot, watches: Vec<Watch>) {
        for watch in watches {
            stream.watches.push_back(watch);
            self.after(0, Job::Watch(id));
        }
    }

    pub fn tell_source(&mut self, id: u64) {
        let Some(mut stream) = self.streams.get_mut(id as usize).and_then(Option::take) else { return };
        if let Some(watch) = stream.watches.pop_front() {
            self.pass_on(id, &mut stream, watch);
        }
        if stream.watches.is_empty() {
            self.leave_unused(id, &mut stream);
        }
        self.streams[id as usize] = Some(stream);
        self.wake(id);
    }

    fn pass_on(&mut self, id: u64, stream: &mut StreamSlot, watch: Watch) {
        let time = self.time();
        let slot = match watch {
            Watch::Watch { source, type_url, collection, previous } => {
                let slot = source.0 as usize;
                if matches!(collection, Collection::Wildcard) {
                    self.fail(Invariant::Isolation, || "nobody asked for a wildcard".to_owned());
                }
                stream.told.insert(slot);
                self.slots[slot].source.watch_after(
                    SessionId(id),
                    &type_url,
                    &collection,
                    previous.as_deref(),
                    time,
                );
                slot
            }
            Watch::Unwatch { source, type_url, key } => {
                let slot = source.0 as usize;
                self.slots[slot].source.unwatch(SessionId(id), &type_url, key, time);
                slot
            }
        };
        self.drain(slot);
    }

    /// Moves a session between the servers of its lists, if due.
    pub fn follow_servers(&mut self, id: u64, stream: &mut StreamSlot) {
        if !self.has_choice() {
            return;
        }
        let (slots, time) = (&self.slots, self.time());
        let latest = |id: SourceId| slots.get(id.0 as usize).map(|slot| slot.snapshot.clone());
        let look = stream.session.look(&latest, time);
        stream.looks_at = look.look_at;
        if !look.is_due {
            return;
        }
        let routes = &mut self.routes();
        let shift = stream.session.shift(&latest, routes, time);
        if shift.refused.is_some() {
            return self.fail(Invariant::Hygiene, || "a shift was refused".to_owned());
        }
        stream.looks_at = stream.session.look(&latest, time).look_at;
        stream.is_shifting = !shift.is_settled;
        self.tell(|| format!("client {} moves between servers", stream.client));
        self.note(25, id, shift.moves.len() as u64);
        self.queue_watches(id, stream, shift.watches);
        if stream.watches.is_empty() {
            self.leave_unused(id, stream);
        }
    }

    /// Releases sources that the session no longer uses, after all sources have the update.
    fn leave_unused(&mut self, id: u64, stream: &mut StreamSlot) {
        let dismisses = std::mem::take(&mut stream.is_shifting);
        let unused: Vec<_> = stream.told.iter().copied().collect();
        for slot in unused.into_iter().filter(|slot| !stream.session.uses(SourceId(*slot as u64))) {
            let (time, source) = (self.time(), &mut self.slots[slot].source);
            match dismisses {
                true => source.dismiss(SessionId(id), time),
                false => source.forget(SessionId(id), time),
            }
            stream.told.remove(&slot);
            self.drain(slot);
        }
    }

    /// I9: once all servers have been reachable for long enough, the first server of each list serves alone.
    pub fn judge_return(&mut self) {
        for id in 0..self.streams.len() {
            let Some(stream) = &self.streams[id] else { continue };
            let lower = (LISTS..self.slots.len()).find(|slot| stream.session.uses(SourceId(*slot as u64)));
            if let Some(slot) = lower {
                let client = stream.client;
                self.fail(Invariant::Revert, || format!("client {client} still uses slot {slot}"));
            }
        }
    }
}
