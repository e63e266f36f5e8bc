//! The snapshots that a source serves: its own content, and the lanes of a push that goes by steps (WAV-2).

use std::sync::Arc;

use super::release::Restated;
use crate::snapshot::{LaneMark, Snapshot};
use sluice_xds::TypeUrl;

/// The snapshots that a source serves. All are of one moment: whichever of them a session takes, it takes one
/// release.
#[derive(Clone, Debug, Default)]
pub struct Published {
    pub live: Arc<Snapshot>,
    /// `None` without a plan, and while nothing is held and nobody waits.
    pub lanes: Option<Box<PublishedLanes>>,
    /// The latest push that went back, or that was halted while clients keep it. A client with a rejection of
    /// the push is restated all of its names (WAV-10).
    pub restated: Option<Arc<Restated>>,
}

#[derive(Clone, Debug, Default)]
pub struct PublishedLanes {
    /// The push under way, and its content.
    pub candidate: Option<(u64, Arc<Snapshot>)>,
    /// The content that everybody may have.
    pub stable: Arc<Snapshot>,
    /// The content for clients while the source has no stable content (LDG-3).
    pub waiting: Option<Waiting>,
}

/// The content of a source whose clients wait for a push that is under way elsewhere.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The push elsewhere, and the source's content for the clients that it has admitted.
    pub candidate: Option<(u64, Arc<Snapshot>)>,
    /// Without the types that wait.
    pub stable: Arc<Snapshot>,
    /// Lanes hold something back, too. Else `stable` of the lanes is the source's own content.
    pub is_beside_lanes: bool,
}

impl PublishedLanes {
    /// The candidate and the stable content as clients are given them.
    pub fn of_clients(&self) -> (&Option<(u64, Arc<Snapshot>)>, &Arc<Snapshot>) {
        match &self.waiting {
            None => (&self.candidate, &self.stable),
            Some(waiting) => (&waiting.candidate, &waiting.stable),
        }
    }
}

/// The releases while clients wait: they are none of the lanes' own.
const WAITING: u64 = u64::MAX;

impl Published {
    /// The content of a source without lanes.
    pub fn without_lanes(live: Arc<Snapshot>) -> Published {
        Published { live, ..Published::default() }
    }

    /// The content that all clients may have.
    pub fn stable(&self) -> &Arc<Snapshot> {
        self.held().unwrap_or(&self.live)
    }

    /// The same while something is held.
    pub fn held(&self) -> Option<&Arc<Snapshot>> {
        self.lanes_that_hold().map(|lanes| &lanes.stable)
    }

    /// The lanes while something is held. The content of a wait is no hold.
    pub fn lanes_that_hold(&self) -> Option<&PublishedLanes> {
        let is_held =
            |lanes: &&PublishedLanes| lanes.waiting.as_ref().is_none_or(|waiting| waiting.is_beside_lanes);
        self.lanes.as_deref().filter(is_held)
    }

    pub fn has_waiting(&self) -> bool {
        self.lanes.as_ref().is_some_and(|lanes| lanes.waiting.is_some())
    }

    /// Clients wait for these types. `admitted`: the push elsewhere that gives some of them the content.
    pub fn wait_for(self, is_waiting: impl Fn(&TypeUrl) -> bool, admitted: Option<u64>) -> Published {
        let Published { live, lanes, restated } = self;
        let is_beside_lanes = lanes.is_some();
        let lanes = lanes.map_or_else(
            || PublishedLanes { stable: live.clone(), ..PublishedLanes::default() },
            |lanes| *lanes,
        );
        let release_of = |snapshot: &Snapshot, is_given: &dyn Fn(&TypeUrl) -> bool, push: Option<u64>| {
            let types = snapshot.types().filter(|(type_url, _)| is_given(type_url));
            let types = types.map(|(type_url, content)| (type_url.clone(), content.clone())).collect();
            let release = WAITING - u64::from(push.is_some());
            Arc::new(snapshot.with_types(types, LaneMark { release, push }))
        };
        let candidate = match &lanes.candidate {
            None => admitted
                .filter(|_| !is_beside_lanes)
                .map(|push| (push, release_of(&live, &|_| true, Some(push)))),
            candidate => candidate.clone(),
        };
        let stable = release_of(&lanes.stable, &|type_url| !is_waiting(type_url), None);
        let waiting = Some(Waiting { candidate, stable, is_beside_lanes });
        Published { live, lanes: Some(Box::new(PublishedLanes { waiting, ..lanes })), restated }
    }

    /// All snapshots that some client may be served.
    pub fn snapshots(&self) -> impl Iterator<Item = &Arc<Snapshot>> {
        let lanes = self.lanes.iter().flat_map(move |lanes| {
            let of_clients = lanes.waiting.is_some().then(|| lanes.of_clients()).into_iter();
            let all = of_clients.chain([(&lanes.candidate, &lanes.stable)]);
            all.flat_map(|(candidate, stable)| {
                candidate.iter().map(|(_, candidate)| candidate).chain([stable])
            })
        });
        std::iter::once(&self.live).chain(lanes)
    }

    /// The candidate of a push as it is now: with the content that clients asked for after the cut.
    pub fn candidate_of(&self, push: u64) -> Option<&Arc<Snapshot>> {
        let (number, candidate) = self.lanes.as_ref()?.candidate.as_ref()?;
        (*number == push).then_some(candidate)
    }

    /// Whether clients find the same here as in the `previous` publication, apart from those that are served
    /// live. Then a change is held back as a whole, and nobody has to look for it. False may be returned for
    /// equal content.
    pub fn reads_the_same(&self, previous: &Published) -> bool {
        let Some(lanes) = &self.lanes else { return false };
        let previous_lanes = previous.lanes.as_deref();
        if lanes.waiting.is_some() || previous_lanes.is_some_and(|lanes| lanes.waiting.is_some()) {
            return false;
        }
        let is_same_candidate =
            match (&lanes.candidate, previous_lanes.and_then(|lanes| lanes.candidate.as_ref())) {
                (None, None) => true,
                (Some((push, candidate)), Some((previous_push, previous))) => {
                    push == previous_push && candidate.reads_the_same(previous)
                }
                _ => false,
            };
        is_same_candidate && lanes.stable.reads_the_same(previous.stable())
    }

    /// The snapshot for a client: the candidate of a push that the client is admitted to, else stable, else
    /// live. `admits`: the gate of the client, which may be asked about the push with a candidate.
    pub fn pick(&self, admits: impl FnOnce(u64) -> bool) -> &Arc<Snapshot> {
        let Some(lanes) = &self.lanes else { return &self.live };
        let (candidate, stable) = lanes.of_clients();
        match candidate {
            Some((push, candidate)) if admits(*push) => candidate,
            _ => stable,
        }
    }
}

/// Whether a source wakes all sessions with news, or only those that are served live. Changes that are held
/// back are nothing to look at for the others.
#[derive(Debug, Default)]
pub struct Wakes {
    /// Since the last wake-up, all that was published is held back; `None` if nothing was published.
    is_all_held: Option<bool>,
}

impl Wakes {
    /// The source publishes. `is_held`: [`Published::reads_the_same`] as before.
    pub fn published(&mut self, is_held: bool) {
        self.is_all_held = Some(is_held && self.is_all_held != Some(false));
    }

    /// A session asks, and has to look for its answer, whatever is held back for others.
    pub fn asked(&mut self) {
        self.is_all_held = Some(false);
    }

    /// Whether only sessions that are served live have something to look at.
    pub fn are_for_live_only(&self) -> bool {
        self.is_all_held == Some(true)
    }

    /// The source has woken its sessions. `owes`: some wake-ups are still to come (RLY-54).
    pub fn woke(&mut self, owes: bool) {
        if !owes {
            self.is_all_held = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wav_4_a_session_that_asks_is_woken_although_a_change_is_held_back() {
        let mut wakes = Wakes::default();
        assert!(!wakes.are_for_live_only(), "nothing is published");
        wakes.published(true);
        assert!(wakes.are_for_live_only());
        wakes.woke(true);
        assert!(wakes.are_for_live_only(), "the wake-up for the held change is to come");
        wakes.asked();
        wakes.published(true);
        assert!(!wakes.are_for_live_only());
        wakes.woke(true);
        assert!(!wakes.are_for_live_only(), "others may be woken late");
        wakes.woke(false);
        wakes.published(true);
        assert!(wakes.are_for_live_only());
        wakes.published(false);
        wakes.published(true);
        assert!(!wakes.are_for_live_only(), "one of the changes is not held back");
    }

    #[test]
    fn wav_2_a_client_takes_the_candidate_if_admitted_else_stable_else_live() {
        let [live, stable, candidate] = [(); 3].map(|()| Arc::new(Snapshot::default()));
        let picks = |published: &Published, admitted: u64, expected: &Arc<Snapshot>| {
            Arc::ptr_eq(published.pick(|push| push == admitted), expected)
        };
        let mut published = Published { live: live.clone(), lanes: None, restated: None };
        assert!(picks(&published, 1, &live));
        let candidate_of_2 = Some((2, candidate.clone()));
        let lanes = PublishedLanes { candidate: candidate_of_2, stable: stable.clone(), waiting: None };
        published.lanes = Some(Box::new(lanes));
        assert!(picks(&published, 2, &candidate));
        assert!(picks(&published, 1, &stable), "not admitted to this push");
    }
}
