//! The way to another configuration while the process runs, as the admin room sees it (REL-1).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::future::BoxFuture;
use serde_json::Value;
use sluice_engine::class::NodeClasses;

/// The reloads of the process. `app` implements this trait.
pub trait Reloading: Send + Sync + 'static {
    /// Resolves when the reload is over. A reload goes on if nobody waits for its end.
    fn reload(&self, desired: Wanted) -> BoxFuture<'static, Report>;

    /// The rules of node classes in a text, which is read as that of [`Wanted::PlanText`].
    ///
    /// # Errors
    /// Every fault, one a line.
    fn rules_of(&self, text: String) -> BoxFuture<'static, Result<NodeClasses, Vec<String>>>;

    fn status(&self) -> Arc<ConfigHistory>;

    /// The keys whose values differ between two generations. `None` if one of them is not kept.
    fn difference(&self, from: u64, to: u64) -> Option<Vec<KeyChange>>;
}

/// The configuration to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The file of the process, read again. `yes`: also if many clients move, names go, or a plan lets go of
    /// a push (REL-7).
    File { yes: bool },
    /// A plan for the file.
    PlanFile,
    /// A plan for this text in place of the file.
    PlanText(String),
    /// An earlier configuration: `None` is the one before.
    Generation { to: Option<u64>, yes: bool },
    /// A plan for an earlier configuration.
    PlanGeneration { to: Option<u64> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadResult {
    /// The configuration is in force; of a plan: it can be taken.
    Changed,
    /// The configuration means the same as the one in force.
    Unchanged,
    /// The configuration cannot be read, or has faults.
    Invalid,
    /// Changed keys need a new process (REL-3).
    NeedsProcess,
    /// Clients would lose names, too many would move, or a plan would let go of a push: somebody has to say
    /// yes (REL-7).
    Held,
    /// The host refused: an address in use, a file that cannot be read, too much time.
    Failed,
    /// The process is about to end.
    Ending,
}

impl ReloadResult {
    pub fn name(self) -> &'static str {
        match self {
            ReloadResult::Changed => "changed",
            ReloadResult::Unchanged => "unchanged",
            ReloadResult::Invalid => "invalid",
            ReloadResult::NeedsProcess => "needs_process",
            ReloadResult::Held => "held",
            ReloadResult::Failed => "failed",
            ReloadResult::Ending => "ending",
        }
    }

    /// Whether the configuration that was wanted is in force now, or may come into force.
    pub fn is_success(self) -> bool {
        matches!(self, ReloadResult::Changed | ReloadResult::Unchanged)
    }
}

/// A reload, or the plan of one.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub result: ReloadResult,
    pub is_plan: bool,
    /// In force after the reload.
    pub generation: u64,
    /// Keys with another value, as the texts have them.
    pub changes: Vec<KeyChange>,
    pub listeners: ListenerChanges,
    pub moves: Option<Moves>,
    pub warnings: Vec<String>,
    pub faults: Vec<String>,
    /// The command that helps.
    pub say: Option<String>,
}

impl Report {
    pub fn new(result: ReloadResult, generation: u64) -> Report {
        Report {
            result,
            is_plan: false,
            generation,
            changes: Vec::new(),
            listeners: ListenerChanges::default(),
            moves: None,
            warnings: Vec::new(),
            faults: Vec::new(),
            say: None,
        }
    }
}

/// A key with another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    pub key: String,
    pub from: Option<String>,
    pub to: Option<String>,
    pub effect: &'static str,
}

/// Listeners by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerChanges {
    pub added: Vec<String>,
    /// Their connections leave over the drain.
    pub removed: Vec<String>,
    /// Another address, name or kind of security: both.
    pub moved: Vec<String>,
}

/// The effect on clients and control planes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    pub sessions: usize,
    pub sessions_moved: usize,
    /// The sessions with a new source that does not know everything yet: more names may go.
    pub sessions_undecided: usize,
    pub sources: usize,
    pub sources_opened: usize,
    pub sources_closed: usize,
    pub upstream_streams_opened: usize,
    pub upstream_streams_closed: usize,
    pub names_gone: usize,
    /// The first of the names that would go, each behind its type.
    pub names: Vec<String>,
}

/// The configuration in force, and those before.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigHistory {
    pub file: Option<PathBuf>,
    /// The latest last. The last one is in force.
    pub generations: Vec<GenerationStatus>,
    pub last_reload: Option<LastReload>,
    /// The keys that only a new process takes.
    pub needs_process: Vec<&'static str>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GenerationStatus {
    pub number: u64,
    pub hash: String,
    pub since: SystemTime,
    /// The document without credentials.
    pub document: Arc<Value>,
    /// Line and column of each entry of `node_classes`, as `12:5`.
    pub class_places: Arc<[String]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastReload {
    pub at: SystemTime,
    pub trigger: &'static str,
    pub result: ReloadResult,
    pub faults: Vec<String>,
    pub say: Option<String>,
}

impl ConfigHistory {
    /// The generation in force. There is always one.
    pub fn current(&self) -> Option<&GenerationStatus> {
        self.generations.last()
    }

    pub fn find(&self, number: u64) -> Option<&GenerationStatus> {
        self.generations.iter().find(|generation| generation.number == number)
    }
}
