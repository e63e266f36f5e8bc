//! Reports and answers between bytes and words. v2 and v3 have the same numbers for the same fields.

mod read;
mod write;

pub use read::{ReportError, read_answer, read_report, skips_first_cluster, takes_all_clusters};
pub use write::{ReportMessage, ReportWriter, write_answer, write_answer_for, write_first_request};

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use std::time::Duration;

    use prost::Message;
    use sluice_proto::load::{
        ClusterStats, EndpointLoadMetricStats, LoadStatsRequest, UnnamedEndpointLoadMetricStats,
        UpstreamEndpointStats, UpstreamLocalityStats, cluster_stats,
    };

    use super::*;
    use crate::counters::Counters;
    use crate::report::{self, MessageKind};

    fn metric(name: &str, count: u64, total: f64) -> EndpointLoadMetricStats {
        let metric_name = name.into();
        EndpointLoadMetricStats {
            metric_name,
            num_requests_finished_with_metric: count,
            total_metric_value: total,
        }
    }

    fn unnamed(count: u64, total: f64) -> Option<UnnamedEndpointLoadMetricStats> {
        Some(UnnamedEndpointLoadMetricStats {
            num_requests_finished_with_metric: count,
            total_metric_value: total,
        })
    }

    /// A report that sets each field to another value.
    fn full() -> LoadStatsRequest {
        let endpoint = UpstreamEndpointStats {
            address: vec![8, 9].into(),
            total_successful_requests: 31,
            total_requests_in_progress: 32,
            total_error_requests: 33,
            load_metric_stats: vec![metric("rps", 34, 0.25)],
            metadata: Some(Default::default()),
            total_issued_requests: 35,
        };
        let locality = UpstreamLocalityStats {
            locality: Some(sluice_proto::Locality {
                region: "r".into(),
                zone: "z".into(),
                sub_zone: "s".into(),
            }),
            total_successful_requests: 11,
            total_requests_in_progress: 12,
            total_error_requests: 13,
            load_metric_stats: vec![metric("named_metrics.a", 14, -1.5), metric("b", 0, 2.0)],
            priority: 15,
            upstream_endpoint_stats: vec![endpoint],
            total_issued_requests: 16,
            total_active_connections: 17,
            total_new_connections: 18,
            total_fail_connections: 19,
            cpu_utilization: unnamed(20, 0.5),
            mem_utilization: unnamed(21, 0.75),
            application_utilization: unnamed(22, 1.25),
        };
        let dropped = cluster_stats::DroppedRequests { category: "lb".into(), dropped_count: 2 };
        let cluster = ClusterStats {
            cluster_name: "c".into(),
            upstream_locality_stats: vec![locality, UpstreamLocalityStats::default()],
            total_dropped_requests: 3,
            load_report_interval: Some(sluice_proto::Duration { seconds: 9, nanos: 500_000_000 }),
            dropped_requests: vec![dropped],
            cluster_service_name: "eds".into(),
        };
        LoadStatsRequest { node: None, cluster_stats: vec![cluster, ClusterStats::default()] }
    }

    #[test]
    fn lrs_6_and_lrs_10_each_field_is_read_and_written_as_generated_code_does_it() {
        let bytes = full().encode_to_vec();
        let report = read_report(&bytes).unwrap();
        assert_eq!((report.clusters[0].interval, report.unknown.count), (Duration::from_millis(9_500), 0));
        let mut writer = ReportWriter::default();
        report.clusters.iter().for_each(|cluster| writer.push(cluster));
        let [message] = <[ReportMessage; 1]>::try_from(writer.finish()).unwrap();
        let mut written = LoadStatsRequest::decode(message.bytes).unwrap();
        // The writer states the interval of each cluster.
        assert_eq!(written.cluster_stats[1].load_report_interval.take(), Some(Default::default()));
        let mut stated = full();
        stated.cluster_stats[0].upstream_locality_stats[0].upstream_endpoint_stats[0].metadata = None;
        assert_eq!((written, message.finished), (stated, 24));
    }

    #[test]
    fn lrs_18_unknown_fields_are_counted_and_errors_refuse_the_whole_report() {
        let mut bytes = full().encode_to_vec();
        // Field 15 of a locality in field 2 of a cluster, twice, and field 3 of the request.
        bytes.extend([0x12, 6, 0x12, 4, 0x78, 1, 0x78, 1, 0x18, 1]);
        let unknown = read_report(&bytes).unwrap().unknown;
        assert_eq!((unknown.count, unknown.numbers.len()), (3, 2));
        assert!(unknown.numbers.contains(&(MessageKind::Locality, 15)));
        bytes.extend([0x12, 2, 0x12]);
        assert!(matches!(read_report(&bytes), Err(ReportError::Malformed(_))));
        let many = [0x12, 0].repeat(100_001);
        assert_eq!(read_report(&many), Err(ReportError::TooManyElements(100_000)));
        assert_eq!(read_report(&many[2..]).unwrap().clusters.len(), 100_000);
    }

    #[test]
    fn a_large_report_goes_in_messages_below_the_limit_of_grpc() {
        let name = "c".repeat(4_000);
        let zones: Vec<String> = (0..3_000).map(|number| format!("{number:01500}")).collect();
        let mut localities = Vec::new();
        for zone in &zones {
            let counters = Counters { success: 1, ..Counters::default() };
            let place = report::Place { zone, ..report::Place::default() };
            localities.push(report::LocalityStats { place, counters, ..Default::default() });
        }
        let cluster =
            report::ClusterStats { name: &name, localities, dropped: 7, ..report::ClusterStats::default() };
        let mut writer = ReportWriter::default();
        for _ in 0..3 {
            writer.push(&cluster);
        }
        let messages = writer.finish();
        assert!(messages.len() > 2 && messages.iter().all(|message| message.bytes.len() < 4 << 20));
        let read = messages.iter().map(|message| read_report(&message.bytes).unwrap());
        let clusters: Vec<_> = read.flat_map(|report| report.clusters).collect();
        let localities: usize = clusters.iter().map(|cluster| cluster.localities.len()).sum();
        let drops: u64 = clusters.iter().map(|cluster| cluster.dropped).sum();
        let finished: u64 = messages.iter().map(|message| message.finished).sum();
        assert_eq!((localities, drops, finished), (9_000, 21, 9_000));
    }

    #[test]
    fn a_locality_with_many_endpoints_goes_in_messages_below_the_limit_of_grpc() {
        let addresses: Vec<Vec<u8>> =
            (0..5_000).map(|number| format!("{number:01500}").into_bytes()).collect();
        let endpoint = |address| report::EndpointStats { address, in_progress: 1, ..Default::default() };
        let endpoints: Vec<_> = addresses.iter().map(|address| endpoint(address)).collect();
        let counters = Counters { success: 9, ..Counters::default() };
        let gauges = crate::counters::Gauges { in_progress: 7, active_connections: 0 };
        let locality = report::LocalityStats { counters, gauges, endpoints, ..Default::default() };
        let mut writer = ReportWriter::default();
        writer.push(&report::ClusterStats { name: "c", localities: vec![locality], ..Default::default() });
        let messages = writer.finish();
        assert!(messages.len() > 2 && messages.iter().all(|message| message.bytes.len() < 4 << 20));
        let read = messages.iter().map(|message| read_report(&message.bytes).unwrap());
        let localities: Vec<_> =
            read.flat_map(|report| report.clusters).flat_map(|cluster| cluster.localities).collect();
        let sum = |count: fn(&report::LocalityStats<'_>) -> u64| localities.iter().map(count).sum::<u64>();
        assert_eq!(sum(|row| row.endpoints.len() as u64), 5_000);
        assert_eq!((sum(|row| row.counters.success), sum(|row| row.gauges.in_progress)), (9, 7));
        assert_eq!(messages.iter().map(|message| message.finished).sum::<u64>(), 9);
    }
}
