//! Load reports (LRS): the reports of the simulated clients, and the sums that a control plane makes of them. Both
//! sides count the same things, so that the sums can be compared to the request.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::proto::{Fields, Malformed, Value, put_bytes, put_message, put_uint};
use crate::xds::{resource_index, resource_name};

/// The number of different reports. Clients send them in turn, so that no two reports in a row are equal.
pub const VARIETY: usize = 4;

/// The maximum number of localities of a cluster.
pub const MOST_LOCALITIES: usize = 100;

/// The weight of a cluster in [`Sums::weighted`].
const CLUSTER_WEIGHT: usize = 1_000;

/// The load that clients report: the first clusters, each with some localities.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub clusters: usize,
    pub localities: usize,
    /// The interval that reports tell.
    pub interval: Duration,
}

/// Sums over reports and rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    pub issued: u64,
    pub success: u64,
    pub error: u64,
    pub dropped: u64,
    /// The issued requests, each multiplied by the weight of its row: requests in a wrong row change it.
    pub weighted: u64,
}

impl Sums {
    pub fn times(self, count: u64) -> Sums {
        let Sums { issued, success, error, dropped, weighted } = self;
        let [issued, success, error, dropped, weighted] =
            [issued, success, error, dropped, weighted].map(|sum| sum * count);
        Sums { issued, success, error, dropped, weighted }
    }
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Sums) {
        self.issued += other.issued;
        self.success += other.success;
        self.error += other.error;
        self.dropped += other.dropped;
        self.weighted += other.weighted;
    }
}

/// Requests in progress by cluster, each multiplied by the weight of its row.
pub type Gauges = BTreeMap<usize, u64>;

/// The sums of a control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    pub sums: Sums,
    /// Over the last reports of the living streams.
    pub in_progress: u64,
    /// The number of streams so far, and of their messages.
    pub streams: u64,
    pub messages: u64,
}

/// A report without a node, ready to send.
pub struct Report {
    pub bytes: Vec<u8>,
    pub sums: Sums,
    pub in_progress: u64,
}

impl Load {
    /// All different reports.
    pub fn reports(self) -> Vec<Report> {
        (0..VARIETY).map(|number| self.report(number)).collect()
    }

    /// A LoadStatsRequest with only `cluster_stats` (2).
    fn report(self, number: usize) -> Report {
        let mut bytes = Vec::new();
        for cluster in 0..self.clusters {
            put_message(&mut bytes, 2, |out| {
                put_bytes(out, 1, resource_name(cluster));
                (0..self.localities).for_each(|locality| put_row(out, cluster, locality, number));
                let dropped = (cluster + number).is_multiple_of(10);
                if dropped {
                    put_uint(out, 3, 1);
                }
                put_duration(out, 4, self.interval);
                if dropped {
                    put_message(out, 5, |out| {
                        put_bytes(out, 1, "lottery");
                        put_uint(out, 2, 1);
                    });
                }
            });
        }
        let (mut sums, mut gauges) = (Sums::default(), Gauges::new());
        // The report is well-formed.
        let _ = read_report(&bytes, &mut sums, &mut gauges);
        Report { bytes, sums, in_progress: gauges.values().sum() }
    }
}

/// An UpstreamLocalityStats. Each locality has requests in progress, the worst case for a server that sums.
fn put_row(out: &mut Vec<u8>, cluster: usize, locality: usize, number: usize) {
    let error = (cluster + locality + number) % 3;
    let success = 1 + (cluster + 2 * locality + number) % 5;
    put_message(out, 2, |out| {
        put_message(out, 1, |out| {
            put_bytes(out, 1, "region");
            put_bytes(out, 2, format!("zone-{locality}"));
        });
        put_uint(out, 2, success as u64);
        put_uint(out, 3, 1 + ((locality + number) % 2) as u64);
        put_uint(out, 4, error as u64);
        put_uint(out, 8, (success + error) as u64);
    });
}

/// Adds a LoadStatsRequest to the sums. A cluster's gauges replace those from before (LRS-15).
pub fn read_report(message: &[u8], sums: &mut Sums, gauges: &mut Gauges) -> Result<(), Malformed> {
    let mut fields = Fields(message);
    while let Some((field, bytes)) = fields.next_bytes()? {
        if field == 2 {
            read_cluster(bytes, sums, gauges)?;
        }
    }
    Ok(())
}

fn read_cluster(stats: &[u8], sums: &mut Sums, gauges: &mut Gauges) -> Result<(), Malformed> {
    let (mut cluster, mut in_progress) = (None, 0);
    let mut rows = Vec::new();
    let mut fields = Fields(stats);
    while let Some((field, value)) = fields.next()? {
        match (field, value) {
            (1, Value::Bytes(name)) => cluster = std::str::from_utf8(name).ok().and_then(resource_index),
            (2, Value::Bytes(row)) => rows.push(row),
            (3, Value::Uint(dropped)) => sums.dropped += dropped,
            _ => {}
        }
    }
    let cluster = cluster.ok_or(Malformed)?;
    for row in rows {
        in_progress += read_row(row, cluster, sums)?;
    }
    gauges.insert(cluster, in_progress);
    Ok(())
}

/// Returns the weighted requests in progress.
fn read_row(row: &[u8], cluster: usize, sums: &mut Sums) -> Result<u64, Malformed> {
    let (mut locality, mut issued, mut in_progress) = (None, 0, 0);
    let mut fields = Fields(row);
    while let Some((field, value)) = fields.next()? {
        match (field, value) {
            (1, Value::Bytes(bytes)) => locality = read_zone(bytes)?,
            (2, Value::Uint(count)) => sums.success += count,
            (3, Value::Uint(count)) => in_progress = count,
            (4, Value::Uint(count)) => sums.error += count,
            (8, Value::Uint(count)) => issued = count,
            _ => {}
        }
    }
    let weight = (cluster * CLUSTER_WEIGHT + locality.ok_or(Malformed)? + 1) as u64;
    sums.issued += issued;
    sums.weighted += issued * weight;
    Ok(in_progress * weight)
}

/// The number in the zone of a Locality.
fn read_zone(locality: &[u8]) -> Result<Option<usize>, Malformed> {
    let mut fields = Fields(locality);
    while let Some((field, bytes)) = fields.next_bytes()? {
        if field == 2 {
            let name = std::str::from_utf8(bytes).map_err(|_| Malformed)?;
            return Ok(name.strip_prefix("zone-").and_then(|number| number.parse().ok()));
        }
    }
    Ok(None)
}

fn put_duration(out: &mut Vec<u8>, field: u32, duration: Duration) {
    put_message(out, field, |out| {
        put_uint(out, 1, duration.as_secs());
        put_uint(out, 2, u64::from(duration.subsec_nanos()));
    });
}

/// The wish for reports of all clusters: a framed LoadStatsResponse.
pub fn wish(interval: Duration) -> Vec<u8> {
    let mut message = Vec::new();
    put_duration(&mut message, 2, interval);
    put_uint(&mut message, 4, 1);
    let mut framed = vec![0];
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.extend_from_slice(&message);
    framed
}

/// The interval of a LoadStatsResponse.
pub fn read_wish(message: &[u8]) -> Result<Duration, Malformed> {
    let mut interval = Duration::ZERO;
    let mut fields = Fields(message);
    while let Some((field, bytes)) = fields.next_bytes()? {
        if field != 2 {
            continue;
        }
        let mut parts = Fields(bytes);
        while let Some((part, value)) = parts.next()? {
            match (part, value) {
                (1, Value::Uint(seconds)) => interval += Duration::from_secs(seconds),
                (2, Value::Uint(nanos)) => interval += Duration::from_nanos(nanos),
                _ => {}
            }
        }
    }
    Ok(interval)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(1_500);

    #[test]
    fn reports_differ_and_their_sums_are_those_of_their_rows() {
        let reports = Load { clusters: 2, localities: 2, interval: INTERVAL }.reports();
        let successes: Vec<_> = reports.iter().map(|report| report.sums.success).collect();
        assert_eq!(successes, [10, 14, 13, 12]);
        let expected = Sums { issued: 14, success: 10, error: 4, dropped: 1, weighted: 9_024 };
        assert_eq!((reports[0].sums, reports[0].in_progress), (expected, 3_010));
    }

    #[test]
    fn the_gauges_of_a_cluster_are_replaced_as_a_whole() {
        let report = |localities| Load { clusters: 1, localities, interval: INTERVAL }.reports().remove(0);
        let (mut sums, mut gauges) = (Sums::default(), Gauges::new());
        for localities in [3, 1] {
            read_report(&report(localities).bytes, &mut sums, &mut gauges).unwrap();
        }
        assert_eq!(gauges, Gauges::from([(0, 1)]));
        assert_eq!(sums.success, report(3).sums.success + report(1).sums.success);
    }

    #[test]
    fn a_wish_is_read_as_it_was_written() {
        assert_eq!(read_wish(&wish(INTERVAL)[5..]), Ok(INTERVAL));
        assert_eq!(read_wish(&[0x12, 9]), Err(Malformed));
    }

    #[test]
    fn rows_of_unknown_clusters_and_localities_are_refused() {
        let named = |name: &str, zone: &str| {
            let mut bytes = Vec::new();
            put_message(&mut bytes, 2, |out| {
                put_bytes(out, 1, name);
                put_message(out, 2, |out| put_message(out, 1, |out| put_bytes(out, 2, zone)));
            });
            read_report(&bytes, &mut Sums::default(), &mut Gauges::new())
        };
        assert_eq!(named("load-000001", "zone-2"), Ok(()));
        assert_eq!(named("other", "zone-2"), Err(Malformed));
        assert_eq!(named("load-000001", "other"), Err(Malformed));
    }
}
