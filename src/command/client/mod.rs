//! `sluice diff`, `explain`: the names of a client. `sluice who`, `versions`: the clients of a name.
//!
//! A client is named by the number of its stream, or by its node id (CMD-6).

pub(super) mod diff;
pub(super) mod explain;
pub(super) mod versions;
pub(super) mod who;

use http::Method;
use serde::de::DeserializeOwned;
use sluice_admin_api::clients::Client;
use sluice_admin_api::endpoints::Endpoint;
use sluice_admin_api::parameters::{ClientsParameters, Parameters};

use super::address::Target;
use super::console::Console;
use super::list::view::CLIENTS;
use super::list::{path, take_items};
use super::outcome::Failure;
use super::relays::Relays;
use super::request::{Caller, Missing};
use super::text::safe;
use super::typed::Typed;

/// The candidates in an error.
const CANDIDATES_MAX: usize = 20;

/// A stream, with its relay.
pub(super) type At<'a> = (&'a Target, Client<'static>);

/// The streams with a name.
pub(super) async fn find<'a>(
    relays: &'a Relays,
    name: &str,
    console: &mut Console<'_>,
) -> Result<Vec<At<'a>>, Failure> {
    let ask = async |caller: &Caller, relay: &Target| {
        let parameters = ClientsParameters {
            node: Some(name.to_owned()),
            limit: Some(CANDIDATES_MAX.to_string()),
            ..ClientsParameters::default()
        };
        let path = path(Endpoint::Clients.path(), parameters.into_pairs());
        let mut answer = caller.json(relay, &Method::GET, &path).await?;
        let streams: Vec<Typed<Client<'_>>> = take_items(&mut answer, CLIENTS.key, relay)?;
        if !streams.is_empty() || name.parse::<u64>().is_err() {
            return Ok(streams);
        }
        match caller.typed(relay, &Method::GET, &Endpoint::Client.path_of(&[name])).await {
            Ok(client) => Ok(vec![client]),
            Err(Missing::Refused { status: 404, .. }) => Ok(Vec::new()),
            Err(missing) => Err(missing),
        }
    };
    let answers = relays.all(ask).await;
    answers.report(console.err)?;
    let at = |client: Typed<Client<'static>>| {
        Some((relays.relays.iter().find(|relay| relay.label == client.relay)?, client.value))
    };
    Ok(answers.values().flatten().filter_map(at).collect())
}

/// The client with a name.
async fn resolve<'a>(
    relays: &'a Relays,
    name: &str,
    console: &mut Console<'_>,
) -> Result<(&'a Target, u64), Failure> {
    match find(relays, name, console).await?.as_slice() {
        [] => Err(Failure::Usage(format!("no client is {:?}; `sluice get clients` lists them", safe(name)))),
        [(relay, client)] => Ok((relay, client.id)),
        several => Err(Failure::Usage(candidates(name, several))),
    }
}

pub(super) fn candidates(name: &str, several: &[At<'_>]) -> String {
    let mut text = format!("several clients are {:?}; name one by its number:", safe(name));
    for (relay, client) in several.iter().take(CANDIDATES_MAX) {
        let peer = client.peer.map_or_else(|| "-".to_owned(), |peer| peer.to_string());
        let line = format!("{} on listener {}, from {peer}, at {}", client.id, client.listener, relay.label);
        text += &format!("\n  {}", safe(&line));
    }
    text
}

/// The answer of a relay.
async fn ask<T: DeserializeOwned>(relays: &Relays, relay: &Target, path: &str) -> Result<Typed<T>, Failure> {
    let answer = relays.caller.typed(relay, &Method::GET, path).await;
    answer.map_err(|missing| match missing.is_usage() {
        true => Failure::Usage(missing.text()),
        false => Failure::Unavailable(format!("relay {}: {}", relay.label, missing.text())),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cmd_6_candidates_are_listed_with_their_numbers() {
        let relay = Target {
            label: "r1:19000".into(),
            name: String::new(),
            place: super::super::address::RelayPlace::Tcp(Vec::new()),
        };
        let clients = [71, 72].map(|id| json!({"id": id, "listener": "main", "peer": "10.0.4.7:1"}));
        let clients = clients.map(|client| serde_json::from_value(client).unwrap());
        let several: Vec<_> = clients.into_iter().map(|client| (&relay, client)).collect();
        let text = "several clients are \"web\"; name one by its number:\n  71 on listener main, from 10.0.4.7:1, at \
                    r1:19000\n  72 on listener main, from 10.0.4.7:1, at r1:19000";
        assert_eq!(candidates("web", &several), text);
    }
}
