//! JSON, YAML and text of REST peers and files.

use std::collections::BTreeMap;

use serde_json::Value;
use sluice_json::{
    AnswerError, encode_rest_node, encode_rest_request, parse_json, parse_rest_response, parse_text,
    parse_yaml, read_request, write_response,
};
use sluice_wire::ReaderLimits;
use sluice_wire::version::of_response;
use sluice_xds::{Resource, ResourceName, SotwRequest, SotwResponse, TypeUrl};

use super::Target;

pub const REST_JSON: Target = Target {
    name: "rest_json",
    run,
    seeds: || {
        let cluster =
            r#"{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster","name":"a","type":"EDS"}"#;
        let wrapped = format!(
            r#"{{"@type":"type.googleapis.com/envoy.service.discovery.v3.Resource","name":"b","version":"1","ttl":"5s","resource":{}}}"#,
            cluster.replace("\"a\"", "\"b\"")
        );
        [
            r#"0{"version_info":"1","node":{"id":"n","cluster":"c","metadata":{"a":[1,null,true,"x",{"b":1.5}]},"locality":{"region":"r"},"client_features":["f"],"user_agent_build_version":{"version":{"major_number":1}}},"resource_names":["a","b"]}"#.to_owned(),
            r#"0{"resourceNames":["a"],"resource_locators":[{"name":"b"},{"name":"c","dynamic_parameters":{"k":"v"}}]}"#.to_owned(),
            format!(r#"1{{"version_info":"7","resources":[{cluster},{wrapped}]}}"#),
            format!(r#"2{{"version_info":"7","resources":[{cluster}]}}"#),
            format!("3version_info: '7'\nresources:\n- {cluster}\n- name: c\n  \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\n"),
            format!("3resources:\n- {cluster}\n- !ignore x: &a {{b: [0660, yes, 1.10, ~, !!str 5]}}\n  name: d\n  per_connection_buffer_limit_bytes: 1e3\n  metadata: {{filter_metadata: {{t: *a}}, typed_filter_metadata: {{k: {{}}}}}}\n  \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\n"),
            "4version_info: \"7\"\nresources { [type.googleapis.com/envoy.config.cluster.v3.Cluster] { name: \"a\" connect_timeout { seconds: 5 } } }".to_owned(),
        ]
        .map(String::into_bytes)
        .into_iter()
        .chain([LOCALITIES.as_bytes().to_vec()])
        .collect()
    },
    words: &[
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"",
        "null",
        "true",
        "1e400",
        "-0",
        "NaN",
        "\\u0000",
        "\\ud800",
        "@type",
        "name",
        "resources",
        "\"5s\"",
        "connect_timeout",
        "type.googleapis.com/",
        "&a ",
        "*a",
        "<<: ",
        "!ignore ",
        "0660",
        "0x",
        "yes",
        "|\n",
        "---\n",
    ],
    mutations: 1_200,
    memory: None,
};

/// A type without a name field, so that only the wrapper has the name.
const LOCALITIES: &str = r#"2{"type_url":"type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint","resources":[{"@type":"type.googleapis.com/envoy.service.discovery.v3.Resource","name":"c","resource":{"@type":"type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint","endpoint":{"hostname":"h"}}}]}"#;

fn run(data: &[u8]) {
    let Some((form, rest)) = data.split_first() else { return };
    let form = form.wrapping_sub(b'0') % 5;
    if form == 0 {
        return poll(rest);
    }
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let type_url = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
    let response = match form {
        1 => parse_rest_response(text, &type_url),
        2 => parse_json(text),
        3 => parse_yaml(text),
        _ => parse_text(text),
    };
    if let Ok(response) = response {
        again(&response, form == 4);
    }
}

/// Resources by name; of a repeated name, none.
fn by_name(response: &SotwResponse) -> BTreeMap<ResourceName, Resource> {
    let mut found = BTreeMap::new();
    let mut repeated = Vec::new();
    for received in response.resources.iter().flatten() {
        let Some(resource) = &received.resource else { continue };
        // Beside the response stand: the time to live, and whether a cache may keep the resource.
        let bare = Resource {
            ttl: None,
            do_not_cache: false,
            metadata: None,
            aliases: Box::default(),
            version: Default::default(),
            ..Resource::clone(resource)
        };
        if found.insert(bare.name.clone(), bare).is_some() {
            repeated.push(received.name.clone());
        }
    }
    repeated.iter().for_each(|name| drop(found.remove(name)));
    found
}

/// RST-11: everything that was read from JSON has a form in JSON, and means the same. Text format may state the bytes of an
/// unknown type.
fn again(response: &SotwResponse, has_bytes: bool) {
    let resources = by_name(response);
    if resources.values().any(|resource| resource.constraints.is_some() || !resource.has_payload()) {
        return;
    }
    let version = of_response(resources.values());
    let json = match write_response(&response.type_url, version, resources.values(), "") {
        Err(AnswerError::UnknownType { .. }) if has_bytes => return,
        written => written.expect("a form in JSON"),
    };
    let text = std::str::from_utf8(&json).expect("UTF-8");
    let again = parse_rest_response(text, &response.type_url).expect("our own JSON");
    assert_eq!(by_name(&again), resources);
}

/// RST-1: a request has the names that the whole parser finds, and is equal after encoding.
fn poll(body: &[u8]) {
    let Ok(request) = read_request(body, &ReaderLimits::default()) else { return };
    let value: Option<Value> = serde_json::from_slice(body).ok();
    if let Some(Value::Array(names)) = value.as_ref().and_then(|value| value.get("resource_names"))
        && value.as_ref().is_some_and(|value| value.get("resourceNames").is_none())
    {
        let names: Vec<_> = names.iter().map(|name| name.as_str().expect("a name")).collect();
        let found: Vec<_> =
            request.resource_names.iter().map(ResourceName::as_str).take(names.len()).collect();
        assert_eq!(found, names);
    }
    let node = request.node.clone().unwrap_or_default();
    let node = encode_rest_node(&node).expect("a node in JSON");
    let shown = SotwRequest { node: None, ..request.clone() };
    let again = encode_rest_request(shown, &node).expect("a request in JSON");
    let again = read_request(&again, &ReaderLimits::default()).expect("our own request");
    let expected = SotwRequest { node: Some(request.node.clone().unwrap_or_default()), ..request };
    assert_eq!(again, expected);
}
