//! `lrs` of a server: LRS-14.

use super::*;
use crate::driver::LoadUse;

const GRPC: &str = "server_uri: 'localhost:1', channel_creds: [{type: insecure}]";

fn errors(text: &str) -> Vec<String> {
    messages(&read(text).expect_err(text))
}

#[test]
fn lrs_14_each_server_says_where_load_reports_go() {
    let load = |keys: &str| config(&format!("xds_servers: [{{{keys}}}]")).servers.default.servers[0].load;
    assert_eq!(load(GRPC), None);
    for (word, expected) in
        [("aggregate", LoadUse::Aggregate), ("forward", LoadUse::Forward), ("local", LoadUse::Local)]
    {
        assert_eq!(load(&format!("{GRPC}, lrs: {word}")), Some(expected));
    }
    assert_eq!(load("server_uri: 'file:/a', lrs: local"), Some(LoadUse::Local));
    let limits = with_server("limits: {load_rows: 1000, load_rows_per_stream: 200, load_rows_total: 5000}")
        .limits
        .load;
    assert_eq!((limits.load_rows, limits.load_rows_per_stream, limits.load_rows_total), (1000, 200, 5000));
}

#[test]
fn lrs_14_what_no_server_can_do_is_refused() {
    let text = "load reports go over gRPC, so that a server of files or REST can have `lrs: local` only";
    assert_eq!(
        errors("xds_servers: [{server_uri: 'file:/a', lrs: aggregate}]"),
        [format!("xds_servers[0].lrs: {text}")]
    );
    let both = format!(
        "xds_servers: [{{{GRPC}, lrs: forward}}]\nauthorities: {{a: {{xds_servers: [{{{GRPC}, lrs: local}}]}}}}"
    );
    assert!(errors(&both)[0].starts_with("xds_servers: `lrs: forward` in xds_servers and other"), "{both}");
    let idle = format!(
        "xds_servers: [{{{GRPC}}}]\n\
        types: {{envoy.config.listener.v3.Listener: {{xds_servers: [{{{GRPC}, lrs: local}}]}}}}"
    );
    assert!(
        errors(&idle)[0].starts_with("types: `lrs` in types[envoy.config.listener.v3.Listener]"),
        "{idle}"
    );
    assert!(
        errors("xds_servers: [{server_uri: 'localhost:1', channel_creds: [{type: insecure}], lrs: drop}]")[0]
            .contains("lrs")
    );
    assert_eq!(
        errors(&format!("xds_servers: [{{{GRPC}}}]\nlimits: {{load_rows: 100, load_rows_per_stream: 200}}")),
        ["limits.load_rows_per_stream: 200 is more than limits.load_rows, 100"]
    );
    assert_eq!(
        errors(&format!(
            "xds_servers: [{{{GRPC}}}]\nlimits: {{load_rows: 900, load_rows_per_stream: 200, load_rows_total: 800}}"
        )),
        ["limits.load_rows: 900 is more than limits.load_rows_total, 800"]
    );
}

#[test]
fn lrs_23_a_class_of_several_zones_has_a_warning_where_a_server_gets_its_sums() {
    let warnings = |lrs: &str, classes: &str| -> Vec<String> {
        let text = format!("xds_servers: [{{{GRPC}{lrs}}}]\nnode_classes: [{classes}]");
        let loaded = read(&text).unwrap();
        let warnings = loaded.warnings.iter().map(|warning| format!("{}: {}", warning.path, warning.text));
        warnings.filter(|warning| warning.contains("zones")).collect()
    };
    let shared = "{split_by: {cluster: true}}";
    let found = warnings(", lrs: aggregate", shared);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("node_classes[0]: clients of several zones share a class, and localhost:1"));
    assert_eq!(warnings(", lrs: aggregate", "{split_by: {locality: region}}").len(), 1);
    for (lrs, classes) in [
        ("", shared),
        (", lrs: local", shared),
        (", lrs: aggregate", ""),
        (", lrs: aggregate", "{split_by: {locality: zone}}"),
        (", lrs: aggregate", "{split_by: {id: true}}"),
        (
            ", lrs: aggregate",
            "{match: {types: [envoy.config.listener.v3.Listener]}, split_by: {cluster: true}}",
        ),
    ] {
        assert_eq!(warnings(lrs, classes), [""; 0], "{lrs} {classes}");
    }
}
