//! The lists, each with its columns.

use sluice_admin_api::changes::Change;
use sluice_admin_api::clients::{Client, ClientContent, ClientType};
use sluice_admin_api::endpoints::Endpoint;
use sluice_admin_api::events::Event;
use sluice_admin_api::lists::Listed;
use sluice_admin_api::loads::{ClassLoad, FinishedRequests, LoadRow};
use sluice_admin_api::proofs::{ClassProof, ClassSplit, Divergence, Sample};
use sluice_admin_api::resources::{Resource, ResourceContent};
use sluice_admin_api::rollouts::PlanState;
use sluice_admin_api::sources::{NodeClass, RefusedClient, Source};

use crate::command::table::{
    Column, bounded_names, column, joined, maybe, shown, span, state, type_name, version, wide,
};
use sluice_text::size;

/// A list of the API as tables.
pub(in crate::command) struct View<T: 'static> {
    pub endpoint: Endpoint,
    /// The key of the list in the answer.
    pub key: &'static str,
    /// The lines of an item; an item without any has a line all the same.
    pub lines: fn(&T) -> usize,
    pub columns: &'static [Column<T>],
    /// The name of an item, for `-o name` and for other commands.
    pub name: fn(&T) -> Option<String>,
    /// Texts that tell items of one name apart.
    pub apart: fn(&T) -> Vec<String>,
}

fn one_line<T>(_: &T) -> usize {
    1
}

fn of_line<'a>(client: &'a Client<'static>, line: usize) -> Option<&'a ClientType<'static>> {
    client.types.get(line)
}

fn content_of<'a>(client: &'a Client<'static>, line: usize) -> Option<&'a ClientContent<'static>> {
    of_line(client, line)?.content.as_ref()
}

/// A line for each type.
pub(in crate::command) const CLIENTS: View<Client<'static>> = View {
    endpoint: Endpoint::Clients,
    key: Client::<'static>::KEY,
    lines: |client| client.types.len(),
    columns: &[
        column("ID", |client, _| shown(client.id)),
        column("NODE", |client, _| shown(&client.node)),
        column("CLUSTER", |client, _| shown(&client.cluster)),
        column("TYPE", |client, line| type_name(&of_line(client, line)?.r#type)),
        state("STATE", |client, line| shown(&of_line(client, line)?.state)),
        column("WHY", |client, line| maybe(of_line(client, line)?.why.as_ref())),
        column("FOR", |client, line| span(of_line(client, line)?.state_seconds)),
        wide("HAS", |client, line| version(content_of(client, line)?.has.as_ref())),
        wide("SHOULD", |client, line| version(content_of(client, line)?.should.as_ref())),
        wide("VIA", |client, line| maybe(of_line(client, line)?.server.as_ref())),
        wide("CLASS", |client, line| maybe(of_line(client, line)?.class.as_ref())),
        wide("PEER", |client, _| maybe(client.peer.as_ref())),
        wide("OPEN", |client, _| span(client.open_seconds)),
    ],
    name: |client| shown(client.id),
    apart: |_| Vec::new(),
};

pub(in crate::command) const CHANGES: View<Change<'static>> = View {
    endpoint: Endpoint::Changes,
    key: Change::<'static>::KEY,
    lines: one_line,
    columns: &[
        column("ID", |change, _| shown(&change.id)),
        column("TYPE", |change, _| type_name(&change.r#type)),
        column("VERSION", |change, _| version(change.versions.as_ref().map(|versions| &versions.version))),
        column("AGE", |change, _| span(change.age_seconds)),
        column("WANTED", |change, _| shown(change.counts.wanted)),
        column("ACKED", |change, _| shown(change.counts.acked)),
        column("REJECTED", |change, _| shown(change.counts.rejected)),
        column("WAITING", |change, _| shown(change.counts.waiting)),
        column("P50", |change, _| span(change.p50_seconds?)),
        column("P99", |change, _| span(change.p99_seconds?)),
        wide("LAST", |change, _| span(change.last_seconds?)),
        wide("SUPERSEDED", |change, _| shown(change.counts.superseded)),
        wide("SERVER", |change, _| shown(&change.server)),
        wide("CLASS", |change, _| shown(&change.class)),
        wide("SIZE", |change, _| Some(size(change.bytes))),
    ],
    name: |change| shown(&change.id),
    apart: |_| Vec::new(),
};

pub(in crate::command) const ROLLOUTS: View<PlanState<'static>> = View {
    endpoint: Endpoint::Rollouts,
    key: PlanState::<'static>::KEY,
    lines: one_line,
    columns: &[
        column("PLAN", |plan, _| shown(&plan.name)),
        column("PUSH", |plan, _| maybe(plan.push.as_ref())),
        state("STATE", |plan, _| shown(&plan.state)),
        column("STEP", |plan, _| plan_step(plan)),
        column("UNITS", |plan, _| shown(plan.units)),
        column("CLIENTS", |plan, _| shown(plan.clients)),
        column("ACCEPTED", |plan, _| shown(plan.admitted.accepted)),
        column("PENDING", |plan, _| shown(plan.admitted.pending)),
        column("REJECTED", |plan, _| shown(plan.admitted.rejected)),
        column("SILENT", |plan, _| shown(plan.admitted.silent)),
        column("LOST", |plan, _| shown(plan.admitted.lost)),
        column("OTHERS", |plan, _| shown(plan.others.answered())),
        column("WHY", |plan, _| plan.why.clone()),
        wide("WAITING", |plan, _| shown(plan.waiting)),
        wide("BLAMED", |plan, _| Some(joined(&plan.blamed))),
        wide("REPLICAS", |plan, _| Some(plan.ledger.as_ref()?.text())),
    ],
    name: |plan| shown(&plan.name),
    apart: |_| Vec::new(),
};

pub(in crate::command) const CLASSES: View<NodeClass> = View {
    endpoint: Endpoint::Classes,
    key: NodeClass::KEY,
    lines: one_line,
    columns: &[
        column("CLASS", |class, _| shown(&class.class)),
        column("CLIENTS", |class, _| shown(class.clients)),
        column("RULE", |class, _| Some(joined(&class.rules))),
        column("SERVERS", |class, _| Some(joined(&class.servers))),
        wide("SHOWN AS", |class, _| shown(&class.upstream_id)),
    ],
    name: |class| shown(&class.class),
    apart: |_| Vec::new(),
};

fn proof_of(class: &NodeClass) -> Option<&ClassProof> {
    class.proof.as_ref()
}

/// The node classes with what is proved of each.
pub(in crate::command) const PROOFS: View<NodeClass> = View {
    endpoint: Endpoint::Classes,
    key: NodeClass::KEY,
    lines: one_line,
    columns: &[
        column("CLASS", |class, _| shown(&class.class)),
        column("RULE", |class, _| Some(joined(&class.rules))),
        column("CLIENTS", |class, _| shown(class.clients)),
        state("STATE", |class, _| shown(&proof_of(class)?.state)),
        column("FINGERPRINTS", |class, _| shown(proof_of(class)?.fingerprints)),
        column("SAMPLES", |class, _| shown(proof_of(class)?.samples)),
        column("PUSHES SEEN", |class, _| shown(proof_of(class)?.pushes_seen)),
        column("DIFFERS", |class, _| shown(proof_of(class)?.differs)),
        column("AT MOST (95 %)", |class, _| Some(format!("{} %", proof_of(class)?.at_most_percent?))),
        column("UNCOVERED", |class, _| uncovered(proof_of(class)?)),
        column("WITNESSES", |class, _| shown(proof_of(class)?.witnesses)),
        wide("PROVED", |class, _| shown(&proof_of(class)?.words)),
        wide("GIVES WAY", |class, _| proof_of(class)?.gives_way.clone()),
    ],
    name: |class| shown(&class.class),
    apart: |_| Vec::new(),
};

fn uncovered(proof: &ClassProof) -> Option<String> {
    (proof.uncovered_count > 0).then(|| bounded_names(&proof.uncovered, proof.uncovered_count))
}

/// The resources of which the control plane tells some clients otherwise than their class.
pub(in crate::command) const SPLITS: View<ClassSplit> = View {
    endpoint: Endpoint::Splits,
    key: ClassSplit::KEY,
    lines: one_line,
    columns: &[
        column("CLASS", |split, _| shown(&split.class)),
        column("BY", |split, _| shown(joined(&split.by))),
        column("SINCE", |split, _| shown(&split.since)),
    ],
    name: |split| shown(&split.class),
    apart: |split| vec![split.class.clone(), joined(&split.by)],
};

pub(in crate::command) const DIVERGENCES: View<Divergence> = View {
    endpoint: Endpoint::Divergences,
    key: Divergence::KEY,
    lines: one_line,
    columns: &[
        column("CLASS", |divergence, _| shown(&divergence.class)),
        column("TYPE", |divergence, _| type_name(&divergence.r#type)),
        column("NAME", |divergence, _| shown(&divergence.name)),
    ],
    name: |divergence| shown(&divergence.name),
    apart: |divergence| vec![divergence.class.clone(), divergence.r#type.clone(), divergence.server.clone()],
};

/// The latest samples of a class.
pub(in crate::command) const SAMPLES: View<Sample> = View {
    endpoint: Endpoint::Samples,
    key: Sample::KEY,
    lines: one_line,
    columns: &[
        column("AT", |sample, _| shown(&sample.at)),
        column("NODE", |sample, _| shown(&sample.node)),
        state("RESULT", |sample, _| shown(&sample.result)),
        column("SERVER", |sample, _| shown(&sample.server)),
    ],
    name: |sample| shown(&sample.node),
    apart: |sample| vec![sample.at.clone(), sample.server.clone()],
};

pub(in crate::command) const EVENTS: View<Event<'static>> = View {
    endpoint: Endpoint::Events,
    key: Event::<'static>::KEY,
    lines: one_line,
    columns: &[
        column("AT", |event, _| shown(&event.at)),
        column("NUMBER", |event, _| shown(event.number)),
        column("KIND", |event, _| shown(&event.kind)),
        state("SEVERITY", |event, _| shown(&event.severity)),
        column("COUNT", |event, _| shown(event.count)),
        column("TEXT", |event, _| shown(&event.text)),
        wide("SERVER", |event, _| maybe(event.server.as_ref())),
        wide("TYPE", |event, _| type_name(event.r#type.as_ref()?)),
        wide("NODE", |event, _| maybe(event.node.as_ref())),
        wide("STREAM", |event, _| maybe(event.stream.as_ref())),
        wide("PEER", |event, _| maybe(event.peer.as_ref())),
        wide("CHANGE", |event, _| maybe(event.change.as_ref())),
    ],
    name: |event| shown(event.number),
    apart: |_| Vec::new(),
};

pub(in crate::command) const SOURCES: View<Source<'static>> = View {
    endpoint: Endpoint::Sources,
    key: Source::<'static>::KEY,
    lines: one_line,
    columns: &[
        column("SERVER", |source, _| shown(&source.server)),
        column("LIST", |source, _| shown(&source.list)),
        column("CLASS", |source, _| shown(&source.class)),
        state("STATE", |source, _| shown(&source.state)),
        column("FOR", |source, _| span(source.state_seconds)),
        column("STALE", |source, _| span(source.stale_seconds?)),
        column("TYPES", |source, _| shown(source.types.len())),
        column("RESOURCES", |source, _| {
            shown(source.types.iter().map(|of_type| of_type.present).sum::<usize>())
        }),
        column("ERROR", |source, _| source.last_error.clone()),
        wide("RESTORED", |source, _| shown(source.restored)),
        wide("VARIANT", |source, _| maybe(source.variant.as_ref())),
        wide("FAILURES", |source, _| shown(source.failures)),
        wide("SHOWN AS", |source, _| shown(&source.upstream_id)),
    ],
    name: |source| Some(format!("{}/{}", source.server, source.class)),
    apart: |source| vec![source.list.to_string(), maybe(source.stream.as_ref()).unwrap_or_default()],
};

fn content<'a>(resource: &'a Resource<'static>) -> Option<&'a ResourceContent<'static>> {
    resource.content.as_ref()
}

pub(in crate::command) const RESOURCES: View<Resource<'static>> = View {
    endpoint: Endpoint::Resources,
    key: Resource::<'static>::KEY,
    lines: one_line,
    columns: &[
        column("TYPE", |resource, _| type_name(&resource.r#type)),
        column("NAME", |resource, _| shown(&resource.name)),
        state("STATE", |resource, _| shown(&content(resource)?.state)),
        column("VERSION", |resource, _| version(content(resource)?.version.as_ref())),
        column("SIZE", |resource, _| Some(size(content(resource)?.bytes))),
        column("CHANGED", |resource, _| content(resource)?.received_at.clone()),
        wide("FROM", |resource, _| shown(&content(resource)?.server)),
        wide("CLASS", |resource, _| shown(&content(resource)?.class)),
        wide("REJECTING", |resource, _| rejecting(content(resource)?)),
        wide("ERROR", |resource, _| content(resource)?.error.clone()),
    ],
    name: |resource| Some(format!("{}/{}", type_name(&resource.r#type)?, resource.name)),
    apart: |resource| {
        let content = content(resource);
        let text = |text: fn(&ResourceContent<'static>) -> String| content.map(text).unwrap_or_default();
        let [server, class, collection] = [
            text(|content| content.server.to_string()),
            text(|content| content.class.to_string()),
            text(|content| content.collection.to_string()),
        ];
        vec![server, class, collection, resource.r#type.to_string()]
    },
};

/// The relay leaves the number out if it is zero.
fn rejecting(content: &ResourceContent<'_>) -> Option<String> {
    (content.rejecting_clients > 0).then(|| content.rejecting_clients.to_string())
}

pub(in crate::command) const REFUSED: View<RefusedClient<'static>> = View {
    endpoint: Endpoint::Refused,
    key: RefusedClient::<'static>::KEY,
    lines: one_line,
    columns: &[
        column("NODE", |client, _| shown(&client.node)),
        column("CLUSTER", |client, _| shown(&client.cluster)),
        column("TYPE", |client, _| type_name(&client.r#type)),
        column("LIMIT", |client, _| shown(&client.limit)),
        column("COUNT", |client, _| shown(client.count)),
        column("LAST", |client, _| span(client.seconds)),
        wide("STREAM", |client, _| shown(client.stream)),
        wide("PEER", |client, _| maybe(client.peer.as_ref())),
    ],
    name: |client| shown(&client.node),
    apart: |client| vec![client.stream.to_string(), client.r#type.to_string(), client.limit.to_string()],
};

/// The step that a push has reached: `2/4 10%`.
pub(in crate::command) fn step(reached: u8, steps: u8, percent: Option<f64>) -> String {
    let percent = percent.map(|percent| format!(" {percent}%")).unwrap_or_default();
    format!("{reached}/{steps}{percent}")
}

/// The step that the latest push of a plan has reached.
pub(in crate::command) fn plan_step(plan: &PlanState<'_>) -> Option<String> {
    plan.push.map(|_| step(plan.step, plan.steps, plan.percent))
}

/// `12 (25.0 %)`: requests, and the share of errors.
fn finished(requests: &FinishedRequests) -> Option<String> {
    let share = requests.error_share?;
    Some(format!("{} ({})", requests.count(), percent(share)))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

pub(in crate::command) const LOAD: View<LoadRow> = View {
    endpoint: Endpoint::Load,
    key: LoadRow::KEY,
    lines: one_line,
    columns: &[
        column("CLUSTER", |row, _| shown(&row.cluster)),
        column("LOCALITY", |row, _| Some(row.locality())),
        column("CLASS", |row, _| shown(&row.class)),
        column("REQUESTS", |row, _| shown(row.requests().count())),
        column("ERRORS", |row, _| row.requests().error_share.map(percent)),
        column("ADMITTED", |row, _| finished(&row.admitted)),
        column("OTHERS", |row, _| finished(&row.others)),
        column("IN PROGRESS", |row, _| shown(row.in_progress)),
        wide("UNJUDGED", |row, _| finished(&row.unjudged)),
        wide("LOAD", |row, _| shown(row.number)),
        wide("PRIORITY", |row, _| shown(row.priority)),
        wide("SERVICE", |row, _| shown(&row.service)),
        wide("SERVER", |row, _| shown(&row.server)),
        wide("SINCE", |row, _| shown(&row.since)),
    ],
    name: |row| shown(&row.cluster),
    apart: |row| {
        vec![
            row.list.clone(),
            row.server.clone(),
            row.class.clone(),
            row.locality(),
            row.priority.to_string(),
        ]
    },
};

/// `all every 10 s`.
fn wish(load: &ClassLoad) -> Option<String> {
    let every = load.interval_seconds.and_then(span).map(|span| format!(" every {span}"));
    Some(format!("{}{}", load.clusters.as_ref()?, every.unwrap_or_default()))
}

pub(in crate::command) const CLASS_LOADS: View<ClassLoad> = View {
    endpoint: Endpoint::LoadClasses,
    key: ClassLoad::KEY,
    lines: one_line,
    columns: &[
        column("CLASS", |load, _| shown(&load.class)),
        column("SERVER", |load, _| shown(&load.server)),
        state("STATE", |load, _| shown(&load.state)),
        column("REPORTERS", |load, _| shown(load.reporters)),
        column("WANTED", |load, _| wish(load)),
        column("READ", |load, _| shown(load.requests.read)),
        column("DELIVERED", |load, _| shown(load.requests.delivered)),
        column("IN DOUBT", |load, _| shown(load.requests.in_doubt)),
        column("LEFT OUT", |load, _| shown(load.requests.left_out)),
        wide("LOAD", |load, _| shown(load.number)),
        wide("PENDING", |load, _| shown(load.requests.pending)),
        wide("UNWANTED", |load, _| shown(load.requests.unwanted)),
        wide("ROWS", |load, _| shown(load.rows)),
        wide("ERROR", |load, _| load.error.clone()),
    ],
    name: |load| shown(&load.class),
    apart: |load| vec![load.number.to_string()],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lrs_25_a_group_without_requests_has_no_share() {
        assert_eq!(finished(&FinishedRequests::new(9, 3)).as_deref(), Some("12 (25.0 %)"));
        assert_eq!(finished(&FinishedRequests::default()), None);
        let load =
            ClassLoad { clusters: Some("all".into()), interval_seconds: Some(10.0), ..ClassLoad::default() };
        assert_eq!(wish(&load).as_deref(), Some("all every 10s"));
        assert_eq!(wish(&ClassLoad::default()), None);
    }
}
