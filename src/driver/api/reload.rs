//! The effects of another configuration on sessions and sources, before it is in force (REL-7).

use sluice_fleet::rollout::RolloutState;
use sluice_xds::{ResourceName, TypeUrl};

/// The maximum number of listed names of a type.
pub const NAMES_LISTED: usize = 20;

/// The effects of a configuration. Wide because each field is an effect of its own, which the log and the
/// answer name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadPlan {
    pub sessions: usize,
    /// The sessions with another source for some type.
    pub sessions_moved: usize,
    /// The sources of the configured servers.
    pub sources: usize,
    pub sources_opened: usize,
    /// The sources without users after the moves.
    pub sources_closed: usize,
    /// The sources with streams or polls: all but directories.
    pub upstream_streams: usize,
    /// At least one stream for each source. Where each type has a stream, there are more.
    pub upstream_streams_opened: usize,
    pub upstream_streams_closed: usize,
    /// The names of clients' resources that are absent at the new sources.
    pub names_gone: Vec<NamesGone>,
    /// The sessions with a new source that does not know everything yet. More names may go.
    pub sessions_undecided: usize,
    /// Plans with something to lose that the configuration removes or loosens.
    pub plans_loosened: Vec<LoosenedPlan>,
    /// The moves of sessions that plans cover.
    pub moved_in_plans: Vec<MovedInPlan>,
    /// The configuration must not be taken.
    pub refused: Option<ReloadRefusal>,
}

/// The sessions in a plan that come to other sources, as the plan treats the content there (WAV-22).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedInPlan {
    pub plan: Box<str>,
    /// The sessions whose class stays: what differs at the other server goes by the steps of the plan.
    pub by_steps: usize,
    /// The sessions that come to another class or to a source without the plan: they are given what is there
    /// at once.
    pub at_once: usize,
}

/// The names of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamesGone {
    pub type_url: TypeUrl,
    pub count: usize,
    /// The first [`NAMES_LISTED`] names.
    pub names: Vec<ResourceName>,
}

/// A plan that is not at rest, and that another configuration removes or loosens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoosenedPlan {
    pub plan: Box<str>,
    pub state: RolloutState,
    /// The push under way.
    pub push: Option<u64>,
    pub by: Loosening,
}

/// How a configuration loosens a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loosening {
    Removed,
    /// So many of its units would end, or be another plan's or nobody's. All hold something back.
    UnitsLeave(usize),
    /// By these keys of the plan.
    Keys(Vec<&'static str>),
    /// The step under way is judged by load reports, and would hear fewer of them, by this key.
    LoadUnheard(&'static str),
    /// However strict the other plan is, it begins the push anew that was stopped.
    BeginsAnew,
}

/// The reason to refuse a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadRefusal {
    /// The key of the limit that would be passed.
    pub key: &'static str,
    pub text: String,
}
