//! Rules of node classes, learned from a control plane as the connected clients (LRN-2).

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Request, State as Shared};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use http_body::Body as _;
use sluice_admin_api::learning::LearnProgress;
use sluice_admin_api::parameters::{LearnParameters, NoParameters};

use super::params::{Declined, bad_request, conflict, flag, not_found, number, read, time};
use super::reload::read_text;
use super::state::Admin;
use crate::driver::AskedTypes;
use crate::driver::api::study::{CheckedRules, LearnOrder, LearnRefusal, LearnState};
use sluice_setting::{Range, hours, minutes, seconds};

/// The most clients asked at once.
const STREAMS_MAX: u32 = 64;

/// The most streams begun in a minute.
const PER_MINUTE_MAX: u32 = 6_000;

/// The longest study.
const LONGEST: Range = sluice_setting::time(seconds(1)..=hours(24));

/// Without words of the caller.
const TYPES: &str = "cds,lds,eds,rds";
const STREAMS: u32 = 4;
const PER_MINUTE: u32 = 600;
const FOR: Duration = minutes(30);

/// `POST /classes/learn?server=&types=&for=&streams=&per_minute=&check=`. With `check=1`, the body may be a
/// configuration whose rules are compared with the evidence, in place of the rules in force.
pub(super) async fn learn(Shared(admin): Shared<Admin>, request: Request) -> Result<Response, Declined> {
    let params: LearnParameters = read(request.uri())?;
    let types = params.types.as_deref().unwrap_or(TYPES).split(',').filter(|word| !word.is_empty());
    let types = AskedTypes::of_words(types).map_err(|fault| bad_request(format!("types: {fault}")))?;
    if types.whole.is_empty() {
        return Err(bad_request("types: missing; allowed: cds, lds, eds, rds, or full names".to_owned()));
    }
    let check = flag("check", params.check)?;
    let check = match (check, request.body().is_end_stream()) {
        (false, true) => None,
        (true, true) => Some(CheckedRules::InForce),
        (true, false) => {
            let rules = admin.process.reloading.rules_of(read_text(request).await?).await;
            Some(CheckedRules::Of(Box::new(rules.map_err(|faults| bad_request(faults.join("\n")))?)))
        }
        (false, false) => return Err(bad_request("a body is for check=1 only".to_owned())),
    };
    let order = LearnOrder {
        server: params.server,
        types,
        streams: bounded("streams", params.streams, STREAMS_MAX)?.unwrap_or(STREAMS),
        per_minute: bounded("per_minute", params.per_minute, PER_MINUTE_MAX)?.unwrap_or(PER_MINUTE),
        longest: time("for", params.r#for, LONGEST)?.unwrap_or(FOR),
        check,
    };
    let order = admin.relay.learn(order).map_err(refused)?;
    answer(&admin, order, false)
}

/// A number from 1 on.
fn bounded(key: &str, text: Option<String>, most: u32) -> Result<Option<u32>, Declined> {
    let allowed = format!("a whole number from 1 to {most}");
    let read: Option<u32> = number(key, text.clone(), &allowed)?;
    match read {
        Some(number) if !(1..=most).contains(&number) => {
            Err(bad_request(format!("{key} is {:?}; allowed: {allowed}", text.unwrap_or_default())))
        }
        read => Ok(read),
    }
}

fn refused(refusal: LearnRefusal) -> Declined {
    match refusal {
        LearnRefusal::NoServer(servers) => {
            let servers: Vec<&str> = servers.iter().map(|server| &**server).collect();
            bad_request(format!("server: the configuration has {} only", servers.join(", ")))
        }
        LearnRefusal::NotAsked(reason) => conflict(format!("nothing can be learned here: {reason}")),
        LearnRefusal::Busy(order) => {
            conflict(format!("order {order} asks this server already: GET /classes/learn/{order}"))
        }
    }
}

/// `GET /classes/learn/{order}`. The findings have values of nodes: they are for those who may read
/// `/clients`.
pub(super) async fn progress(
    Shared(admin): Shared<Admin>,
    Path(order): Path<String>,
    uri: Uri,
) -> Result<Response, Declined> {
    read::<NoParameters>(&uri)?;
    let order = order.parse().map_err(|_| bad_request(format!("order is {order:?}; allowed: a number")))?;
    answer(&admin, order, true)
}

fn answer(admin: &Admin, order: u64, with_report: bool) -> Result<Response, Declined> {
    let Some(state) = admin.relay.learn_state(order) else {
        return Err(not_found(format!("no order to learn has the number {order}, or it was long ago")));
    };
    let LearnState { server, nodes, asked, result } = state;
    let done = result.is_some();
    let (report, refused) = match result {
        Some(Ok(report)) => (with_report.then(|| Box::new((*report).clone())), None),
        Some(Err(reason)) => (None, Some(reason.to_string())),
        None => (None, None),
    };
    let server = server.to_string();
    Ok(Json(LearnProgress { order, server, nodes, asked, done, refused, report }).into_response())
}
