//! `sluice diff`, `explain`: the names of a client. `sluice who`, `versions`: the clients of a name.
//!
//! A client is named by the number of its stream, or by its node id (CMD-6).

pub(super) mod diff;
pub(super) mod explain;
pub(super) mod versions;
pub(super) mod who;

use http::Method;
use serde_json::Value;

use super::address::Relay;
use super::console::Console;
use super::list::{path, with_relay};
use super::outcome::Failure;
use super::relays::Relays;
use super::request::{Caller, Missing};
use super::table::{list, number, text};
use super::text::safe;

/// The candidates in an error.
const CANDIDATES_MAX: usize = 20;

/// The streams with a name, each with its relay.
pub(super) async fn find<'a>(
    relays: &'a Relays,
    name: &str,
    console: &mut Console<'_>,
) -> Result<Vec<(&'a Relay, Value)>, Failure> {
    let ask = async |caller: &Caller, relay: &Relay| {
        let query = [("node", name.to_owned()), ("limit", CANDIDATES_MAX.to_string())];
        let found = caller.json(relay, &Method::GET, &path("/clients", query)).await?;
        let found = list(&found, "clients").to_vec();
        if !found.is_empty() || name.parse::<u64>().is_err() {
            return Ok(found);
        }
        match caller.json(relay, &Method::GET, &format!("/clients/{name}")).await {
            Ok(client) => Ok(vec![client]),
            Err(Missing::Refused { status: 404, .. }) => Ok(Vec::new()),
            Err(missing) => Err(missing),
        }
    };
    let answers = relays.all(ask).await;
    answers.tell(console.err)?;
    let found = answers
        .found
        .into_iter()
        .filter_map(|(label, found)| Some((relays.relays.iter().find(|relay| relay.label == label)?, found)));
    Ok(found.flat_map(|(relay, found)| found.into_iter().map(move |client| (relay, client))).collect())
}

/// The client with a name.
async fn resolve<'a>(
    relays: &'a Relays,
    name: &str,
    console: &mut Console<'_>,
) -> Result<(&'a Relay, u64), Failure> {
    match find(relays, name, console).await?.as_slice() {
        [] => Err(Failure::Usage(format!("no client is {:?}; `sluice get clients` lists them", safe(name)))),
        [(relay, client)] => Ok((relay, id_of(client)?)),
        several => Err(Failure::Usage(candidates(name, several))),
    }
}

pub(super) fn id_of(client: &Value) -> Result<u64, Failure> {
    number(client, "id").ok_or_else(|| Failure::NoRelay("a client without id".to_owned()))
}

pub(super) fn candidates(name: &str, several: &[(&Relay, Value)]) -> String {
    let mut text_of = format!("several clients are {:?}; name one by its number:", safe(name));
    for (relay, client) in several.iter().take(CANDIDATES_MAX) {
        let get = |key: &str| text(client, key).unwrap_or_else(|| "-".to_owned());
        let line = format!(
            "{} on listener {}, from {}, at {}",
            get("id"),
            get("listener"),
            get("peer"),
            relay.label
        );
        text_of += &format!("\n  {}", safe(&line));
    }
    text_of
}

/// The answer of a relay.
async fn ask(relays: &Relays, relay: &Relay, path: &str) -> Result<Value, Failure> {
    let answer = relays.caller.json(relay, &Method::GET, path).await;
    let answer = answer.map_err(|missing| match missing.is_usage() {
        true => Failure::Usage(missing.text()),
        false => Failure::NoRelay(format!("relay {}: {}", relay.label, missing.text())),
    });
    Ok(with_relay(answer?, &relay.label))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cmd_6_candidates_are_told_with_their_numbers() {
        let relay = Relay {
            label: "r1:19000".into(),
            name: String::new(),
            place: super::super::address::Place::Tcp(Vec::new()),
        };
        let clients = [71, 72].map(|id| json!({"id": id, "listener": "main", "peer": "10.0.4.7:1"}));
        let several: Vec<_> = clients.into_iter().map(|client| (&relay, client)).collect();
        let text = "several clients are \"web\"; name one by its number:\n  71 on listener main, from 10.0.4.7:1, at \
                    r1:19000\n  72 on listener main, from 10.0.4.7:1, at r1:19000";
        assert_eq!(candidates("web", &several), text);
    }
}
