//! Units, words, defaults, and warnings.

use super::*;
use crate::server::LoadReports;

#[test]
fn load_reports_are_dropped_or_refused() {
    let load_reports = |text: &str| {
        config(&format!("{SERVER}listeners: [{{name: a, address: '127.0.0.1:1'{text}}}]")).listeners[0]
            .options
            .load_reports
    };
    assert_eq!(load_reports(""), None);
    assert_eq!(load_reports(", load_reports: drop"), Some(LoadReports::Drop));
    assert_eq!(load_reports(", load_reports: refuse"), Some(LoadReports::Refuse));
}

#[test]
fn what_is_taken_but_has_no_effect_or_is_open_is_warned_of() {
    let text = "
xds_servers:
  - server_uri: cp.example:1
    channel_creds: [{type: insecure}, {type: tls}]
    server_features: [xds_v3, trusted_xds_server, ignore_resource_deletion, colour]
listeners:
  - {name: a, address: '0.0.0.0:1'}
  - {name: b, address: '127.0.0.1:2'}
  - {name: c, address: '[::1]:3'}
  - {name: d, address: 'unix:d'}
";
    let warned: Vec<_> = read(text).unwrap().warnings.into_iter().map(|warning| warning.path).collect();
    let expected = [
        "xds_servers[0].channel_creds[1].type",
        "xds_servers[0].server_features[1]",
        "xds_servers[0].server_features[2]",
        "xds_servers[0].server_features[3]",
        "xds_servers[0].server_uri",
        "listeners[0].address",
    ];
    assert_eq!(warned, expected);
}

#[test]
fn crt_14_durations_come_as_protobuf_writes_them_too() {
    for (text, ms) in [
        ("0.5s", Some(500)),
        ("0.500000000s", Some(500)),
        ("600.000s", Some(600_000)),
        ("1.001s", Some(1_001)),
        ("0.0005s", None),
        ("1.s", None),
        (".5s", None),
        ("-1.5s", None),
        ("1.0000000000s", None),
        ("1.5m", None),
    ] {
        let linger = read(&format!("{SERVER}linger: {text}")).ok();
        let linger = linger.map(|loaded| loaded.config.source.linger.as_millis());
        assert_eq!(linger, ms, "{text}");
    }
}

#[test]
fn values_are_read_in_their_units() {
    let config = with_server(
        "
linger: 1m
coalescing: 0s
drain: 1h
cache: {encoded_bytes: 1GiB, unwatched_bytes: 0}
limits: {connections_per_ip: 7, connection_age: off, name_bytes: 65}
log: {format: json, level: 'info, sluice::driver=TRACE'}
listeners: [{name: a, address: 'unix:a.sock'}, {name: b, address: 'unix:/b', mode: '600'}]
admin: {address: 'unix:admin'}
",
    );
    assert_eq!(config.source.linger, Duration::from_secs(60));
    assert_eq!(config.source.coalescing, Duration::ZERO);
    assert_eq!(config.drain, Duration::from_secs(3600));
    assert_eq!((config.encoded_bytes, config.source.unwatched_bytes), (1 << 30, 0));
    assert_eq!(config.limits.server.connections_per_ip, Some(7));
    assert_eq!(config.limits.server.connection_age, None);
    assert_eq!(config.limits.server.requests.name_bytes, 65);
    assert_eq!(config.log.format, LogFormat::Json);
    let unix = |path: &str, mode| Address::Unix { path: path.into(), mode };
    let addresses: Vec<_> = config.listeners.into_iter().map(|listener| listener.address).collect();
    assert_eq!(addresses, [unix("/etc/sluice/a.sock", 0o660), unix("/b", 0o600)]);
    assert_eq!(config.admin.address, unix("/etc/sluice/admin", 0o600));
}
