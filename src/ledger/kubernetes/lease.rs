//! The lease of a session: kept alive, and given back. The lease that another process has under the name.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::content::Renewal;
use super::objects::{LeaseObject, renewal};
use super::place::KubernetesLive;
use crate::kubernetes::{ApiError, Collection, ObjectVersion};
use crate::ledger::live::DEADLINE;
use crate::telemetry::wall_now;
use sluice_setting::seconds;

/// The least time between two renewals.
const PACE: Duration = seconds(1);

/// The lease of another process, as first seen.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OldLease {
    uid: String,
    version: String,
    since: Instant,
}

impl OldLease {
    /// Whether the lease was not renewed for its length. `old`: the memory between the looks.
    pub(super) fn is_over(old: &mut Option<OldLease>, lease: &LeaseObject, now: Instant) -> bool {
        let (uid, version) = (&lease.metadata.uid, &lease.metadata.resource_version);
        let same = old.as_ref().filter(|old| (&old.uid, &old.version) == (uid, version));
        let since = same.map_or(now, |old| old.since);
        *old = Some(OldLease { uid: uid.clone(), version: version.clone(), since });
        now.saturating_duration_since(since) >= lease.length()
    }
}

/// The time of a renewal, for people, in the form of the API. Nobody compares it.
pub(super) fn now_text() -> String {
    jiff::Timestamp::try_from(wall_now()).unwrap_or_default().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Keeps the lease alive, until it is lost for the returned reason.
pub(super) async fn keep_alive(session: &KubernetesLive, length: Duration) -> String {
    let link = &session.link;
    let mut next = Instant::now() + length / 3;
    loop {
        let last = Instant::now();
        tokio::select! {
            () = sleep_until(next) => {}
            () = link.renew.notified() => sleep_until(next.min(last + PACE)).await,
        }
        let (sent_at, time) = (Instant::now(), now_text());
        next = sent_at + length / 3;
        let fields = renewal(&link.lease_uid, &time);
        link.renewals.lock().push_back(Renewal { time: time.clone(), sent_at, deaf_at: None });
        let answer = tokio::select! {
            answer = link.leases.patch::<LeaseObject>(&link.lease_name, &fields) => answer,
            () = sleep_until(session.lease.until()) => {
                return format!("no answer has kept the lease of {length:?} alive");
            }
        };
        let Err(error) = answer else {
            session.lease.renew(sent_at, length);
            let deaf_at = Some(Instant::now() + DEADLINE);
            link.renewals
                .lock()
                .iter_mut()
                .filter(|renewal| renewal.time == time)
                .for_each(|renewal| renewal.deaf_at = deaf_at);
            session.wrote.notify_one();
            continue;
        };
        // Perhaps done, but the watch need not report it.
        link.renewals.lock().retain(|renewal| renewal.time != time);
        let may_pass = error.is_busy || error.status.is_none_or(|status| status >= 500);
        if !may_pass || session.lease.until() <= Instant::now() {
            return error.text;
        }
        next = sent_at + PACE;
    }
}

/// Deletes a lease as it was seen.
pub(super) async fn give_back(leases: &Collection, lease: &LeaseObject) -> Result<(), String> {
    let expected = lease.metadata.as_seen();
    match leases.delete(&lease.metadata.name, expected).await {
        Ok(()) | Err(ApiError { status: Some(404), .. }) => Ok(()),
        Err(error) => Err(error.text),
    }
}

/// Deletes the own lease. After a failure it runs out.
pub(super) async fn close(session: &KubernetesLive) {
    let expected = ObjectVersion { uid: Some(session.link.lease_uid.clone()), version: None };
    let _ = session.link.leases.delete(&session.link.lease_name, expected).await;
}
