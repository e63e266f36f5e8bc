//! `GET /config`: the configuration in force, and the latest ones before (REL-9).

use axum::Json;
use axum::extract::State as Shared;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;

use super::item::rfc_3339;
use super::params::{Params, bad_request};
use super::reload::Change;
use super::reloading::{ConfigHistory, GenerationStatus, LastReload};
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
    /// The keys that only a new process takes.
    needs_process: &'a [&'static str],
    /// The generation to compare with.
    #[serde(skip_serializing_if = "Option::is_none")]
    against: Option<u64>,
    /// The keys with another value than in `against`.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Vec<Change>>,
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
    /// The command that helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    say: Option<&'a str>,
}

impl<'a> Last<'a> {
    pub(super) fn of(last: &'a LastReload) -> Last<'a> {
        Last {
            at: rfc_3339(last.at),
            trigger: last.trigger,
            result: last.result.name(),
            faults: &last.faults,
            say: last.say.as_deref(),
        }
    }
}

pub(super) async fn show(Shared(admin): Shared<Admin>, uri: Uri) -> Result<Response, Response> {
    let mut params = Params::parse(&uri, &["generation", "against"]).map_err(bad_request)?;
    let status = admin.reloading.status();
    let mut number = |key: &str| {
        let text = params.take(key);
        text.map(|text| text.parse().map_err(|_| format!("{key} is {text:?}; allowed: a number"))).transpose()
    };
    let wanted: Option<u64> = number("generation").map_err(bad_request)?;
    let against: Option<u64> = number("against").map_err(bad_request)?;
    let current = status.current().map_or(0, |of| of.number);
    let number = wanted.unwrap_or(current);
    let found = status.find(number).ok_or_else(|| not_kept(&status, number))?;
    let changes = match against {
        None => None,
        Some(from) => {
            let changes = admin.reloading.difference(from, number).ok_or_else(|| not_kept(&status, from))?;
            Some(changes.into_iter().map(Change::from).collect())
        }
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
        needs_process: &status.needs_process,
        against,
        changes,
        config: &found.document,
    };
    Ok(Json(answer).into_response())
}

fn not_kept(status: &ConfigHistory, number: u64) -> Response {
    let kept = status.generations.iter().map(|of| of.number.to_string()).collect::<Vec<_>>().join(", ");
    (StatusCode::NOT_FOUND, format!("generation {number} is not kept; kept: {kept}\n")).into_response()
}
