#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use prost::Message;

use super::*;
use crate::wire::proto;

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
    let cluster = proto::Cluster::decode(value(&response, 0)).unwrap();
    assert_eq!((cluster.name.as_str(), cluster.r#type()), ("a", proto::cluster::DiscoveryType::Eds));
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
            "resources[0].filterChains[0].filters[0].typedConfig.httpFilters[0].typedConfig: the type \"type.googleapis.com/envoy.extensions.acme.Unknown\" is not known",
        ),
        (
            field,
            "resources[0].filterChains[0].filters[0].typedConfig.httpFilters[0].typedConfig: unrecognized field name 'dynamicStat' (in a envoy.extensions.filters.http.router.v3.Router)",
        ),
        (number, "portValue"),
        ("{\"versionInfo\": \"1\",\n  oops}".to_owned(), "key must be a string at line 2 column 3"),
        ("{\"nonce\": \"1\",\n \"nonce\": \"2\"}".to_owned(), "the key \"nonce\" is repeated at line 2"),
        ("{}".to_owned(), "the response has no type_url"),
        ("[]".to_owned(), "response: "),
    ];
    for (text, expected) in cases {
        let error = parse_json(&text).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error:?} should contain {expected:?}");
    }
    for (text, expected) in
        [("a: [1", "line 1"), ("nonce: x\nnonce: y", "line 2"), ("resources: 5", "resources: ")]
    {
        let error = parse_yaml(text).expect_err(expected).to_string();
        assert!(
            error.contains(expected) && error.lines().count() == 1,
            "{error:?} should contain {expected:?}"
        );
    }
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
