//! `GET /config`: the configuration in force, and the latest ones before (REL-9).

use axum::Json;
use axum::extract::State as Shared;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use sluice_admin_api::config::{self as api, ConfigStatus, Generation};
use sluice_admin_api::parameters::ConfigParameters;

use super::item::rfc_3339;
use super::params::{Declined, not_found, number, read};
use super::reloading::{ConfigHistory, GenerationStatus, LastReload};
use super::state::Admin;

fn last_reload(last: &LastReload) -> api::LastReload {
    api::LastReload {
        at: rfc_3339(last.at),
        trigger: last.trigger.to_owned(),
        result: last.result.name().to_owned(),
        faults: last.faults.clone(),
        say: last.say.clone(),
    }
}

fn generation(status: &GenerationStatus) -> Generation {
    Generation { generation: status.number, hash: status.hash.clone(), since: rfc_3339(status.since) }
}

pub(super) async fn show(Shared(admin): Shared<Admin>, uri: Uri) -> Result<Response, Declined> {
    Ok(Json(status(&admin, &uri)?).into_response())
}

/// The answer of `/config`.
pub(super) fn status(admin: &Admin, uri: &Uri) -> Result<ConfigStatus, Declined> {
    let params: ConfigParameters = read(uri)?;
    let status = admin.process.reloading.status();
    let chosen: Option<u64> = number("generation", params.generation, "a number")?;
    let against: Option<u64> = number("against", params.against, "a number")?;
    let current = status.current().map_or(0, |current| current.number);
    let number = chosen.unwrap_or(current);
    let shown = status.find(number).ok_or_else(|| not_kept(&status, number))?;
    let changes = match against {
        None => None,
        Some(from) => {
            let changes =
                admin.process.reloading.difference(from, number).ok_or_else(|| not_kept(&status, from))?;
            Some(changes.into_iter().map(api::KeyChange::from).collect())
        }
    };
    Ok(ConfigStatus {
        generation: shown.number,
        in_force: shown.number == current,
        hash: shown.hash.clone(),
        since: rfc_3339(shown.since),
        file: status.file.as_ref().map(|file| file.display().to_string()),
        last_reload: status.last_reload.as_ref().map(last_reload),
        generations: status.generations.iter().map(generation).collect(),
        needs_process: status.needs_process.iter().map(|key| (*key).to_owned()).collect(),
        against,
        changes,
        config: Value::clone(&shown.document),
    })
}

fn not_kept(status: &ConfigHistory, number: u64) -> Declined {
    let kept = status
        .generations
        .iter()
        .map(|generation| generation.number.to_string())
        .collect::<Vec<_>>()
        .join(", ");
    not_found(format!("generation {number} is not kept; kept: {kept}"))
}
