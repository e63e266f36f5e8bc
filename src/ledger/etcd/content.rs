//! The content under a prefix: the load, and the watch from its revision on.

use bytes::Bytes;
use tokio::time::timeout;

use super::call::{EtcdCaller, EtcdStream, decode};
use crate::ledger::holdings::{Holdings, too_large, too_many};
use crate::ledger::live::DEADLINE;
use crate::ledger::{ENTRIES_MAX, LEDGER_BYTES_MAX, LedgerEntry, LedgerEvent};
use sluice_proto::etcd::event::EventType;
use sluice_proto::etcd::watch_request::RequestUnion;
use sluice_proto::etcd::{
    KeyValue, RangeRequest, RangeResponse, ResponseHeader, WatchCreateRequest, WatchRequest, WatchResponse,
};
use sluice_xds::Code;

/// The longest message: a ledger at its bounds, with long keys.
pub(super) const MESSAGE_BYTES_MAX: usize = LEDGER_BYTES_MAX + (4 << 20);

const RANGE: &str = "/etcdserverpb.KV/Range";
const WATCH: &str = "/etcdserverpb.Watch/Watch";

/// The whole content at one revision.
pub(super) struct LoadedContent {
    pub(super) cluster: u64,
    pub(super) revision: u64,
    pub(super) entries: Vec<LedgerEntry>,
    pub(super) holdings: Holdings,
}

/// A watch can tell no more.
pub(super) enum Interruption {
    /// The server has dropped events that the watch has not seen.
    Compacted,
    Ended(String),
}

impl From<String> for Interruption {
    fn from(reason: String) -> Interruption {
        Interruption::Ended(reason)
    }
}

/// # Errors
/// The reason, with the endpoint.
pub(super) async fn load(caller: &EtcdCaller, prefix: &str) -> Result<LoadedContent, String> {
    let question = RangeRequest {
        key: prefix.to_owned().into(),
        range_end: range_end(prefix),
        limit: ENTRIES_MAX as i64 + 1,
        keys_only: false,
    };
    let answer = caller.ask_for::<RangeResponse>(RANGE, &question, MESSAGE_BYTES_MAX).await;
    let answer = answer.map_err(|error| match error.status.code {
        // Longer than a message may be.
        Code::ResourceExhausted if !error.is_refusal => caller.about(&too_large()),
        _ => caller.words(&error),
    })?;
    read(answer, prefix).map_err(|reason| caller.about(&reason))
}

fn read(answer: RangeResponse, prefix: &str) -> Result<LoadedContent, String> {
    if answer.more || answer.kvs.len() > ENTRIES_MAX {
        return Err(too_many());
    }
    let (cluster, revision) = header(answer.header)?;
    let entries: Result<Vec<_>, String> = answer.kvs.into_iter().map(|kv| entry(kv, prefix)).collect();
    let mut entries = entries?;
    entries.sort_by(|one, other| one.key.cmp(&other.key));
    let holdings = Holdings::new(&entries, revision)?;
    Ok(LoadedContent { cluster, revision, entries, holdings })
}

/// The cluster and the revision of an answer.
pub(super) fn header(header: Option<ResponseHeader>) -> Result<(u64, u64), String> {
    let header = header.ok_or("an answer has no header")?;
    Ok((header.cluster_id, revision(header.revision)?))
}

fn revision(number: i64) -> Result<u64, String> {
    u64::try_from(number).map_err(|_| format!("{number} is no revision"))
}

fn entry(kv: KeyValue, prefix: &str) -> Result<LedgerEntry, String> {
    let key = str::from_utf8(&kv.key).map_err(|_| "a key under the prefix is not UTF-8".to_owned())?;
    let key = key.strip_prefix(prefix).ok_or_else(|| format!("the key {key:?} is not under the prefix"))?;
    // The value would keep the whole message in memory.
    let value = Bytes::copy_from_slice(&kv.value);
    Ok(LedgerEntry { key: key.to_owned(), value, revision: revision(kv.mod_revision)? })
}

/// The first key behind all keys with this begin. No byte of UTF-8 is the highest.
fn range_end(prefix: &str) -> Bytes {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end.into()
}

/// The events under a prefix.
pub(super) struct PrefixWatch<'a> {
    stream: EtcdStream,
    caller: &'a EtcdCaller,
    prefix: &'a str,
    cluster: u64,
}

impl<'a> PrefixWatch<'a> {
    /// Watches from the revision after the load's.
    pub(super) async fn open(
        caller: &'a EtcdCaller,
        prefix: &'a str,
        loaded: &LoadedContent,
    ) -> Result<PrefixWatch<'a>, Interruption> {
        let stream = caller.stream(WATCH).await;
        let create = WatchCreateRequest {
            key: prefix.to_owned().into(),
            range_end: range_end(prefix),
            start_revision: i64::try_from(loaded.revision).unwrap_or(i64::MAX).saturating_add(1),
            fragment: true,
        };
        stream.send(&WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) });
        let mut watch = PrefixWatch { stream, caller, prefix, cluster: loaded.cluster };
        let created = timeout(DEADLINE, watch.message()).await;
        let created =
            created.map_err(|_| caller.about(&format!("the watch did not begin within {DEADLINE:?}")))??;
        if !created.created {
            return Err(caller.about("the watch began with an event").into());
        }
        Ok(watch)
    }

    /// The next events, in the order of revisions. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Vec<LedgerEvent>, Interruption> {
        let response = self.message().await?;
        let events = response.events.into_iter().map(|event| {
            let is_deletion = event.r#type() == EventType::Delete;
            let entry = entry(event.kv.ok_or("an event has no key")?, self.prefix)?;
            Ok(match is_deletion {
                true => LedgerEvent::Gone { key: entry.key, revision: entry.revision },
                false => LedgerEvent::Changed(entry),
            })
        });
        let events: Result<Vec<_>, String> = events.collect();
        Ok(events.map_err(|reason| self.caller.about(&reason))?)
    }

    async fn message(&mut self) -> Result<WatchResponse, Interruption> {
        let message = self.stream.next().await;
        let response = message.and_then(|message| decode::<WatchResponse>(message, MESSAGE_BYTES_MAX));
        let response = response.map_err(|error| self.caller.words(&error))?;
        let (cluster, _) = header(response.header).map_err(|reason| self.caller.about(&reason))?;
        if cluster != self.cluster {
            return Err(self.caller.about("another cluster of etcd answers").into());
        }
        if response.compact_revision != 0 {
            return Err(Interruption::Compacted);
        }
        if response.canceled {
            let reason = format!("the server has ended the watch: {}", response.cancel_reason);
            return Err(self.caller.about(&reason).into());
        }
        Ok(response)
    }
}
