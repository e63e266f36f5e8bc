//! I38: with `policy: warn` no client notices the proof. A schedule is played twice, with the proof and without.

use super::super::rng::{Rng, mix};
use super::super::world::Invariant;
use super::plane::NAMES;
use super::{SHADOWS, SPLITS, Shadows};

/// From this seed on, up to those with splits, schedules are played twice.
pub const TWOFOLD: u64 = SHADOWS + (1 << 19);

/// What clients are given.
#[derive(Clone, Debug, PartialEq)]
enum Given {
    /// A class has the content of a state of the server, apart from some names.
    Content { class: usize, state: usize, is_whole: bool, unknown: [bool; NAMES] },
    /// A client is in a class.
    Home { node: usize, class: usize },
}

/// All that clients were given in a schedule, with the times.
pub struct Untouched {
    /// Nobody asks the server in the place of clients.
    pub is_off: bool,
    /// Shadows draw from numbers of their own, so that streams of classes have the same delays without shadows.
    rng: Option<Rng>,
    given: Vec<(u64, Given)>,
}

impl Untouched {
    pub fn new(seed: u64, is_off: bool) -> Untouched {
        let rng = is_twofold(seed).then(|| Rng::new(mix(seed) ^ 0x5ad2));
        Untouched { is_off, rng, given: Vec::new() }
    }
}

pub fn is_twofold(seed: u64) -> bool {
    (TWOFOLD..SPLITS).contains(&seed)
}

impl Shadows {
    /// The random numbers of a stream of a class, or of the proof.
    pub fn draws(&mut self, is_of_proof: bool) -> &mut Rng {
        self.untouched.rng.as_mut().filter(|_| is_of_proof).unwrap_or(&mut self.rng)
    }

    pub fn note_content(&mut self, class: usize, state: usize, is_whole: bool) {
        let unknown = self.classes.get(&class).map_or([false; NAMES], |class| class.unknown);
        self.untouched.given.push((self.scheduler.now, Given::Content { class, state, is_whole, unknown }));
    }

    pub fn note_home(&mut self, node: usize, class: usize) {
        self.untouched.given.push((self.scheduler.now, Given::Home { node, class }));
    }

    /// Clients were given the same at the same times as without the proof.
    pub fn judge_untouched(&mut self, without: &Shadows) {
        let [one, other] = [&self.untouched.given, &without.untouched.given];
        let place = one.iter().zip(other).position(|(one, other)| one != other);
        let Some(place) = place.or((one.len() != other.len()).then_some(one.len().min(other.len()))) else {
            return;
        };
        let text = format!("{:?} with the proof, and {:?} without", one.get(place), other.get(place));
        self.fail(Invariant::Untouched, || text);
    }
}
