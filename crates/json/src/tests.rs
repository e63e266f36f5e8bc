#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use prost::Message;

use super::*;

const LISTENER: &str = r#"{
  "versionInfo": "1",
  "typeUrl": "type.googleapis.com/envoy.config.listener.v3.Listener",
  "resources": [{
    "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
    "name": "main",
    "statPrefix": "m",
    "address": {"socketAddress": {"address": "127.0.0.1", "portValue": 80}},
    "filterChains": [{"filters": [{
      "name": "hcm",
      "typedConfig": {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "statPrefix": "h",
        "httpFilters": [{
          "name": "router",
          "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router", "dynamicStats": false}
        }]
      }
    }]}]
  }]
}"#;

const CLUSTERS: &str = r#"
version_info: "7"
resources:
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: a
  type: EDS
  connect_timeout: 0.25s
  eds_cluster_config: { service_name: s, eds_config: { ads: {} } }
- "@type": type.googleapis.com/envoy.service.discovery.v3.Resource
  name: b
  version: "3"
  ttl: 5s
  resource:
    "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
    name: b
    metadata:
      filter_metadata: { z: { k: 1 }, y: {}, x: {}, w: {}, v: {}, u: {}, t: {}, s: {} }
"#;

fn value(response: &SotwResponse, index: usize) -> bytes::Bytes {
    response.resources[index].as_ref().unwrap().resource.as_ref().unwrap().body.value.clone()
}

#[test]
fn fil_4_json_and_yaml_in_either_case_of_names_mean_the_same() {
    let camel = parse_json(LISTENER).unwrap();
    let snake: String = [
        ("versionInfo", "version_info"),
        ("typeUrl", "type_url"),
        ("statPrefix", "stat_prefix"),
        ("socketAddress", "socket_address"),
        ("portValue", "port_value"),
        ("filterChains", "filter_chains"),
        ("typedConfig", "typed_config"),
        ("httpFilters", "http_filters"),
        ("dynamicStats", "dynamic_stats"),
    ]
    .iter()
    .fold(LISTENER.to_owned(), |text, (camel, snake)| text.replace(camel, snake));
    assert_ne!(snake, LISTENER);
    assert_eq!(parse_json(&snake).unwrap(), camel);
    // JSON is YAML.
    assert_eq!(parse_yaml(&snake).unwrap(), camel);
    assert_eq!(camel.resources[0].as_ref().unwrap().name.as_str(), "main");
    assert!(
        value(&camel, 0).windows(6).any(|bytes| bytes == b"router"),
        "payloads within payloads are encoded"
    );
}

#[test]
fn fil_4_a_yaml_file_with_wrapped_resources_and_no_type_of_its_own() {
    let response = parse_yaml(CLUSTERS).unwrap();
    assert_eq!(response.type_url.message(), "envoy.config.cluster.v3.Cluster");
    let [a, b] = &response.resources[..] else { panic!("{response:?}") };
    let (a, b) = (a.as_ref().unwrap(), b.as_ref().unwrap());
    assert_eq!((a.name.as_str(), &*a.upstream_version), ("a", "7"));
    assert_eq!((b.name.as_str(), &*b.upstream_version), ("b", "3"));
    assert_eq!(a.resource.as_ref().unwrap().endpoints.as_ref().unwrap().as_str(), "s");
    assert_eq!(b.resource.as_ref().unwrap().ttl, Some(std::time::Duration::from_secs(5)));
    let cluster = sluice_proto::Cluster::decode(value(&response, 0)).unwrap();
    assert_eq!((cluster.name.as_str(), cluster.r#type()), ("a", sluice_proto::cluster::DiscoveryType::Eds));
}

#[test]
fn rly_30_the_same_file_makes_the_same_bytes() {
    let first = parse_yaml(CLUSTERS).unwrap();
    for _ in 0..20 {
        assert_eq!(parse_yaml(CLUSTERS).unwrap(), first);
    }
    let metadata = value(&first, 1);
    let at =
        |key: &[u8]| metadata.windows(3).position(|bytes| bytes == [&[10, 1][..], key].concat()).unwrap();
    assert!(
        [b"s", b"t", b"u", b"v", b"w", b"x", b"y", b"z"].map(|key| at(key)).is_sorted(),
        "maps are sorted"
    );
}

#[test]
fn what_is_encoded_is_what_was_said() {
    let pool = pool().unwrap();
    let response = parse_json(LISTENER).unwrap();
    let listener = pool.get_message_by_name("envoy.config.listener.v3.Listener").unwrap();
    let listener = DynamicMessage::decode(listener, value(&response, 0)).unwrap();
    let mut text: Value = serde_json::to_value(&listener).unwrap();
    text["@type"] = "type.googleapis.com/envoy.config.listener.v3.Listener".into();
    let original: Value = serde_json::from_str(LISTENER).unwrap();
    assert_eq!(text, original["resources"][0]);
}

#[test]
fn errors_say_what_is_wrong_and_where() {
    let unknown = LISTENER.replace("filters.http.router.v3.Router", "acme.Unknown");
    let field = LISTENER.replace("\"dynamicStats\"", "\"dynamicStat\"");
    let number = LISTENER.replace(": 80", ": \"eighty\"");
    let cases = [
        (
            unknown,
            "resources[0].filterChains[0].filters[0].typedConfig.httpFilters[0].typedConfig: unknown type \"type.googleapis.com/envoy.extensions.acme.Unknown\"",
        ),
        (
            field,
            "resources[0].filterChains[0].filters[0].typedConfig.httpFilters[0].typedConfig: unrecognized field name 'dynamicStat' (in a envoy.extensions.filters.http.router.v3.Router)",
        ),
        (number, "portValue"),
        ("{\"versionInfo\": \"1\",\n  oops}".to_owned(), "key must be a string at line 2 column 3"),
        ("{\"nonce\": \"1\",\n \"nonce\": \"2\"}".to_owned(), "the key \"nonce\" is repeated at line 2"),
        ("{}".to_owned(), "the response has no type_url"),
        (r#"{"resources": [{}]}"#.to_owned(), "type_url"),
        ("[]".to_owned(), "response: "),
    ];
    for (text, expected) in cases {
        let error = parse_json(&text).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error:?} should contain {expected:?}");
    }
    for (text, expected) in
        [("a: [1", "line 1"), ("nonce: x\nnonce: y", "line 2"), ("resources: 5", "resources[0]: ")]
    {
        let error = parse_yaml(text).expect_err(expected).to_string();
        assert!(
            error.contains(expected) && error.lines().count() == 1,
            "{error:?} should contain {expected:?}"
        );
    }
}

#[test]
fn values_of_a_document_are_bounded() {
    assert!(!has_more_nodes(r#"{"a": [1, 2], "b": "[,:\",:["}"#, 9));
    assert!(has_more_nodes("[1, 2, 3]", 3));
    let text = format!(r#"{{"resources": [{}{{}}]}}"#, "{},".repeat(NODES_MAX));
    assert!(parse_json(&text).unwrap_err().to_string().contains("more than 10000000 values"));
}

#[test]
fn depth_and_aliases_are_bounded() {
    let deep =
        |open: &str, close: &str| format!("{{\"a\": {}{}}}", open.repeat(10_000), close.repeat(10_000));
    assert!(matches!(parse_json(&deep("[", "]")), Err(JsonError::Syntax(_))));
    assert!(matches!(parse_yaml(&deep("[", "]")), Err(JsonError::Syntax(_))));
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let last = level - 1;
        laughs += &format!("a{level}: &a{level} [{}]\n", vec![format!("*a{last}"); 10].join(", "));
    }
    assert!(matches!(parse_yaml(&laughs), Err(JsonError::Syntax(_))));
}

const CLUSTERS_TEXT: &str = r#"
version_info: "7"  # { not a brace
resources {
  [type.googleapis.com/envoy.config.cluster.v3.Cluster] {
    name: "a"
    type: EDS
    connect_timeout { nanos: 250000000 }
    eds_cluster_config { service_name: 's', eds_config { ads {} } }
  }
}
resources {
  [type.googleapis.com/envoy.service.discovery.v3.Resource] {
    name: "b"
    version: "3"
    ttl { seconds: 5 }
    resource {
      [type.googleapis.com/envoy.config.cluster.v3.Cluster] {
        name: "b"
        metadata {
          filter_metadata { key: "z" value { fields { key: "k" value { number_value: 1 } } } }
          filter_metadata { key: "y" value {} } filter_metadata { key: "x" value {} }
          filter_metadata { key: "w" value {} } filter_metadata { key: "v" value {} }
          filter_metadata { key: "u" value {} } filter_metadata { key: "t" value {} }
          filter_metadata { key: "s" value {} }
        }
      }
    }
  }
}
"#;

#[test]
fn fil_4_text_format_means_the_same_as_yaml() {
    assert_eq!(parse_text(CLUSTERS_TEXT).unwrap(), parse_yaml(CLUSTERS).unwrap());
}

#[test]
fn fil_4_faults_of_text_format_have_a_line() {
    for (text, expected) in [
        ("version_info: \"1\"\nversoin: \"2\"", "line 2: field 'versoin' not found"),
        ("resources {\n [type.googleapis.com/acme.T] { }\n}", "acme.T"),
        ("resources {\n", "end of input"),
    ] {
        let error = parse_text(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} should contain {expected:?}");
    }
    let deep = "resources {".repeat(100_000);
    assert!(parse_text(&deep).unwrap_err().to_string().contains("nested deeper"));
}

/// An empty `Any` has neither type nor bytes, at any depth.
#[test]
fn an_empty_any_is_read_in_every_format() {
    let listener = r#"{"resources": [{"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "l",
        "filterChains": [{"filters": [{"name": "f", "typedConfig": {}}]}],
        "metadata": {"typedFilterMetadata": {"k": {"@type": "type.googleapis.com/google.protobuf.Any", "value": {}}}}}]}"#;
    let response = parse_json(listener).unwrap();
    assert_eq!(parse_yaml(listener).unwrap(), response);
    let text = "resources { [type.googleapis.com/envoy.config.listener.v3.Listener] { name: 'l' \
        filter_chains { filters { name: 'f' typed_config { } } } \
        metadata { typed_filter_metadata { key: 'k' value { type_url: 'type.googleapis.com/google.protobuf.Any' } } } } }";
    assert_eq!(parse_text(text).unwrap(), response);
    let filter = b"\x0a\x05\x0a\x01f\x22\x00";
    let bytes = value(&response, 0);
    assert!(bytes.windows(5).any(|found| found == &filter[2..]), "{bytes:?}");
    let listener = pool().unwrap().get_message_by_name("envoy.config.listener.v3.Listener").unwrap();
    assert!(DynamicMessage::decode(listener, bytes).is_ok());
}

/// The types of other repositories than Envoy's, and of `contrib`.
#[test]
fn types_from_beside_envoy_are_known() {
    for (message, fields) in [
        ("xds.type.v3.TypedStruct", r#""typeUrl": "x/acme.T", "value": {"a": 1}"#),
        ("udpa.type.v1.TypedStruct", r#""typeUrl": "x/acme.T", "value": {"a": 1}"#),
        ("xds.type.matcher.v3.CelMatcher", r#""description": "d""#),
        ("xds.type.matcher.v3.HttpAttributesCelMatchInput", ""),
        ("xds.type.matcher.v3.IPMatcher", ""),
        ("xds.data.orca.v3.OrcaLoadReport", r#""cpuUtilization": 0.5"#),
        ("grpc.lookup.v1.RouteLookupClusterSpecifier", r#""routeLookupConfig": {"lookupService": "s"}"#),
        ("envoy.extensions.filters.http.golang.v3alpha.Config", r#""libraryId": "l""#),
        ("envoy.extensions.filters.network.postgres_proxy.v3alpha.PostgresProxy", r#""statPrefix": "p""#),
        ("envoy.extensions.filters.network.kafka_broker.v3.KafkaBroker", r#""statPrefix": "p""#),
    ] {
        let fields = if fields.is_empty() { String::new() } else { format!(", {fields}") };
        let text = format!(
            r#"{{"resources": [{{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "c",
                "metadata": {{"typedFilterMetadata": {{"k": {{"@type": "type.googleapis.com/{message}"{fields}}}}}}}}}]}}"#
        );
        let response = parse_json(&text).unwrap_or_else(|error| panic!("{message}: {error}"));
        let needle = message.as_bytes();
        assert!(value(&response, 0).windows(needle.len()).any(|bytes| bytes == needle), "{message}");
    }
}

/// Text format may state bytes in place of fields.
#[test]
fn bytes_of_an_unknown_type_pass() {
    let text = "resources { [type.googleapis.com/envoy.config.cluster.v3.Cluster] { name: 'c' metadata { \
        typed_filter_metadata { key: 'k' value { type_url: 'x/acme.T' value: '\\001\\377' } } } } }";
    let response = parse_text(text).unwrap();
    let any = b"\x0a\x08x/acme.T\x12\x02\x01\xff";
    assert!(value(&response, 0).windows(any.len()).any(|bytes| bytes == any));
}

/// Found by the fuzz target `rest_json`: REST could not serve the resource.
#[test]
fn fil_4_text_format_has_no_values_that_json_lacks() {
    let text = |timeout: &str| {
        format!(
            "resources {{ [type.googleapis.com/envoy.config.cluster.v3.Cluster] {{
                name: \"a\" connect_timeout {{ seconds: {timeout} }} }} }}"
        )
    };
    assert!(parse_text(&text("315576000000")).is_ok());
    let error = parse_text(&text("184467440737255")).unwrap_err().to_string();
    assert!(error.starts_with("resources[0]: ") && error.contains("duration"), "{error}");
}

/// A list collection of listeners as a file, with one entry of this kind.
fn collection(entry: &str) -> String {
    format!(
        r#"{{"name": "xdstp://a/envoy.config.listener.v3.ListenerCollection/all", "version": "1", "resource": {{
            "@type": "type.googleapis.com/envoy.config.listener.v3.ListenerCollection",
            "entries": [{{"inline_entry": {{"name": "first"}}}}, {entry}]
        }}}}"#
    )
}

#[test]
fn fil_5_a_file_may_be_one_list_collection() {
    let inline = collection(
        r#"{"inlineEntry": {"name": "l", "version": "1", "resource": {
            "@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "l"}}}"#,
    );
    let response = parse_json(&inline).unwrap();
    assert_eq!(response.type_url.message(), "envoy.config.listener.v3.ListenerCollection");
    let read = response.resources[0].as_ref().unwrap();
    assert_eq!(read.name.as_str(), "xdstp://a/envoy.config.listener.v3.ListenerCollection/all");
    assert_eq!(parse_yaml(&inline).unwrap(), response);
    // The same in binary, alone and with its length before it, and in text format.
    let pool = pool().unwrap();
    let resource = DynamicMessage::deserialize(
        pool.get_message_by_name(RESOURCE).unwrap(),
        &mut serde_json::Deserializer::from_str(&inline),
    )
    .unwrap();
    let binary = resource.encode_to_vec();
    assert_eq!(decode_file_response(binary.clone().into()).unwrap(), response);
    let delimited = resource.encode_length_delimited_to_vec();
    let alone = sluice_wire::upstream::undelimited(delimited.into()).unwrap();
    assert_eq!(decode_file_response(alone).unwrap(), response);
    let options = prost_reflect::text_format::FormatOptions::new().expand_any(true);
    assert_eq!(parse_text(&resource.to_text_format_with_options(&options)).unwrap(), response);
}

#[test]
fn fil_5_what_is_no_inline_collection_is_refused() {
    let locator = collection(r#"{"locator": {"id": "elsewhere"}}"#);
    let cluster = r#"{"name": "a", "resource":
        {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a"}}"#;
    let nameless = collection("{}").replacen(
        "\"name\": \"xdstp://a/envoy.config.listener.v3.ListenerCollection/all\",",
        "",
        1,
    );
    for (text, expected) in [
        (
            locator.as_str(),
            "entries[1] of \"xdstp://a/envoy.config.listener.v3.ListenerCollection/all\" is not inline",
        ),
        (cluster, "is not a list collection"),
        (&nameless, "the resource has no name"),
    ] {
        let error = parse_json(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} should contain {expected:?}");
    }
}

#[test]
fn fil_4_a_delimited_file_is_one_message() {
    use sluice_wire::upstream::undelimited;
    assert_eq!(undelimited(bytes::Bytes::from_static(b"\x02ab")).unwrap(), "ab");
    for wrong in [&b"\x03ab"[..], b"\x01ab", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b""] {
        assert!(undelimited(bytes::Bytes::copy_from_slice(wrong)).is_err(), "{wrong:?}");
    }
}

#[test]
fn rst_1_rst_2_a_poll_is_written_as_envoy_writes_it() {
    let node = sluice_xds::Node {
        id: "n".to_owned(),
        user_agent_name: "sluice".to_owned(),
        client_features: vec!["f".to_owned()],
        metadata: [("k".to_owned(), sluice_xds::Value::Bool(true))].into(),
        ..sluice_xds::Node::default()
    };
    let request = sluice_xds::SotwRequest {
        version_info: "v1".to_owned(),
        resource_names: vec!["a".into(), "b".into()],
        type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned(),
        ..sluice_xds::SotwRequest::default()
    };
    let json = encode_rest_request(request.clone(), &encode_rest_node(&node).unwrap()).unwrap();
    let json: Value = serde_json::from_slice(&json).unwrap();
    let expected = serde_json::json!({
        "version_info": "v1",
        "node": {"id": "n", "metadata": {"k": true}, "user_agent_name": "sluice", "client_features": ["f"]},
        "resource_names": ["a", "b"],
        "type_url": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    });
    assert_eq!(json, expected);
    // As deep as a node may be, which is deeper than a decoder goes; and what JSON has no number for.
    let deep = (0..99).fold(sluice_xds::Value::Number(f64::NAN.to_bits()), |inner, _| {
        sluice_xds::Value::Struct([("k".to_owned(), inner)].into())
    });
    let node = sluice_xds::Node { metadata: [("k".to_owned(), deep)].into(), ..node };
    let json = encode_rest_request(request, &encode_rest_node(&node).unwrap()).unwrap();
    let text = String::from_utf8(json.to_vec()).unwrap();
    assert!(text.contains(&format!("{}null{}", "{\"k\":".repeat(100), "}".repeat(100))), "{text}");
}

#[test]
fn rst_3_rst_11_a_response_to_a_poll_is_of_its_type_and_known_as_a_whole() {
    let listener = TypeUrl::of_message("envoy.config.listener.v3.Listener");
    assert_eq!(parse_rest_response(LISTENER, &listener).unwrap(), parse_json(LISTENER).unwrap());
    let empty = parse_rest_response("{\"version_info\": \"7\"}", &listener).unwrap();
    assert_eq!(
        (empty.type_url, empty.version_info.as_str(), empty.resources.len()),
        (listener.clone(), "7", 0)
    );
    let cluster = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
    for (text, type_url, expected) in [
        (
            LISTENER.to_owned(),
            &cluster,
            "but the request was for type.googleapis.com/envoy.config.cluster.v3.Cluster",
        ),
        (LISTENER.replace("router.v3.Router", "acme.Unknown"), &listener, "unknown type"),
        (String::new(), &listener, "EOF"),
    ] {
        let error = parse_rest_response(&text, type_url).unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} should contain {expected:?}");
    }
}
