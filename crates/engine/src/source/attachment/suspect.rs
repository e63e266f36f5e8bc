//! The record of a type after whose request the server ended the stream (ADR 15).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Time;
use sluice_xds::{Status, TypeUrl};

/// A suspect that was moved back and blamed again waits before its next trial on the shared stream. The wait
/// doubles each time, up to the cap, so that the others are interrupted ever less often.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(600);

/// SuspectTypes are remembered for this long: a client that asks for the type again gets a separate stream at
/// once.
const MEMORY: Duration = Duration::from_secs(600);

/// The maximum number of remembered suspects without sessions. Clients that ask for invented types cost
/// bounded memory.
const REMEMBERED_MAX: usize = 64;

/// A type after whose request the server ended the stream.
#[derive(Clone, Debug)]
pub struct SuspectType {
    /// The time of the first end.
    pub since: Time,
    /// The number of ended streams.
    pub ends: u32,
    /// The status of the last end.
    pub status: Status,
    /// The type is requested on a stream of its own.
    pub is_alone: bool,
    /// The number of times that the shared stream ended.
    pub(super) interruptions: u32,
    pub(super) last: Time,
}

impl SuspectType {
    pub(super) fn new(status: Status, now: Time) -> SuspectType {
        SuspectType { since: now, ends: 0, status, is_alone: true, interruptions: 0, last: now }
    }

    /// The server ended the stream again after a request for the type.
    pub(super) fn note_end(&mut self, status: &Status, now: Time) {
        self.ends = self.ends.saturating_add(1);
        (self.status, self.last, self.is_alone) = (status.clone(), now, true);
    }

    pub(super) fn wait(&self) -> Duration {
        match self.interruptions {
            0 | 1 => Duration::ZERO,
            // 2^10 s is above the cap.
            more => (AGAIN * (1 << (more - 2).min(10))).min(AGAIN_MAX),
        }
    }

    pub(super) fn is_old(&self, now: Time) -> bool {
        now.since(self.last) > MEMORY
    }
}

/// The suspects of an aggregated source.
#[derive(Debug, Default)]
pub(super) struct SuspectTypes(BTreeMap<TypeUrl, SuspectType>);

impl SuspectTypes {
    pub(super) fn contains(&self, type_url: &TypeUrl) -> bool {
        self.0.contains_key(type_url)
    }

    pub(super) fn get(&self, type_url: &TypeUrl) -> Option<&SuspectType> {
        self.0.get(type_url)
    }

    pub(super) fn get_mut(&mut self, type_url: &TypeUrl) -> Option<&mut SuspectType> {
        self.0.get_mut(type_url)
    }

    /// Notes that a shared stream ended after a request for a type. Forgets old suspects, but those for which
    /// `is_wanted` holds.
    pub(super) fn blame(
        &mut self,
        type_url: &TypeUrl,
        status: &Status,
        is_wanted: impl Fn(&TypeUrl) -> bool,
        now: Time,
    ) -> &SuspectType {
        self.forget_old(is_wanted, now);
        let suspect = self.0.entry(type_url.clone()).or_insert_with(|| SuspectType::new(status.clone(), now));
        suspect.note_end(status, now);
        suspect.interruptions = suspect.interruptions.saturating_add(1);
        suspect
    }

    fn forget_old(&mut self, is_wanted: impl Fn(&TypeUrl) -> bool, now: Time) {
        self.0.retain(|type_url, suspect| !suspect.is_old(now) || is_wanted(type_url));
        while self.0.len() >= REMEMBERED_MAX {
            let unwanted = self.0.iter().filter(|(type_url, _)| !is_wanted(type_url));
            let oldest =
                unwanted.min_by_key(|(_, suspect)| suspect.last).map(|(type_url, _)| type_url.clone());
            let Some(oldest) = oldest else { return };
            self.0.remove(&oldest);
        }
    }
}
