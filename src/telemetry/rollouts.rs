//! The fate of pushes, in words: the log, the events, and the verdicts in every answer (WAV-19).

use std::collections::BTreeSet;

use super::events::{Events, Occurrence, tell};
use super::metrics::PlanMetrics;
use super::throttle::Throttle;
use sluice_fleet::evidence::Content;
use sluice_fleet::rollout::hook::{HookAnswer, HookVerdict};
use sluice_fleet::rollout::load::{ClusterRequests, Deaf, LoadJudgement, Missing, Requests, WorseLoad};
use sluice_fleet::rollout::push::{Finding, FindingKind, Growth};
use sluice_fleet::rollout::report::{Grown, GrownPart, Note, PushReport, Reason, Verdict};
use sluice_fleet::rollout::{Mode, RolloutEvent, RolloutReport, RolloutState, What};
use sluice_text::{count, size, span};

/// The ring of events, as one push of a plan adds to it.
struct PushEvents<'a> {
    events: &'a Events,
    plan: &'a str,
    push: u64,
}

impl PushEvents<'_> {
    fn add(&self, occurrence: Occurrence) {
        self.events.add(occurrence.of_push(self.plan, self.push));
    }
}

/// Logs, counts and records a change of a plan's state. `report`: the report after the change.
pub fn tell(events: &Events, metrics: &PlanMetrics, event: &RolloutEvent, report: &RolloutReport) {
    let RolloutEvent { push, what } = event;
    let plan = metrics.name();
    let events = PushEvents { events, plan, push: *push };
    match what {
        What::Gathered { units, resources } => {
            let detail = format!("{} in {}", resources_of(*resources), count(*units as u64, "unit"));
            tell!(events, info(Push, "a push has begun").detail(detail); { plan, push, units, resources });
        }
        What::StepBegun { step, steps, threshold } => {
            let percent = percent(*threshold);
            tell!(events, info(Push, "a push has reached a step").detail(format_args!("step {step} of {steps}, {percent} %"));
                { plan, push, step, steps, percent });
        }
        What::Settling => {
            tell!(events, info(Push, "all clients are admitted to a push");
                { plan, push } + "; the final bake has begun");
        }
        What::Note(note) => tell_note(&events, note),
        What::Halted(_) | What::Paused(_) => {
            let judged = find(report, *push);
            let why = judged.and_then(why).unwrap_or_default();
            let enforces = judged.is_some_and(|push| push.mode == Mode::Enforce);
            let text = match (matches!(what, What::Halted(_)), enforces) {
                (true, false) => {
                    "clients speak against a push; a plan that enforces would have halted the push"
                }
                (false, false) => "a push lacks evidence; a plan that enforces would have paused the push",
                (true, true) => "a push is halted",
                (false, true) => "a push is paused",
            };
            tell!(events, warn(Push, text).detail(&why); { plan, push, why } = "{text}");
        }
        What::HookSaid { step, answer } => tell_hook(&events, *step, answer),
        What::LoadJudged { step, judgement } => {
            metrics.judged_load(judgement.name());
            if let LoadJudgement::CannotTell(missing) = judgement {
                let missing = missing_text(missing);
                tell!(events, info(Push, "load reports cannot tell whether a step is worse").detail(&missing);
                    { plan, push, step, missing } = "a step of a push is over, and load reports cannot tell whether it was worse");
            }
        }
        What::Resumed => tell!(events, info(Push, "a paused push has gone on"); { plan, push }),
        What::Condemned(condemned) => {
            let content = content(condemned);
            tell!(events, warn(Push, "clients rejected a content by name so often that later pushes with the content halt")
                .detail(&content); { plan, push, content });
        }
        What::Over(outcome) => {
            metrics.is_over(*outcome);
            tell!(events, info(Push, "a push is over").detail(outcome.name()); { plan, push, outcome = outcome.name() });
        }
        What::Barred(_)
        | What::Pinned(_)
        | What::Unpinned(_)
        | What::Lacking(_)
        | What::Frozen(_)
        | What::Unfrozen
        | What::Full => tell_of_operator(&events, what),
    }
}

/// The orders of operators, and a limit.
fn tell_of_operator(events: &PushEvents<'_>, what: &What) {
    let plan = events.plan;
    match what {
        What::Barred(unit) => {
            tell!(events, info(Push, "a unit waits, and the others go on").detail(unit.0); { plan, source = unit.0 });
        }
        What::Pinned(release) => {
            tell!(events, warn(Push, "a release of the past is served").detail(release);
                { plan, release } + " to all clients");
        }
        What::Unpinned(release) => {
            tell!(events, info(Push, "a release of the past is pinned no longer").detail(release); { plan, release });
        }
        What::Lacking(release) => {
            tell!(events, warn(Push, "a release of the past is pinned, and is not here").detail(release);
                { plan, release } + ": clients stay with what they had before the latest push");
        }
        What::Frozen(left) => {
            let left = span(*left);
            tell!(events, warn(Push, "an operator froze the plan").detail(&left);
                { plan, left } = "no push begins: an operator froze the plan");
        }
        What::Unfrozen => {
            tell!(events, info(Push, "a freeze is over"); { plan } = "pushes begin again: the freeze is over");
        }
        What::Full => {
            tell!(events, warn(Push, "no push begins: held contents take too many bytes");
                { plan } = "no push begins: the contents that are held take too many bytes");
        }
        _ => {}
    }
}

/// A unit gave condemned contents as first answers (QUA-5).
pub fn tell_given(
    events: &Events,
    throttle: &Throttle,
    metrics: &PlanMetrics,
    push: u64,
    contents: &BTreeSet<Content>,
) {
    metrics.gave_condemned(contents.len() as u64);
    let Some(first) = contents.first() else { return };
    let (plan, content) = (metrics.name(), content(first));
    tell!(events, warn(Push, "clients are given a condemned or halted content: nothing older is known")
        .of_push(plan, push).detail(&content), if throttle.allow("condemned content");
        { plan, content, contents = contents.len() });
}

/// Units without content from before a push (LDG-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joins {
    pub units: usize,
    /// `None`: clients wait for the first word of the ledger.
    pub push: Option<u64>,
    /// The clients are given the push (`ledger.join: live`).
    pub is_served: bool,
}

/// `clients of 2 units wait for push 41: the units have no content from before it`.
pub fn joins_text(joins: &Joins) -> String {
    let units = count(joins.units as u64, "unit");
    match (joins.push, joins.is_served) {
        (Some(push), false) => {
            format!("clients of {units} wait for push {push}: there is no content from before it here")
        }
        (None, false) => format!("clients of {units} wait for the first word of the ledger"),
        (Some(push), true) => format!(
            "clients of {units} are all given push {push}: there is no content from before it here, and `ledger.join` is live"
        ),
        (None, true) => {
            format!("clients of {units} are given the newest content before the first word of the ledger")
        }
    }
}

/// Tells that another replica has condemned a content that this one has.
pub fn tell_learned(events: &Events, plan: &str, push: u64, condemned: &Content) {
    let (events, content) = (PushEvents { events, plan, push }, content(condemned));
    tell!(events, warn(Push, "another replica has condemned a content, and later pushes with the content halt")
        .detail(&content); { plan, push, content });
}

/// Tells the begin, the change and the end of a wait of clients.
pub fn tell_newcomers(events: &Events, plan: &str, before: Option<&Joins>, now: Option<&Joins>) {
    let cause = |joins: &Joins| (joins.push, joins.is_served);
    match (before, now) {
        (before, Some(now)) if before.map(cause) != Some(cause(now)) => {
            let (events, text) =
                (PushEvents { events, plan, push: now.push.unwrap_or_default() }, joins_text(now));
            let Joins { units, push, .. } = *now;
            let push = push.unwrap_or_default();
            tell!(events, warn(Push, "units without stable content come to a push").detail(&text);
                { plan, push, units, text } = "units without stable content come to a push that is under way elsewhere");
        }
        (Some(before), None) => {
            let push = before.push.unwrap_or_default();
            let events = PushEvents { events, plan, push };
            tell!(events, info(Push, "no units without stable content wait any longer"); { plan, push });
        }
        _ => {}
    }
}

fn tell_note(events: &PushEvents<'_>, note: &Note) {
    let PushEvents { plan, push, .. } = events;
    let text = note_text(note);
    match note {
        Note::Grown(_) | Note::Found(_) => {
            tell!(events, warn(Push, "a guard warns of a push").detail(&text); { plan, push, finding = text });
        }
        Note::NobodyInStep(_) | Note::NoVoiceInStep { .. } | Note::OnlyRelaysInStep(_) => {
            tell!(events, info(Push, "a step of a push gave no evidence").detail(&text); { plan, push, note = text });
        }
    }
}

/// A new answer of the hook. A halt has words of its own.
fn tell_hook(events: &PushEvents<'_>, step: u8, answer: &HookAnswer) {
    let PushEvents { plan, push, .. } = events;
    let reason = &*answer.reason;
    match answer.verdict {
        HookVerdict::Go => {
            tell!(events, info(Push, "the hook lets a push go on").detail(reason); { plan, push, step, reason });
        }
        HookVerdict::Wait => {
            tell!(events, info(Push, "the hook lets a push wait").detail(reason); { plan, push, step, reason });
        }
        HookVerdict::Failed => {
            tell!(events, warn(Push, "the hook gives no verdict").detail(reason);
                { plan, push, step, reason } = "the hook of a plan gives no verdict, and the push waits");
        }
        HookVerdict::Halt => {}
    }
}

fn find(report: &RolloutReport, number: u64) -> Option<&PushReport> {
    let all = report.push.iter().chain(&report.past);
    all.map(|push| &**push).find(|push| push.number == number)
}

/// Buckets as percent of the clients.
pub fn percent(threshold: u16) -> f64 {
    f64::from(threshold) / 100.0
}

/// The verdict of a push: `would have halted push 41 after 400ms and 12 clients; 4988 more had it: 1 of 12
/// clients rejected it`. A push of a plan that enforces did halt. `None` without a verdict.
pub fn why(push: &PushReport) -> Option<String> {
    let verdict = push.verdict.as_ref()?;
    let Verdict { after, step, clients, reason, .. } = verdict;
    let verb = if push.state == RolloutState::Halted { "halted" } else { "paused" };
    let had = push.others.answered();
    if push.mode == Mode::Enforce {
        let when = match step {
            0 => "before its first client".to_owned(),
            _ => format!("after {} and {}", span(*after), count(*clients, "client")),
        };
        return Some(format!("{verb} push {} {when}: {}", push.number, reason_text(reason)));
    }
    let when = match step {
        0 => format!("before its first client; {} had it", count(had + push.admitted.answered(), "client")),
        _ => format!("after {} and {}; {had} more had it", span(*after), count(*clients, "client")),
    };
    Some(format!("would have {verb} push {} {when}: {}", push.number, reason_text(reason)))
}

/// The orders, the bound and the hook that keep pushes from going on: `serves release 40 to all clients`.
pub fn stands(report: &RolloutReport) -> Vec<String> {
    let pinned = report.pin.map(|pin| format!("serves release {} to all clients: pinned", pin.release));
    let frozen = report.frozen_until.map(|_| "begins no push: frozen".to_owned());
    let full = report.is_full.then(|| "begins no push: held contents take too many bytes".to_owned());
    let lost = without_server(report);
    let barred = match report.barred.len() as u64 {
        0 => None,
        units => Some(format!("goes on without {}: barred", count(units, "unit"))),
    };
    let hook = report.push.as_deref().and_then(hook_waits);
    [pinned, frozen, full, lost, barred, hook].into_iter().flatten().collect()
}

/// The wait for a server that is lost (WAV-18).
pub fn without_server(report: &RolloutReport) -> Option<String> {
    match report.left_out.len() as u64 {
        _ if report.waits_for_server => Some("begins no push: a server cannot be heard".to_owned()),
        0 => None,
        1 => Some("goes on without 1 unit: its server cannot be heard".to_owned()),
        units => Some(format!("goes on without {units} units: their servers cannot be heard")),
    }
}

/// The hook keeps a push from its next step. `None` also if the verdict of the push says so.
fn hook_waits(push: &PushReport) -> Option<String> {
    let hook = push.hook.as_ref().filter(|_| push.verdict.is_none() && push.end.is_none())?;
    let reached = push.reached();
    let answer = hook.answer.as_ref();
    if hook.step != reached || answer.is_some_and(|answer| answer.verdict == HookVerdict::Go) {
        return None;
    }
    let place = place_of(reached);
    let words = answer.map_or_else(|| "no answer yet".to_owned(), hook_text);
    Some(format!("asks its hook {place}: {words}"))
}

/// The word of the hook that let the push go on.
pub fn hook_note(push: &PushReport) -> Option<String> {
    let hook = push.hook.as_ref()?;
    let answer = hook.answer.as_ref().filter(|answer| answer.verdict == HookVerdict::Go)?;
    Some(format!("{}, {}", place_of(hook.step), hook_text(answer)))
}

/// The moment of a question to the hook.
fn place_of(step: u8) -> String {
    match step {
        0 => "before the first step".to_owned(),
        step => format!("after step {step}"),
    }
}

/// An answer of the hook in words.
pub fn hook_text(answer: &HookAnswer) -> String {
    let reason = if answer.reason.is_empty() { "no reason given" } else { &*answer.reason };
    match answer.verdict {
        HookVerdict::Go => format!("the hook lets it go on: {reason}"),
        HookVerdict::Wait => format!("the hook lets it wait: {reason}"),
        HookVerdict::Halt => format!("the hook halted it: {reason}"),
        HookVerdict::Failed => format!("the hook gives no verdict: {reason}"),
    }
}

/// The words of load reports about each step.
pub fn load_notes(push: &PushReport) -> impl Iterator<Item = String> {
    let judged = push.steps.iter().filter_map(|step| Some((step.number, step.load.as_ref()?)));
    judged.map(|(step, judgement)| format!("step {step}: {}", load_text(judgement)))
}

/// A judgement by load reports in words.
pub fn load_text(judgement: &LoadJudgement) -> String {
    match judgement {
        LoadJudgement::Equal { clusters, uncompared } => {
            let clusters = count(*clusters as u64, "cluster");
            let rest = match uncompared {
                0 => String::new(),
                more => {
                    format!("; {} had too few requests of one group", count(*more as u64, "other cluster"))
                }
            };
            format!("by load reports, none of {clusters} fails more often with the push{rest}")
        }
        LoadJudgement::Worse(worse) => format!("by load reports, {}", worse_text(worse)),
        LoadJudgement::CannotTell(missing) => format!("load reports cannot tell: {}", missing_text(missing)),
    }
}

fn missing_text(missing: &[Missing]) -> String {
    let text = |missing: &Missing| match missing {
        Missing::Streams => "no client of the plan has a stream of load reports".to_owned(),
        Missing::AdmittedReporters => "no client with the push has reported since the step began".to_owned(),
        Missing::OtherReporters => "no client without the push has reported since the step began".to_owned(),
        Missing::Requests { most, needed } => {
            format!("no cluster has {needed} requests of both groups of clients, at most {most}")
        }
        Missing::Control => {
            "a label or a place chose the clients, so the others are no comparison".to_owned()
        }
        Missing::Deaf(Deaf::Listener(name)) => {
            format!("the listener {name:?} does not take the load reports of its clients (`load_reports`)")
        }
        Missing::Deaf(Deaf::List(list)) => format!("no server of {list} takes load reports (`lrs`)"),
        Missing::Deaf(Deaf::Server(uri)) => {
            format!("the server {uri} has no service for load reports, so clients are asked for none")
        }
        Missing::Time { bake, interval } => {
            let (bake, interval) = (span(*bake), span(*interval));
            format!(
                "the step bakes for {bake}, and a verdict takes two intervals of the reports, each {interval}"
            )
        }
    };
    missing.iter().map(text).collect::<Vec<_>>().join("; ")
}

/// The begin of a cluster's name, in words about the cluster.
const CLUSTER_BYTES_MAX: usize = 200;

fn worse_text(worse: &WorseLoad) -> String {
    let ClusterRequests { cluster, admitted, others, .. } = &worse.worst;
    let failed = |requests: &Requests| {
        format!("{:.1}% of {}", requests.error_share() * 100.0, count(requests.finished, "request"))
    };
    let more = match worse.more {
        0 => String::new(),
        more => format!(", and so do those to {}", count(more as u64, "other cluster")),
    };
    let (with, without) = (failed(admitted), failed(others));
    let cluster = &cluster[..cluster.floor_char_boundary(CLUSTER_BYTES_MAX)];
    format!("{with} to {cluster:?} fail with the push, and {without} without it{more}")
}

fn reason_text(reason: &Reason) -> String {
    match reason {
        Reason::Errors(worse) => worse_text(worse),
        Reason::Rejected { rejected, clients } => {
            format!("{rejected} of {} rejected it", count(*clients, "client"))
        }
        Reason::Lost { lost, clients, control } => format!(
            "{} of {} ended within a minute of the push, and {} of {} without it",
            count(*lost, "stream"),
            count(*clients, "client"),
            control.lost,
            control.clients
        ),
        Reason::Grown(grown) => grown_text(grown),
        Reason::Found(finding) => finding_text(finding),
        Reason::Condemned(item) => format!("it brings {}, which is condemned", content(item)),
        Reason::NoEvidence { accepted, clients } => {
            format!("only {accepted} of {} accepted it in time", count(*clients, "client"))
        }
        Reason::Hook(answer) => hook_text(answer),
        Reason::ServerLost(_) => "the server of one of its units is lost".to_owned(),
        Reason::Operator => "an operator stopped it".to_owned(),
        Reason::Frozen => "an operator froze the plan".to_owned(),
        Reason::Succeeded => "a new process decides".to_owned(),
        Reason::Restarted => "the relay has begun anew since".to_owned(),
        Reason::Ledger(why) => format!("the ledger is away: {why}"),
        Reason::Replica { replica, why } => format!("replica {replica} halted it: {why}"),
    }
}

/// A finding in words.
pub fn note_text(note: &Note) -> String {
    match note {
        Note::Grown(grown) => grown_text(grown),
        Note::Found(finding) => finding_text(finding),
        Note::NobodyInStep(step) => format!("step {step} had no client that the push affects"),
        Note::OnlyRelaysInStep(step) => {
            format!(
                "step {step} had only relays, which do not say what their clients accept: its bake is all the evidence"
            )
        }
        Note::NoVoiceInStep { step, overtaken, rejected_again } => {
            let overtaken = (*overtaken > 0)
                .then(|| format!("{} judged only a later change", count(*overtaken, "client")));
            let again = (*rejected_again > 0)
                .then(|| format!("{} had rejected the push before, too", count(*rejected_again, "client")));
            let parts: Vec<_> = overtaken.into_iter().chain(again).collect();
            format!("step {step} gave no evidence: {}", parts.join("; "))
        }
    }
}

fn finding_text(finding: &Finding) -> String {
    let Finding { kind, type_url, name, what, more } = finding;
    let resource = format!("{} {:?}", type_url.short(), name.as_str());
    let text = match kind {
        FindingKind::Unreadable => format!("{resource} has bytes that are no {what}"),
        FindingKind::Dangling => format!("{resource} names the cluster {what:?}, which does not exist"),
        FindingKind::GoneWhileUsed => format!("the cluster {what:?} goes, and {resource} names it"),
    };
    match more {
        0 => text,
        more => format!("{text}, and {more} more"),
    }
}

fn grown_text(grown: &Grown) -> String {
    let Grown { type_url, growth: Growth { before, after }, .. } = grown;
    let short = type_url.short();
    match &grown.part {
        GrownPart::Resource(name) => {
            format!("{short} {:?} grew from {} to {}", name.as_str(), size(*before), size(*after))
        }
        GrownPart::Bytes => {
            format!("the resources of {short} grew from {} to {}", size(*before), size(*after))
        }
        GrownPart::Count => format!("the number of resources of {short} grew from {before} to {after}"),
    }
}

/// A content by type, name and version.
pub fn content(content: &Content) -> String {
    let (type_url, name, version) = content;
    format!("{} {:?} {}", type_url.short(), name.as_str(), sluice_text::version(&version.to_string()))
}

fn resources_of(number: usize) -> String {
    count(number as u64, "resource")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::telemetry::Metrics;
    use sluice_engine::Time;
    use sluice_fleet::rollout::command::Until;
    use sluice_fleet::rollout::report::{Outcome, Pin};
    use sluice_fleet::rollout::tally::Control;
    use sluice_fleet::rollout::{Counts, UnitId};
    use sluice_xds::{ResourceName, TypeUrl, Version};

    fn push(state: RolloutState, step: u8, reason: Reason) -> PushReport {
        let (at, after) = (Time::ZERO, Duration::from_millis(400));
        PushReport {
            number: 41,
            mode: Mode::Observe,
            step_count: 4,
            gathered_from: at,
            began: at,
            state,
            end: None,
            units: vec![UnitId(1)],
            types: Vec::new(),
            steps: Vec::new(),
            verdict: Some(Verdict { at, after, step, clients: 12, reason }),
            notes: Vec::new(),
            admitted: Counts { accepted: 11, rejected: 1, ..Counts::default() },
            others: Counts { accepted: 4_988, pending: 7, ..Counts::default() },
            rejections: Vec::new(),
            blamed: Vec::new(),
            condemned: Vec::new(),
            without_evidence: Vec::new(),
            hook: None,
        }
    }

    fn grown(part: GrownPart, before: u64, after: u64) -> Reason {
        let type_url = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
        Reason::Grown(Grown { unit: UnitId(1), type_url, part, growth: Growth { before, after } })
    }

    #[test]
    fn wav_19_a_verdict_says_when_a_push_would_have_stopped_and_who_had_it() {
        let text = |state, step, reason| why(&push(state, step, reason)).unwrap();
        assert_eq!(
            text(RolloutState::Halted, 1, Reason::Rejected { rejected: 1, clients: 12 }),
            "would have halted push 41 after 400ms and 12 clients; 4988 more had it: 1 of 12 clients rejected it"
        );
        assert_eq!(
            text(RolloutState::Paused, 2, Reason::NoEvidence { accepted: 11, clients: 12 }),
            "would have paused push 41 after 400ms and 12 clients; 4988 more had it: only 11 of 12 clients accepted \
             it in time"
        );
        let name = ResourceName::from("we\"b");
        assert_eq!(
            text(RolloutState::Halted, 0, grown(GrownPart::Resource(name), 1 << 20, 3 << 20)),
            "would have halted push 41 before its first client; 5000 clients had it: Cluster \"we\\\"b\" grew from \
             1.0MiB to 3.0MiB"
        );
        for (reason, words) in [
            (grown(GrownPart::Bytes, 1024, 2048), "the resources of Cluster grew from 1.0KiB to 2.0KiB"),
            (grown(GrownPart::Count, 10, 900), "the number of resources of Cluster grew from 10 to 900"),
            (
                Reason::Lost { lost: 5, clients: 40, control: Control { clients: 300, lost: 1 } },
                "5 streams of 40 clients ended within a minute of the push, and 1 of 300 without it",
            ),
            (Reason::ServerLost(UnitId(1)), "the server of one of its units is lost"),
        ] {
            assert!(text(RolloutState::Halted, 1, reason).ends_with(words), "{words}");
        }
        let enforced = PushReport {
            mode: Mode::Enforce,
            ..push(RolloutState::Halted, 1, Reason::Rejected { rejected: 1, clients: 12 })
        };
        let words = "halted push 41 after 400ms and 12 clients: 1 of 12 clients rejected it";
        assert_eq!(why(&enforced).unwrap(), words);
        let none =
            PushReport { verdict: None, ..push(RolloutState::Waving, 1, grown(GrownPart::Count, 1, 2)) };
        assert_eq!(why(&none), None);
    }

    #[test]
    fn grd_2_orders_and_the_bound_are_told_beside_the_push() {
        let pin = Some(Pin { release: 40, from: Time::ZERO, until: Until::Unpin });
        let report = RolloutReport { pin, is_full: true, barred: vec![UnitId(1)], ..Default::default() };
        let text = stands(&report).join("; ");
        assert!(text.starts_with("serves release 40 to all clients: pinned; begins no push: held"), "{text}");
        assert!(text.ends_with("; goes on without 1 unit: barred"), "{text}");
        let report = RolloutReport { left_out: vec![UnitId(1), UnitId(2)], ..Default::default() };
        assert_eq!(stands(&report), ["goes on without 2 units: their servers cannot be heard"]);
        let report = RolloutReport { waits_for_server: true, ..report };
        assert_eq!(stands(&report), ["begins no push: a server cannot be heard"]);
    }

    #[test]
    fn wav_12_a_note_says_why_a_step_gave_no_evidence() {
        let text = |overtaken, rejected_again| {
            note_text(&Note::NoVoiceInStep { step: 2, overtaken, rejected_again })
        };
        assert_eq!(text(30, 0), "step 2 gave no evidence: 30 clients judged only a later change");
        assert_eq!(
            text(1, 2),
            "step 2 gave no evidence: 1 client judged only a later change; 2 clients had rejected the push before, too"
        );
    }

    #[test]
    fn tru_7_a_verdict_is_an_event_and_a_finished_push_is_counted() {
        let metrics = Metrics::new();
        let plan = metrics.rollouts.plan("edge");
        let halted = push(RolloutState::Halted, 1, Reason::Rejected { rejected: 1, clients: 12 });
        let verdict = halted.verdict.clone().unwrap();
        let report = RolloutReport {
            state: RolloutState::Halted,
            push: Some(Arc::new(halted)),
            ..RolloutReport::default()
        };
        let type_url = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
        let condemned = (type_url, ResourceName::from("web"), Version(0xabc << 100));
        plan.show(&report, Time::ZERO);
        for what in [
            What::Gathered { units: 2, resources: 1 },
            What::StepBegun { step: 1, steps: 4, threshold: 150 },
            What::Halted(verdict),
            What::Condemned(condemned),
            What::Over(Outcome::Halted),
        ] {
            tell(&metrics.events, &plan, &RolloutEvent { push: 41, what }, &report);
        }
        let events = metrics.events.after(0, 9, |_| true).events;
        let texts: Vec<_> = events.iter().map(|event| event.first.detail.as_deref().unwrap()).collect();
        assert_eq!(texts[..2], ["1 resource in 2 units", "step 1 of 4, 1.5 %"]);
        assert!(texts[2].starts_with("would have halted push 41 after"), "{}", texts[2]);
        assert_eq!(texts[3..], ["Cluster \"web\" 0000abc0", "halted"]);
        assert!(
            events
                .iter()
                .all(|event| event.first.plan.as_deref() == Some("edge") && event.first.push == Some(41))
        );
        let text = metrics.encode().unwrap();
        for line in [
            "sluice_rollout_pushes_total{plan=\"edge\",outcome=\"halted\"} 1",
            "sluice_rollout_pushes_total{plan=\"edge\",outcome=\"finished\"} 0",
            "sluice_rollout_state{plan=\"edge\",state=\"halted\"} 1",
            "sluice_rollout_state{plan=\"edge\",state=\"waving\"} 0",
            "sluice_rollout_clients{plan=\"edge\",state=\"accepted\"} 4999",
            "sluice_rollout_clients{plan=\"edge\",state=\"rejected\"} 1",
        ] {
            assert!(text.contains(line), "{line}");
        }
        drop(plan);
        let text = metrics.encode().unwrap();
        assert!(!text.contains("state=\"halted\"") && text.contains("outcome=\"halted\"} 1"), "{text}");
    }
}
