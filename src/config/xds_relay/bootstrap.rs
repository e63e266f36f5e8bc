//! The bootstrap: addresses, the control plane, the log.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::super::reader::{Item, Map};
use super::super::tree::Tree;
use super::super::units::show;
use super::{CONTROL_PLANE, either, line, quoted};
use sluice_setting::Unit;

/// The translated values.
#[derive(Default)]
pub(super) struct Bootstrap {
    listener: Option<SocketAddr>,
    /// Host and port, as `server_uri` has them.
    server: Option<String>,
    ping_interval: Option<Duration>,
    level: Option<&'static str>,
    admin: Option<SocketAddr>,
}

/// The range of `ping_interval`, in seconds.
const PINGS: std::ops::RangeInclusive<u64> = 10..=86_400;

const LEVELS: [&str; 4] = ["info", "debug", "warn", "error"];

impl Bootstrap {
    pub(super) fn read(map: &mut Map<'_>) -> Bootstrap {
        let mut bootstrap = Bootstrap::default();
        if let Some(item) = map.required("server", "the address for clients") {
            bootstrap.listener =
                item.map(|map| map.item("address")).flatten().and_then(|item| read_bound(&item));
        }
        match either(map, "origin_server", "originServer") {
            Some(item) => {
                item.map(|map| bootstrap.read_origin(map));
            }
            None => map.invalid("origin_server, the address of the control plane"),
        }
        if let Some(item) = map.item("logging") {
            item.map(|map| bootstrap.read_log(map));
        }
        if let Some(item) = map.item("cache") {
            item.map(|map| {
                let entries = either(map, "max_entries", "maxEntries");
                let _ = map.item("ttl");
                if let Some(item) = entries.filter(|item| *item.tree != Tree::Integer(0)) {
                    item.warn("sluice bounds memory instead of entries: see cache.unwatched_bytes and limits.node_classes");
                }
            });
        }
        if let Some(item) = map.item("admin") {
            bootstrap.admin =
                item.map(|map| map.item("address")).flatten().and_then(|item| read_bound(&item));
        }
        if let Some(item) = either(map, "metrics_sink", "metricsSink") {
            item.map(Map::allow_unknown_keys);
            item.warn("sluice does not send statsd; scrape /metrics on the admin listener");
        }
        bootstrap
    }

    fn read_origin(&mut self, map: &mut Map<'_>) {
        self.server =
            map.required("address", "an address").and_then(|item| read_address(&item)).map(|(host, port)| {
                let host = match host.parse() {
                    Ok(IpAddr::V4(Ipv4Addr::UNSPECIFIED)) => Ipv4Addr::LOCALHOST.to_string(),
                    Ok(IpAddr::V6(address)) => format!("[{address}]"),
                    _ => host,
                };
                format!("{host}:{port}")
            });
        if let Some(item) = either(map, "keep_alive_time", "keepAliveTime") {
            let time = item.text().and_then(go_duration).filter(|time| PINGS.contains(&time.as_secs()));
            if time.is_none() {
                item.warn("ping_interval takes 10s to 24h; its default is used");
            }
            self.ping_interval = time;
        }
        for (key, camel) in
            [("stream_timeout", "streamTimeout"), ("stream_timeout_jitter", "streamTimeoutJitter")]
        {
            if let Some(item) = either(map, key, camel).filter(|item| is_set(item)) {
                item.warn("sluice keeps its streams to the control plane open");
            }
        }
        if let Some(item) =
            either(map, "request_node_metadata", "requestNodeMetadata").filter(|item| is_set(item))
        {
            item.warn("the control plane sees the node of a client as it is; upstream_node: { template: … } can add metadata");
        }
    }

    fn read_log(&mut self, map: &mut Map<'_>) {
        if let Some(item) = map.item("path") {
            let to_terminal = ["", "/dev/stdout", "/dev/stderr"];
            if !matches!(item.tree, Tree::Text(path) if to_terminal.contains(&path.as_str())) {
                item.warn("sluice writes its log to stdout; redirect it");
            }
        }
        if let Some(item) = map.item("level") {
            self.level = match item.tree {
                Tree::Text(text) => LEVELS.iter().find(|level| text.eq_ignore_ascii_case(level)).copied(),
                Tree::Integer(number) => {
                    usize::try_from(*number).ok().and_then(|number| LEVELS.get(number)).copied()
                }
                _ => None,
            };
            if self.level.is_none() {
                item.invalid("INFO, DEBUG, WARN or ERROR");
            }
        }
    }

    pub(super) fn render(&self, has_v2: bool) -> String {
        let mut yaml = String::new();
        let server = match &self.server {
            Some(server) => quoted(server),
            None => format!("\"${{{CONTROL_PLANE}}}\""),
        };
        line(&mut yaml, format_args!("xds_servers:\n  - server_uri: {server}"));
        line(&mut yaml, format_args!("    channel_creds: [{{ type: insecure }}]"));
        line(
            &mut yaml,
            format_args!(
                "    # xds-relay speaks state of the world, on a stream per type. Try AGGREGATED_DELTA_GRPC."
            ),
        );
        line(&mut yaml, format_args!("    api_type: GRPC"));
        if let Some(time) = self.ping_interval {
            line(&mut yaml, format_args!("    ping_interval: {}", show(Unit::Time, time.as_secs() * 1000)));
        }
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = self.listener.unwrap_or(loopback(18000));
        line(
            &mut yaml,
            format_args!("listeners:\n  - name: main\n    address: {}", quoted(&listener.to_string())),
        );
        if has_v2 {
            line(&mut yaml, format_args!("    v2: true"));
        }
        if let Some(admin) = self.admin {
            line(&mut yaml, format_args!("admin:\n  address: {}", quoted(&admin.to_string())));
        }
        if let Some(level) = self.level {
            line(&mut yaml, format_args!("log:\n  level: {level}"));
        }
        yaml
    }
}

fn is_set(item: &Item<'_>) -> bool {
    !matches!(item.tree, Tree::Null) && !matches!(item.tree, Tree::Text(text) if text.is_empty())
}

fn read_address(item: &Item<'_>) -> Option<(String, u16)> {
    item.map(|map| {
        let host = map.required("address", "an address")?.text()?.to_owned();
        let port = either(map, "port_value", "portValue");
        let number = match port.as_ref().map(|item| item.tree) {
            Some(Tree::Integer(number)) => u16::try_from(*number).ok(),
            None => Some(0),
            _ => None,
        };
        if let (Some(item), None) = (port, number) {
            item.invalid("a port from 0 to 65535");
        }
        Some((host, number?))
    })
    .flatten()
}

/// An address to listen on.
fn read_bound(item: &Item<'_>) -> Option<SocketAddr> {
    let (host, port) = read_address(item)?;
    if host == "localhost" {
        return Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    let Ok(ip) = host.parse::<IpAddr>() else {
        item.warn("sluice listens on IP addresses, not on names; 127.0.0.1 is used");
        return Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    };
    Some(SocketAddr::new(ip, port))
}

/// A duration of Go without fractions, such as `1h30m`.
fn go_duration(text: &str) -> Option<Duration> {
    let (mut total, mut rest) = (Duration::ZERO, text);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let number: u64 = number.parse().ok()?;
        let units = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, after) = after.split_at(units);
        let seconds = match unit {
            "h" => 3600,
            "m" => 60,
            "s" => 1,
            _ => return None,
        };
        total = total.checked_add(Duration::from_secs(number.checked_mul(seconds)?))?;
        rest = after;
    }
    (!total.is_zero()).then_some(total)
}
