//! The proof of the grouping (PRF-24): what is proved of each class, the divergences, the samples of a class,
//! and an order to prove one.

use std::cmp::Reverse;

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use sluice_admin_api::lists::Listed;
use sluice_admin_api::parameters::{NoParameters, ProveParameters};
use sluice_admin_api::proofs::{
    ClassProof, ComparedReplicas, Divergence as ShownDivergence, OpenBreaker, ProveProgress, RestlessNames,
    Sample,
};

use super::item::rfc_3339;
use super::list;
use super::page::{Page, cursor};
use super::params::{Declined, bad_request, conflict, flag, not_found, number, read};
use super::state::Admin;
use crate::driver::api::proof::{ProveRefusal, Replica, ReplicaComparison, ServerProof, ServerSamples};
use sluice_engine::Time;
use sluice_proof::proof::{ClassReport, ClassState, Divergence, DivergentName, ProveOrder, ProveState};
use sluice_text::secrets;
use sluice_xds::Version;

/// The most samples at once of an order.
const STREAMS_MAX: u32 = 64;

/// The worst word about a class is the greatest.
pub(super) fn badness(state: &str) -> usize {
    let order = [
        ClassState::Proved,
        ClassState::Unproved,
        ClassState::Restless,
        ClassState::Impossible,
        ClassState::Differs,
        ClassState::SplitWaits,
    ];
    order.iter().position(|listed| listed.name() == state).unwrap_or(order.len())
}

/// The proof of a class, as `/classes` and the page show it.
pub(super) fn class_proof(report: &ClassReport, proof: &ServerProof) -> ClassProof {
    let restless = report.restless.iter().map(|(type_url, names, count)| RestlessNames {
        r#type: type_url.message().to_owned(),
        count: *count,
        names: names.iter().map(|name| name.as_str().to_owned()).collect(),
    });
    ClassProof {
        state: report.state.name().to_owned(),
        words: report.words.clone(),
        members: report.members,
        not_sampled: report.not_sampled,
        fingerprints: report.fingerprints,
        samples: report.samples,
        sampled_members: report.sampled_members,
        sampled_fingerprints: report.sampled_fingerprints,
        pushes_seen: report.pushes_seen,
        differs: report.differs,
        at_most_percent: report.at_most.map(|thousandths| f64::from(thousandths) / 10.0),
        since: report.since.map(|since| rfc_3339(proof.wall(since))),
        uncovered: report.uncovered.iter().map(|(path, value)| field(path, value)).collect(),
        uncovered_count: report.uncovered_count,
        witnesses: report.witnesses,
        restless: restless.collect(),
        ignored: report
            .ignored
            .iter()
            .map(|(type_url, path)| format!("{} {path}", type_url.short()))
            .collect(),
        impossible: report.impossible.as_ref().map(ToString::to_string),
        replicas: proof.replicas.get(&report.class).map(|compared| compared_replicas(compared, proof)),
        split_waits: report.split_waits.as_ref().map(ToString::to_string),
        split_from: report.split_from.as_ref().map(ToString::to_string),
        equal_over: report.split.as_ref().map(|split| split.equal_over),
        gives_way: proof.report.gives_way.map(str::to_owned),
        breaker: proof.report.breaker.as_ref().map(|breaker| OpenBreaker {
            reason: breaker.reason.to_string(),
            ends_in_seconds: breaker.ends_in.as_secs_f64(),
        }),
        covered_within_seconds: report.covered_within.as_secs_f64(),
        round_seconds: report.round.as_secs_f64(),
    }
}

fn compared_replicas(compared: &ReplicaComparison, proof: &ServerProof) -> ComparedReplicas {
    let both = [&compared.class, &compared.other];
    let control_plane = |replica: &Replica| replica.control_plane.as_deref().map(str::to_owned);
    let names = compared.disagree.iter().flat_map(|difference| &difference.names);
    ComparedReplicas {
        at: rfc_3339(proof.wall(compared.at)),
        agree: compared.disagree.is_none(),
        addresses: both.map(|replica| replica.address.map(|address| address.to_string())).to_vec(),
        control_planes: both.map(control_plane).to_vec(),
        r#type: compared.disagree.as_ref().map(|difference| difference.type_url.message().to_owned()),
        names: names.map(|name| name.as_str().to_owned()).collect(),
    }
}

/// A field of a node with its value, unless the field has the name of a secret.
fn field(path: &str, value: &str) -> String {
    let is_secret = path.split('.').any(secrets::is_name);
    let value = if is_secret {
        secrets::hidden(value.len())
    } else {
        secrets::hide(value).unwrap_or(value.to_owned())
    };
    format!("{path}={value}")
}

/// `GET /classes/divergences?after=&limit=`.
pub(super) async fn divergences(
    Shared(admin): Shared<Admin>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Declined> {
    let page = Page::parse(&uri, &headers)?;
    let after: Option<Vec<String>> = page.after()?;
    Ok(list::respond(ShownDivergence::KEY, &page, move |writer| async move {
        let all = gather(&admin).await.into_iter();
        let all = all.filter(|item| after.as_ref().is_none_or(|after| place(item) > *after));
        let render = |item: &ShownDivergence, out: &mut _| list::append(out, Some(item));
        writer.write_all(all, |item| cursor(&place(item)), render).await
    }))
}

fn place(item: &ShownDivergence) -> Vec<String> {
    [&item.class, &item.r#type, &item.name, &item.server].map(Clone::clone).to_vec()
}

/// The divergences of all servers, one item for each resource, in the order of [`place`].
pub(super) async fn gather(admin: &Admin) -> Vec<ShownDivergence> {
    let mut all = Vec::new();
    for proof in admin.relay.proofs().await {
        for divergence in &proof.report.divergences {
            match divergence.names.as_slice() {
                // Only the number of Secrets is known.
                [] => all.push(shown(divergence, None, &proof)),
                names => all.extend(names.iter().map(|name| shown(divergence, Some(name), &proof))),
            }
        }
    }
    all.sort_by_cached_key(place);
    all
}

fn shown(divergence: &Divergence, name: Option<&DivergentName>, proof: &ServerProof) -> ShownDivergence {
    let first = divergence.explained_by.first().map(Vec::as_slice).unwrap_or_default();
    let values = divergence.suspect_values.iter().map(|values| {
        let fields = first.iter().zip(values).map(|(path, value)| field(path, value));
        fields.collect::<Vec<_>>().join(" and ")
    });
    let version = |version: Option<Version>| version.map(|version| version.to_string());
    ShownDivergence {
        r#type: divergence.type_url.message().to_owned(),
        name: name.map(|name| name.name.as_str().to_owned()).unwrap_or_default(),
        class: divergence.class.to_string(),
        rule: divergence.rule.to_string(),
        server: proof.server.to_string(),
        paths: name.map(|name| name.paths.iter().map(ToString::to_string).collect()).unwrap_or_default(),
        explained_by: divergence.explained_by.iter().map(|fields| fields.join(" and ")).collect(),
        suspect_values: values.collect(),
        clients: divergence.clients,
        count: divergence.name_count,
        compared: divergence.compared,
        member: divergence.member_id.to_string(),
        representative: divergence.representative_id.to_string(),
        differing_fields: divergence.differing_fields.iter().map(ToString::to_string).collect(),
        class_version: version(name.and_then(|name| name.class_version)),
        member_version: version(name.and_then(|name| name.member_version)),
        class_has: name.is_some_and(|name| name.class_version.is_some()),
        member_has: name.is_some_and(|name| name.member_version.is_some()),
        since: rfc_3339(proof.wall(divergence.since)),
    }
}

/// `GET /classes/{class}/samples?after=&limit=`.
pub(super) async fn samples(
    Shared(admin): Shared<Admin>,
    Path(class): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Declined> {
    let page = Page::parse(&uri, &headers)?;
    let after: Option<Vec<String>> = page.after()?;
    let class = find_class(&admin, &class, &[])?;
    Ok(list::respond(Sample::KEY, &page, move |writer| async move {
        let mut all = samples_of(&admin, &class).await;
        if let Some(after) = after {
            all.retain(|sample| is_later(&sample_place(sample), &after));
        }
        let render = |sample: &Sample, out: &mut _| list::append(out, Some(sample));
        writer.write_all(all.into_iter(), |sample| cursor(&sample_place(sample)), render).await
    }))
}

fn sample_place(sample: &Sample) -> Vec<String> {
    [&sample.at, &sample.server, &sample.node].map(Clone::clone).to_vec()
}

/// Whether a place comes after another: the newest samples come first.
fn is_later(place: &[String], other: &[String]) -> bool {
    let split = |place: &[String]| place.split_first().map(|(at, rest)| (Reverse(at.clone()), rest.to_vec()));
    split(place) > split(other)
}

/// The samples of a class, the newest first.
async fn samples_of(admin: &Admin, class: &str) -> Vec<Sample> {
    let mut all = Vec::new();
    for of_server in admin.relay.samples(class.into()).await {
        let ServerSamples { server, samples, origin } = of_server;
        all.extend(samples.into_iter().map(|sample| Sample {
            at: rfc_3339(origin + sample.at.since(Time::ZERO)),
            node: sample.node_id.to_string(),
            result: sample.result.name().to_owned(),
            server: server.to_string(),
        }));
    }
    all.sort_by_cached_key(|sample| (Reverse(sample.at.clone()), sample.server.clone(), sample.node.clone()));
    all
}

/// `POST /classes/prove?class=&all=&streams=&replicas=`.
pub(super) async fn prove(Shared(admin): Shared<Admin>, uri: Uri) -> Result<Response, Declined> {
    let params: ProveParameters = read(&uri)?;
    let all = flag("all", params.all)?;
    let allowed = format!("a whole number from 1 to {STREAMS_MAX}");
    let streams: Option<u32> = number("streams", params.streams.clone(), &allowed)?;
    if streams.is_some_and(|streams| !(1..=STREAMS_MAX).contains(&streams)) {
        return Err(bad_request(format!(
            "streams is {:?}; allowed: {allowed}",
            params.streams.unwrap_or_default()
        )));
    }
    let class = required_class(&admin, params.class)?;
    let replicas = flag("replicas", params.replicas)?;
    if all && replicas {
        return Err(bad_request(
            "replicas are compared by the node of the class: all does not apply".to_owned(),
        ));
    }
    let streams = streams.unwrap_or(2);
    let order = ProveOrder { class: class.as_str().into(), all, replicas, streams };
    let order = admin.relay.prove(order).await.map_err(|refusal| refused(refusal, &class))?;
    answer(&admin, order).await
}

/// The class of a request.
pub(super) fn required_class(admin: &Admin, class: Option<String>) -> Result<String, Declined> {
    find_class(admin, class.as_deref().unwrap_or_default(), &[])
}

/// The class with a digest that begins so: of those with a source, and of further ones.
pub(super) fn find_class(admin: &Admin, text: &str, further: &[&str]) -> Result<String, Declined> {
    if text.is_empty() {
        return Err(bad_request(
            "class: missing; expected the digest of a class, or its beginning".to_owned(),
        ));
    }
    let sources = admin.relay.sources();
    let digests = sources.iter().map(|source| &*source.class.digest).chain(further.iter().copied());
    let mut digests: Vec<&str> = digests.filter(|digest| digest.starts_with(text)).collect();
    digests.sort_unstable();
    digests.dedup();
    match digests.as_slice() {
        [digest] => Ok((*digest).to_owned()),
        [] => Err(not_found(format!(
            "no class has a digest that begins with {text:?}; GET /classes lists them"
        ))),
        _ => Err(bad_request(format!(
            "class is {text:?}, which is the beginning of {} classes",
            digests.len()
        ))),
    }
}

fn refused(refusal: ProveRefusal, class: &str) -> Declined {
    conflict(match refusal {
        ProveRefusal::Off => {
            "the configuration has no `proof`: nobody is asked beside the classes".to_owned()
        }
        ProveRefusal::NotProved => format!(
            "class {class} is not proved: it is of one client, shows a projection, or `proof.match` leaves it out"
        ),
        ProveRefusal::Busy => {
            "too many orders are under way at a server: give another when one of them is done".to_owned()
        }
    })
}

/// `GET /classes/prove/{order}`.
pub(super) async fn progress(
    Shared(admin): Shared<Admin>,
    Path(order): Path<String>,
    uri: Uri,
) -> Result<Response, Declined> {
    read::<NoParameters>(&uri)?;
    let order = order.parse().map_err(|_| bad_request(format!("order is {order:?}; allowed: a number")))?;
    answer(&admin, order).await
}

async fn answer(admin: &Admin, order: u64) -> Result<Response, Declined> {
    let Some(status) = admin.relay.prove_state(order).await else {
        return Err(not_found(format!(
            "no order to prove a class has the number {order}, or it was long ago, or its server is not proved any more"
        )));
    };
    let gives_way = status.gives_way.map(str::to_owned);
    let ProveState { class, replicas, asked, equal, differs, no_word, is_done, refused } = status.state;
    let replicas = if replicas && is_done { replicas_of(admin, &class).await } else { None };
    let refused = refused.map(|reason| reason.to_string());
    let class = class.to_string();
    let done = is_done;
    let progress =
        ProveProgress { order, class, asked, equal, differs, no_word, done, refused, gives_way, replicas };
    Ok(Json(progress).into_response())
}

/// The latest comparison of replicas by the node of a class. Of several servers, of one whose replicas
/// disagree: the order is about all of them.
async fn replicas_of(admin: &Admin, class: &str) -> Option<ComparedReplicas> {
    let proofs = admin.relay.proofs().await;
    let compared =
        proofs.iter().filter_map(|proof| Some(compared_replicas(proof.replicas.get(class)?, proof)));
    compared.min_by_key(|compared| (compared.agree, Reverse(compared.at.clone())))
}
