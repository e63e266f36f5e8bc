//! Entries put and deleted, each by a transaction of one key.

use bytes::Bytes;

use super::call::CallError;
use super::content::header;
use super::place::{CurrentEtcd, EtcdLive, EtcdPlace};
use crate::ledger::{Precondition, WriteError, WriteResult};
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

impl EntryChange {
    pub(super) fn value(&self) -> Option<&Bytes> {
        match self {
            EntryChange::Put { value, .. } => Some(value),
            EntryChange::Delete => None,
        }
    }
}

pub(super) async fn write(
    place: &EtcdPlace,
    current: &CurrentEtcd,
    key: &str,
    change: EntryChange,
    only_if: Precondition,
) -> WriteResult {
    let session = current.get().map_err(WriteError::Failed)?;
    let key = Bytes::from(format!("{}{key}", place.prefix));
    let question = transaction(&key, change, only_if, &session);
    let answer = session.link.caller.ask::<TxnResponse>(TXN, &question).await;
    let answer = answer.map_err(|error| failure(&session, &error))?;
    let failed = |reason: &str| WriteError::Failed(session.link.caller.about(reason));
    let (cluster, revision) = header(answer.header).map_err(|reason| failed(&reason))?;
    if cluster != session.link.cluster {
        let reason = session.link.caller.about("another cluster of etcd answers");
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

fn transaction(key: &Bytes, change: EntryChange, only_if: Precondition, session: &EtcdLive) -> TxnRequest {
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
            let lease = if leased { session.link.lease } else { 0 };
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
fn failure(session: &EtcdLive, error: &CallError) -> WriteError {
    let reason = session.link.caller.words(error);
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
