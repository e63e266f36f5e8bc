//! Plans and pushes in JSON.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::super::changes::Names;
use super::super::item::rfc_3339;
use super::of_plan;
use super::standing::{Pinned, behind_seconds, frozen_until};
use crate::driver::api::rollouts::RolloutStatus;
use crate::engine::Time;
use crate::engine::change::NameList;
use crate::engine::rollout::push::{Condemned, Growth, TypePush};
use crate::engine::rollout::report::StepReport;
use crate::engine::rollout::tally::Rejection;
use crate::engine::rollout::{Counts, PushReport, RolloutState, UnitId};
use crate::telemetry::rollouts::{note_text, percent, why, without_server};
use crate::xds::{ResourceName, TypeUrl};

/// TRU-5, beside the numbers.
pub(super) const ABOUT: &str =
    "accepted means that a client acknowledged the push, not that the client uses it";

/// The condemned contents in an answer. A plan may remember many more.
const CONDEMNED_MAX: usize = 100;

/// The state of a plan, and of its latest push.
#[derive(Debug, Serialize)]
pub(super) struct Rollout<'a> {
    name: &'a str,
    mode: &'static str,
    state: &'static str,
    push: Option<u64>,
    /// The step that the push has reached; 0 before the first.
    step: u8,
    steps: u8,
    /// The percentage of clients that the step admits; null for a push before its first step.
    percent: Option<f64>,
    /// Units that the plan covers.
    units: usize,
    /// Admitted clients that the push affects.
    clients: u64,
    #[serde(flatten)]
    admitted: Clients,
    /// Clients that a plan which enforces would not have admitted yet. They have the push nevertheless.
    others: Clients,
    /// The age of the oldest change that is held from somebody. 0: nothing is held back.
    behind_seconds: f64,
    /// Units whose changes wait for the next push.
    waiting: usize,
    why: Option<String>,
    /// The classes of the units whose clients speak against the push.
    blamed: Vec<&'a str>,
    /// The classes of units that wait although the others go on.
    barred: Vec<&'a str>,
    /// Units with a content that all clients were given without a judgement.
    unproved: usize,
    /// Condemned contents that all clients of a unit are served (QUA-5).
    condemned_served: usize,
    /// The release that all clients are served.
    pinned: Option<Pinned>,
    /// The classes of units without the content of the pinned release.
    diverged: Vec<&'a str>,
    /// No push begins before this time.
    frozen_until: Option<String>,
    /// No push begins, because the contents that are held take too many bytes.
    full: bool,
    /// The classes of units whose changes wait because their server is lost.
    left_out: Vec<&'a str>,
    /// No push begins before a server is back.
    waits_for_server: bool,
    /// The releases that `pin` can serve again, the latest first.
    releases: &'a [u64],
}

/// Clients by their standing.
#[derive(Debug)]
struct Clients(Counts);

impl From<Counts> for Clients {
    fn from(of: Counts) -> Clients {
        Clients(of)
    }
}

impl Serialize for Clients {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.named())
    }
}

/// The state of a plan in a word.
pub(in crate::admin) fn plan_state(status: &RolloutStatus) -> RolloutState {
    status.report.state
}

/// The percentage of clients that a step admits.
pub(in crate::admin) fn step_percent(step: &StepReport) -> f64 {
    percent(step.threshold)
}

impl<'a> Rollout<'a> {
    pub fn of(status: &'a RolloutStatus) -> Rollout<'a> {
        let push = status.report.push.as_deref();
        let counts = push.map(|push| (push.admitted, push.others)).unwrap_or_default();
        Rollout {
            name: &status.plan.name,
            mode: status.plan.mode.name(),
            state: plan_state(status).name(),
            push: push.map(|push| push.number),
            step: push.map_or(0, PushReport::reached),
            steps: push.map_or_else(|| status.plan.step_count(), |push| push.step_count),
            percent: push.and_then(|push| push.steps.last()).map(step_percent),
            units: status.units.len(),
            clients: counts.0.affected(),
            admitted: counts.0.into(),
            others: counts.1.into(),
            behind_seconds: behind_seconds(status),
            waiting: status.report.waiting.len(),
            why: why_of(status),
            blamed: push.map(|push| classes(status, &push.blamed)).unwrap_or_default(),
            barred: classes(status, &status.report.barred),
            unproved: status.unproved,
            condemned_served: status.condemned_served.len(),
            pinned: Pinned::of(status),
            diverged: classes(status, &status.diverged),
            frozen_until: frozen_until(status),
            full: status.report.is_full,
            left_out: classes(status, &status.report.left_out),
            waits_for_server: status.report.waits_for_server,
            releases: &status.report.releases,
        }
    }
}

/// The verdict about the latest push, and the wait for a server. A push that clients keep may be halted while another one waits.
fn why_of(status: &RolloutStatus) -> Option<String> {
    let verdict = status.report.push.as_deref().and_then(why);
    let parts: Vec<_> = verdict.into_iter().chain(without_server(&status.report)).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn classes<'a>(status: &'a RolloutStatus, units: &[UnitId]) -> Vec<&'a str> {
    units.iter().filter_map(|unit| Some(&*status.units.get(unit)?.class.digest)).collect()
}

/// A plan with its latest push in full.
#[derive(Debug, Serialize)]
pub(super) struct Plan<'a> {
    #[serde(flatten)]
    state: Rollout<'a>,
    about: &'static str,
    covers: Vec<Unit<'a>>,
    waits: Vec<Unit<'a>>,
    latest: Option<WholePush<'a>>,
    /// The numbers of the pushes that the plan remembers, the latest first.
    pushes: Vec<u64>,
    /// The contents that no push may bring (TRU-4).
    condemned: AllCondemned<'a>,
}

/// Contents, the latest first, bounded, and their number.
#[derive(Debug, Serialize)]
struct AllCondemned<'a> {
    count: usize,
    contents: Vec<CondemnedUntil<'a>>,
}

#[derive(Debug, Serialize)]
struct CondemnedUntil<'a> {
    r#type: &'a str,
    name: &'a str,
    version: String,
    /// The time at which the plan forgets the content.
    until: String,
    /// All clients of some unit are served the content.
    served: bool,
}

impl<'a> Plan<'a> {
    pub fn of(status: &'a RolloutStatus) -> Plan<'a> {
        Plan {
            state: Rollout::of(status),
            about: ABOUT,
            covers: units(status, status.units.keys()),
            waits: units(status, &status.report.waiting),
            latest: status.report.push.as_deref().map(|push| WholePush::of(status, push)),
            pushes: of_plan(status).map(|push| push.number).collect(),
            condemned: all_condemned(status),
        }
    }
}

fn all_condemned(status: &RolloutStatus) -> AllCondemned<'_> {
    let latest = status.condemned.latest_first().take(CONDEMNED_MAX);
    let contents = latest.map(|(end, content)| CondemnedUntil {
        r#type: content.0.message(),
        name: content.1.as_str(),
        version: content.2.to_string(),
        until: rfc_3339(status.wall(*end)),
        served: status.condemned_served.contains(content),
    });
    AllCondemned { count: status.condemned.len(), contents: contents.collect() }
}

/// A unit: a source.
#[derive(Debug, Serialize)]
struct Unit<'a> {
    source: u64,
    server: &'a str,
    list: &'a str,
    class: &'a str,
}

fn units<'a>(status: &'a RolloutStatus, ids: impl IntoIterator<Item = &'a UnitId>) -> Vec<Unit<'a>> {
    let unit = |id: &UnitId| {
        let of = status.units.get(id)?;
        Some(Unit { source: id.0, server: &of.server, list: &of.list, class: &of.class.digest })
    };
    ids.into_iter().filter_map(unit).collect()
}

/// A push in a list.
#[derive(Debug, Serialize)]
pub(super) struct Push<'a> {
    plan: &'a str,
    push: u64,
    state: &'static str,
    /// Null while the push is not over.
    outcome: Option<&'static str>,
    /// The end of the gathering.
    began: String,
    ended: Option<String>,
    seconds: Option<f64>,
    step: u8,
    steps: u8,
    units: usize,
    /// Resources that changed, were added or removed; in several units, several times.
    resources: usize,
    clients: u64,
    #[serde(flatten)]
    admitted: Clients,
    others: Clients,
    why: Option<String>,
    blamed: Vec<&'a str>,
}

impl<'a> Push<'a> {
    pub fn of(status: &'a RolloutStatus, push: &PushReport) -> Push<'a> {
        let wall = |time: Time| rfc_3339(status.wall(time));
        Push {
            plan: &status.plan.name,
            push: push.number,
            state: push.state.name(),
            outcome: push.end.map(|end| end.outcome.name()),
            began: wall(push.began),
            ended: push.end.map(|end| wall(end.at)),
            seconds: push.end.map(|end| end.at.since(push.began).as_secs_f64()),
            step: push.reached(),
            steps: push.step_count,
            units: push.units.len(),
            resources: push.resources(),
            clients: push.admitted.affected(),
            admitted: push.admitted.into(),
            others: push.others.into(),
            why: why(push),
            blamed: classes(status, &push.blamed),
        }
    }
}

/// A push in full.
#[derive(Debug, Serialize)]
pub(super) struct WholePush<'a> {
    #[serde(flatten)]
    push: Push<'a>,
    about: &'static str,
    gathered_from: String,
    types: Vec<Type<'a>>,
    way: Vec<Step>,
    sources: Vec<Unit<'a>>,
    /// The contents that may be the reason for rejections, those named by most clients first.
    suspects: Vec<Suspect<'a>>,
    rejections: Vec<RejectedBy<'a>>,
    condemned: Vec<Suspect<'a>>,
    /// Changed and added resources that no admitted client was sent so far.
    without_evidence: Vec<Unsent<'a>>,
    notes: Vec<String>,
    /// Null without a hook.
    hook: Option<HookItem<'a>>,
}

/// The latest question to the hook.
#[derive(Debug, Serialize)]
struct HookItem<'a> {
    /// The step at whose end the hook was asked; 0: before the first step.
    step: u8,
    asked: String,
    /// `go`, `wait`, `halt` or `failed`; null: no answer yet.
    verdict: Option<&'static str>,
    reason: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Type<'a> {
    r#type: &'a str,
    #[serde(flatten)]
    names: Names<'a>,
    resources: BeforeAfter,
    bytes: BeforeAfter,
    largest: Option<Largest<'a>>,
}

#[derive(Debug, Serialize)]
struct BeforeAfter {
    before: u64,
    after: u64,
}

/// Resources of a type, bounded, and their number.
#[derive(Debug, Serialize)]
struct Unsent<'a> {
    r#type: &'a str,
    names: Vec<&'a str>,
    count: usize,
}

/// The changed resource that grew by most bytes.
#[derive(Debug, Serialize)]
struct Largest<'a> {
    name: &'a str,
    bytes: BeforeAfter,
}

#[derive(Debug, Serialize)]
struct Step {
    step: u8,
    percent: f64,
    began: String,
    ended: Option<String>,
    clients: u64,
    #[serde(flatten)]
    admitted: Clients,
}

#[derive(Debug, Serialize)]
struct Suspect<'a> {
    r#type: &'a str,
    name: &'a str,
    version: String,
    /// Rejections in the list that suspect the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    rejections: Option<usize>,
}

#[derive(Debug, Serialize)]
struct RejectedBy<'a> {
    id: u64,
    node: &'a str,
    class: Option<&'a str>,
    r#type: &'a str,
    message: &'a str,
    suspects: Vec<&'a str>,
    bucket: u16,
    /// The step whose labels name the client.
    labelled_step: Option<u8>,
    known_rejecter: bool,
}

impl<'a> WholePush<'a> {
    pub fn of(status: &'a RolloutStatus, push: &'a PushReport) -> WholePush<'a> {
        let wall = |time: Time| rfc_3339(status.wall(time));
        let step = |of: &StepReport| Step {
            step: of.number,
            percent: step_percent(of),
            began: wall(of.began),
            ended: of.ended.map(wall),
            clients: of.admitted.affected(),
            admitted: of.admitted.into(),
        };
        WholePush {
            push: Push::of(status, push),
            about: ABOUT,
            gathered_from: wall(push.gathered_from),
            types: push.types.iter().map(type_of).collect(),
            way: push.steps.iter().map(step).collect(),
            sources: units(status, &push.units),
            suspects: suspects(&push.rejections),
            rejections: push.rejections.iter().map(|of| rejection(status, of)).collect(),
            condemned: push.condemned.iter().map(condemned).collect(),
            without_evidence: push.without_evidence.iter().map(unsent).collect(),
            notes: push.notes.iter().map(note_text).collect(),
            hook: push.hook.as_ref().map(|hook| HookItem {
                step: hook.step,
                asked: wall(hook.asked),
                verdict: hook.answer.as_ref().map(|answer| answer.verdict.name()),
                reason: hook.answer.as_ref().map(|answer| &*answer.reason),
            }),
        }
    }
}

fn type_of(of: &TypePush) -> Type<'_> {
    fn names(list: &NameList) -> (&[ResourceName], usize) {
        (&list.names, list.count)
    }
    Type {
        r#type: of.type_url.message(),
        names: Names::of(names(&of.added), names(&of.changed), names(&of.removed)),
        resources: before_after(of.resources),
        bytes: before_after(of.bytes),
        largest: of
            .largest
            .as_ref()
            .map(|(name, growth)| Largest { name: name.as_str(), bytes: before_after(*growth) }),
    }
}

fn unsent((type_url, of): &(TypeUrl, NameList)) -> Unsent<'_> {
    let names = of.names.iter().map(ResourceName::as_str).collect();
    Unsent { r#type: type_url.message(), names, count: of.count }
}

fn before_after(Growth { before, after }: Growth) -> BeforeAfter {
    BeforeAfter { before, after }
}

/// Each suspect once, with the number of rejections that suspect it.
fn suspects(rejections: &[Rejection]) -> Vec<Suspect<'_>> {
    let mut found: BTreeMap<_, usize> = BTreeMap::new();
    for of in rejections {
        for (name, version) in &of.suspects {
            *found.entry((of.type_url.message(), name.as_str(), version.to_string())).or_default() += 1;
        }
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let suspect =
        |((r#type, name, version), count)| Suspect { r#type, name, version, rejections: Some(count) };
    found.into_iter().map(suspect).collect()
}

fn condemned(of: &Condemned) -> Suspect<'_> {
    let version = of.version.to_string();
    Suspect { r#type: of.type_url.message(), name: of.name.as_str(), version, rejections: None }
}

fn rejection<'a>(status: &'a RolloutStatus, of: &'a Rejection) -> RejectedBy<'a> {
    RejectedBy {
        id: of.stream,
        node: &of.node,
        class: status.units.get(&of.unit).map(|unit| &*unit.class.digest),
        r#type: of.type_url.message(),
        message: &of.words,
        suspects: of.suspects.iter().map(|(name, _)| name.as_str()).collect(),
        bucket: of.seat.bucket,
        labelled_step: of.seat.labelled_step,
        known_rejecter: of.is_known_rejecter,
    }
}
