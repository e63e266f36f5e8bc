//! The lease of a session: granted, kept alive, and given back.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::call::{EtcdCaller, decode};
use super::place::EtcdLive;
use crate::ledger::live::LeaseClock;
use sluice_proto::etcd::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest,
    LeaseRevokeResponse,
};

const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";

/// The longest answer, whose fields are numbers.
const ANSWER_BYTES_MAX: usize = 4096;

/// # Errors
/// The reason, with the endpoint.
pub(super) async fn grant(caller: &EtcdCaller, lease: Duration) -> Result<(i64, LeaseClock), String> {
    // Seconds are all that etcd knows. A lease that is longer than it counts is safe.
    let ttl = lease.as_millis().div_ceil(1000) as i64;
    let asked_at = Instant::now();
    let answer = caller.ask::<LeaseGrantResponse>(GRANT, &LeaseGrantRequest { ttl }).await;
    let answer = answer.map_err(|error| caller.words(&error))?;
    match granted(answer.ttl, lease) {
        Some(granted) if answer.error.is_empty() => Ok((answer.id, LeaseClock::new(asked_at, granted))),
        _ => Err(caller.about(&format!("no lease was granted: {}", answer.error))),
    }
}

/// The time for which a lease counts as granted: never longer than asked for, as the number is the server's.
fn granted(ttl: i64, lease: Duration) -> Option<Duration> {
    let ttl = u64::try_from(ttl).ok().filter(|ttl| *ttl > 0)?;
    Some(Duration::from_secs(ttl).min(lease))
}

/// Keeps a lease alive, until it is lost for the returned reason.
pub(super) async fn keep_alive(session: &EtcdLive, length: Duration) -> String {
    let (caller, id, lease) = (&session.link.caller, session.link.lease, &session.lease);
    let mut stream = caller.stream(KEEP_ALIVE).await;
    let mut next = Instant::now() + length / 3;
    // Answers come in the order of questions.
    let mut asked = VecDeque::new();
    loop {
        tokio::select! {
            biased;
            () = sleep_until(lease.until()) => {
                return caller.about(&format!("no answer has kept the lease of {length:?} alive"));
            }
            () = sleep_until(next) => {
                let now = Instant::now();
                asked.push_back(now);
                stream.send(&LeaseKeepAliveRequest { id });
                next = now + length / 3;
            }
            answer = stream.next() => {
                let answer = answer.and_then(|answer| decode(answer, ANSWER_BYTES_MAX));
                let answer: LeaseKeepAliveResponse = match answer {
                    Ok(answer) => answer,
                    Err(error) => return caller.words(&error),
                };
                match (asked.pop_front(), granted(answer.ttl, length)) {
                    (Some(asked_at), Some(granted)) if answer.id == id => lease.renew(asked_at, granted),
                    (Some(_), None) => return caller.about("the server has ended the lease"),
                    _ => return caller.about("the server answered about a lease unasked"),
                }
            }
        }
    }
}

/// Gives a lease back. After a failure it runs out.
pub(super) async fn revoke(session: &EtcdLive) {
    let question = LeaseRevokeRequest { id: session.link.lease };
    let _ = session.link.caller.ask::<LeaseRevokeResponse>(REVOKE, &question).await;
}
