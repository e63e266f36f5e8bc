//! The meaning of a seed: the plan of the operator, the clients, and the events.

use std::sync::Arc;
use std::time::Duration;

use sluice_engine::class::{NodeMatch, TextMatch};
use sluice_fleet::rollout::hook::{Hook, HookSettings};
use sluice_fleet::rollout::plan::{Gated, Gather, Step, Times};
use sluice_fleet::rollout::{Mode, OnHalt, Plan};
use sluice_xds::Node;

use super::hook::HookPlan;
use crate::rng::{Rng, mix};
use crate::schedule::{
    Act, GROWN_ANEW, GROWN_FALLBACK, GROWN_HOOKS, GROWN_SIBLINGS, MILLI, REPLACED, SECOND,
};

/// The subscriptions of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The wildcard of CDS and LDS, and EDS and RDS by the names in these.
    Envoy,
    /// One listener by name, then its route, cluster and endpoints.
    Grpc,
    /// Any names of each type.
    Free,
}

#[derive(Clone, Debug)]
pub struct ClientPlan {
    /// The list of servers that the client is configured by.
    pub list: usize,
    pub kind: Kind,
    pub delta: bool,
    /// Several clients may have one node id.
    pub node: usize,
    /// The labels of the plan's steps name the client.
    pub is_canary: bool,
    /// The client rejects, ignores or does not survive content of such a kind.
    pub rejects: bool,
    pub falls_silent: bool,
    pub crashes: bool,
    /// The words of a rejection name the rejected resource.
    pub names_suspects: bool,
    pub reads_within: u64,
    pub answers_within: u64,
}

#[derive(Clone, Debug)]
pub struct StepPlan {
    /// Of 10,000.
    pub threshold: u16,
    pub at_least: u32,
    pub bake: u64,
    /// Clients with the label are admitted.
    pub labels: bool,
}

/// The settings of a whole schedule.
#[derive(Clone, Debug)]
pub struct WavePlan {
    pub seed: u64,
    /// The server lists. Each has `servers` servers, and each server of a list is a unit.
    pub lists: usize,
    pub servers: usize,
    pub clients: Vec<ClientPlan>,
    pub steps: Vec<StepPlan>,
    pub stays: bool,
    pub quiet: u64,
    pub gather_max: u64,
    pub final_bake: u64,
    pub patience: u64,
    pub condemn_after: u32,
    /// The releases that the plan remembers.
    pub releases: usize,
    /// The maximum latency between the relay and the servers.
    pub latency: u64,
    pub coalescing: u64,
    /// The percentage of pushes with content that some clients do not stand.
    pub bad: u64,
    pub commands: bool,
    pub restarts: bool,
    pub outages: bool,
    /// The percentage of commands, restarts and outages of the schedule that happen.
    pub unrest: u64,
    /// Clients leave a server that is lost, though they lack nothing (FBK-17).
    pub on_reachability_only: bool,
    /// The second server of a list states what the first states, a moment later.
    pub mirrors: bool,
    /// A unit looks at the content of the other server of its list for its first answers.
    pub siblings: bool,
    /// The plan gates types at all.
    pub gates: bool,
    pub hook: Option<HookPlan>,
    /// Classes sleep, and units begin anew.
    pub begins_anew: bool,
    /// Clients of a step go away, and this percentage of them comes back as others.
    pub replaced: Option<u64>,
}

/// Marks canaries by the begin of the node id.
const CANARY: &str = "canary";

impl WavePlan {
    pub fn of_seed(seed: u64) -> WavePlan {
        let mut rng = Rng::new(mix(seed) ^ 0x3a7e5);
        let lists = 1 + rng.below(3) as usize;
        let count = 3 + rng.below(8) as usize;
        let is_calm = rng.percent(30);
        let mut threshold = 0;
        let steps = 1 + rng.below(3);
        let steps = (0..steps).map(|_| step(&mut rng, &mut threshold)).collect();
        let mut plan = WavePlan {
            seed,
            lists,
            servers: 1,
            clients: Vec::new(),
            steps,
            stays: rng.percent(30),
            quiet: [0, 100 * MILLI, SECOND][rng.below(3) as usize],
            gather_max: [SECOND, 5 * SECOND][rng.below(2) as usize],
            final_bake: [SECOND, 3 * SECOND][rng.below(2) as usize],
            patience: [5 * SECOND, 60 * SECOND][rng.below(2) as usize],
            condemn_after: 1 + rng.below(2) as u32,
            releases: [2, 10][rng.below(2) as usize],
            latency: [MILLI, 20 * MILLI, 300 * MILLI][rng.below(3) as usize],
            coalescing: [0, 10 * MILLI, 200 * MILLI][rng.below(3) as usize],
            bad: [20, 50][rng.below(2) as usize],
            commands: !is_calm && rng.percent(60),
            restarts: !is_calm && rng.percent(40),
            outages: !is_calm && rng.percent(40),
            unrest: 100,
            on_reachability_only: false,
            mirrors: false,
            siblings: false,
            gates: true,
            hook: None,
            begins_anew: false,
            replaced: None,
        };
        for number in 0..count {
            let client = plan.client(number, &mut rng);
            plan.clients.push(client);
        }
        if seed >= GROWN_HOOKS {
            plan.grow_hooks();
        }
        if REPLACED.contains(&seed) {
            plan.grow_replaced();
        } else if seed >= GROWN_FALLBACK {
            plan.grow_fallback();
        }
        if (GROWN_SIBLINGS..GROWN_ANEW.start).contains(&seed) {
            plan.grow_siblings();
        }
        if GROWN_ANEW.contains(&seed) {
            plan.grow_anew();
        }
        plan
    }

    /// Draws the hook, apart from the rest.
    fn grow_hooks(&mut self) {
        let mut rng = Rng::new(mix(self.seed) ^ 0x3a7e6);
        self.hook = Some(HookPlan {
            goes: [40, 70, 95][rng.below(3) as usize],
            within: [20 * MILLI, 400 * MILLI, 3 * SECOND][rng.below(3) as usize],
            timeout: [SECOND, 5 * SECOND, 60 * SECOND][rng.below(3) as usize],
        });
    }

    /// Gives each list a second server, and draws commands, restarts and outages in each schedule, apart from the rest.
    fn grow_fallback(&mut self) {
        let mut rng = Rng::new(mix(self.seed) ^ 0x3a7e7);
        self.servers = 2;
        (self.commands, self.restarts, self.outages) = (true, true, true);
        self.unrest = [15, 50, 100][rng.below(3) as usize];
        self.on_reachability_only = rng.percent(60);
        self.mirrors = rng.percent(60);
    }

    /// Units look at each other for their first answers. Most second servers state what the first ones state, and much of it is bad, apart from the rest.
    fn grow_siblings(&mut self) {
        let mut rng = Rng::new(mix(self.seed) ^ 0x3a7e8);
        (self.siblings, self.on_reachability_only) = (true, rng.percent(80));
        self.mirrors = rng.percent(80);
        self.bad = [30, 60][rng.below(2) as usize];
    }

    /// Lets classes sleep, and units begin anew, mostly under a halt, apart from the rest. Half of the schedules have lists of one server.
    fn grow_anew(&mut self) {
        let mut rng = Rng::new(mix(self.seed) ^ 0x3a7e8);
        self.begins_anew = true;
        self.bad = 60;
        self.unrest = [0, 15, 50][rng.below(3) as usize];
        if rng.percent(50) {
            // Without a second server there is nobody to state the same.
            (self.servers, self.mirrors) = (1, false);
        }
    }

    /// Lets clients of a step go away and come back as others, and lets most steps live by `at_least`, apart from the rest.
    fn grow_replaced(&mut self) {
        let mut rng = Rng::new(mix(self.seed) ^ 0x3a7e8);
        self.replaced = Some([50, 90][rng.below(2) as usize]);
        self.hook = self.hook.take().filter(|_| rng.percent(40));
        self.unrest = [15, 50][rng.below(2) as usize];
        self.bad = [0, 20][rng.below(2) as usize];
        if rng.percent(70) {
            self.steps.truncate(2);
            for (number, step) in self.steps.iter_mut().enumerate() {
                step.threshold = 300 * number as u16;
                step.labels = step.labels && rng.percent(50);
                step.at_least = 1 + number as u32 + rng.below(2) as u32;
            }
        }
    }

    /// The units: the first server of each list, then the second ones.
    pub fn units(&self) -> usize {
        self.lists * self.servers
    }

    /// The list of a unit. It also makes the contents, which are the same at all servers of a list.
    pub fn list_of(&self, unit: usize) -> usize {
        unit % self.lists
    }

    fn client(&self, number: usize, rng: &mut Rng) -> ClientPlan {
        let kind = [Kind::Envoy, Kind::Envoy, Kind::Grpc, Kind::Free][rng.below(4) as usize];
        let within = |rng: &mut Rng| match rng.below(10) {
            0..7 => MILLI,
            7..9 => 100 * MILLI,
            _ => 3 * SECOND,
        };
        let twin = self.clients.last().filter(|_| rng.percent(10)).map(|twin| (twin.node, twin.is_canary));
        let (node, is_canary) = twin.unwrap_or((number, rng.percent(20)));
        ClientPlan {
            list: rng.below(self.lists as u64) as usize,
            kind,
            delta: rng.percent(50),
            node,
            is_canary,
            rejects: rng.percent(80),
            falls_silent: rng.percent(70),
            crashes: rng.percent(80),
            names_suspects: rng.percent(70),
            reads_within: within(rng),
            answers_within: within(rng),
        }
    }

    /// The plan in the engine's form.
    pub fn rollout(&self) -> Arc<Plan> {
        let step = |of: &StepPlan| Step {
            clients: of.labels.then(|| NodeMatch {
                id: Some(TextMatch::Prefix(CANARY.to_owned())),
                ..NodeMatch::default()
            }),
            threshold: of.threshold,
            at_least: of.at_least,
            bake: Duration::from_micros(of.bake),
        };
        let mut plan = Plan::new("edge");
        plan.mode = Mode::Enforce;
        plan.steps = self.steps.iter().map(step).collect();
        plan.gather =
            Gather { quiet: Duration::from_micros(self.quiet), max: Duration::from_micros(self.gather_max) };
        plan.times =
            Times { final_bake: Duration::from_micros(self.final_bake), condemn_after: self.condemn_after };
        plan.halt_on.patience = Duration::from_micros(self.patience);
        plan.on_halt = if self.stays { OnHalt::Stay } else { OnHalt::Rollback };
        plan.releases = self.releases;
        plan.hook = self.hook.as_ref().map(|hook| Hook {
            url: "http://hook/".into(),
            settings: HookSettings { timeout: Duration::from_micros(hook.timeout) },
        });
        if !self.gates {
            plan.gated = Gated::Types(Vec::new());
        }
        Arc::new(plan)
    }

    pub fn node(&self, client: usize) -> Node {
        let of = &self.clients[client];
        let role = if of.is_canary { CANARY } else { "envoy" };
        Node { id: format!("{role}-{}-{}", self.seed % 1000, of.node), ..Node::default() }
    }

    pub fn acts(&self) -> Vec<Act> {
        let mut rng = Rng::new(mix(self.seed) ^ 0x3ac75);
        let count = 60 + rng.below(80) as usize;
        let act = |rng: &mut Rng| Act {
            gap: match rng.below(100) {
                0..35 => rng.below(5 * MILLI),
                35..65 => rng.below(300 * MILLI),
                65..95 => rng.below(3 * SECOND),
                _ => rng.below(30 * SECOND),
            },
            what: rng.below(100) as u8,
            choice: rng.next(),
        };
        (0..count).map(|_| act(&mut rng)).collect()
    }
}

fn step(rng: &mut Rng, before: &mut u16) -> StepPlan {
    let labels = rng.percent(30);
    let grown = *before + [500, 1500, 3000][rng.below(3) as usize];
    let threshold = if labels && rng.percent(60) { *before } else { grown.min(9_000) };
    *before = threshold;
    StepPlan {
        threshold,
        at_least: [0, 1, 1, 2][rng.below(4) as usize],
        bake: [SECOND, 2 * SECOND, 5 * SECOND][rng.below(3) as usize],
        labels,
    }
}
