//! `/rollouts` and below: the plans, and the way of their pushes.

use std::ops::Add;

use serde::{Deserialize, Serialize};

use crate::changes::ChangedNames;
use crate::lists::Listed;
use crate::{Text, is_zero};

/// The state of a plan, and of the latest push. Wide because the fields are the flat keys of the JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanState<'a> {
    pub name: Text<'a>,
    pub mode: Text<'a>,
    pub state: Text<'a>,
    pub push: Option<u64>,
    /// The reached step of the push; 0 before the first.
    pub step: u8,
    pub steps: u8,
    /// The percentage of admitted clients; null for a push before the first step.
    pub percent: Option<f64>,
    /// The units of the plan.
    pub units: usize,
    /// Affected clients among the admitted.
    pub clients: u64,
    #[serde(flatten)]
    pub admitted: Counts,
    /// Clients that a plan which enforces would not have admitted yet. The clients have the push
    /// nevertheless.
    pub others: Counts,
    /// The age of the oldest change held from somebody. 0: nothing is held back.
    pub behind_seconds: f64,
    /// Units whose changes wait for the next push.
    pub waiting: usize,
    pub why: Option<String>,
    /// The classes of the units whose clients speak against the push.
    pub blamed: Vec<Text<'a>>,
    /// The classes of units that wait although the others go on.
    pub barred: Vec<Text<'a>>,
    /// Units with a content at all clients without a judgement.
    pub unproved: usize,
    /// Condemned contents that all clients of a unit are served (QUA-5).
    pub condemned_served: usize,
    /// The release of all clients.
    pub pinned: Option<Pinned>,
    /// The classes of units without the content of the pinned release.
    pub diverged: Vec<Text<'a>>,
    /// No push begins before this time.
    pub frozen_until: Option<String>,
    /// No push begins, because the held contents take too many bytes.
    pub full: bool,
    /// The classes of units whose changes wait because their server is lost.
    pub left_out: Vec<Text<'a>>,
    /// No push begins before a server is back.
    pub waits_for_server: bool,
    /// The checkpoint does not have this state yet: a process that is killed now begins from an earlier one.
    pub unsaved: bool,
    /// The releases that `pin` can serve again, the latest first.
    pub releases: Vec<u64>,
    /// The plan as all replicas have it. Missing without a ledger: then the plan decides for this replica
    /// only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<SharedPlan>,
}

/// A plan in the ledger of several replicas (LDG-7).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SharedPlan {
    /// The name of this replica.
    pub replica: String,
    /// The reason why the ledger is not acted on; null: none.
    pub fault: Option<String>,
    /// The latest push of all replicas, its state and its admitted step.
    pub push: u64,
    pub state: String,
    pub step: u8,
    /// An operator's order is not in the ledger yet.
    pub unwritten: bool,
    /// This replica has acted otherwise than the ledger says, or cannot do what it says.
    pub diverged: bool,
    /// How; empty: it has not.
    pub divergence: Vec<String>,
    /// Why the latest changes of this replica have not begun; null: nothing of the ledger keeps them.
    pub waits: Option<String>,
    /// Clients of this replica at units without content from before a push; null without such clients.
    pub newcomers: Option<String>,
    /// The live replicas, with this one.
    pub replicas: Vec<LiveReplica>,
    /// The replicas that were alive a short time ago, by name.
    pub silent: Vec<String>,
}

impl SharedPlan {
    /// `push 42 is moving at step 2, with relay-1, relay-2; waits for relay-3`.
    pub fn text(&self) -> String {
        let names = |is_so: &dyn Fn(&LiveReplica) -> bool| {
            let names = self.replicas.iter().filter(|replica| is_so(replica)).map(|replica| &*replica.name);
            names.collect::<Vec<_>>().join(", ")
        };
        let all = || names(&|_| true);
        let mut text = match (&self.fault, self.push, self.state.as_str()) {
            (Some(fault), ..) => format!("the ledger is away: {fault}"),
            (None, 0, _) => format!("no push yet; replicas: {}", all()),
            (None, push, "moving") => {
                format!("push {push} is moving at step {}, with {}", self.step, names(&|one| one.takes_part))
            }
            (None, push, state) => format!("push {push} is {state}; replicas: {}", all()),
        };
        let behind = names(&|replica| replica.behind);
        if self.fault.is_none() && !behind.is_empty() && self.state == "moving" {
            text += &format!("; waits for {behind}");
        }
        if self.unwritten {
            text += "; an order is not in the ledger yet";
        }
        if let Some(why) = &self.waits {
            text += &format!("; changes of {} wait: {why}", self.replica);
        }
        if let Some(newcomers) = &self.newcomers {
            text += &format!("; {newcomers}");
        }
        if self.diverged {
            text += &format!("; {} has acted otherwise", self.replica);
        }
        for how in &self.divergence {
            text += &format!(": {how}");
        }
        let others = names(&|one| one.diverged && one.name != self.replica);
        if !others.is_empty() {
            text += &format!("; acted otherwise: {others}");
        }
        if !self.silent.is_empty() {
            text += &format!("; silent: {}", self.silent.join(", "));
        }
        text
    }
}

/// A replica with a living lease.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveReplica {
    pub name: String,
    /// The push and the step of the latest count of clients.
    pub push: u64,
    pub step: u8,
    /// The replica has a part of the push.
    pub takes_part: bool,
    /// No count of clients at the admitted step yet: the push waits for the replica.
    pub behind: bool,
    /// The replica acts otherwise than the ledger says.
    pub diverged: bool,
    /// Affected clients among the admitted.
    pub clients: u64,
}

/// The answer of `GET /ledger` and `POST /ledger/init`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LedgerState {
    /// The kind of the store, and its addresses.
    pub place: String,
    /// The name of this replica.
    pub replica: String,
    /// The reason why the ledger is away, or not believed; null: none.
    pub fault: Option<String>,
    /// The reason why the latest write was not done; null: it was, or the ledger is away.
    pub unwritten: Option<String>,
    pub entries: usize,
    pub bytes: usize,
}

impl Listed for PlanState<'_> {
    const KEY: &'static str = "rollouts";
}

/// The streams of a group by standing: as the machine of a plan counts them, and as every reader shows them
/// (ADR 90). The sums are of streams, not of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    pub accepted: u64,
    pub pending: u64,
    /// Rejections by nodes that did not reject the push before.
    pub rejected: u64,
    /// Rejections by nodes that rejected the push before, too: no evidence (QUA-4).
    pub rejected_again: u64,
    pub silent: u64,
    pub unaffected: u64,
    pub overtaken: u64,
    /// Ends of streams within 60 s of the push, not by age, drain, limits or the operator, of the last ten
    /// minutes. A client that comes back and is lost again counts each time.
    pub lost: u64,
    /// Nodes with an acceptance and without a stream now, but not lost: an acceptance outlives the stream.
    pub departed: u64,
    /// Relays, whose ACK means structure (TIR-1).
    pub unjudged: u64,
}

impl Counts {
    /// The connected streams that the push has something for, without relays.
    pub fn affected(&self) -> u64 {
        self.evidence() + self.rejected_again + self.overtaken
    }

    /// The streams whose state speaks for or against the push.
    pub fn evidence(&self) -> u64 {
        self.accepted + self.pending + self.rejected + self.silent
    }

    /// The streams that were certainly sent the push.
    pub fn answered(&self) -> u64 {
        self.accepted + self.rejected + self.rejected_again + self.silent
    }
}

impl Add for Counts {
    type Output = Counts;

    fn add(self, other: Counts) -> Counts {
        Counts {
            accepted: self.accepted + other.accepted,
            pending: self.pending + other.pending,
            rejected: self.rejected + other.rejected,
            rejected_again: self.rejected_again + other.rejected_again,
            silent: self.silent + other.silent,
            unaffected: self.unaffected + other.unaffected,
            overtaken: self.overtaken + other.overtaken,
            lost: self.lost + other.lost,
            departed: self.departed + other.departed,
            unjudged: self.unjudged + other.unjudged,
        }
    }
}

/// A release in the place of the newest content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pinned {
    pub release: u64,
    /// `next_push`, `unpin`, or a time.
    pub until: String,
}

/// The answer of `/rollouts/{plan}`: a plan with its latest push in full.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WholePlan<'a> {
    #[serde(flatten)]
    pub state: PlanState<'a>,
    pub about: Text<'a>,
    pub covers: Vec<Unit<'a>>,
    pub waits: Vec<Unit<'a>>,
    pub latest: Option<WholePush<'a>>,
    /// The numbers of the remembered pushes, the latest first.
    pub pushes: Vec<u64>,
    /// The contents that no push may bring (TRU-4).
    pub condemned: CondemnedList<'a>,
}

/// Contents, the latest first, bounded, and their number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CondemnedList<'a> {
    pub count: usize,
    pub contents: Vec<CondemnedUntil<'a>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CondemnedUntil<'a> {
    pub r#type: Text<'a>,
    pub name: Text<'a>,
    pub version: String,
    /// The time at which the plan forgets the content.
    pub until: String,
    /// All clients of some unit are served the content.
    pub served: bool,
}

/// A unit: a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Unit<'a> {
    pub source: u64,
    pub server: Text<'a>,
    pub list: Text<'a>,
    pub class: Text<'a>,
}

/// A push in a list. Wide because the fields are the flat keys of the JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Push<'a> {
    pub plan: Text<'a>,
    pub push: u64,
    pub state: Text<'a>,
    /// Null while the push is not over.
    pub outcome: Option<Text<'a>>,
    /// The end of the gathering.
    pub began: String,
    pub ended: Option<String>,
    pub seconds: Option<f64>,
    pub step: u8,
    pub steps: u8,
    pub units: usize,
    /// Resources that changed, were added or removed; in several units, several times.
    pub resources: usize,
    pub clients: u64,
    #[serde(flatten)]
    pub admitted: Counts,
    pub others: Counts,
    pub why: Option<String>,
    pub blamed: Vec<Text<'a>>,
}

impl Listed for Push<'_> {
    const KEY: &'static str = "pushes";
}

/// A push in full.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WholePush<'a> {
    #[serde(flatten)]
    pub push: Push<'a>,
    pub about: Text<'a>,
    pub gathered_from: String,
    pub types: Vec<PushedType<'a>>,
    pub way: Vec<PushStep>,
    pub sources: Vec<Unit<'a>>,
    /// The contents under suspicion for rejections; the contents named by most clients first.
    pub suspects: Vec<SuspectContent<'a>>,
    pub rejections: Vec<PushRejection<'a>>,
    pub condemned: Vec<SuspectContent<'a>>,
    /// Changed and added resources that no admitted client was sent so far.
    pub without_evidence: Vec<UnsentNames<'a>>,
    pub notes: Vec<String>,
    /// Null without a hook.
    pub hook: Option<HookQuestion<'a>>,
}

/// The latest question to the hook.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HookQuestion<'a> {
    /// The step at whose end the hook was asked; 0: before the first step.
    pub step: u8,
    pub asked: String,
    /// `go`, `wait`, `halt` or `failed`; null: no answer yet.
    pub verdict: Option<Text<'a>>,
    pub reason: Option<Text<'a>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PushedType<'a> {
    pub r#type: Text<'a>,
    #[serde(flatten)]
    pub names: ChangedNames<'a>,
    pub resources: Growth,
    pub bytes: Growth,
    pub largest: Option<LargestGrowth<'a>>,
}

/// A number before a push, and with the push (ADR 90).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Growth {
    pub before: u64,
    pub after: u64,
}

/// Resources of a type, bounded, and their number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnsentNames<'a> {
    pub r#type: Text<'a>,
    pub names: Vec<Text<'a>>,
    pub count: usize,
}

/// The changed resource with the largest growth in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LargestGrowth<'a> {
    pub name: Text<'a>,
    pub bytes: Growth,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PushStep {
    pub step: u8,
    pub percent: f64,
    pub began: String,
    pub ended: Option<String>,
    pub clients: u64,
    #[serde(flatten)]
    pub admitted: Counts,
    /// Null if load reports do not judge the step.
    pub load: Option<StepLoad>,
}

/// The word of load reports about a step (LRS-24).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepLoad {
    /// `equal`, `worse` or `cannot_tell`.
    pub verdict: String,
    pub why: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SuspectContent<'a> {
    pub r#type: Text<'a>,
    pub name: Text<'a>,
    pub version: String,
    /// Rejections in the list with a suspicion of the content.
    #[serde(skip_serializing_if = "is_zero")]
    pub rejections: Option<usize>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PushRejection<'a> {
    pub id: u64,
    pub node: Text<'a>,
    pub class: Option<Text<'a>>,
    pub r#type: Text<'a>,
    pub message: Text<'a>,
    pub suspects: Vec<Text<'a>>,
    pub bucket: u16,
    /// The step whose labels name the client.
    pub labelled_step: Option<u8>,
    pub known_rejecter: bool,
}

/// The answer of `/freeze` and `/unfreeze`: the plans that obeyed, and the plans without a hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FrozenPlans {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub observing: Vec<String>,
    pub plans: Vec<String>,
}
