//! `GET /config`: the configuration in force, and the latest ones before (REL-9).

use axum::Json;
use axum::extract::State as Shared;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;

use super::item::rfc_3339;
use super::params::{Params, bad_request};
use super::reloading::{GenerationStatus, LastReload};
use super::state::Admin;

#[derive(Serialize)]
struct Answer<'a> {
    generation: u64,
    /// Whether the generation is the one in force.
    in_force: bool,
    hash: &'a str,
    /// The beginning of the generation.
    since: String,
    file: Option<String>,
    last_reload: Option<Last<'a>>,
    /// The generations to go back to, the latest last.
    generations: Vec<Kept<'a>>,
    /// The document without credentials.
    config: &'a Value,
}

#[derive(Serialize)]
struct Kept<'a> {
    generation: u64,
    hash: &'a str,
    since: String,
}

/// The result of the last reload.
#[derive(Clone, Serialize)]
pub(super) struct Last<'a> {
    at: String,
    trigger: &'static str,
    result: &'static str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    faults: &'a [String],
}

impl<'a> Last<'a> {
    pub(super) fn of(last: &'a LastReload) -> Last<'a> {
        Last {
            at: rfc_3339(last.at),
            trigger: last.trigger,
            result: last.result.name(),
            faults: &last.faults,
        }
    }
}

pub(super) async fn show(Shared(admin): Shared<Admin>, uri: Uri) -> Result<Response, Response> {
    let mut params = Params::parse(&uri, &["generation"]).map_err(bad_request)?;
    let status = admin.reloading.status();
    let wanted = params.take("generation");
    let number = wanted.as_deref().map(str::parse::<u64>).transpose().map_err(|_| {
        let text = wanted.clone().unwrap_or_default();
        bad_request(format!("generation is {text:?}; allowed: a number"))
    })?;
    let current = status.current().map_or(0, |of| of.number);
    let number = number.unwrap_or(current);
    let Some(found) = status.find(number) else {
        let kept = status.generations.iter().map(|of| of.number.to_string()).collect::<Vec<_>>().join(", ");
        let text = format!("generation {number} is not kept; kept: {kept}\n");
        return Err((StatusCode::NOT_FOUND, text).into_response());
    };
    let kept = |of: &GenerationStatus| (of.number, rfc_3339(of.since));
    let generations = status.generations.iter().map(|of| {
        let (generation, since) = kept(of);
        Kept { generation, hash: of.hash.as_str(), since }
    });
    let answer = Answer {
        generation: found.number,
        in_force: found.number == current,
        hash: &found.hash,
        since: rfc_3339(found.since),
        file: status.file.as_ref().map(|file| file.display().to_string()),
        last_reload: status.last_reload.as_ref().map(Last::of),
        generations: generations.collect(),
        config: &found.document,
    };
    Ok(Json(answer).into_response())
}
