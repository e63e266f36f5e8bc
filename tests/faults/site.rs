//! A control plane, a proxy in front, a relay, and two clients with their resources.

use std::time::{Duration, Instant};

use crate::support::control_plane::eventually;
use crate::support::operator::{ANSWERS_AGAIN, ENDS_STREAM, UNREACHABLE};
use crate::support::{CDS, Client, ControlPlane, EDS, Proxy, Relay, Setup, Variant};

/// The backoff in [`quick`].
pub const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(800));

/// The delay that a slow, shared machine may add to any bound.
pub const SLACK: Duration = Duration::from_secs(3);

pub struct Site {
    pub origin: ControlPlane,
    pub proxy: Proxy,
    pub relay: Relay,
    pub delta: Client,
    pub sotw: Client,
    /// The name of the control plane in the relay's configuration.
    pub server: String,
}

/// A setup with short values for every wait for a server.
pub fn quick(server: impl ToString) -> Setup {
    Setup::of(server)
        .resource_timeout(60)
        .server_line("backoff: { initial: 200ms, max: 800ms }")
        .server_line("connect_timeout: 500ms")
        .server_line("settings_timeout: 500ms")
        .server_line("tcp_keepalive: { time: 1s, interval: 1s, probes: 2, user_timeout: 3s }")
}

impl Site {
    pub async fn new() -> Site {
        Site::with(quick).await
    }

    /// Both clients hold clusters `a` and `b` by wildcard, and endpoints `e` by name.
    pub async fn with(setup: impl FnOnce(String) -> Setup) -> Site {
        let origin = ControlPlane::obedient().await;
        origin.set_many(CDS, &[("a", "1"), ("b", "1")]);
        origin.set(EDS, "e", "1");
        let proxy = Proxy::start(origin.address).await;
        let server = proxy.address.to_string();
        let relay = Relay::start(setup(server.clone())).await;
        let delta = served(&relay, Variant::Delta, "delta").await;
        let sotw = served(&relay, Variant::Sotw, "sotw").await;
        relay.is_fresh(&server).await;
        Site { origin, proxy, relay, delta, sotw, server }
    }

    pub fn label(&self) -> String {
        format!("server=\"{}\"", self.server)
    }

    /// The relay's metric for this server.
    pub async fn metric(&self, name: &str) -> f64 {
        self.relay.metric(name, &[&self.label()]).await
    }

    /// Asserts that neither client gets a response for this long.
    pub async fn silence(&mut self, window: Duration) {
        let start = Instant::now();
        self.delta.silence(window).await;
        self.sotw.silence(window.saturating_sub(start.elapsed()).max(Duration::from_millis(20))).await;
    }

    /// Asserts that the clients got no response since the last check, while the control plane answers.
    pub async fn quiet(&mut self) {
        self.delta.quiet().await;
        self.sotw.quiet().await;
    }

    /// New clients are served from the cache (RLY-46).
    pub async fn newcomers_are_served(&self) {
        for variant in Variant::BOTH {
            served(&self.relay, variant, "newcomer").await;
        }
    }

    /// The outage is visible everywhere, was logged with one WARN, and does not affect clients (I14, RLY-46).
    pub async fn outage_affects_no_client(&mut self) {
        self.relay.is_stale(&self.server).await;
        self.silence(Duration::from_millis(1500)).await;
        self.newcomers_are_served().await;
        self.one_warning().await;
        self.renews_versions();
    }

    /// Gives equal resources other versions, as after a restart: the control plane answers each reconnect.
    pub fn renews_versions(&self) {
        self.origin.change(|world| world.restart());
    }

    pub async fn one_warning(&self) {
        let line = self.relay.warned(1).await.remove(0);
        let is_known = [UNREACHABLE, ENDS_STREAM].iter().any(|text| line.contains(text));
        assert!(is_known && line.contains(&self.server), "{line}");
    }

    /// After the fault the relay recovers by itself: clients notice nothing, and changes arrive.
    pub async fn recovers(&mut self) {
        self.relay.is_fresh(&self.server).await;
        self.quiet().await;
        self.change_arrives("after").await;
        let lines =
            || self.relay.log_lines("INFO").iter().filter(|line| line.contains(ANSWERS_AGAIN)).count();
        let warnings = [UNREACHABLE, ENDS_STREAM].map(|text| self.relay.warnings(text).len()).iter().sum();
        eventually("an INFO for each WARN", || async { lines() >= warnings }).await;
        assert_eq!(lines(), warnings, "each WARN is taken back by one INFO");
    }

    pub async fn change_arrives(&mut self, text: &str) {
        self.origin.set(EDS, "e", text);
        for client in [&mut self.delta, &mut self.sotw] {
            let answer = client.take(EDS).await;
            assert_eq!((answer.get("e").text().as_str(), answer.removed.len()), (text, 0));
        }
    }

    /// The times of failed connections within this window, by the relay's count.
    pub async fn failures_for(&self, window: Duration) -> Vec<Instant> {
        let (start, mut times) = (Instant::now(), Vec::new());
        let before = self.metric("sluice_upstream_connect_failures_total").await;
        while start.elapsed() < window {
            let failures = self.metric("sluice_upstream_connect_failures_total").await - before;
            times.resize(failures as usize, Instant::now());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        times
    }
}

/// A client with the first state of a site's control plane.
pub async fn served(relay: &Relay, variant: Variant, id: &str) -> Client {
    let mut client = Client::open(&relay.address, variant, id).await;
    client.want(CDS, &["*"]);
    client.settle(CDS, &[("a", "1"), ("b", "1")]).await;
    client.want(EDS, &["e"]);
    client.settle(EDS, &[("e", "1")]).await;
    client
}

/// CLI-4: from the second attempt on, each attempt comes one delay after the previous: `first` × 1.6 each up
/// to `cap`, ±20 %. `nth`: the number of failures before the first of these attempts. `each`: the duration of
/// an attempt.
pub fn assert_backs_off(attempts: &[Instant], nth: i32, each: Duration) {
    assert!(attempts.len() >= 3, "only {} attempts", attempts.len());
    let (first, cap) = BACKOFF;
    for (index, pair) in attempts.windows(2).enumerate() {
        let delay = first.mul_f64(1.6_f64.powi(nth + index as i32)).min(cap);
        let gap = pair[1] - pair[0];
        // Each sample may be late, once before and once after.
        let least = (delay.mul_f64(0.8) + each).saturating_sub(Duration::from_millis(60));
        assert!(gap >= least, "attempt {index} came {gap:?} after the one before, {least:?} was due");
        let most = delay.mul_f64(1.2) + each + Duration::from_millis(800);
        assert!(gap <= most, "attempt {index} came {gap:?} after the one before, {most:?} was the bound");
    }
}
