//! `rollouts:`: the plans for pushes of configuration (WAV-12 to WAV-14, WAV-19).

use std::sync::Arc;
use std::time::Duration;

use super::address::{PORTS, has_no_such_port, read_web_address, warn_of_plaintext};
use super::classes::{read_keys, read_node_match, read_type};
use super::error::Problem;
use super::form::{Form, Parsed, Shaped};
use super::listener::ListenerSettings;
use super::node::any_text;
use super::reader::{Item, Map};
use super::servers::Servers;
use super::tree::Tree;
use super::units::{boolean, number, one_of, word};
use crate::driver::LoadUse;
use sluice_engine::class::{IdPart, LocalityDepth, NodeClasses, NodeMatch, Projection, TextMatch};
use sluice_fleet::rollout::hook::{Hook, HookSettings};
use sluice_fleet::rollout::plan::{
    BUCKETS, BUCKETS_PER_PERCENT, BucketBy, Gated, Gather, GuardAction, Guards, HaltOn, History, Mode,
    OnHalt, Plan, STEPS_MAX, Step, StepSettings, Times, UnitMatch, default_steps,
};
use sluice_setting::count;
use sluice_text::span;

/// Each plan has a task, and labels of metrics.
const PLANS_MAX: usize = 64;

/// The name is a label of metrics and a part of paths.
const NAME_BYTES_MAX: usize = 64;
const NAME: &str = "a name of at most 64 letters, digits, `-`, `_` and `.`, with no `.` at the beginning";
const NAME_FORM: &[Form] = &[Form::Pattern("^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$")];

const MODES: &[(&str, Mode)] = &[("observe", Mode::Observe), ("enforce", Mode::Enforce)];

const ON_HALT: &[(&str, OnHalt)] = &[("rollback", OnHalt::Rollback), ("stay", OnHalt::Stay)];

const GUARD: &[(&str, GuardAction)] =
    &[("halt", GuardAction::Halt), ("warn", GuardAction::Warn), ("off", GuardAction::Off)];

const HOOK_URL: &str = "http[s]://host[:port][/path]";

const BUCKET_BY: &str = "id, cluster, locality.zone or a list of keys of the metadata";

/// Reads the plans. `servers`: `None` if the lists have errors of their own. `has_checkpoint`: the process
/// keeps its state for the next.
pub(super) fn read_rollouts(
    map: &mut Map<'_>,
    servers: Option<&Servers>,
    classes: &NodeClasses,
    has_checkpoint: bool,
    history: History,
) -> Vec<Arc<Plan>> {
    let lists: Option<Vec<String>> = servers.map(|servers| servers.lists().map(|(key, _)| key).collect());
    let items = map.list("rollouts");
    if let Some(item) = items.get(PLANS_MAX) {
        item.invalid(format!("at most {PLANS_MAX} plans"));
    }
    let mut plans: Vec<Arc<Plan>> = Vec::new();
    for item in items.iter().take(PLANS_MAX) {
        let before = item.error_count();
        let read = |map: &mut Map<'_>| {
            let plan = read_plan(map, lists.as_deref(), classes)?;
            if plan.enforces() && !has_checkpoint {
                map.warn_at("mode", NO_CHECKPOINT);
            }
            warn_of_shared_units(map, &plan, &plans);
            if plan.halt_on.error_points > 0
                && servers.is_some_and(|servers| !count_load(servers, &plan.units))
            {
                map.contradiction("halt_on", NO_LOAD);
            }
            Some(Plan { releases: history.pushes, ..plan })
        };
        let Some(plan) = item.map(read).flatten() else {
            continue;
        };
        if let Some(other) = plans.iter().find(|other| other.name == plan.name) {
            item.error_at("name", Problem::Contradiction { reason: format!("repeats {:?}", other.name) });
        }
        // Without the invalid conditions, the plan would seem to match too much.
        if item.error_count() == before {
            check_reached(item, &plan, &plans);
            plans.push(Arc::new(plan));
        }
    }
    plans
}

/// Refuses a plan without a unit: the first matching plan decides about a unit.
fn check_reached(item: &Item<'_>, plan: &Plan, before: &[Arc<Plan>]) {
    if let Some(earlier) = before.iter().find(|earlier| earlier.units.covers(&plan.units)) {
        let reason = format!("never reached: the plan {:?} before it has all of its units", earlier.name);
        item.error(Problem::Contradiction { reason });
    }
}

const NO_CHECKPOINT: &str = "without `checkpoint`, a restart forgets what the plan holds back: all clients are given the newest content, a \
    halted push too";

const NO_LOAD: &str =
    "`error_points` needs load reports: no server of the plan's lists has `lrs: aggregate` or `lrs: local`";

/// Whether a server of the units sums up load reports.
fn count_load(servers: &Servers, units: &UnitMatch) -> bool {
    let is_of_units = |list: &str| units.lists.is_empty() || units.lists.iter().any(|name| **name == *list);
    let lists = servers.lists().filter(|(list, _)| is_of_units(list));
    let mut uses = lists.flat_map(|(_, list)| list.servers.iter().map(|server| server.load));
    uses.any(|load| load.is_some_and(|load| load != LoadUse::Forward))
}

/// A listener's order stands above what servers take.
pub(super) fn check_load_listeners(map: &Map<'_>, plans: &[Arc<Plan>], listeners: &[ListenerSettings]) {
    let is_deaf = |listener: &ListenerSettings| listener.options.load_reports.is_some();
    let Some(Plan { name, .. }) = plans.iter().map(|plan| &**plan).find(|plan| plan.halt_on.error_points > 0)
    else {
        return;
    };
    if !listeners.is_empty() && listeners.iter().all(is_deaf) {
        let text = format!(
            "`error_points` of {name:?} needs load reports, and no listener takes them (`load_reports`)"
        );
        map.contradiction("rollouts", text);
        return;
    }
    for (index, _) in listeners.iter().enumerate().filter(|(_, listener)| is_deaf(listener)) {
        let text = format!(
            "the plan {name:?} judges pushes by load reports, without those of this listener's clients"
        );
        map.warn_at(&format!("listeners[{index}].load_reports"), text);
    }
}

/// Units that two plans match are the first one's. A plan for everything behind a narrower plan is the usual
/// way to write the rest.
fn warn_of_shared_units(map: &Map<'_>, plan: &Plan, before: &[Arc<Plan>]) {
    let is_shared = |earlier: &&Arc<Plan>| {
        !earlier.units.covers(&plan.units)
            && !earlier.units.excludes(&plan.units)
            && !plan.units.covers(&earlier.units)
    };
    if let Some(earlier) = before.iter().find(is_shared) {
        let name = &earlier.name;
        map.warn_at(
            "match",
            format!("units that the plan {name:?} matches, too, are that plan's: the first match decides"),
        );
    }
}

/// `None` only if an error was reported.
fn read_plan(map: &mut Map<'_>, lists: Option<&[String]>, classes: &NodeClasses) -> Option<Plan> {
    let name = map.required("name", NAME).and_then(|item| item.parse(Shaped(NAME_FORM, plan_name)));
    let mode = read_mode(map);
    let units = map.section("match", |map| read_units(map, lists, classes)).unwrap_or_default();
    let gated = map.item("gated").and_then(|item| read_gated(&item)).unwrap_or(Gated::Default);
    let bucket_by = map.item("bucket_by").and_then(|item| read_bucket_by(&item)).unwrap_or_default();
    map.can_be(
        "bucket_by",
        &[Form::Word("id"), Form::Word("cluster"), Form::Word("locality.zone"), Form::List],
    );
    let salt = map.optional("salt", Shaped(&[Form::AnyText], any_text)).unwrap_or_default();
    let gather = map.section("gather", read_gather).unwrap_or_default();
    let steps = map.item("steps").and_then(|item| read_steps(&item, &units));
    let halt_on = map.section("halt_on", |map| {
        let halt_on = HaltOn::read(map);
        check_error_points(map, &halt_on, mode, &bucket_by, steps.as_deref().unwrap_or(&default_steps()));
        halt_on
    });
    let guards = map.section("guards", |map| {
        let d = Guards::default();
        Guards {
            growth: map.or("growth", d.growth, word(GUARD)),
            unreadable: map.or("unreadable", d.unreadable, word(GUARD)),
            dangling: map.or("dangling", d.dangling, word(GUARD)),
            gone_while_used: map.or("gone_while_used", d.gone_while_used, word(GUARD)),
        }
    });
    let times = Times::read(map);
    let hook = map.item("hook").and_then(|item| item.map(read_hook).flatten());
    if mode == Mode::Observe {
        map.reject_inapplicable(&["on_halt"], "`mode: observe`, which holds nothing back");
    }
    let on_halt = map.or("on_halt", OnHalt::default(), word(ON_HALT));
    let relays = map.or("relays", false, boolean());
    if relays {
        check_relays(map, halt_on.as_ref(), steps.as_deref().unwrap_or(&default_steps()));
    }
    let plan = Plan::new(&name?);
    Some(Plan {
        mode,
        on_halt,
        units,
        relays,
        gated,
        bucket_by,
        salt: salt.into(),
        gather,
        steps: steps.unwrap_or(plan.steps),
        times,
        halt_on: halt_on.unwrap_or_default(),
        guards: guards.unwrap_or_default(),
        hook,
        ..plan
    })
}

/// The interval of load reports that clients are asked for where the control plane wishes none.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Load reports compare the clients with a push with all others (LRS-24).
fn check_error_points(map: &Map<'_>, halt_on: &HaltOn, mode: Mode, bucket_by: &BucketBy, steps: &[Step]) {
    if halt_on.error_points == 0 {
        return;
    }
    if mode == Mode::Observe {
        let text =
            "needs `mode: enforce`: otherwise all clients have the push, and none is left to compare with";
        map.contradiction("error_points", text);
    }
    let has_seats = |step: &Step| step.threshold < BUCKETS && (step.threshold > 0 || step.at_least > 0);
    if !steps.iter().any(has_seats) {
        let text = "compares clients that a step chooses by their seats with all others, and no step of the plan is such a step";
        map.contradiction("error_points", text);
    }
    let bake = steps.iter().map(|step| step.bake).max().unwrap_or_default();
    if bake < 2 * REPORT_INTERVAL {
        let text = format!(
            "a verdict takes two intervals of load reports, 20s unless the control plane asks for another, and no step bakes longer than {}",
            span(bake)
        );
        map.warn_at("error_points", text);
    }
    if bucket_by.is_of_place() {
        let text = "load reports cannot tell whether a push is worse: with this `bucket_by`, the clients of a step are those of a \
            place or a service, and differ from the others by nature";
        map.warn_at("error_points", text);
    }
}

/// A relay is one client for each of its node classes, and its clients are behind it (TIR-1).
fn check_relays(map: &Map<'_>, halt_on: Option<&HaltOn>, steps: &[Step]) {
    if halt_on.is_some_and(|halt_on| halt_on.error_points > 0) {
        let text = "`halt_on.error_points` cannot judge relays: their load reports are sums over clients with the push and without it";
        map.contradiction("relays", text);
    }
    if steps.iter().any(|step| step.threshold < BUCKETS && (step.threshold > 0 || step.at_least > 0)) {
        let text = "a step by `percent` or `at_least` chooses among a few relays by chance, and each node class of a relay for itself; \
            name the relays of each region by `clients`";
        map.warn_at("steps", text);
    }
}

/// `None` only if an error was reported.
fn read_hook(map: &mut Map<'_>) -> Option<Hook> {
    let url = map.required("url", HOOK_URL);
    let settings = HookSettings::read(map);
    let url = url?;
    let text = url.text()?;
    match read_web_address(text) {
        Some(address) => {
            if !address.is_tls {
                warn_of_plaintext(&url, &address.host);
            }
            Some(Hook { url: text.into(), settings })
        }
        None => {
            url.invalid(if has_no_such_port(text) { PORTS } else { HOOK_URL });
            None
        }
    }
}

fn plan_name(tree: &Tree) -> Parsed<String> {
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    match tree {
        Tree::Text(text)
            if (1..=NAME_BYTES_MAX).contains(&text.len())
                && !text.starts_with('.')
                && text.bytes().all(is_letter) =>
        {
            Ok(text.clone())
        }
        _ => Err(NAME.into()),
    }
}

/// The mode has no default: a later version can add modes without changing the meaning of a file.
fn read_mode(map: &mut Map<'_>) -> Mode {
    let mode = map.required("mode", "observe or enforce").and_then(|item| item.parse(word(MODES)));
    mode.unwrap_or_default()
}

pub(super) fn read_units(map: &mut Map<'_>, lists: Option<&[String]>, classes: &NodeClasses) -> UnitMatch {
    let mut units = UnitMatch::default();
    if let Some(item) = map.item("lists") {
        let items = item.list().unwrap_or_default();
        if items.is_empty() {
            item.invalid("at least one server list; without the key, the plan covers every list");
        }
        for item in items {
            let Some(key) = item.text() else { continue };
            if lists.is_some_and(|lists| !lists.iter().any(|list| list == key)) {
                let names = lists.unwrap_or_default().iter().map(String::as_str);
                item.invalid(format!("a server list of this file: {}", one_of(names)));
            }
            units.lists.push(key.into());
        }
    }
    if let Some(item) = map.item("node") {
        units.nodes = read_class_match(&item, classes).unwrap_or_default();
    }
    units
}

/// A condition on the node of a class, with the parts of the node from `split_by`.
fn read_class_match(item: &Item<'_>, classes: &NodeClasses) -> Option<NodeMatch> {
    let before = item.error_count();
    let nodes = item.map(|map| {
        let nodes = read_node_match(map);
        let is_nowhere =
            |part: &&&str| classes.rules.iter().all(|rule| lacking(&rule.projection, &nodes).contains(part));
        for part in PARTS.iter().filter(is_nowhere) {
            map.contradiction(part, "no rule of `node_classes` splits by this part, so no node class has it");
        }
        nodes
    })?;
    let has_none = classes.rules.iter().all(|rule| !lacking(&rule.projection, &nodes).is_empty());
    if has_none && item.error_count() == before {
        let reason = "no rule of `node_classes` splits by all of these parts, so no node class has them";
        item.error(Problem::Contradiction { reason: reason.into() });
    }
    Some(nodes)
}

/// The keys of conditions on a node, in the order of [`lacking`].
const PARTS: [&str; 7] =
    ["id", "cluster", "user_agent_name", "locality.region", "locality.zone", "locality.sub_zone", "metadata"];

/// The conditions on parts of the node outside a projection.
fn lacking(projection: &Projection, nodes: &NodeMatch) -> Vec<&'static str> {
    let depth = |least| projection.locality.is_some_and(|depth| depth >= least);
    let wants = |condition: &Option<TextMatch>| {
        // A part outside the projection is empty.
        condition.as_ref().is_some_and(|condition| *condition != TextMatch::Exact(String::new()))
    };
    let is_lacking = [
        wants(&nodes.id) && projection.id != IdPart::Whole,
        wants(&nodes.cluster) && !projection.cluster,
        wants(&nodes.user_agent_name) && !projection.user_agent_name,
        wants(&nodes.region) && !depth(LocalityDepth::Region),
        wants(&nodes.zone) && !depth(LocalityDepth::Zone),
        wants(&nodes.sub_zone) && !depth(LocalityDepth::SubZone),
        nodes.metadata.iter().any(|condition| !projection.metadata.covers(&condition.path)),
    ];
    PARTS.into_iter().zip(is_lacking).filter(|(_, is_lacking)| *is_lacking).map(|(part, _)| part).collect()
}

fn read_gated(item: &Item<'_>) -> Option<Gated> {
    let items = item.list()?;
    if items.is_empty() {
        item.invalid(
            "at least one type; without the key, the types are listeners, routes, clusters and their like",
        );
    }
    let mut types = Vec::new();
    for item in items {
        let Some(type_url) = read_type(&item) else { continue };
        if type_url.is_secret() {
            item.invalid(
                "a type other than Secret: keys expire, so their changes always go to all clients at once",
            );
        }
        types.push(type_url);
    }
    Some(Gated::Types(types))
}

fn read_bucket_by(item: &Item<'_>) -> Option<BucketBy> {
    match item.tree {
        Tree::Text(text) => match text.as_str() {
            "id" => Some(BucketBy::Id),
            "cluster" => Some(BucketBy::Cluster),
            "locality.zone" => Some(BucketBy::Zone),
            _ => {
                item.invalid(BUCKET_BY);
                None
            }
        },
        Tree::List(_) => read_keys(item).map(BucketBy::Metadata),
        _ => {
            item.invalid(BUCKET_BY);
            None
        }
    }
}

fn read_gather(map: &mut Map<'_>) -> Gather {
    let gather = Gather::read(map);
    if gather.max < gather.quiet {
        map.contradiction("max", "is shorter than `quiet`: each push would be cut in the middle");
    }
    gather
}

fn read_steps(item: &Item<'_>, units: &UnitMatch) -> Option<Vec<Step>> {
    let items = item.list()?;
    if items.is_empty() || items.len() > STEPS_MAX {
        item.invalid(format!("1 to {STEPS_MAX} steps; without the key, the plan has the default steps"));
        return None;
    }
    let mut steps: Vec<Step> = Vec::new();
    for item in &items {
        let before = item.error_count();
        let Some(step) = item.map(|map| read_step(map, units)) else { continue };
        if item.error_count() == before {
            check_growth(item, &step, &steps);
        }
        steps.push(step);
    }
    Some(steps)
}

fn read_step(map: &mut Map<'_>, units: &UnitMatch) -> Step {
    let clients = map.item("clients").and_then(|item| {
        let clients = item.map(read_node_match)?;
        if units.has_no_client_of(&clients) {
            let reason = "no client of the plan's units is so: `match.node` of the plan says otherwise";
            item.error(Problem::Contradiction { reason: reason.into() });
        }
        if clients == Default::default() {
            item.invalid("at least one condition; all clients are `percent: 100`");
        }
        Some(clients)
    });
    let percent: Option<u32> = map.optional("percent", number(count(0..=100)));
    let has_labels_only = map.has("clients") && !map.has("percent") && !map.has("at_least");
    let settings = StepSettings::read(map);
    let percent = percent.and_then(|percent| u16::try_from(percent).ok()).unwrap_or_default();
    Step {
        clients,
        threshold: percent * BUCKETS_PER_PERCENT,
        // The labels name the clients of the step, and nobody else is asked for.
        at_least: if has_labels_only { 0 } else { settings.at_least },
        bake: settings.bake,
    }
}

/// Each step admits further clients, beside the clients of the steps before.
fn check_growth(item: &Item<'_>, step: &Step, before: &[Step]) {
    let threshold = before.iter().map(|step| step.threshold).max().unwrap_or_default();
    let at_least = before.iter().map(|step| step.at_least).max().unwrap_or_default();
    let contradiction = |reason: String| item.error(Problem::Contradiction { reason });
    if threshold >= BUCKETS {
        return contradiction("never begins: the step before it admits all clients".into());
    }
    let is_stated = step.threshold > 0;
    if is_stated && step.threshold <= threshold {
        let percent = threshold / BUCKETS_PER_PERCENT;
        return item.error_at(
            "percent",
            Problem::Contradiction {
                reason: format!("is not more than {percent}, which an earlier step admits"),
            },
        );
    }
    if step.clients.is_none() && !is_stated && step.at_least <= at_least {
        contradiction(
            "admits no further client; state a greater `percent` or `at_least`, or `clients`".into(),
        );
    }
}
