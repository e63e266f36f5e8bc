#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::time::Duration;

use parking_lot::Mutex;

use super::types::{KNOWN_TYPES, OTHER, TYPE_NAME_BYTES_MAX};
use super::*;
use crate::telemetry::SourceState;
use sluice_engine::Time;
use sluice_engine::cache::EntryState;
use sluice_fleet::rollout::report::SharedReport;
use sluice_fleet::rollout::shared::record::SharedState;
use sluice_fleet::rollout::{Plan, Rollout, RolloutReport};
use sluice_xds::{Code, Variant};

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";

/// The samples whose lines begin so, sorted.
fn samples(metrics: &Metrics, prefix: &str) -> Vec<String> {
    let text = metrics.encode().unwrap();
    let mut lines: Vec<_> = text.lines().filter(|line| line.starts_with(prefix)).map(str::to_owned).collect();
    lines.sort();
    lines
}

/// A catalogue in which every metric has at least one sample, and what holds its gauges up.
fn touched() -> (Metrics, Box<dyn Any>) {
    let metrics = Metrics::new();
    let types = metrics.of_type(&TypeUrl::of_message(CLUSTER));
    let server = metrics.of_server("cp-1");
    server.of_type(&types).response();
    metrics.upstream_tiers(std::iter::once(("cp-1".into(), Duration::ZERO)));
    server.of_type(&types).resource_error(Code::Internal);
    server.of_type(&types).version_anomaly(VersionAnomaly::WentBackwards);
    types.beside(1, &[Code::Internal]);
    server.stream_closed(Code::Unavailable);
    server.client().tls_failures("eof");
    metrics.downstream.tls.valid("listeners[main]", UNIX_EPOCH, UNIX_EPOCH);
    metrics.downstream.clients("STALE", "unacked", 1);
    metrics.downstream.tls.reload_failing("listeners[main]", false);
    let held = (
        server.source(&"xds_servers".into()),
        server.of_type(&types).held_back(),
        server.of_type(&types).silent_names(),
        server.of_type(&types).refused("ends_stream"),
        server.suspect_streams(),
        metrics.downstream.stream(Variant::Delta),
        lagging(&metrics),
        metrics.fallback.moved(&"xds_servers".into(), &"cp-2".into(), false),
        shown_plan(&metrics),
        shown_proof(&metrics),
        metrics.load.stream(&"cp-1".into()),
        metrics.ledger.ledger("etcd").connected(),
        metrics.ledger.believed("etcd"),
    );
    (metrics, Box::new(held))
}

/// A stream, as far as its lag is concerned. Ends at the next look, if the stream holds itself.
struct Lagging(BehindMetrics, Mutex<Option<Arc<Lagging>>>);

impl Behind for Lagging {
    fn behind(&self) -> &BehindMetrics {
        self.1.lock().take();
        &self.0
    }
}

fn lagging(metrics: &Metrics) -> Arc<Lagging> {
    Arc::new_cyclic(|stream: &Weak<Lagging>| {
        Lagging(metrics.downstream.behind(stream.clone()), Mutex::default())
    })
}

fn shown_proof(metrics: &Metrics) -> ServerProofMetrics {
    let mut proof = metrics.proof.server(&"cp-1".into());
    proof.divergences(&[("Cluster".into(), 1)].into());
    proof.streams(&[("witness".into(), 1)].into());
    proof.coverage(1, 0, 60.0);
    proof
}

fn shown_plan(metrics: &Metrics) -> PlanMetrics {
    let plan = metrics.rollouts.plan("edge");
    let shared = SharedReport {
        replica: "a".into(),
        fault: None,
        push: 0,
        state: SharedState::Over,
        step: 0,
        is_unwritten: false,
        diverged: Vec::new(),
        waits: None,
        replicas: Vec::new(),
        silent: Vec::new(),
    };
    let report = Rollout::new(Arc::new(Plan::new("edge"))).report();
    plan.show(&RolloutReport { shared: Some(shared), ..report }, Time::ZERO);
    plan.weigh(1);
    plan.expect_hook();
    plan.expect_load();
    plan
}

/// Reads OpenMetrics text by its grammar, as far as it is used here: the labels of each family.
fn parse(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut families: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut family = String::new();
    let body = text.strip_suffix("# EOF\n").expect("the text ends with EOF");
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let [keyword, name, rest] = comment.splitn(3, ' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            assert!(["HELP", "TYPE", "UNIT"].contains(&keyword) && !rest.is_empty(), "{line}");
            family = name.to_owned();
            families.entry(family.clone()).or_default();
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect(line);
        value.parse::<f64>().expect(line);
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let suffix = name.strip_prefix(&family).expect("samples follow their family");
        assert!(["", "_total", "_sum", "_count", "_bucket", "_info"].contains(&suffix), "{line}");
        for label in labels.trim_end_matches('}').split("\",").filter(|label| !label.is_empty()) {
            families.entry(family.clone()).or_default().insert(label.split_once("=\"").unwrap().0.to_owned());
        }
    }
    families
}

#[test]
fn the_catalogue_parses_and_every_name_follows_the_template() {
    let (metrics, _held) = touched();
    let families = parse(&metrics.encode().unwrap());
    let names: BTreeSet<_> = metrics.families().iter().cloned().collect();
    assert_eq!(names.len(), metrics.families().len(), "no name twice");
    assert_eq!(families.keys().cloned().collect::<BTreeSet<_>>(), names);
    for name in &names {
        assert!(name.starts_with("sluice_") || name.starts_with("process_"), "{name}");
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
    }
    let labels: BTreeSet<_> = families.values().flatten().map(String::as_str).collect();
    let allowed = [
        "code", "kind", "le", "limit", "list", "method", "outcome", "path", "place", "plan", "reason",
        "result", "server", "state", "type", "variant", "version", "what", "why",
    ];
    assert_eq!(labels.into_iter().collect::<Vec<_>>(), allowed);
}

/// `docs/metrics.md` has one table row per metric: | `name` | kind | unit | labels | meaning | alert |.
#[test]
fn the_document_and_the_catalogue_name_the_same_metrics() {
    let document = include_str!("../../../docs/metrics.md");
    let mut documented = BTreeMap::new();
    for row in document.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 6, "{row}");
        let labels = cells[3].split(", ").map(|label| label.trim_matches('`').to_owned());
        let labels: BTreeSet<_> = labels.filter(|label| label != "-").collect();
        assert!(cells[4].len() > 10, "what it means: {row}");
        assert!(documented.insert(cells[0].trim_matches('`').to_owned(), labels).is_none(), "twice: {row}");
    }
    let (metrics, _held) = touched();
    let mut expected = BTreeMap::new();
    for (family, mut labels) in parse(&metrics.encode().unwrap()) {
        labels.remove("le");
        expected.insert(family, labels);
    }
    // Samples of counters end in `_total`; that is the name people query.
    let counters: Vec<_> = metrics.encode().unwrap().lines().filter_map(counter).collect();
    for counter in counters {
        let labels = expected.remove(&counter).unwrap();
        expected.insert(format!("{counter}_total"), labels);
    }
    let build = expected.remove("sluice_build").unwrap();
    expected.insert("sluice_build_info".to_owned(), build);
    assert_eq!(documented, expected);
}

fn counter(line: &str) -> Option<String> {
    line.strip_prefix("# TYPE ")?.strip_suffix(" counter").map(str::to_owned)
}

/// A series that begins at 1 is no increase for Prometheus, so alerts on any increase need their series from
/// the start.
#[test]
fn obs_10_the_first_scrape_has_the_series_of_every_alert_on_an_increase() {
    let metrics = Metrics::new();
    metrics.of_server("cp-1").client().expect_tls_failures(["eof"]);
    let _plan = metrics.rollouts.plan("edge");
    let scrape = metrics.encode().unwrap();
    let alerts = include_str!("../../../ops/prometheus/alerts.yaml");
    let at_once = alerts.split("- alert: ").filter(|rule| !rule.contains(" for: "));
    let mut seen = 0;
    for increase in at_once.flat_map(|rule| rule.split("increase(").skip(1)) {
        let (selector, rest) = increase.split_once('[').unwrap();
        if !rest.split_once(']').unwrap().1.trim_start_matches(')').starts_with(" > 0") {
            continue;
        }
        seen += 1;
        let (name, matchers) = selector.split_once('{').unwrap_or((selector, ""));
        let series: Vec<_> = scrape.lines().filter(|line| line.starts_with(name)).collect();
        assert!(series.iter().all(|line| line.ends_with(" 0")), "{series:?}");
        assert!(!series.is_empty(), "{name}");
        for value in matchers.split('"').skip(1).step_by(2).flat_map(|values| values.split('|')) {
            assert!(series.iter().any(|line| line.contains(&format!("\"{value}\""))), "{name} {value}");
        }
        if series[0].contains("type=") {
            let types: BTreeSet<_> = TypeUrl::known().map(|known| known.short().to_owned()).collect();
            assert_eq!((types.len(), series.len()), (KNOWN_TYPES, KNOWN_TYPES), "{name}");
        }
    }
    assert!(seen > 10, "{seen}");
}

#[test]
fn downstream_counts_by_type_and_variant() {
    let metrics = Metrics::new();
    let clusters = metrics.of_type(&TypeUrl::of_message(CLUSTER));
    clusters.request();
    clusters.response(Variant::Sotw, 100);
    clusters.response(Variant::Delta, 20);
    clusters.response(Variant::Delta, 3);
    clusters.ack();
    clusters.nack();
    assert_eq!(
        samples(&metrics, "sluice_downstream_responses_total"),
        [
            r#"sluice_downstream_responses_total{type="Cluster",variant="delta"} 2"#,
            r#"sluice_downstream_responses_total{type="Cluster",variant="sotw"} 1"#,
        ]
    );
    for line in [
        r#"sluice_downstream_requests_total{type="Cluster"} 1"#,
        r#"sluice_downstream_response_bytes_total{type="Cluster"} 123"#,
        r#"sluice_downstream_acks_total{type="Cluster"} 1"#,
        r#"sluice_downstream_nacks_total{type="Cluster"} 1"#,
    ] {
        assert_eq!(samples(&metrics, line), [line]);
    }
}

#[test]
fn what_is_open_is_given_back_when_dropped() {
    let metrics = Metrics::new();
    let open = r#"sluice_downstream_streams{variant="delta"} "#;
    let first = metrics.downstream.stream(Variant::Delta);
    let second = metrics.downstream.stream(Variant::Delta);
    assert_eq!(samples(&metrics, open), [format!("{open}2")]);
    drop((first, second));
    assert_eq!(samples(&metrics, open), [format!("{open}0")]);
    let opened = r#"sluice_downstream_streams_opened_total{variant="delta"} 2"#;
    assert_eq!(samples(&metrics, opened), [opened]);
}

#[test]
fn the_caches_of_several_sources_add_up() {
    let metrics = Metrics::new();
    let clusters = metrics.of_type(&TypeUrl::of_message(CLUSTER));
    let (mut one, mut two) = (clusters.cache(), clusters.cache());
    one.set(3, 1, 2, 300);
    two.set(1, 0, 0, 100);
    one.set(4, 1, 1, 350);
    let expected = |present: usize, absent: usize, unknown: usize| {
        [("absent", absent), ("present", present), ("unknown", unknown)]
            .map(|(state, n)| format!(r#"sluice_cache_resources{{type="Cluster",state="{state}"}} {n}"#))
    };
    assert_eq!(samples(&metrics, "sluice_cache_resources"), expected(5, 1, 1));
    let bytes = r#"sluice_cache_resource_bytes{type="Cluster"} 450"#;
    assert_eq!(samples(&metrics, bytes), [bytes]);
    one.set_states(EntryState::ALL.map(|state| usize::from(state == EntryState::NackedButCached)));
    let nacked = r#"sluice_cache_resource_states{type="Cluster",state="nacked_but_cached"} 1"#;
    assert_eq!(samples(&metrics, nacked), [nacked], "DAT-8");
    drop(one);
    assert_eq!(samples(&metrics, "sluice_cache_resources"), expected(1, 0, 0));
    assert!(samples(&metrics, nacked).is_empty());
}

#[test]
fn a_histogram_counts_each_duration_in_the_first_bucket_that_holds_it() {
    let metrics = Metrics::new();
    let clusters = metrics.of_type(&TypeUrl::of_message(CLUSTER));
    for millis in [0, 1, 2, 10_000, 10_001, 60_000] {
        clusters.delivered(Duration::from_millis(millis));
    }
    let bucket = |le: &str, count: u64| {
        let line =
            format!(r#"sluice_downstream_delivery_seconds_bucket{{le="{le}",type="Cluster"}} {count}"#);
        assert_eq!(samples(&metrics, &line), [line.as_str()]);
    };
    bucket("0.001", 2);
    bucket("0.0025", 3);
    bucket("5.0", 3);
    bucket("10.0", 4);
    bucket("+Inf", 6);
    let sum = r#"sluice_downstream_delivery_seconds_sum{type="Cluster"} 80.004"#;
    assert_eq!(samples(&metrics, sum), [sum]);
}

#[tokio::test(start_paused = true)]
async fn streams_that_are_behind_are_counted_and_the_worst_is_timed() {
    let metrics = Metrics::new();
    let streams: Vec<_> = (0..3).map(|_| lagging(&metrics)).collect();
    let check = |behind: &str, oldest: &str| {
        assert_eq!(
            samples(&metrics, "sluice_downstream_streams_behind "),
            [format!("sluice_downstream_streams_behind {behind}")]
        );
        assert_eq!(
            samples(&metrics, "sluice_downstream_oldest_unacked_seconds "),
            [format!("sluice_downstream_oldest_unacked_seconds {oldest}")]
        );
    };
    check("0", "0.0");
    streams[0].0.since(Some(Instant::now()));
    tokio::time::advance(Duration::from_secs(2)).await;
    streams[1].0.since(Some(Instant::now()));
    tokio::time::advance(Duration::from_secs(1)).await;
    check("2", "3.0");
    streams[0].0.since(None);
    check("1", "1.0");
    drop(streams);
    check("0", "0.0");
    let last = lagging(&metrics);
    last.0.since(Some(Instant::now()));
    *last.1.lock() = Some(last.clone());
    drop(last);
    check("1", "0.0");
    check("0", "0.0");
}

#[tokio::test(start_paused = true)]
async fn i_14_a_server_is_connected_while_one_of_its_sources_is() {
    let metrics = Metrics::new();
    let server = metrics.of_server("cp-1:15010");
    let check = |line: &str| assert_eq!(samples(&metrics, line), [line]);
    let (mut one, mut two) = (server.source(&"xds_servers".into()), server.source(&"xds_servers".into()));
    check(r#"sluice_upstream_connected{server="cp-1:15010"} 0"#);
    check(r#"sluice_upstream_sources{server="cp-1:15010",list="xds_servers",state="connecting"} 2"#);
    assert!(samples(&metrics, "sluice_upstream_last_response_age").is_empty(), "it never answered");
    one.state(SourceState::Connected);
    two.state(SourceState::Backoff { failures: 1, delay: Duration::from_secs(1) });
    two.stale(true);
    check(r#"sluice_upstream_connected{server="cp-1:15010"} 1"#);
    check(r#"sluice_upstream_sources{server="cp-1:15010",list="xds_servers",state="backoff"} 1"#);
    check(r#"sluice_upstream_sources_stale{server="cp-1:15010",list="xds_servers"} 1"#);
    let types = server.of_type(&metrics.of_type(&TypeUrl::of_message(CLUSTER)));
    types.response();
    types.ack();
    tokio::time::advance(Duration::from_secs(90)).await;
    check(r#"sluice_upstream_last_response_age_seconds{server="cp-1:15010"} 90.0"#);
    check(r#"sluice_upstream_responses_total{server="cp-1:15010",type="Cluster"} 1"#);
    check(r#"sluice_upstream_acks_total{server="cp-1:15010",type="Cluster"} 1"#);
    server.stream_closed(Code::Unavailable);
    check(r#"sluice_upstream_stream_closes_total{server="cp-1:15010",code="UNAVAILABLE"} 1"#);
    drop((one, two));
    check(r#"sluice_upstream_connected{server="cp-1:15010"} 0"#);
    check(r#"sluice_upstream_sources_stale{server="cp-1:15010",list="xds_servers"} 0"#);
}

#[test]
fn a_client_that_invents_types_can_not_grow_the_catalogue() {
    let metrics = Metrics::new();
    for n in 0..1000 {
        metrics.of_type(&TypeUrl::of_message(&format!("evil.Type{n}"))).request();
    }
    let odd =
        ["type.googleapis.com/evil.A\"} 1", "", "evil.\n", "caf\u{e9}", &"x".repeat(TYPE_NAME_BYTES_MAX + 1)];
    for url in odd {
        assert_eq!(metrics.of_type(&TypeUrl::new(url)).label(), OTHER, "{url:?}");
    }
    let known = metrics.of_type(&TypeUrl::of_message(CLUSTER));
    known.request();
    assert_eq!(known.label(), "Cluster", "the known types keep their room");
    let lines = samples(&metrics, "sluice_downstream_requests_total");
    assert_eq!(lines.len(), TYPES_MAX - KNOWN_TYPES + 1);
    assert!(lines.contains(&r#"sluice_downstream_requests_total{type="other"} 950"#.to_owned()), "{lines:?}");
    parse(&metrics.encode().unwrap());
}

#[test]
fn every_limit_has_a_counter_of_its_own() {
    let metrics = Metrics::new();
    for (index, limit) in Limit::ALL.into_iter().enumerate() {
        assert_eq!(limit as usize, index, "{limit:?} stands at its number");
        metrics.limit_hit(limit);
    }
    let hit: BTreeSet<_> = samples(&metrics, "sluice_limit_hits_total").into_iter().collect();
    assert_eq!(hit.len(), Limit::ALL.len());
    assert!(hit.iter().all(|line| line.ends_with("\"} 1")), "{hit:?}");
}

#[test]
fn the_process_knows_itself() {
    let metrics = Metrics::new();
    for name in ["process_resident_memory_bytes", "process_open_fds", "process_max_fds"] {
        let lines = samples(&metrics, &format!("{name} "));
        let value: i64 = lines[0].rsplit_once(' ').unwrap().1.parse().unwrap();
        assert!(value > 0, "{lines:?}");
    }
    let build = concat!(r#"sluice_build_info{version=""#, env!("CARGO_PKG_VERSION"), r#""} 1"#);
    assert_eq!(samples(&metrics, build), [build]);
}

#[test]
fn a_place_without_files_has_no_certificate_that_could_expire() {
    let metrics = Metrics::new();
    let tls = &metrics.downstream.tls;
    for place in ["listeners[a].tls", "listeners[b].tls"] {
        tls.valid(place, UNIX_EPOCH, UNIX_EPOCH);
        tls.reload_failing(place, true);
    }
    tls.forget("listeners[a].tls");
    for name in ["sluice_tls_certificate_expiry", "sluice_tls_certificate_start", "sluice_tls_reload_failing"]
    {
        let found = samples(&metrics, name);
        assert!(found.len() == 1 && found[0].contains("listeners[b].tls"), "{found:?}");
    }
}

#[test]
fn tir_2_a_way_that_is_gone_has_no_age() {
    let metrics = Metrics::new();
    let ages = |paths: &[&'static str]| {
        metrics.upstream_tiers(paths.iter().map(|path| (Arc::from(*path), Duration::from_secs(7))));
        let text = metrics.encode().unwrap();
        text.lines()
            .filter(|line| line.starts_with("sluice_tier_age_seconds{"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(ages(&["a", "b"]).len(), 2);
    assert_eq!(ages(&["b"]), ["sluice_tier_age_seconds{path=\"b\"} 7.0"]);
}
