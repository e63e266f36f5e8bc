//! Entries put and deleted, each by a transaction of one key.

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::call::{CallError, DEADLINE};
use super::content::header;
use super::live::{CurrentSession, LiveSession};
use super::place::EtcdPlace;
use crate::ledger::{KEY_BYTES_MAX, Precondition, VALUE_BYTES_MAX, WriteError, WriteResult};
use sluice_proto::etcd::compare::{CompareResult, CompareTarget, TargetUnion};
use sluice_proto::etcd::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, TxnResponse, request_op,
    response_op,
};
use sluice_xds::Code;

const TXN: &str = "/etcdserverpb.KV/Txn";

/// The change of an entry.
pub(super) enum EntryChange {
    Put { value: Bytes, leased: bool },
    Delete,
}

pub(super) struct Writer<'a> {
    pub(super) place: &'a EtcdPlace,
    pub(super) current: &'a CurrentSession,
    pub(super) writes: &'a Semaphore,
}

impl Writer<'_> {
    pub(super) async fn write(&self, key: String, change: EntryChange, only_if: Precondition) -> WriteResult {
        let result = match timeout(DEADLINE, self.try_write(&key, change, only_if)).await {
            Ok(result) => result,
            Err(_) => Err(WriteError::Failed(format!("{}: no answer within {DEADLINE:?}", self.place.name))),
        };
        self.place.metrics.wrote(match &result {
            Ok(_) => "ok",
            Err(WriteError::Conflict { .. }) => "conflict",
            Err(WriteError::Refused(_)) => "refused",
            Err(WriteError::Failed(_)) => "failed",
        });
        result
    }

    async fn try_write(&self, key: &str, change: EntryChange, only_if: Precondition) -> WriteResult {
        if let EntryChange::Put { value, .. } = &change
            && value.len() > VALUE_BYTES_MAX
        {
            let length = value.len();
            let reason =
                format!("the value of {key:?} has {length} bytes; at most {VALUE_BYTES_MAX} are taken");
            return Err(WriteError::Refused(reason));
        }
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            let reason = format!("a key has 1 to {KEY_BYTES_MAX} bytes, and not {}", key.len());
            return Err(WriteError::Refused(reason));
        }
        // Never closed.
        let _turn = self.writes.acquire().await;
        let session = self.current.get().map_err(WriteError::Failed)?;
        let key = Bytes::from(format!("{}{key}", self.place.prefix));
        let question = transaction(&key, change, only_if, &session);
        let answer = session.caller.ask::<TxnResponse>(TXN, &question).await;
        let answer = answer.map_err(|error| failure(&session, &error))?;
        let failed = |reason: &str| WriteError::Failed(session.caller.about(reason));
        let (cluster, revision) = header(answer.header).map_err(|reason| failed(&reason))?;
        if cluster != session.cluster {
            let reason = session.caller.about("another cluster of etcd answers");
            session.fail(reason.clone());
            return Err(WriteError::Failed(reason));
        }
        let response = answer.responses.into_iter().next().and_then(|response| response.response);
        match response {
            Some(response_op::Response::ResponseRange(range)) if !answer.succeeded => {
                let revision = range.kvs.first().and_then(|kv| u64::try_from(kv.mod_revision).ok());
                Err(WriteError::Conflict { revision })
            }
            // Nothing was there to delete, so no event follows.
            Some(response_op::Response::ResponseDeleteRange(range)) if range.deleted == 0 => Ok(revision),
            Some(_) if answer.succeeded => {
                session.has_written(revision);
                Ok(revision)
            }
            _ => Err(failed("the answer to a write is incomplete")),
        }
    }
}

fn transaction(key: &Bytes, change: EntryChange, only_if: Precondition, session: &LiveSession) -> TxnRequest {
    let expected = match only_if {
        Precondition::Absent => Some(0),
        Precondition::Revision(revision) => Some(i64::try_from(revision).unwrap_or(i64::MAX)),
        Precondition::Any => None,
    };
    let compare = expected.map(|revision| Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key: key.clone(),
        target_union: Some(TargetUnion::ModRevision(revision)),
    });
    let change = match change {
        EntryChange::Put { value, leased } => {
            let lease = if leased { session.lease.id } else { 0 };
            request_op::Request::RequestPut(PutRequest { key: key.clone(), value, lease })
        }
        EntryChange::Delete => {
            request_op::Request::RequestDeleteRange(DeleteRangeRequest { key: key.clone() })
        }
    };
    let look = RangeRequest { key: key.clone(), keys_only: true, ..RangeRequest::default() };
    let only = |request| vec![RequestOp { request: Some(request) }];
    TxnRequest {
        compare: compare.into_iter().collect(),
        success: only(change),
        failure: only(request_op::Request::RequestRange(look)),
    }
}

/// The failure of a write. Some failures are about the session as a whole.
fn failure(session: &LiveSession, error: &CallError) -> WriteError {
    let reason = session.caller.words(error);
    if error.is_refusal && error.status.code == Code::NotFound {
        session.fail(reason.clone());
    }
    let is_refused = [Code::NotFound, Code::PermissionDenied, Code::InvalidArgument, Code::ResourceExhausted]
        .contains(&error.status.code);
    match error.is_refusal && is_refused {
        true => WriteError::Refused(reason),
        false => WriteError::Failed(reason),
    }
}
