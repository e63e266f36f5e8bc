//! Servers that are reachable and cannot supply the requested resources: errors instead of resources (ERR-1
//! to ERR-5), and unusable responses.

use sluice_engine::annotations::ErrorKind;
use sluice_engine::snapshot::TypeSnapshot;
use sluice_xds::Code;

use super::control_plane::ControlPlane;
use super::message::Message;
use super::reference::Source;
use super::rng::{Rng, mix};
use super::words::{Lexicon, Mask, NAMES, SHORT, TYPES, bit, bits, count, names_of_list, nth, show};
use super::world::{Invariant, World};

/// The failures of the servers of a world.
#[derive(Clone, Copy, Debug, Default)]
pub struct Failings {
    /// The servers have errors for names.
    pub errors: bool,
    /// All responses are void for a while.
    pub voids: bool,
}

/// The names in error at one control plane, by class and type.
#[derive(Clone, Debug, Default)]
pub struct Failing {
    names: Vec<[Mask; TYPES]>,
    /// All responses are void.
    pub is_void: bool,
}

/// The server's error for a name.
pub fn code_of(ty: usize, name: usize) -> Code {
    let codes = [Code::Unavailable, Code::Internal, Code::NotFound, Code::PermissionDenied];
    codes[(mix((ty * NAMES + name) as u64) % 4) as usize]
}

impl Failing {
    pub fn of(&self, class: usize, ty: usize) -> Mask {
        self.names.get(class).map_or(0, |types| types[ty])
    }

    fn set(&mut self, class: usize, ty: usize, names: Mask) {
        if self.names.len() <= class {
            self.names.resize(class + 1, [0; TYPES]);
        }
        self.names[class][ty] = names;
    }
}

impl ControlPlane {
    /// Makes every name available again.
    pub fn recover(&mut self) {
        self.failing = Failing::default();
        self.serve_all();
    }
}

impl World {
    /// Puts some names of a type, all, or none in error at a server.
    pub fn fail_names(&mut self, server: usize, rng: &mut Rng) {
        let class = rng.below(self.plan.classes as u64) as usize;
        let ty = rng.below(TYPES as u64) as usize;
        let all = names_of_list(server / 2) & self.plan.names;
        let before = self.servers[server].failing.of(class, ty);
        let names = match rng.below(10) {
            0..2 => all,
            2..5 => 0,
            _ => before ^ bit(nth(all, rng.below(count(all)))),
        };
        self.servers[server].failing.set(class, ty, names);
        self.note(43, server as u64, u64::from(names));
        self.tell(|| {
            format!("server {server} has errors, for class {class}, for {}: {}", SHORT[ty], show(names))
        });
        self.flush_all(server);
    }

    /// Makes all responses of a server unusable, or usable again.
    pub fn turn_void(&mut self, server: usize) {
        let is_void = &mut self.servers[server].failing.is_void;
        *is_void ^= true;
        let is_void = *is_void;
        self.tell(|| format!("all that server {server} says is void: {is_void}"));
    }

    /// ERR-9: the errors in a snapshot are the server's last errors.
    pub fn judge_errors(&mut self, slot: usize, ty: usize, types: &TypeSnapshot) {
        if !self.plan.failings.errors {
            return;
        }
        let reference = &self.slots[slot].reference;
        let wrong = bits(reference.wanted(ty)).find_map(|name| {
            let url = &self.words.names[ty][name];
            let is_reported = types.names.annotations.error_kind(url) == Some(ErrorKind::Reported);
            let found = types.names.annotations.error(url).filter(|_| is_reported).map(|error| error.code);
            let due = reference.names[ty][name].failed;
            let is_right = match (found, due) {
                (Some(found), Some((due, _))) => found == due,
                (None, Some((_, is_standing))) => !is_standing,
                (found, None) => found.is_none(),
            };
            (!is_right).then_some((name, found, due))
        });
        if let Some((name, found, due)) = wrong {
            self.fail(Invariant::NoLostUpdate, || {
                let name = show(bit(name));
                format!(
                    "slot {slot} has the error {found:?} for {} {name}, and its server {due:?}",
                    SHORT[ty]
                )
            });
        }
    }
}

impl Message {
    /// The errors in the engine's form.
    pub fn resource_errors(&self, words: &Lexicon) -> Vec<sluice_xds::ResourceError> {
        let error = |(name, code): &(usize, Code)| sluice_xds::ResourceError {
            name: words.names[self.ty][*name].clone(),
            status: sluice_xds::Status::new(*code, "it cannot be had"),
        };
        self.errors.iter().map(error).collect()
    }
}

impl Source {
    /// Handles the errors in a response to names, beside its resources. Returns the names in error, and the
    /// names removed by an error (ERR-5).
    pub(super) fn take_errors(&mut self, index: usize, message: &Message, brought: Mask) -> (Mask, Mask) {
        let ty = message.ty;
        let wanted = self.demand[ty].held;
        let (mut mentioned, mut removed) = (0, 0);
        let Some(Some(stream)) = self.streams.get_mut(index) else { return (0, 0) };
        for (name, code) in &message.errors {
            if (wanted & !brought) & bit(*name) == 0 {
                continue;
            }
            mentioned |= bit(*name);
            let is_absent = *code == Code::NotFound;
            // An error cannot refer to a name without a request.
            if is_absent && stream.types[ty].listed & bit(*name) == 0 {
                continue;
            }
            stream.types[ty].end_waiting(*name);
            removed |= if is_absent { bit(*name) } else { 0 };
            self.names[ty][*name].failed = Some((*code, true));
        }
        (mentioned, removed)
    }

    /// Marks errors whose end another stream may report.
    pub(super) fn doubt_errors(&mut self, ty: usize) {
        for track in &mut self.names[ty] {
            track.failed = track.failed.map(|(code, _)| (code, false));
        }
    }
}
