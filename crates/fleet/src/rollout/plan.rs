//! The settings of a plan.

use std::time::Duration;

use super::hook::Hook;
use super::push::FindingKind;
use sluice_engine::class::{NodeMatch, TextMatch};
use sluice_setting::{count, hours, minutes, seconds, settings, time};
use sluice_xds::Node;

pub use sluice_engine::gated::{Gated, flows};

/// The buckets of all clients.
pub const BUCKETS: u16 = 10_000;

/// More steps would wait longer than they tell.
pub const STEPS_MAX: usize = 20;

settings! {
    /// The past of all plans.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct History {
        /// The past pushes and the releases in the memory of a plan: HIS-1. Releases share all equal content;
        /// a rejected push has the words of clients.
        pushes: usize = 10, count(1..=100);
    }
}

/// A plan, as configured. The first plan that matches a unit decides about the unit. Wide because each field
/// is a key, or a section of keys, of an entry of `rollouts`.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub name: Box<str>,
    pub mode: Mode,
    pub units: UnitMatch,
    /// The plan holds pushes back from relays, too: its steps are regions (TIR-1, ADR 102).
    pub relays: bool,
    pub gated: Gated,
    pub bucket_by: BucketBy,
    pub salt: Box<str>,
    pub gather: Gather,
    /// The steps before all clients, in order. Their thresholds grow.
    pub steps: Vec<Step>,
    pub times: Times,
    pub halt_on: HaltOn,
    pub on_halt: OnHalt,
    pub guards: Guards,
    /// `None`: the clients alone decide.
    pub hook: Option<Hook>,
    /// The past pushes and the releases in the plan's memory. A release is a content of all clients.
    pub releases: usize,
}

/// The power of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Nothing is held from anybody, and the plan tells the deeds of an enforcing plan (WAV-19).
    #[default]
    Observe,
    /// Clients get a push when they are admitted.
    Enforce,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Observe => "observe",
            Mode::Enforce => "enforce",
        }
    }
}

/// The clients that keep a halted push (WAV-16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnHalt {
    /// Nobody: all admitted clients go back.
    #[default]
    Rollback,
    /// The clients that have the push.
    Stay,
}

/// The units of a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnitMatch {
    /// The keys of server lists, as `xds_servers` or `authorities[NAME]`; empty: every list.
    pub lists: Vec<Box<str>>,
    /// A condition on the node of the unit's class, which has only the parts that split classes.
    pub nodes: NodeMatch,
}

impl UnitMatch {
    pub fn matches(&self, list: &str, class: &Node) -> bool {
        (self.lists.is_empty() || self.lists.iter().any(|name| **name == *list)) && self.nodes.matches(class)
    }

    /// Whether certainly no unit matches both.
    pub fn excludes(&self, other: &UnitMatch) -> bool {
        let are_apart = |one: &[Box<str>], other: &[Box<str>]| {
            !one.is_empty() && !other.is_empty() && !one.iter().any(|list| other.contains(list))
        };
        are_apart(&self.lists, &other.lists) || self.nodes.excludes(&other.nodes)
    }

    /// Whether certainly no client of the units meets the conditions.
    pub fn has_no_client_of(&self, clients: &NodeMatch) -> bool {
        // A class without a part has an empty text, whatever its clients have.
        let stated =
            |text: &Option<TextMatch>| text.clone().filter(|text| *text != TextMatch::Exact(String::new()));
        let nodes = &self.nodes;
        let stated = NodeMatch {
            id: stated(&nodes.id),
            cluster: stated(&nodes.cluster),
            user_agent_name: stated(&nodes.user_agent_name),
            region: stated(&nodes.region),
            zone: stated(&nodes.zone),
            sub_zone: stated(&nodes.sub_zone),
            metadata: nodes.metadata.clone(),
        };
        stated.excludes(clients)
    }

    /// Whether the units of another match are certainly among these.
    pub fn covers(&self, other: &UnitMatch) -> bool {
        let has_lists = !other.lists.is_empty() && other.lists.iter().all(|list| self.lists.contains(list));
        (self.lists.is_empty() || has_lists)
            && (self.nodes == NodeMatch::default() || self.nodes == other.nodes)
    }
}

/// The text of a node that decides about its bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum BucketBy {
    #[default]
    Id,
    Cluster,
    Zone,
    /// The text under a path of keys of the metadata.
    Metadata(Vec<String>),
}

/// A step: the clients that have the push before all others.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Clients that are admitted whatever their bucket.
    pub clients: Option<NodeMatch>,
    /// Buckets below are admitted: percent of the clients, times 100.
    pub threshold: u16,
    /// At least so many connected and affected clients are admitted (WAV-14).
    pub at_least: u32,
    pub bake: Duration,
}

/// The steps of a plan that states none: 1 % for 30 s, then 10 % and 50 % for a minute each.
pub fn default_steps() -> Vec<Step> {
    let StepSettings { at_least, bake } = StepSettings::default();
    let step =
        |percent, bake| Step { clients: None, threshold: percent * BUCKETS_PER_PERCENT, at_least, bake };
    vec![step(1, seconds(30)), step(10, bake), step(50, bake)]
}

/// Buckets of one percent of the clients.
pub const BUCKETS_PER_PERCENT: u16 = BUCKETS / 100;

settings! {
    /// A step's settings beside the choice of its clients.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct StepSettings {
        /// The most clients that a step may ask for: the machine is told that many buckets.
        at_least: u32 = 1, count(0..=1_000);
        /// How long the step's clients must stand before the next step.
        bake: Duration = minutes(1), time(seconds(1)..=hours(24));
    }
}

settings! {
    /// When the changes of a push are complete.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Gather {
        /// A push is complete when its units have been quiet for this time.
        quiet: Duration = seconds(1), time(seconds(0)..=minutes(10));
        /// A push is complete after this time, also when units change on and on.
        max: Duration = seconds(10), time(seconds(1)..=hours(1));
    }
}

settings! {
    /// Numbers of a plan outside its sections.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Times {
        /// How long all clients must stand with a push. Counts into the time that a busy control plane's next
        /// push waits.
        final_bake: Duration = seconds(30), time(seconds(1)..=hours(24));
        /// A version is condemned when this many different nodes have rejected it by name.
        condemn_after: u32 = 2, count(1..=1_000);
    }
}

settings! {
    /// The evidence against a push.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct HaltOn {
        /// More rejections than this halt the push, if they are more than the percentage, too.
        rejected: u32 = 0, count(0..=1_000_000);
        /// Percent of the admitted and affected clients.
        rejected_percent: u32 = 1, count(0..=100);
        /// More lost streams than this halt the push: percent of the admitted and affected clients.
        lost_percent: u32 = 10, count(0..=100);
        /// The next step begins when this percentage of the admitted and affected clients has accepted the
        /// push.
        accepted_percent: u32 = 95, count(1..=100);
        /// A step that lacks evidence for this time after its bake pauses the push.
        patience: Duration = minutes(15), time(seconds(1)..=hours(24));
        /// A cluster whose error share at the admitted clients is larger than at all others by more than so
        /// many percentage points halts the push; 0: load reports do not judge (LRS-24). Clients differ by
        /// nature, and a single broken client is a whole step, so the operator decides.
        error_points: u32 = 0, count(0..=50);
    }
}

/// The checks of a push before its first client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guards {
    pub growth: GuardAction,
    pub unreadable: GuardAction,
    pub dangling: GuardAction,
    pub gone_while_used: GuardAction,
}

impl Default for Guards {
    /// A client of the mesh may have a cluster from elsewhere, so a missing one never stops a push by default
    /// (GRD-5).
    fn default() -> Guards {
        let (halt, warn) = (GuardAction::Halt, GuardAction::Warn);
        Guards { growth: halt, unreadable: halt, dangling: warn, gone_while_used: warn }
    }
}

impl Guards {
    pub fn of(&self, kind: FindingKind) -> GuardAction {
        match kind {
            FindingKind::Unreadable => self.unreadable,
            FindingKind::Dangling => self.dangling,
            FindingKind::GoneWhileUsed => self.gone_while_used,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuardAction {
    #[default]
    Halt,
    Warn,
    Off,
}

impl Plan {
    /// A plan for all units, with defaults.
    pub fn new(name: &str) -> Plan {
        Plan {
            name: name.into(),
            mode: Mode::Observe,
            units: UnitMatch::default(),
            relays: false,
            gated: Gated::Default,
            bucket_by: BucketBy::Id,
            salt: "".into(),
            gather: Gather::default(),
            steps: default_steps(),
            times: Times::default(),
            halt_on: HaltOn::default(),
            on_halt: OnHalt::Rollback,
            guards: Guards::default(),
            hook: None,
            releases: History::default().pushes,
        }
    }

    /// A step by its number, from 1; `None` for the step behind the last one of the plan, which admits all.
    pub(super) fn step(&self, number: u8) -> Option<&Step> {
        self.steps.get(usize::from(number).checked_sub(1)?)
    }

    /// The buckets that a step admits at least, after a step with `before`.
    pub(super) fn threshold_after(&self, number: u8, before: u16) -> u16 {
        self.step(number).map_or(BUCKETS, |step| step.threshold.max(before))
    }

    /// How long the clients of a step have to stand with the push; zero before the first step.
    pub(super) fn bake_of(&self, number: u8) -> Duration {
        let bake = || self.step(number).map_or(self.times.final_bake, |step| step.bake);
        if number == 0 { Duration::ZERO } else { bake() }
    }

    /// Whether another plan leads pushes in the same way, whatever the size of the memory, and the time limit
    /// of the hook.
    pub fn leads_as(&self, other: &Plan) -> bool {
        Hook::is_same(self.hook.as_ref(), other.hook.as_ref())
            && *self == Plan { releases: self.releases, hook: self.hook.clone(), ..other.clone() }
    }

    /// The rules that replicas must agree on to lead a push together: the seats, and the buckets of the
    /// steps. Replicas of all builds compute the same.
    pub fn shared_rules(&self) -> u128 {
        let mut hasher = blake3::Hasher::new_derive_key("sluice 2026 shared rules");
        let mut text = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        let (by, path): (&str, &[String]) = match &self.bucket_by {
            BucketBy::Id => ("id", &[]),
            BucketBy::Cluster => ("cluster", &[]),
            BucketBy::Zone => ("zone", &[]),
            BucketBy::Metadata(path) => ("metadata", path),
        };
        [&*self.name, &*self.salt, by].into_iter().chain(path.iter().map(String::as_str)).for_each(&mut text);
        for step in &self.steps {
            hasher.update(&step.threshold.to_le_bytes());
        }
        let mut first = [0; 16];
        first.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        u128::from_le_bytes(first)
    }

    /// The steps of a push, with the step that admits all clients.
    pub fn step_count(&self) -> u8 {
        u8::try_from(self.steps.len() + 1).unwrap_or(u8::MAX)
    }

    pub fn enforces(&self) -> bool {
        self.mode == Mode::Enforce
    }

    /// The most clients that a step asks for by `at_least`.
    pub fn at_least_max(&self) -> usize {
        self.steps.iter().map(|step| step.at_least as usize).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_xds::TypeUrl;

    fn plan() -> Plan {
        Plan::new("edge")
    }

    #[test]
    fn wav_3_a_plan_gates_what_a_push_breaks() {
        let gated = |plan: &Plan| {
            let messages =
                ["envoy.config.listener.v3.Listener", "envoy.config.cluster.v3.Cluster", ENDPOINTS, "a.B"];
            messages.map(|message| plan.gated.contains(&TypeUrl::of_message(message)))
        };
        const ENDPOINTS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";
        assert_eq!(gated(&plan()), [true, true, false, false]);
        let types = Gated::Types(vec![TypeUrl::of_message("a.B")]);
        assert_eq!(gated(&Plan { gated: types, ..plan() }), [false, false, false, true]);
    }

    #[test]
    fn a_plan_matches_units_by_list_and_class() {
        let lists = vec!["xds_servers".into(), "authorities[a]".into()];
        let units = UnitMatch { lists, ..UnitMatch::default() };
        let node = Node::default();
        assert!(units.matches("authorities[a]", &node) && !units.matches("authorities[b]", &node));
        let cluster = Some(sluice_engine::class::TextMatch::Exact("edge".into()));
        let nodes = NodeMatch { cluster, ..NodeMatch::default() };
        let units = UnitMatch { nodes, ..UnitMatch::default() };
        assert!(!units.matches("xds_servers", &node));
        assert!(units.matches("xds_servers", &Node { cluster: "edge".into(), ..node }));
    }
}
