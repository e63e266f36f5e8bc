//! The driver's work with checkpoints, over a disk that is a map of bytes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluice_checkpoint::format::{decode, encode, is_empty};
use sluice_checkpoint::{Header, Identity, Restored};
use sluice_engine::downstream::{Answer, SourceId};
use sluice_engine::snapshot::{Snapshot, Standing};
use sluice_engine::source::{Kept, RestoredType, Source};

use super::hearing::Heard;
use super::lists::server_of;
use super::relay::StreamSlot;
use super::restored::{Checkpoint, Names};
use super::rng::Rng;
use super::schedule::SECOND;
use super::words::{SHORT, read, show};
use super::world::{Invariant, World};

/// A seat and a class.
type Key = (usize, usize);

/// One file.
pub struct File {
    bytes: Vec<u8>,
    /// The reference at the time of the write.
    reference: Checkpoint,
    written_at: u64,
}

/// The state read at the start of the process.
struct Loaded {
    restored: Arc<Restored>,
    reference: Checkpoint,
    at: u64,
}

#[derive(Default)]
pub struct Disk {
    files: BTreeMap<Key, File>,
    /// Loaded states, until their servers have answered.
    loaded: BTreeMap<Key, Loaded>,
    /// The number of sources that began with a loaded state.
    begun: u64,
}

impl World {
    fn key(&self, slot: usize) -> Key {
        (slot % self.seats(), self.slots[slot].class)
    }

    fn wall(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_000_000) + Duration::from_micros(self.now)
    }

    // === writing ===

    /// Writes a source now and then.
    pub fn save_sometimes(&mut self, choice: u64) {
        if !self.plan.checkpoint {
            return;
        }
        let mut rng = Rng::new(choice ^ 0x5a7e);
        if rng.percent(30) {
            let slot = rng.below(self.slots.len() as u64) as usize;
            self.save(slot);
        }
    }

    fn save(&mut self, slot: usize) {
        let (key, time, written_at) = (self.key(slot), self.time(), self.wall());
        let Some(source) = &self.slots[slot].source else { return };
        let image = source.image(time);
        if is_empty(&image) {
            // A loaded, unconfirmed state may be needed again.
            if !self.disk.loaded.contains_key(&key) {
                self.disk.files.remove(&key);
            }
            return;
        }
        let header = Header { identity: identity(key), relay: [7; 32], written_at, confirmed_at: written_at };
        let mut bytes = Vec::new();
        let mut sink = |piece: &[u8]| {
            bytes.extend_from_slice(piece);
            Ok(())
        };
        if encode(&header, &image, &mut sink).is_err() {
            return self.fail(Invariant::CrashSafeDisk, || format!("slot {slot} cannot be written"));
        }
        if bytes.windows(SECRET.len()).any(|window| window == SECRET) {
            self.fail(Invariant::CrashSafeDisk, || format!("slot {slot} writes secrets"));
        }
        self.note(30, slot as u64, bytes.len() as u64);
        let reference = self.slots[slot].reference.checkpoint(self.tells_delta(server_of(key.0)));
        self.tell(|| format!("slot {slot} is written: {}", show_checkpoint(&reference)));
        self.disk.files.insert(key, File { bytes, reference, written_at: self.now });
    }

    // === reading ===

    /// Ends and restarts the process. `choice`: the way of the end, and the fate of the files in between.
    pub fn reload(&mut self, choice: u64) {
        if !self.plan.checkpoint {
            return;
        }
        let mut rng = Rng::new(choice ^ 0xd15c);
        if rng.percent(40) {
            (0..self.slots.len()).for_each(|slot| self.save(slot));
        }
        self.disk.loaded.clear();
        let is_set_back = rng.percent(10);
        for (key, file) in std::mem::take(&mut self.disk.files) {
            if rng.percent(10) {
                self.read_damaged(&file, &mut rng);
            } else {
                self.read(key, &file, is_set_back);
                self.disk.files.insert(key, file);
            }
        }
    }

    /// Every cut, and every change of a bit, is detected (I13): the source starts cold.
    fn read_damaged(&mut self, file: &File, rng: &mut Rng) {
        let mut bytes = file.bytes.clone();
        let at = rng.below(bytes.len() as u64) as usize;
        if rng.percent(50) {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1 << rng.below(8);
        }
        if decode(&bytes, self.wall()).is_ok() {
            self.fail(Invariant::CrashSafeDisk, || format!("a file that is damaged at {at} is used"));
        }
    }

    fn read(&mut self, key: Key, file: &File, is_set_back: bool) {
        let now = if is_set_back { UNIX_EPOCH } else { self.wall() };
        let restored = match decode(&file.bytes, now) {
            Ok(restored) => Arc::new(restored),
            Err(fault) => {
                return self.fail(Invariant::CrashSafeDisk, || format!("a good file is refused: {fault}"));
            }
        };
        let reference = file.reference.clone().at(self.now, is_set_back);
        let age = (self.now - file.written_at) as f64 / SECOND as f64;
        self.tell(|| format!("read of {key:?}, {age} s old: {}", show_checkpoint(&reference)));
        if restored.header.identity != identity(key) {
            self.fail(Invariant::Isolation, || format!("the file of {key:?} is that of another source"));
        }
        self.compare_loaded(key, &restored.types, &reference);
        let at = self.now;
        self.disk.loaded.insert(key, Loaded { restored, reference, at });
    }

    /// The state read is exactly the state last written (I13).
    fn compare_loaded(&mut self, key: Key, types: &[RestoredType], reference: &Checkpoint) {
        for ty in 0..SHORT.len() {
            let of_type = types.iter().find(|restored| restored.type_url == self.words.types[ty]);
            let names = of_type.map(|of| of.names.as_slice()).unwrap_or_default();
            let members = of_type.and_then(|of| of.wildcard.as_deref());
            let is_same = self.is_same(names, &reference.names[ty])
                && members.is_some() == reference.members[ty].is_some()
                && self.is_same(
                    members.unwrap_or_default(),
                    reference.members[ty].as_ref().unwrap_or(&Names::new()),
                );
            if !is_same {
                let due = (&reference.names[ty], &reference.members[ty]);
                self.fail(Invariant::CrashSafeDisk, || {
                    format!(
                        "of {key:?}, {}, {names:?} and {members:?} are read, and {due:?} were written",
                        SHORT[ty]
                    )
                });
            }
        }
    }

    fn is_same(&self, kept: &[Kept], due: &Names) -> bool {
        let is_due = |kept: &Kept| {
            let saved = self.words.name_of(&kept.name).and_then(|name| due.get(&name));
            saved.is_some_and(|saved| {
                let left = saved.expires.map(|(at, _)| at.saturating_sub(self.now));
                saved.content == read(&kept.resource).3
                    && saved.version == kept.server_version
                    && left == kept.left.map(|left| left.as_micros() as u64)
            })
        };
        kept.len() == due.len() && kept.iter().all(is_due)
    }

    // === sources ===

    /// A source begins, or begins again after its release, when a session subscribes: with its loaded state,
    /// if the server has not answered since.
    pub fn begin_source(&mut self, slot: usize, stream: &StreamSlot) {
        let (key, time, now) = (self.key(slot), self.time(), self.now);
        if !self.disk.loaded.contains_key(&key) || !self.is_free(slot, stream) {
            return;
        }
        self.disk.begun += 1;
        let id = self.disk.begun << 32 | self.generation << 8 | slot as u64;
        let mut source = self.source(id, server_of(key.0));
        let Some(loaded) = self.disk.loaded.get(&key) else { return };
        let age = Duration::from_micros(now - loaded.at);
        source.restore(&loaded.restored.later(age).types, age, time);
        let reference = loaded.reference.clone().at(now, false);
        self.tell(|| format!("slot {slot} begins with {}", show_checkpoint(&reference)));
        let this = &mut self.slots[slot];
        this.reference.restore(&reference, now);
        (this.source, this.has_begun) = (Some(source), true);
        this.heard.clear();
        this.connection = Heard::Pending;
        this.of_types.clear();
        self.note(31, slot as u64, 0);
        self.drain(slot);
    }

    /// Whether no session uses the source.
    fn is_free(&self, slot: usize, stream: &StreamSlot) -> bool {
        let (this, id) = (&self.slots[slot], SourceId(slot as u64));
        let is_idle = this.source.as_ref().is_some_and(Source::is_idle) && this.reference.is_idle();
        let uses = |stream: &StreamSlot| stream.session.uses(id) || stream.has_told(slot);
        !this.has_begun
            || is_idle && !stream.has_told(slot) && !self.streams.iter().flatten().any(|other| uses(other))
    }

    /// A server has answered: its loaded state is outdated.
    pub fn heard(&mut self, slot: usize) {
        let key = self.key(slot);
        self.disk.loaded.remove(&key);
    }

    // === I14 ===

    /// Judges the mark of a snapshot for types in the state of a checkpoint.
    pub fn judge_restored(&mut self, slot: usize, ty: usize, standing: &Standing) {
        let is_marked = standing.of(&self.words.types[ty]).is_some_and(|of_type| of_type.restored);
        let is_restored = self.slots[slot].reference.restoring.has_type(ty);
        let is_in_doubt = is_marked && self.slots[slot].reference.is_in_doubt(ty);
        if is_marked != is_restored && !is_in_doubt {
            self.fail(Invariant::HonestStaleness, || {
                format!("slot {slot} marks {} as restored: {is_marked}, which is {is_restored}", SHORT[ty])
            });
        }
    }

    /// An answer is marked exactly if a part comes from a checkpoint and is unconfirmed. An answer begun with
    /// an older snapshot has the older snapshot's mark, which was judged at publication.
    pub fn judge_marked(&mut self, stream: &StreamSlot, ty: usize, answer: &Answer) {
        let says = |snapshot: &Arc<Snapshot>| {
            snapshot.standing().of(&self.words.types[ty]).is_some_and(|of_type| of_type.restored)
        };
        let is_restored = |snapshot: &Arc<Snapshot>| {
            let current = self.slots.iter().find(|slot| Arc::ptr_eq(&slot.snapshot, snapshot));
            match current {
                // Judged at publication.
                Some(slot) if slot.reference.is_in_doubt(ty) => says(snapshot),
                Some(slot) => slot.reference.restoring.has_type(ty),
                None => says(snapshot),
            }
        };
        let is_marked = answer.is_restored();
        let is_due = answer.parts.iter().any(|part| is_restored(&part.snapshot));
        if is_marked != is_due {
            let who = self.show_stream(stream);
            self.fail(Invariant::HonestStaleness, || {
                format!(
                    "{who}: an answer of {} is marked as restored: {is_marked}, which is {is_due}",
                    SHORT[ty]
                )
            });
        }
    }
}

/// A part of the type name of Secrets.
const SECRET: &[u8] = b"tls.v3.Secret";

fn identity((seat, class): Key) -> Identity {
    Identity {
        list: format!("list {}", seat / 2).into(),
        server: format!("cp{}", server_of(seat)).into(),
        class: [class as u8; 32],
    }
}

fn show_checkpoint(checkpoint: &Checkpoint) -> String {
    let of = checkpoint.masks().into_iter().enumerate().map(|(ty, (names, members))| {
        let members = members.map(|members| format!(" *({})", show(members))).unwrap_or_default();
        format!("{} {}{members}", SHORT[ty], show(names))
    });
    of.collect::<Vec<_>>().join(", ")
}
