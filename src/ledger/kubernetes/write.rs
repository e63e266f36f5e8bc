//! Entries put and deleted, each by a request about one object.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::objects::{ConfigMap, entry_name, entry_object};
use super::place::{CurrentKubernetes, KubernetesLive, KubernetesPlace};
use crate::kubernetes::{ApiError, ObjectVersion};
use crate::ledger::{Precondition, Put, WriteError, WriteResult};
use sluice_setting::seconds;

/// The least time between two writes of an entry under a lease: an API server takes fewer than an etcd.
const PACE: Duration = seconds(1);

/// Attempts at a write without a precondition, while others create and delete the entry.
const ATTEMPTS_MAX: u32 = 3;

pub(super) async fn put(place: &KubernetesPlace, current: &CurrentKubernetes, put: Put) -> WriteResult {
    let session = current.get().map_err(WriteError::Failed)?;
    let Put { key, value, only_if, leased } = put;
    let value = text(&key, &value)?;
    let link = &session.link;
    let (ledger, name) = (&*place.settings.name, entry_name(&place.settings.name, &key));
    let lease = leased.then_some((&*link.lease_name, &*link.lease_uid));
    let object = |version| entry_object(ledger, &key, value, lease, version);
    let mut written = match only_if {
        Precondition::Absent => link.maps.create::<ConfigMap>(&object(None)).await,
        Precondition::Revision(revision) => link.maps.update(&name, &object(Some(revision))).await,
        Precondition::Any => link.maps.update(&name, &object(None)).await,
    };
    for _ in 1..ATTEMPTS_MAX {
        written = match (&written, only_if) {
            (Err(ApiError { status: Some(404), .. }), Precondition::Any) => {
                link.maps.create(&object(None)).await
            }
            (Err(ApiError { status: Some(409), .. }), Precondition::Any) => {
                link.maps.update(&name, &object(None)).await
            }
            _ => break,
        };
    }
    match written {
        Ok(map) => {
            let revision = map.revision().map_err(WriteError::Failed)?;
            session.has_written(revision);
            Ok(revision)
        }
        Err(error) => Err(failure(place, &session, &name, only_if, error).await),
    }
}

pub(super) async fn delete(
    place: &KubernetesPlace,
    current: &CurrentKubernetes,
    key: &str,
    only_if: Precondition,
) -> WriteResult {
    let session = current.get().map_err(WriteError::Failed)?;
    let name = entry_name(&place.settings.name, key);
    let version = match only_if {
        Precondition::Revision(revision) => Some(revision.to_string()),
        Precondition::Absent | Precondition::Any => None,
    };
    if only_if == Precondition::Absent {
        let revision = present(&session, &name).await?;
        return if revision.is_none() { Ok(0) } else { Err(WriteError::Conflict { revision }) };
    }
    let deleted = session.link.maps.delete(&name, ObjectVersion { uid: None, version }).await;
    match (deleted, only_if) {
        // The API does not tell the revision of a deletion.
        (Ok(()), _) | (Err(ApiError { status: Some(404), .. }), Precondition::Any) => Ok(0),
        (Err(error), _) => Err(failure(place, &session, &name, only_if, error).await),
    }
}

fn text<'a>(key: &str, value: &'a Bytes) -> Result<&'a str, WriteError> {
    let refused = |_| WriteError::Refused(format!("the value of {key:?} is not text, as a ConfigMap needs"));
    str::from_utf8(value).map_err(refused)
}

/// The latest write of each entry under a lease.
pub(super) type PacedWrites = Mutex<BTreeMap<String, Instant>>;

/// Waits until the entry may be written again.
pub(super) async fn pace(paced: &PacedWrites, key: &str) {
    let turn = {
        let mut paced = paced.lock();
        let now = Instant::now();
        paced.retain(|_, at| *at + PACE > now);
        let turn = paced.get(key).map_or(now, |at| *at + PACE);
        paced.insert(key.to_owned(), turn);
        turn
    };
    sleep_until(turn).await;
}

/// The failure of a write. Some failures are about the session as a whole.
async fn failure(
    place: &KubernetesPlace,
    session: &KubernetesLive,
    name: &str,
    only_if: Precondition,
    error: ApiError,
) -> WriteError {
    let is_conditional = only_if != Precondition::Any;
    if error.status == Some(409)
        && only_if == Precondition::Absent
        && let Err(reason) = place.look_for(&session.link.maps, name).await
    {
        session.fail(reason.clone());
        return WriteError::Failed(reason);
    }
    match error.status {
        // To replace an object that is not there is refused so.
        Some(404) if matches!(only_if, Precondition::Revision(_)) => WriteError::Conflict { revision: None },
        Some(409) if is_conditional => match present(session, name).await {
            Ok(revision) => WriteError::Conflict { revision },
            Err(error) => error,
        },
        Some(401) => {
            session.fail(error.text.clone());
            WriteError::Failed(error.text)
        }
        Some(400 | 403 | 404 | 413 | 422) => WriteError::Refused(error.text),
        _ => WriteError::Failed(error.text),
    }
}

/// The revision of an entry, if there is one.
async fn present(session: &KubernetesLive, name: &str) -> Result<Option<u64>, WriteError> {
    match session.link.maps.get::<ConfigMap>(name).await {
        Ok(map) => Ok(Some(map.revision().map_err(WriteError::Failed)?)),
        Err(ApiError { status: Some(404), .. }) => Ok(None),
        Err(error) => Err(WriteError::Failed(error.text)),
    }
}
