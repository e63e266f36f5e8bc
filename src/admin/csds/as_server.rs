//! The relay as the server of its clients (ADM-22): one client for each matching stream.

use std::collections::BTreeSet;

use crate::admin::state::Admin;
use crate::driver::api::clients::{HeldVersion, NameStatus};
use crate::driver::api::status::{SessionStatus, SessionTypeStatus, Why};
use sluice_proto::csds::{ClientStatusRequest, ClientStatusResponse, GenericXdsConfig, UpdateFailureState};
use sluice_xds::Status;

use super::answer::{Answer, timestamp};
use super::matcher::Matchers;

/// The streams with a row for each name. With more of them, each type has one row (ADM-23).
const DETAILED_MAX: usize = 16;

/// The name of a row for a whole type.
const WHOLE_TYPE: &str = "*";

/// The number of streams between two turns of other tasks.
const STREAMS_PER_TURN: usize = 64;

pub(super) async fn answer(
    admin: &Admin,
    request: &ClientStatusRequest,
) -> Result<ClientStatusResponse, Status> {
    let matchers = Matchers::read(&request.node_matchers)?;
    let mut matched = BTreeSet::new();
    for (number, (id, node)) in admin.relay.nodes().enumerate() {
        if matchers.match_node(&node) {
            matched.insert(id);
        }
        if number % STREAMS_PER_TURN == STREAMS_PER_TURN - 1 {
            tokio::task::yield_now().await;
        }
    }
    let text = format!("{} streams match", matched.len());
    let fill = move |admin: &Admin, answer: &mut Answer| {
        let is_detailed = matched.len() <= DETAILED_MAX;
        for session in matched.iter().filter_map(|id| admin.relay.session(*id)) {
            fill(admin, &session, is_detailed, answer)?;
        }
        Ok(())
    };
    Answer::build(admin, request, text, fill).await
}

fn fill(
    admin: &Admin,
    session: &SessionStatus,
    is_detailed: bool,
    answer: &mut Answer,
) -> Result<(), Status> {
    let node = sluice_proto::Node {
        id: session.node_id.to_string(),
        cluster: session.node_cluster.to_string(),
        ..sluice_proto::Node::default()
    };
    answer.begin(format!("{}/{}", session.listener, session.id), node)?;
    for status in &session.types {
        let names = is_detailed.then(|| admin.relay.names(session.id, &status.type_url, None)).flatten();
        let Some(names) = names else {
            answer.push(of_type(status))?;
            continue;
        };
        // The client may ask for more than the names that were taken.
        if status.why == Some(Why::Rate) {
            answer.push(of_type(status))?;
        }
        for name in names {
            let row = of_name(admin, status, &name, answer);
            answer.push(row)?;
        }
    }
    Ok(())
}

/// A type of a client. Of a Secret only the state is told.
fn of_type(status: &SessionTypeStatus) -> GenericXdsConfig {
    let version = status.version_acked.filter(|_| !status.type_url.is_secret());
    GenericXdsConfig {
        type_url: status.type_url.as_str().to_owned(),
        name: WHOLE_TYPE.to_owned(),
        version_info: version.map(|version| version.to_string()).unwrap_or_default(),
        config_status: status.state as i32,
        error_state: failure(status),
        ..GenericXdsConfig::default()
    }
}

/// A name of a client, with the content that the client has, if a source still has it.
fn of_name(
    admin: &Admin,
    status: &SessionTypeStatus,
    name: &NameStatus,
    answer: &Answer,
) -> GenericXdsConfig {
    let mut row = GenericXdsConfig {
        type_url: status.type_url.as_str().to_owned(),
        name: name.name.as_str().to_owned(),
        config_status: name.state() as i32,
        error_state: failure(status).filter(|_| name.why == Some(Why::Rejected)),
        ..GenericXdsConfig::default()
    };
    if status.type_url.is_secret() {
        return row;
    }
    let Some(version) = name.has.and_then(HeldVersion::known) else { return row };
    row.version_info = version.to_string();
    let copies = admin.relay.copies(status.type_url.as_str(), name.name.as_str());
    if let Some(copy) = copies.iter().find(|copy| copy.status.version == Some(version)) {
        row.last_updated = copy.status.received_at.map(timestamp);
        row.xds_config = answer.content(&status.type_url, copy.resource.as_ref());
    }
    row
}

/// The client's last NACK of the type.
fn failure(status: &SessionTypeStatus) -> Option<UpdateFailureState> {
    let nack = status.nack.as_ref()?;
    let version = nack.version.filter(|_| !status.type_url.is_secret());
    Some(UpdateFailureState {
        last_update_attempt: Some(timestamp(nack.at)),
        details: nack.detail.to_string(),
        version_info: version.map(|version| version.to_string()).unwrap_or_default(),
    })
}
