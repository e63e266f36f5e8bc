//! The operator's view of a relay: metrics, `/ready`, `/sources`, and log lines.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::control_plane::eventually;
use super::{DEADLINE, Relay};

/// The log lines at the begin and end of an outage.
pub const UNREACHABLE: &str = "the upstream is unreachable";
pub const ENDS_STREAM: &str = "the upstream accepts connections but ends the stream";
pub const ANSWERS_AGAIN: &str = "the upstream answers again";

impl Relay {
    /// The sum of a metric's samples that have all of these labels, each written `name="value"`; 0 without any.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let (_, text) = self.get("/metrics").await;
        let samples = text.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (found, found_labels) = series.split_once('{').unwrap_or((series, ""));
            let fits = found == name && labels.iter().all(|label| found_labels.contains(label));
            fits.then(|| value.parse::<f64>().ok()).flatten()
        });
        samples.sum()
    }

    /// Waits until a metric is at least this large.
    pub async fn metric_reaches(&self, name: &str, labels: &[&str], least: f64) {
        eventually(&format!("{name}{labels:?} at {least}"), || async {
            self.metric(name, labels).await >= least
        })
        .await;
    }

    /// The value of one series of `/metrics`, labels included; panics if there is no such series.
    pub async fn series(&self, series: &str) -> f64 {
        let (_, text) = self.get("/metrics").await;
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().expect("a number")
    }

    pub async fn limit_hits(&self, limit: &str) -> f64 {
        self.metric("sluice_limit_hits_total", &[&format!("limit=\"{limit}\"")]).await
    }

    /// Waits until a limit was hit at least this often. The counting task may lag behind the effect of the hit.
    pub async fn limit_reaches(&self, limit: &str, times: f64) {
        self.metric_reaches("sluice_limit_hits_total", &[&format!("limit=\"{limit}\"")], times).await;
    }

    pub async fn json(&self, path: &str) -> Value {
        let (_, body) = self.get(path).await;
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
    }

    /// The items of `/sources` for this server.
    pub async fn sources(&self, server: &str) -> Vec<Value> {
        let all = self.json("/sources").await;
        let items = all["sources"].as_array().unwrap_or_else(|| panic!("a list of sources: {all}"));
        items.iter().filter(|source| source["server"] == server).cloned().collect()
    }

    /// The entry of a server in `/ready`.
    pub async fn upstream(&self, server: &str) -> Value {
        self.json("/ready").await["upstreams"][server].clone()
    }

    /// Waits for this count in the server's entry of `/ready`.
    pub async fn upstream_has(&self, server: &str, key: &str, count: u64) {
        eventually(&format!("{key}: {count}"), || async {
            self.upstream(server).await[key].as_u64() == Some(count)
        })
        .await;
    }

    pub fn warnings(&self, text: &str) -> Vec<String> {
        self.log_lines("WARN").into_iter().filter(|line| line.contains(text)).collect()
    }

    /// Waits for a text in the log. A separate thread writes the log, with some delay.
    pub async fn logged(&self, text: &str) {
        eventually(&format!("{text:?} in the log"), || async { self.log().contains(text) }).await;
    }

    /// Waits for this number of WARN lines, and asserts that there are no more. A separate thread writes the
    /// log, with some delay.
    pub async fn warned(&self, count: usize) -> Vec<String> {
        eventually("the warnings", || async { self.log_lines("WARN").len() >= count }).await;
        let lines = self.log_lines("WARN");
        assert_eq!(lines.len(), count, "{lines:#?}");
        lines
    }

    /// Waits until every view of the relay shows the server as stale (I14); returns the time of the first
    /// metric.
    pub async fn is_stale(&self, server: &str) -> Instant {
        self.is_stale_within(server, DEADLINE).await
    }

    pub async fn is_stale_within(&self, server: &str, limit: Duration) -> Instant {
        let label = format!("server=\"{server}\"");
        let start = Instant::now();
        while self.metric("sluice_upstream_sources_stale", &[&label]).await < 1.0 {
            assert!(start.elapsed() < limit, "not stale within {limit:?}; the log:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let noticed = Instant::now();
        eventually("staleness and its reason in /sources", || async {
            let sources = self.sources(server).await;
            sources.iter().any(|source| source["stale_seconds"].is_f64() && source["last_error"].is_string())
        })
        .await;
        eventually("staleness and its reason in /ready", || async {
            let upstream = self.upstream(server).await;
            upstream["stale"] == 1 && upstream["last_error"].is_string()
        })
        .await;
        eventually("staleness in /clients", || async {
            let clients = self.json("/clients").await;
            let types = |client: &Value| client["types"].as_array().cloned().unwrap_or_default();
            let all = clients["clients"].as_array().cloned().unwrap_or_default();
            all.iter()
                .flat_map(types)
                .filter(|of| of["server"] == server)
                .all(|of| of["server_lost_seconds"].is_f64())
        })
        .await;
        let shown = noticed.elapsed();
        assert!(shown < Duration::from_secs(3), "I14: shown {shown:?} after it was counted");
        assert_eq!(self.get("/ready").await.0, 200, "a relay that serves from its cache is ready");
        noticed
    }

    /// Waits until every view shows the server as fresh.
    pub async fn is_fresh(&self, server: &str) {
        let label = format!("server=\"{server}\"");
        eventually("freshness in metrics, /sources and /ready", || async {
            let sources = self.sources(server).await;
            self.metric("sluice_upstream_sources_stale", &[&label]).await == 0.0
                && sources.iter().all(|source| source["stale_seconds"].is_null())
                && self.upstream(server).await["stale"] == 0
        })
        .await;
    }
}
