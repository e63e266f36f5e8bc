//! The relay as a client of its servers (ADM-21): one client for each source, as gRPC shows its channels.

use std::collections::{BTreeMap, HashSet};

use crate::admin::state::Admin;
use crate::driver::api::content::{CachedCopy, HeldSource, UpstreamVersions};
use sluice_proto::csds::{ClientStatusRequest, ClientStatusResponse, GenericXdsConfig, UpdateFailureState};
use sluice_xds::Status;

use super::answer::{Answer, shown_node, timestamp};

pub(super) async fn answer(
    admin: &Admin,
    request: &ClientStatusRequest,
) -> Result<ClientStatusResponse, Status> {
    admin.relay.refresh().await;
    let sources = admin.relay.held_sources();
    let mut versions = BTreeMap::new();
    for source in &sources {
        versions.insert(source.number, admin.relay.upstream_versions(source.number).await);
    }
    let matched = format!("{} sources", sources.len());
    let fill = move |admin: &Admin, answer: &mut Answer| {
        for source in &sources {
            let versions = versions.remove(&source.number).unwrap_or_default();
            fill(admin, source, &versions, answer)?;
        }
        Ok(())
    };
    Answer::build(admin, request, matched, fill).await
}

fn fill(
    admin: &Admin,
    source: &HeldSource,
    versions: &UpstreamVersions,
    answer: &mut Answer,
) -> Result<(), Status> {
    let status = &source.status;
    let mut scope = format!("{}/{} via {}", status.list, status.class.digest, status.server);
    if let Some(stream) = status.stream {
        scope += &format!(" for stream {stream}");
    }
    answer.begin(scope, shown_node(&source.node))?;
    // A name may be requested alone, and be a member of the wildcard, too. The first entry is that of the
    // name.
    let mut seen = HashSet::new();
    for copy in admin.relay.held(source.number) {
        if seen.insert((copy.status.type_url.clone(), copy.status.name.clone())) {
            answer.push(row(source, &copy, versions, answer))?;
        }
    }
    Ok(())
}

fn row(
    source: &HeldSource,
    copy: &CachedCopy,
    versions: &UpstreamVersions,
    answer: &Answer,
) -> GenericXdsConfig {
    let status = &copy.status;
    let mut row = GenericXdsConfig {
        type_url: status.type_url.as_str().to_owned(),
        name: status.name.as_str().to_owned(),
        client_status: status.state as i32,
        ..GenericXdsConfig::default()
    };
    if status.type_url.is_secret() {
        return row;
    }
    let version = versions.get(&(status.type_url.clone(), status.name.clone()));
    row.version_info = version.map(|version| version.to_string()).unwrap_or_default();
    row.last_updated = status.received_at.map(timestamp);
    row.xds_config = answer.content(&status.type_url, copy.resource.as_ref());
    let error = status.error.as_ref().map(ToString::to_string);
    row.error_state = error.or_else(|| doubt(source, copy)).map(|details| UpdateFailureState {
        details,
        last_update_attempt: source.status.stale_since.map(timestamp),
        version_info: String::new(),
    });
    row
}

/// The reason why a cached resource may be out of date.
fn doubt(source: &HeldSource, copy: &CachedCopy) -> Option<String> {
    copy.resource.as_ref()?;
    let status = &source.status;
    let of_type = status.types.iter().find(|of_type| of_type.type_url == copy.status.type_url);
    let lost = of_type.and_then(|of_type| of_type.lost.as_ref()).map(|lost| lost.error.to_string());
    let error = || status.error_text().map(|error| format!(": {error}")).unwrap_or_default();
    match (status.stale_since, lost) {
        (Some(_), _) => Some(format!("stale: {} is unreachable{}", status.server, error())),
        (None, Some(lost)) => Some(format!("stale: {} is unreachable for the type: {lost}", status.server)),
        (None, None) if status.restored => {
            Some(format!("restored from a checkpoint; {} has not confirmed it yet", status.server))
        }
        (None, None) => None,
    }
}
