//! The state that outlives a process or a task: on disk, from a predecessor, and for a successor.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::driver::ground::checkpoint_writer::CheckpointWriter;
use crate::driver::ground::inheritance::Inheritance;
use crate::driver::ground::splits::SplitStore;
use sluice_checkpoint::Identity;
use sluice_fleet::rollout::Record;
use sluice_fleet::rollout::ledger::trust::LedgerMemory;
use sluice_fleet::rollout::record::StoredUnit;
use sluice_fleet::rollout::stored_plans::encode_plans;

/// The state that outlives a process or a task.
pub struct DurableState {
    /// `None`: nothing is kept on disk.
    pub checkpoint: Option<Arc<CheckpointWriter>>,
    /// The state that a predecessor of the process passed on.
    pub inheritance: Inheritance,
    /// The states of the plans, for the next process and for the next task of a plan (WAV-8).
    pub plans: PlanStore,
    /// The splits of node classes (PRF-32).
    pub splits: SplitStore,
    /// The ledger as this replica knows it (LDG-6).
    pub ledger: LedgerMemoryStore,
}

/// The memory of the ledger.
#[derive(Debug, Default)]
pub struct LedgerMemoryStore(Mutex<Option<LedgerMemory>>);

impl LedgerMemoryStore {
    pub fn get(&self) -> Option<LedgerMemory> {
        self.0.lock().clone()
    }

    pub fn put(&self, memory: Option<LedgerMemory>) {
        *self.0.lock() = memory;
    }
}

/// The latest state of each plan that enforces, by name.
#[derive(Debug, Default)]
pub struct PlanStore(Mutex<BTreeMap<String, Record>>);

impl PlanStore {
    pub fn put(&self, plan: Record) {
        self.0.lock().insert(plan.name.clone(), plan);
    }

    pub fn of(&self, name: &str) -> Option<Record> {
        self.0.lock().get(name).cloned()
    }

    /// Forgets a plan that the configuration has no more.
    pub fn forget(&self, name: &str) {
        self.0.lock().remove(name);
    }

    /// Whether some plan holds content back from a unit, or has the unit pinned.
    pub fn holds(&self, unit: &StoredUnit) -> bool {
        self.0.lock().values().any(|plan| plan.holds(unit))
    }

    /// All plans as a file.
    pub fn encoded(&self) -> Vec<u8> {
        let plans: Vec<_> = self.0.lock().values().cloned().collect();
        encode_plans(&plans)
    }
}

/// A source, as in the names of the sources' files.
pub fn stored_unit(source: &Identity) -> StoredUnit {
    let class = source.class.iter().map(|byte| format!("{byte:02x}")).collect();
    StoredUnit { list: source.list.to_string(), server: source.server.to_string(), class }
}
