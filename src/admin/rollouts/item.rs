//! Plans and pushes in JSON.

use std::collections::BTreeMap;
use std::time::SystemTime;

use sluice_admin_api::Text;
use sluice_admin_api::rollouts::{
    CondemnedList, CondemnedUntil, HookQuestion, LargestGrowth, LiveReplica, Pinned, PlanState, Push,
    PushRejection, PushStep, PushedType, SharedPlan, StepLoad, SuspectContent, Unit, UnsentNames, WholePlan,
    WholePush,
};

use super::super::changes::{BoundedNames, changed_names};
use super::super::item::{names, rfc_3339};
use super::of_plan;
use crate::driver::api::rollouts::RolloutStatus;
use crate::telemetry::rollouts::{joins_text, load_text, note_text, percent, why, without_server};
use sluice_engine::Time;
use sluice_engine::change::NameList;
use sluice_fleet::rollout::command::Until;
use sluice_fleet::rollout::load::LoadJudgement;
use sluice_fleet::rollout::push::{Content, TypePush};
use sluice_fleet::rollout::report::{ReplicaReport, StepReport};
use sluice_fleet::rollout::tally::Rejection;
use sluice_fleet::rollout::{PushReport, UnitId};

/// TRU-5, beside the numbers.
pub(super) const ABOUT: &str =
    "accepted means that a client acknowledged the push, not that the client uses it";

/// The condemned contents in an answer. A plan may remember many more.
const CONDEMNED_MAX: usize = 100;

pub(in crate::admin) fn pinned(status: &RolloutStatus) -> Option<Pinned> {
    let pin = status.report.pin?;
    let until = match pin.until {
        Until::NextPush => "next_push".to_owned(),
        Until::Unpin => "unpin".to_owned(),
        Until::Time(until) => rfc_3339(status.wall(until)),
    };
    Some(Pinned { release: pin.release, until })
}

/// The end of a freeze.
pub(in crate::admin) fn frozen_until(status: &RolloutStatus) -> Option<String> {
    status.report.frozen_until.map(|until| rfc_3339(status.wall(until)))
}

/// The age of the oldest change that is held from somebody.
pub(in crate::admin) fn behind_seconds(status: &RolloutStatus) -> f64 {
    let age = |since: SystemTime| since.elapsed().unwrap_or_default().as_secs_f64();
    status.behind_from().map_or(0.0, age)
}

/// A plan, and the state of its latest push.
pub(super) fn plan_state_of(status: &RolloutStatus) -> PlanState<'_> {
    let push = status.report.push.as_deref();
    let (admitted, others) = push.map(|push| (push.admitted, push.others)).unwrap_or_default();
    PlanState {
        name: Text::Borrowed(&status.plan.name),
        mode: Text::Borrowed(status.plan.mode.name()),
        state: Text::Borrowed(status.report.state.name()),
        push: push.map(|push| push.number),
        step: push.map_or(0, PushReport::reached),
        steps: push.map_or_else(|| status.plan.step_count(), |push| push.step_count),
        percent: push.and_then(|push| push.steps.last()).map(|step| percent(step.threshold)),
        units: status.units.len(),
        clients: admitted.affected(),
        admitted,
        others,
        behind_seconds: behind_seconds(status),
        waiting: status.report.waiting.len(),
        why: why_of(status),
        blamed: push.map(|push| classes(status, &push.blamed)).unwrap_or_default(),
        barred: classes(status, &status.report.barred),
        unproved: status.unproved,
        condemned_served: status.condemned_served.len(),
        pinned: pinned(status),
        diverged: classes(status, &status.diverged),
        frozen_until: frozen_until(status),
        full: status.report.is_full,
        left_out: classes(status, &status.report.left_out),
        waits_for_server: status.report.waits_for_server,
        unsaved: status.is_unsaved,
        releases: status.report.releases.clone(),
        ledger: shared_plan(status),
    }
}

/// The plan as the replicas have it.
pub(in crate::admin) fn shared_plan(status: &RolloutStatus) -> Option<SharedPlan> {
    let shared = status.report.shared.as_ref()?;
    let replica = |replica: &ReplicaReport| LiveReplica {
        name: replica.name.to_string(),
        push: replica.push,
        step: replica.step,
        takes_part: replica.takes_part,
        behind: replica.is_behind,
        diverged: replica.is_diverged,
        clients: replica.clients,
    };
    Some(SharedPlan {
        replica: shared.replica.to_string(),
        fault: shared.fault.as_deref().map(str::to_owned),
        push: shared.push,
        state: shared.state.name().to_owned(),
        step: shared.step,
        unwritten: shared.is_unwritten,
        diverged: !shared.diverged.is_empty(),
        divergence: shared.diverged.iter().map(ToString::to_string).collect(),
        waits: shared.waits.map(str::to_owned),
        newcomers: status.newcomers.joins().as_ref().map(joins_text),
        replicas: shared.replicas.iter().map(replica).collect(),
        silent: shared.silent.iter().map(ToString::to_string).collect(),
    })
}

/// The verdict about the latest push, and the wait for a server. A push that clients keep may be halted while
/// another one waits.
fn why_of(status: &RolloutStatus) -> Option<String> {
    let verdict = status.report.push.as_deref().and_then(why);
    let parts: Vec<_> = verdict.into_iter().chain(without_server(&status.report)).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn classes<'a>(status: &'a RolloutStatus, units: &[UnitId]) -> Vec<Text<'a>> {
    units.iter().filter_map(|unit| Some(Text::Borrowed(&*status.units.get(unit)?.class.digest))).collect()
}

/// A plan with its latest push in full.
pub(super) fn whole_plan(status: &RolloutStatus) -> WholePlan<'_> {
    WholePlan {
        state: plan_state_of(status),
        about: Text::Borrowed(ABOUT),
        covers: units(status, status.units.keys()),
        waits: units(status, &status.report.waiting),
        latest: status.report.push.as_deref().map(|push| whole_push(status, push)),
        pushes: of_plan(status).map(|push| push.number).collect(),
        condemned: all_condemned(status),
    }
}

fn all_condemned(status: &RolloutStatus) -> CondemnedList<'_> {
    let latest = status.condemned.latest_first().take(CONDEMNED_MAX);
    let contents = latest.map(|(end, content)| CondemnedUntil {
        r#type: Text::Borrowed(content.0.message()),
        name: Text::Borrowed(content.1.as_str()),
        version: content.2.to_string(),
        until: rfc_3339(status.wall(*end)),
        served: status.condemned_served.contains(content),
    });
    CondemnedList { count: status.condemned.len(), contents: contents.collect() }
}

fn units<'a>(status: &'a RolloutStatus, ids: impl IntoIterator<Item = &'a UnitId>) -> Vec<Unit<'a>> {
    let unit = |id: &UnitId| {
        let unit = status.units.get(id)?;
        Some(Unit {
            source: id.0,
            server: Text::Borrowed(&unit.server),
            list: Text::Borrowed(&unit.list),
            class: Text::Borrowed(&unit.class.digest),
        })
    };
    ids.into_iter().filter_map(unit).collect()
}

/// A push in a list.
pub(super) fn push<'a>(status: &'a RolloutStatus, push: &PushReport) -> Push<'a> {
    let wall = |time: Time| rfc_3339(status.wall(time));
    Push {
        plan: Text::Borrowed(&status.plan.name),
        push: push.number,
        state: Text::Borrowed(push.state.name()),
        outcome: push.end.map(|end| Text::Borrowed(end.outcome.name())),
        began: wall(push.began),
        ended: push.end.map(|end| wall(end.at)),
        seconds: push.end.map(|end| end.at.since(push.began).as_secs_f64()),
        step: push.reached(),
        steps: push.step_count,
        units: push.units.len(),
        resources: push.resources(),
        clients: push.admitted.affected(),
        admitted: push.admitted,
        others: push.others,
        why: why(push),
        blamed: classes(status, &push.blamed),
    }
}

/// A push in full.
pub(super) fn whole_push<'a>(status: &'a RolloutStatus, push: &'a PushReport) -> WholePush<'a> {
    let wall = |time: Time| rfc_3339(status.wall(time));
    let step = |step: &StepReport| PushStep {
        step: step.number,
        percent: percent(step.threshold),
        began: wall(step.began),
        ended: step.ended.map(wall),
        clients: step.admitted.affected(),
        admitted: step.admitted,
        load: step.load.as_ref().map(step_load),
    };
    WholePush {
        push: self::push(status, push),
        about: Text::Borrowed(ABOUT),
        gathered_from: wall(push.gathered_from),
        types: push.types.iter().map(pushed_type).collect(),
        way: push.steps.iter().map(step).collect(),
        sources: units(status, &push.units),
        suspects: suspects(&push.rejections),
        rejections: push.rejections.iter().map(|refused| rejection(status, refused)).collect(),
        condemned: push.condemned.iter().map(condemned).collect(),
        without_evidence: push
            .without_evidence
            .iter()
            .map(|(type_url, list)| UnsentNames {
                r#type: Text::Borrowed(type_url.message()),
                names: names(&list.names),
                count: list.count,
            })
            .collect(),
        notes: push.notes.iter().map(note_text).collect(),
        hook: push.hook.as_ref().map(|hook| HookQuestion {
            step: hook.step,
            asked: wall(hook.asked),
            verdict: hook.answer.as_ref().map(|answer| Text::Borrowed(answer.verdict.name())),
            reason: hook.answer.as_ref().map(|answer| Text::Borrowed(&*answer.reason)),
        }),
    }
}

fn step_load(judgement: &LoadJudgement) -> StepLoad {
    StepLoad { verdict: judgement.name().to_owned(), why: load_text(judgement) }
}

fn pushed_type(push: &TypePush) -> PushedType<'_> {
    fn bounded(list: &NameList) -> BoundedNames<'_> {
        BoundedNames { names: &list.names, count: list.count }
    }
    PushedType {
        r#type: Text::Borrowed(push.type_url.message()),
        names: changed_names(bounded(&push.added), bounded(&push.changed), bounded(&push.removed)),
        resources: push.resources,
        bytes: push.bytes,
        largest: push
            .largest
            .as_ref()
            .map(|(name, bytes)| LargestGrowth { name: Text::Borrowed(name.as_str()), bytes: *bytes }),
    }
}

/// Each suspect once, with the number of rejections that suspect it.
fn suspects(rejections: &[Rejection]) -> Vec<SuspectContent<'_>> {
    let mut counts: BTreeMap<_, usize> = BTreeMap::new();
    for rejection in rejections {
        for (name, version) in &rejection.suspects {
            let content = (rejection.type_url.message(), name.as_str(), version.to_string());
            *counts.entry(content).or_default() += 1;
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let suspects = counts.into_iter().map(|((message, name, version), count)| SuspectContent {
        r#type: Text::Borrowed(message),
        name: Text::Borrowed(name),
        version,
        rejections: Some(count),
    });
    suspects.collect()
}

fn condemned(content: &Content) -> SuspectContent<'_> {
    let (type_url, name, version) = content;
    SuspectContent {
        r#type: Text::Borrowed(type_url.message()),
        name: Text::Borrowed(name.as_str()),
        version: version.to_string(),
        rejections: None,
    }
}

fn rejection<'a>(status: &'a RolloutStatus, rejection: &'a Rejection) -> PushRejection<'a> {
    let unit = status.units.get(&rejection.unit);
    PushRejection {
        id: rejection.stream,
        node: Text::Borrowed(&rejection.node),
        class: unit.map(|unit| Text::Borrowed(&*unit.class.digest)),
        r#type: Text::Borrowed(rejection.type_url.message()),
        message: Text::Borrowed(&rejection.words),
        suspects: rejection.suspects.iter().map(|(name, _)| Text::Borrowed(name.as_str())).collect(),
        bucket: rejection.seat.bucket,
        labelled_step: rejection.seat.labelled_step,
        known_rejecter: rejection.is_known_rejecter,
    }
}
