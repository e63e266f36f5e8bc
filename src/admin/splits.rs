//! Classes that were split beside the rules, by the proof or an operator (PRF-32).

use axum::Json;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use sluice_admin_api::lists::Listed;
use sluice_admin_api::parameters::{JoinParameters, SplitParameters};
use sluice_admin_api::proofs::{ClassSplit, JoinedClass};

use super::item::rfc_3339;
use super::list;
use super::page::{Page, cursor};
use super::params::{Declined, bad_request, conflict, not_found, read};
use super::proofs::{find_class, required_class};
use super::state::Admin;
use crate::driver::api::proof::{JoinRefusal, SplitRefusal, SplitStatus};

/// `GET /classes/splits?after=&limit=`.
pub(super) async fn splits(
    Shared(admin): Shared<Admin>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Declined> {
    let page = Page::parse(&uri, &headers)?;
    let after: Option<Vec<String>> = page.after()?;
    Ok(list::respond(ClassSplit::KEY, &page, move |writer| async move {
        let all = gather(&admin).into_iter();
        let all = all.filter(|item| after.as_ref().is_none_or(|after| place(item) > *after));
        let render = |item: &ClassSplit, out: &mut _| list::append(out, Some(item));
        writer.write_all(all, |item| cursor(&place(item)), render).await
    }))
}

fn place(item: &ClassSplit) -> Vec<String> {
    vec![item.class.clone(), item.by.join(",")]
}

/// All splits, in the order of [`place`].
pub(super) fn gather(admin: &Admin) -> Vec<ClassSplit> {
    let mut all: Vec<ClassSplit> = admin.relay.splits().iter().map(shown).collect();
    all.sort_by_cached_key(place);
    all
}

fn shown(split: &SplitStatus) -> ClassSplit {
    let (client, type_name) = match &split.found_by {
        Some((client, type_name)) => (client.to_string(), type_name.to_string()),
        None => Default::default(),
    };
    ClassSplit {
        class: split.class.to_string(),
        by: split.fields.iter().map(ToString::to_string).collect(),
        tuples: split.tuples,
        cause: if split.found_by.is_some() { "proof" } else { "operator" }.to_owned(),
        client,
        r#type: type_name,
        since: rfc_3339(split.since),
        holds_until: split.holds.map(|holds| rfc_3339(split.since + holds)),
    }
}

/// `POST /classes/split?class=&by=`.
pub(super) async fn split(Shared(admin): Shared<Admin>, uri: Uri) -> Result<Response, Declined> {
    let SplitParameters { class, by } = read(&uri)?;
    let class = required_class(&admin, class)?;
    let by: Vec<Box<str>> = by.iter().flat_map(|by| by.split(',')).map(Box::from).collect();
    if by.is_empty() || by.iter().any(|field| field.is_empty()) {
        return Err(bad_request(
            "by: missing; expected fields of nodes, as metadata.LABELS.team,locality.zone".to_owned(),
        ));
    }
    admin.relay.split_class(&class, by.clone()).map_err(|refusal| refused(&class, &refusal))?;
    let made = admin.relay.splits();
    match made.iter().find(|split| {
        *split.class == *class
            && split.fields.iter().map(|field| &**field).eq(by.iter().map(|field| &**field))
    }) {
        Some(split) => Ok(Json(shown(split)).into_response()),
        None => Err(refused(&class, &SplitRefusal::NotSplit)),
    }
}

/// `POST /classes/join?class=`. Of several classes, with commas between, all are joined, or none.
pub(super) async fn join(Shared(admin): Shared<Admin>, uri: Uri) -> Result<Response, Declined> {
    let JoinParameters { class } = read(&uri)?;
    let text = class.unwrap_or_default();
    // A class that was split may have no client left.
    let splits = admin.relay.splits();
    let split: Vec<&str> = splits.iter().map(|split| &*split.class).collect();
    let classes = text.split(',').map(|text| find_class(&admin, text, &split));
    let classes = classes.collect::<Result<Vec<String>, _>>()?;
    let joined = admin.relay.join_classes(&classes).map_err(|JoinRefusal { class, reason }| {
        let Declined { status, reason } = refused(&class, &reason);
        let reason = if classes.len() > 1 { reason + "; no class was joined" } else { reason };
        Declined { status, reason }
    })?;
    Ok(Json(JoinedClass { class: joined.join(",") }).into_response())
}

fn refused(class: &str, refusal: &SplitRefusal) -> Declined {
    let text = format!("class {class}: {refusal}");
    match refusal {
        SplitRefusal::NoClass => not_found(text),
        _ => conflict(text),
    }
}
