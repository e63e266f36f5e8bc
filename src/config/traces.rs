//! Where to send traces of changes, and of which changes.

use super::reader::{Item, Map};
use super::tree::Tree;
use super::units::text;
use crate::telemetry::traces::{PER_SECOND, SLOW, TraceSettings};
use sluice_setting::Read;

const EXPECTED: &str = "http://HOST:PORT of an OpenTelemetry collector (OTLP over gRPC)";

/// `None`: off, or an error was reported.
pub(super) fn read_traces(item: &Item<'_>) -> Option<TraceSettings> {
    if item.is_word("off") {
        return None;
    }
    item.map(read_keys).flatten()
}

fn read_keys(map: &mut Map<'_>) -> Option<TraceSettings> {
    let endpoint = map.required("endpoint", EXPECTED);
    let slow = map.value(&SLOW);
    let per_second = map.value(&PER_SECOND);
    let endpoint = endpoint?.parse(|tree: &Tree| collector(text(tree)?))?;
    Some(TraceSettings { endpoint, slow, per_second })
}

/// The settings with this endpoint, which `OTEL_EXPORTER_OTLP_ENDPOINT` names.
///
/// # Errors
/// The expected form of the endpoint.
pub fn traces_to(endpoint: &str) -> Result<TraceSettings, String> {
    let endpoint = collector(endpoint)?;
    Ok(TraceSettings { endpoint, slow: SLOW.default, per_second: PER_SECOND.default })
}

/// Without TLS: a collector is on the host of the relay, or behind a network that is trusted like the one of
/// a scrape.
fn collector(text: impl AsRef<str>) -> Result<String, String> {
    let text = text.as_ref();
    let authority = text.strip_prefix("http://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
    let parts = authority.and_then(|authority| authority.rsplit_once(':'));
    let is_host = |host: &str| {
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        match inner {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
            }
        }
    };
    match parts {
        Some((host, port)) if is_host(host) && port.parse::<u16>().is_ok_and(|port| port > 0) => {
            Ok(format!("http://{host}:{port}"))
        }
        _ => Err(EXPECTED.to_owned()),
    }
}
