//! Lists of two servers: the work of the driver around a session that moves between them (WAV-18), control planes that agree, and
//! the judge of the moves.

use std::borrow::Cow;

use sluice_engine::authority::{Authority, NameGroup};
use sluice_engine::cache::SessionId;
use sluice_engine::downstream::{List, ListId, Router, SourceId};
use sluice_engine::fallback::FallbackSettings;
use sluice_fleet::rollout::UnitId;
use sluice_xds::{ResourceName, Status, TypeUrl};

use super::client::Want;
use super::content::table;
use super::reference::{Contents, Releases};
use super::relay::Stream;
use super::world::{Job, World};
use crate::control_plane::Reachable;
use crate::schedule::SECOND;
use crate::words::{CDS, EDS, LDS, Mask, OLD, RDS};
use crate::world::Invariant;

/// The latest statement of a second server, after the same statement of the first.
const MIRROR_WITHIN: u64 = 2 * SECOND;

/// The release of the server that served before stands in for the next one so long.
const STAND_IN: u64 = 60 * SECOND;

/// A client that lacks something at a lost server, and whose list has a server in order, moves within this time: the server is tried
/// again after 4 s at the latest, has 15 s to supply everything (RLY-41), and a client that has moved often waits for 30 s (FU25).
const MOVES_WITHIN: u64 = 60 * SECOND;

/// The destinations of a client's subscriptions.
pub struct Route {
    list: usize,
    /// One for each server of the list.
    sources: Vec<SourceId>,
    settings: FallbackSettings,
}

impl Router for Route {
    fn group_of(&self, _: &TypeUrl, _: Option<&ResourceName>) -> NameGroup {
        Authority::None.shared()
    }

    fn source(&mut self, _: &TypeUrl, _: NameGroup, server: u16) -> Result<SourceId, Status> {
        Ok(self.sources[usize::from(server)])
    }

    fn legacy_wildcard(&self, _: &TypeUrl) -> Result<bool, Status> {
        Ok(true)
    }

    fn list(&self, _: &TypeUrl, _: NameGroup) -> ListId {
        ListId(self.list as u64)
    }

    fn fallback(&self, id: ListId) -> Option<List> {
        let servers = u16::try_from(self.sources.len()).unwrap_or(u16::MAX);
        let settings = self.settings.clone();
        (servers > 1).then_some(List { id, servers, by_type: false, settings, deleting: 0 })
    }

    fn position_of(&self, _: ListId, source: SourceId) -> Option<u16> {
        let at = self.sources.iter().position(|known| *known == source);
        at.and_then(|at| u16::try_from(at).ok())
    }
}

impl World {
    pub fn route(&self, client: usize) -> Route {
        let list = self.clients[client].plan.list;
        let units = (0..self.plan.servers).map(|server| list + server * self.plan.lists);
        let on_reachability_only = self.plan.on_reachability_only;
        Route {
            list,
            sources: units.map(|unit| SourceId(self.id_of(unit))).collect(),
            settings: FallbackSettings { on_reachability_only, ..FallbackSettings::default() },
        }
    }

    /// The units that know of a stream.
    pub fn units_told(&self, stream: &Stream) -> Vec<usize> {
        stream.told.iter().filter_map(|id| self.unit_of(UnitId(id.0))).collect()
    }

    /// The unit that serves a client.
    pub fn unit_for(&self, client: usize) -> usize {
        let of = &self.clients[client];
        let stream = of.stream.and_then(|id| self.streams[id as usize].as_ref());
        stream.map_or(of.plan.list, |stream| stream.unit)
    }

    // === moves ===

    /// Begins a move to another server of the list, if one is due.
    pub fn follow_servers_of(&mut self, stream: &mut Stream) {
        if self.plan.servers == 1 {
            return;
        }
        let latest = |id| self.served(stream.client, (stream.push, &stream.found), id);
        let look = stream.session.look(&latest, self.time());
        stream.looks_at = look.look_at.map(|at| self.relative(at).max(self.now));
        if look.is_due {
            // The shift ends with a look of its own.
            stream.looks_at = None;
            if !std::mem::replace(&mut stream.is_shifting, true) {
                let delay = self.rng.below(500);
                self.after(delay, Job::Shift(stream.id));
            }
        }
    }

    pub fn shift(&mut self, id: u64) {
        let Some(mut stream) = self.streams.get_mut(id as usize).and_then(Option::take) else { return };
        stream.is_shifting = false;
        let time = self.time();
        let mut route = self.route(stream.client);
        let (client, push) = (stream.client, stream.push);
        let latest = |id| self.served(client, (push, &std::cell::Cell::new(None)), id);
        let shift = stream.session.shift(&latest, &mut route, time);
        if shift.refused.is_some() {
            self.fail(Invariant::Hygiene, || "a move to another server was refused".to_owned());
        }
        self.note(25, id, shift.moves.len() as u64);
        if !shift.moves.is_empty() {
            stream.push = None;
        }
        let served_by = stream.session.served_by().next();
        if let Some((_, server)) = served_by {
            self.note_server(&mut stream, usize::from(server));
        }
        for watch in shift.watches {
            self.pass_on(&mut stream, watch, time);
        }
        let units = self.units_told(&stream);
        for unit in &units {
            let source = SourceId(self.id_of(*unit));
            if !stream.session.uses(source) {
                stream.told.remove(&source);
                let this = &mut self.units[*unit];
                this.wakes.asked();
                this.source.dismiss(SessionId(id), time);
            }
        }
        self.streams[id as usize] = Some(stream);
        units.into_iter().for_each(|unit| self.drain(unit));
        self.wake(id);
    }

    /// Another server serves the stream.
    fn note_server(&mut self, stream: &mut Stream, server: usize) {
        let unit = self.plan.list_of(stream.unit) + server * self.plan.lists;
        if unit == stream.unit {
            return;
        }
        self.tell(|| format!("stream {} moves from unit {} to {unit}", stream.id, stream.unit));
        let (_, former) = self.release_for(stream.place(), stream.of.push);
        stream.of.former = Some((former.into_owned(), self.now + STAND_IN));
        stream.unit = unit;
        // The client has what this server serves, and nothing of a push of the other.
        (stream.of.push, stream.of.equal, stream.of.retold) = (None, None, None);
        stream.of.awaited.begin_again();
        self.reference.push.rejected_of.remove(&stream.id);
    }

    /// The releases that serve a stream with content of a push, and for which names: those of its server, and for the single names that
    /// its server `lacks` those of the one before in the list.
    pub fn releases_with(
        &self,
        unit: usize,
        (want, lacks): (Want, Mask),
        push: u64,
    ) -> impl Iterator<Item = (Want, &Releases)> {
        let stand_ins = Want { wildcard: false, names: want.names & lacks };
        let higher = unit.checked_sub(self.plan.lists).map(|higher| (stand_ins, higher));
        let units = [Some((want, unit)), higher].into_iter().flatten();
        let releases = units.map(|(want, unit)| (want, &self.reference.units[unit]));
        releases.filter(move |(_, of)| of.candidate.as_ref().is_some_and(|(number, _)| *number == push))
    }

    // === control planes ===

    /// The unit whose server states something new when this one should.
    pub fn stating(&self, unit: usize) -> usize {
        if self.plan.mirrors { self.plan.list_of(unit) } else { unit }
    }

    pub fn mirror_soon(&mut self, unit: usize) {
        if self.plan.mirrors && unit < self.plan.lists {
            let delay = self.rng.below(MIRROR_WITHIN);
            self.after(delay, Job::Mirror(unit));
        }
    }

    pub fn mirror(&mut self, list: usize) {
        let second = list + self.plan.lists;
        let before = table(&self.servers[second].truth[0]);
        self.servers[second].truth = self.servers[list].truth.clone();
        self.state(second, &before);
    }

    // === the judge ===

    /// What a client may be sent, and the push of it: of its server, and in the place of missing names of the server before in the list.
    /// `had`: the push that the client has content of.
    pub fn release_for(
        &self,
        (client, unit): (usize, usize),
        had: Option<u64>,
    ) -> (Option<u64>, Cow<'_, Contents>) {
        let (push, release) = self.release_at((client, unit), had);
        let Some(first) = unit.checked_sub(self.plan.lists) else { return (push, Cow::Borrowed(release)) };
        let (higher, there) = self.release_at((client, first), had);
        (push.or(higher), Cow::Owned(release.with_stand_ins(there)))
    }

    /// Whether the server that served before stands in with this content.
    pub fn stands_in(&self, stream: &Stream, ty: usize, (name, content): (usize, u32)) -> bool {
        let former = stream.of.former.as_ref().filter(|(_, until)| self.now < *until);
        former.is_some_and(|(former, _)| former.for_want(ty, name, stream.of.wants[ty]) == Some(content))
    }

    /// Whether the server that served before had changed a cluster when the client left it, and the client was not sent the change. A
    /// complete set cannot keep the cluster: nobody may be given content of a push for it, and the client's own bytes are gone.
    pub fn has_other_bytes(&self, stream: &Stream, cluster: usize) -> bool {
        let former = stream.of.former.as_ref().filter(|(_, until)| self.now < *until);
        let had = former.map(|(former, _)| former.for_want(CDS, cluster, stream.of.wants[CDS]));
        had.is_some_and(|had| had != Some(stream.of.sent[CDS][cluster]))
    }

    /// No hold and no push keeps a client at a lost server that lacks something, if the list has another one.
    pub fn judge_stranded(&mut self, stream: &mut Stream, next: u64) {
        let other =
            self.plan.list_of(stream.unit) + self.plan.lists * usize::from(stream.unit < self.plan.lists);
        let is_stranded = self.plan.servers > 1
            && self.servers[stream.unit].reachable != Reachable::Yes
            && self.servers[other].reachable == Reachable::Yes
            && self.lacks(stream);
        let since = stream.of.stranded.unwrap_or(self.now);
        stream.of.stranded = is_stranded.then_some(since);
        if is_stranded && next > since + MOVES_WITHIN {
            let text = format!("client {} stays at the lost server {}", stream.client, stream.unit);
            self.fail(Invariant::Newcomers, || text);
        }
    }

    /// Whether the release of a client does not know all that the client asks for.
    fn lacks(&self, stream: &Stream) -> bool {
        let (_, release) = self.release_for(stream.place(), stream.of.push);
        [CDS, EDS, LDS, RDS].into_iter().any(|ty| {
            let want = stream.of.wants[ty];
            let mut asked = (0..OLD).filter(|name| want.names & 1 << name != 0);
            want.wildcard && release.members[ty].is_none()
                || asked.any(|name| release.for_want(ty, name, want).is_none())
        })
    }
}
