//! `limits:`: the limits on the resources that any one peer can use. Each belongs to the room that enforces
//! it.

use super::reader::Map;
use crate::driver::RelayLimits;
use crate::server::ServerLimits;
use crate::trust::server::ChainLimits;
use sluice_engine::downstream;
use sluice_load_reports::LoadLimits;
use sluice_wire::ReaderLimits;

/// The keys of `limits:`, by room. The limits on requests are in `server`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    pub server: ServerLimits,
    pub stream: downstream::Limits,
    pub relay: RelayLimits,
    pub load: LoadLimits,
}

/// Keys of limits whose features are not implemented yet.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("accept_rate", "connections are accepted without a rate limit"),
    ("response_bytes", "use xds_servers[].max_response_bytes"),
];

impl Limits {
    pub(super) fn read(map: &mut Map<'_>) -> Limits {
        let server = ServerLimits::read(map);
        let requests = ReaderLimits::read(map);
        let limits = Limits {
            server: ServerLimits { requests, client_chain: ChainLimits::read(map), ..server },
            stream: downstream::Limits::read(map),
            relay: RelayLimits::read(map),
            load: LoadLimits::read(map),
        };
        map.unsupported(UNSUPPORTED);
        limits.check(map);
        limits
    }

    /// Reports limits that contradict each other.
    fn check(&self, map: &Map<'_>) {
        let (requests, connection_bytes) = (&self.server.requests, self.server.connection_bytes);
        let (request_bytes, node_bytes) = (requests.request_bytes as u64, requests.node_bytes as u64);
        let names = (requests.names_per_request as u64, self.stream.names_per_stream as u64);
        let pairs = [
            ("names_per_request", names.0, "names_per_stream", names.1),
            ("name_bytes", requests.name_bytes as u64, "request_bytes", request_bytes),
            ("node_bytes", node_bytes, "request_bytes", request_bytes),
            ("request_bytes", request_bytes, "connection_bytes", connection_bytes),
            ("request_bytes", request_bytes, "unfinished_bytes", self.server.unfinished_bytes),
            (
                "load_rows_per_stream",
                self.load.load_rows_per_stream as u64,
                "load_rows",
                self.load.load_rows as u64,
            ),
            ("load_rows", self.load.load_rows as u64, "load_rows_total", self.load.load_rows_total as u64),
            ("node_retained_bytes", requests.node_retained_bytes as u64, "node_bytes", node_bytes),
        ];
        for (key, value, within, bound) in pairs {
            if value > bound {
                map.contradiction(key, format!("{value} is more than limits.{within}, {bound}"));
            }
        }
    }
}
