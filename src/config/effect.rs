//! The effect of a reload on each key (REL-3). A test walks over every key that the readers know.

use super::Config;
use super::key_report::without_indices;
use super::listener::Address;

/// The way in which a changed value comes into force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// With the next request, connection or timer.
    Live,
    /// Listeners open, close, or change their options and certificates.
    Listeners,
    /// The lists are built anew; sources of unchanged servers stay.
    Lists,
    /// Each session is classified anew.
    Classes,
    /// In a new process only.
    Process,
}

impl Effect {
    pub fn name(self) -> &'static str {
        match self {
            Effect::Live => "live",
            Effect::Listeners => "listeners",
            Effect::Lists => "lists",
            Effect::Classes => "classes",
            Effect::Process => "new process",
        }
    }
}

/// The effect of each key, or of all keys below one. The longest entry decides.
pub(super) const EFFECTS: &[(&str, Effect)] = &[
    ("node", Effect::Process),
    ("xds_servers", Effect::Lists),
    ("xds_servers[].resource_timeout", Effect::Live),
    ("xds_servers[].resource_timeouts", Effect::Live),
    ("xds_servers[].connect_timeout", Effect::Live),
    ("xds_servers[].settings_timeout", Effect::Live),
    ("xds_servers[].stream_open_timeout", Effect::Live),
    ("xds_servers[].streams_per_connection", Effect::Live),
    ("xds_servers[].ping_interval", Effect::Live),
    ("xds_servers[].tcp_keepalive", Effect::Live),
    ("xds_servers[].backoff", Effect::Live),
    ("xds_servers[].mass_deletion", Effect::Live),
    ("xds_servers[].report_rejections", Effect::Live),
    ("xds_servers[].lrs", Effect::Live),
    ("xds_servers[].max_response_bytes", Effect::Live),
    ("xds_servers[].max_request_bytes", Effect::Live),
    ("xds_servers[].refresh_delay", Effect::Live),
    ("xds_servers[].request_timeout", Effect::Live),
    ("xds_servers[].tls.handshake_timeout", Effect::Live),
    ("fallback.policy", Effect::Lists),
    ("fallback.resolve_timeout", Effect::Live),
    ("fallback.hold_down", Effect::Live),
    ("fallback_on_reachability_only", Effect::Lists),
    ("authorities", Effect::Lists),
    ("client_default_listener_resource_name_template", Effect::Live),
    ("server_listener_resource_name_template", Effect::Live),
    ("authorities[].client_listener_resource_name_template", Effect::Live),
    ("types", Effect::Lists),
    ("node_classes", Effect::Classes),
    ("facts", Effect::Classes),
    ("rollouts", Effect::Live),
    ("proof", Effect::Live),
    ("history.pushes", Effect::Live),
    ("authorization", Effect::Live),
    ("listeners", Effect::Listeners),
    ("admin.address", Effect::Process),
    ("admin.mode", Effect::Process),
    ("admin.tls", Effect::Live),
    ("admin.auth", Effect::Live),
    ("admin.ready_requires_upstream", Effect::Live),
    ("admin.hosts", Effect::Live),
    ("admin.content", Effect::Live),
    ("log.format", Effect::Live),
    ("log.level", Effect::Live),
    ("limits.connections", Effect::Live),
    ("limits.connections_per_ip", Effect::Live),
    ("limits.connections_per_identity", Effect::Live),
    ("limits.preface_timeout", Effect::Live),
    ("limits.tls_handshake_timeout", Effect::Live),
    ("limits.tls_handshakes", Effect::Live),
    ("limits.tls_handshakes_per_second", Effect::Live),
    ("limits.client_chain_bytes", Effect::Live),
    ("limits.client_chain_certificates", Effect::Live),
    ("limits.first_request_timeout", Effect::Live),
    ("limits.request_timeout", Effect::Live),
    ("limits.connection_bytes", Effect::Live),
    ("limits.unfinished_bytes", Effect::Live),
    ("limits.streams_per_connection", Effect::Live),
    ("limits.pending_reset_streams", Effect::Live),
    ("limits.local_error_reset_streams", Effect::Live),
    ("limits.header_list_bytes", Effect::Live),
    ("limits.keepalive_interval", Effect::Live),
    ("limits.keepalive_timeout", Effect::Live),
    ("limits.connection_age", Effect::Live),
    ("limits.connection_age_grace", Effect::Live),
    ("limits.request_bytes", Effect::Live),
    ("limits.node_bytes", Effect::Live),
    ("limits.node_retained_bytes", Effect::Live),
    ("limits.metadata_depth", Effect::Live),
    ("limits.names_per_request", Effect::Live),
    ("limits.name_bytes", Effect::Live),
    ("limits.error_detail_bytes", Effect::Live),
    ("limits.names_per_stream", Effect::Live),
    ("limits.types_per_stream", Effect::Live),
    ("limits.changes_per_second", Effect::Live),
    ("limits.changes_burst", Effect::Live),
    ("limits.first_answers_per_second", Effect::Live),
    ("limits.first_answers_burst", Effect::Live),
    ("limits.node_classes", Effect::Live),
    ("limits.node_classes_per_connection", Effect::Live),
    ("limits.secret_classes", Effect::Live),
    ("limits.private_sources", Effect::Live),
    ("limits.held_bytes", Effect::Live),
    ("limits.shadow_bytes", Effect::Live),
    ("limits.source_bytes", Effect::Live),
    ("limits.load_rows", Effect::Live),
    ("limits.load_rows_per_stream", Effect::Live),
    ("limits.load_rows_total", Effect::Live),
    ("limits.memory_bytes", Effect::Live),
    ("checkpoint", Effect::Process),
    ("checkpoint.directory", Effect::Process),
    ("checkpoint.interval", Effect::Live),
    ("checkpoint.max_age", Effect::Live),
    ("ledger", Effect::Process),
    ("traces", Effect::Live),
    ("coalescing", Effect::Live),
    ("linger", Effect::Live),
    ("cache.unwatched_bytes", Effect::Live),
    ("cache.encoded_bytes", Effect::Live),
    ("drain", Effect::Live),
    ("drain_delay", Effect::Live),
    ("handover.drain", Effect::Live),
    ("handover.timeout", Effect::Live),
    ("handover.binary", Effect::Live),
    ("reload.watch", Effect::Live),
    ("reload.max_moved", Effect::Live),
];

/// The effect of a change of this key. A key without an entry is never taken and ignored: it needs a new
/// process.
pub(super) fn effect_of(key: &str) -> Effect {
    entry_of(key).map_or(Effect::Process, |(_, effect)| *effect)
}

/// The keys that only a new process takes, in the order of the table.
pub fn process_keys() -> Vec<&'static str> {
    EFFECTS.iter().filter(|(_, effect)| *effect == Effect::Process).map(|(key, _)| *key).collect()
}

/// The longest entry with this key or above it.
pub(super) fn entry_of(key: &str) -> Option<&'static (&'static str, Effect)> {
    let plain = without_indices(key);
    // The lists of authorities and types have the keys of `xds_servers`.
    let inner = ["authorities[].", "types[]."].iter().find_map(|list| plain.strip_prefix(list));
    let plain = inner.filter(|inner| inner.starts_with("xds_servers[]")).unwrap_or(&plain);
    let is_above = |entry: &str| {
        plain.strip_prefix(entry).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    EFFECTS.iter().filter(|(entry, _)| is_above(entry)).max_by_key(|(entry, _)| entry.len())
}

impl Config {
    /// The keys for which `new` needs a new process, by the meaning of the values and not by their spelling.
    pub fn needs_process(&self, new: &Config) -> Vec<&'static str> {
        let place = |config: &Config| match &config.admin.address {
            Address::Tcp(address) => (Some(*address), None),
            Address::Unix { path, .. } => (None, Some(path.clone())),
        };
        let mode = |config: &Config| match &config.admin.address {
            Address::Tcp(_) => None,
            Address::Unix { mode, .. } => Some(*mode),
        };
        let directory =
            |config: &Config| config.checkpoint.as_ref().map(|checkpoint| checkpoint.directory.clone());
        let differs = [
            ("node", self.node != new.node),
            ("checkpoint.directory", directory(self) != directory(new)),
            ("ledger", self.ledger != new.ledger),
            ("admin.address", place(self) != place(new)),
            ("admin.mode", place(self) == place(new) && mode(self) != mode(new)),
        ];
        differs.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}
