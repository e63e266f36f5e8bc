//! The configuration, and the file of authorization.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use sluice::config::{
    ConfigError, FileContext, Format, explain_classes, explain_decision, explain_servers, explain_unbound,
    parse, parse_policy,
};
use sluice_engine::authorization::{Claimant, Policy};
use sluice_identity::{Identity, SpiffeId};
use sluice_xds::{Node, ResourceName, TypeUrl};

use super::Target;
use super::identities::naive_match;

const EXAMPLE: &str = include_str!("../../../config/example.yaml");
const CONTAINER: &str = include_str!("../../../config/container.yaml");
const ISTIO: &str = include_str!("../../../config/istio.yaml");
const GO_CONTROL_PLANE: &str = include_str!("../../../config/go-control-plane.yaml");
const TLS: &str = include_str!("../../../config/tls.yaml");

const SMALL: &str = r#"{"xds_servers":[{"server_uri":"dns:///cp:1","channel_creds":[{"type":"tls","config":{"ca_certificate_file":"ca"}},{"type":"insecure"}],"server_features":["xds_v3"]}],"node":{"id":"a"},"listeners":[{"name":"main","address":"127.0.0.1:1","tls":{"certificates":[{"certificate_file":"c","private_key_file":"k"}]}}],"limits":{"request_bytes":"8MiB"},"drain":"10s"}"#;

pub const CONFIGURATION: Target = Target {
    name: "configuration",
    run: read_config,
    seeds: || {
        let yaml =
            [EXAMPLE, CONTAINER, ISTIO, GO_CONTROL_PLANE, TLS].map(|text| format!("0{text}").into_bytes());
        yaml.into_iter().chain([format!("1{SMALL}").into_bytes()]).collect()
    },
    words: &[
        "xds_servers:",
        "- ",
        "\n",
        "  ",
        ": ",
        "{",
        "}",
        "[",
        "]",
        ",",
        "'",
        "\"",
        "&a ",
        "*a",
        "<<: *a",
        "null",
        "~",
        "true",
        "off",
        "0x10",
        "1e9",
        "-1",
        "10s",
        "1MiB",
        "unix:/a",
        "https://a:1",
        "#",
        "|\n",
        "!!str ",
        "? ",
        "---\n",
        "99999999999999999999",
        ".inf",
        "limits:",
        "authorization: ",
        "tls: ",
        "node_classes:",
        "${SET}",
        "${UNSET}",
        "${UNSET:-10s}",
        "${",
        "$$",
    ],
    mutations: 700,
    memory: None,
};

fn format(byte: u8) -> Format {
    if byte & 1 == 1 { Format::Json } else { Format::Yaml }
}

fn variables(name: &str) -> Option<OsString> {
    (name == "SET").then(|| "10s".into())
}

/// Errors have a place and words, and no key is accepted and ignored.
fn read_config(data: &[u8]) {
    let Some((form, rest)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let context = FileContext {
        directory: Path::new("nowhere"),
        hostname: "host",
        variables: &variables,
        policy: None,
    };
    let read = |text: &str, format| parse(text, format, context);
    match read(text, format(*form)) {
        Ok(loaded) => {
            assert_eq!(read(text, format(*form)).ok().as_ref(), Some(&loaded));
            let config = &loaded.config;
            assert!(
                !explain_classes(&config.node_classes, &Node::default(), &Identity::Anonymous).is_empty()
            );
            let _ = (explain_servers(&config.servers), explain_unbound(config));
            for listener in &config.listeners {
                let ask = Some(("type.googleapis.com/a.B", Some("name")));
                assert!(!explain_decision(config, listener, Identity::Anonymous, None, ask).is_empty());
            }
        }
        Err(error) => check_error(&error),
    }
    let Ok(Value::Object(mut map)) = serde_json::from_str(text) else { return };
    map.insert("of_no_use".to_owned(), Value::from(1));
    let more = Value::Object(map).to_string();
    assert!(read(&more, Format::Json).is_err(), "an unknown key is accepted");
}

fn check_error(error: &ConfigError) {
    match error {
        ConfigError::Invalid { errors } => {
            assert!(!errors.is_empty(), "a refusal without an error");
            assert!(errors.iter().all(|error| !error.to_string().is_empty()));
        }
        ConfigError::Syntax { message, .. } => assert!(!message.is_empty()),
        ConfigError::Unreadable { .. } => {}
    }
}

const POLICY: &str = r#"{"mode":"enforce","rules":[{"name":"a","match":{"listeners":["main"],"identity":"spiffe://d/ns/{ns}/sa/{sa}"},"node":{"metadata":[{"path":["NAMESPACE"],"exact":"{ns}"}],"id":{"suffix":".{ns}"}},"allow":[{"types":["envoy.config.cluster.v3.Cluster"],"names":[{"prefix":"{ns}/"},"x"]},{"types":"all","authorities":["a"],"wildcard":false}]},{"name":"b","match":{"identity":{"dns":"{app}.example"}},"allow":[{"types":"all","wildcard":true}]},{"name":"c","match":{"identity":{"unix_uid":[0,7]}},"allow":[{"types":"all"}]},{"name":"d","match":{"identity":"any"},"deny":true}]}"#;

const POLICY_YAML: &str = "0mode: report
rules:
- name: web
  match: { identity: 'spiffe://d/ns/{ns}' }
  node: { id: { prefix: 'x{ns}.' } }
  allow: [{ types: all, names: [{ prefix: 'a/{ns}/' }, { suffix: '/{ns}' }] }]
";

pub const AUTHORIZATION_FILE: Target = Target {
    name: "authorization_file",
    run: read_policy,
    seeds: || {
        let open = r#"1{"rules":[{"name":"a","match":{"identity":"anonymous"},"allow":[{"types":"all"}]}]}"#;
        vec![
            format!("1{POLICY}").into_bytes(),
            POLICY_YAML.as_bytes().to_vec(),
            open.into(),
            br#"1{"rules":[]}"#.to_vec(),
        ]
    },
    words: &[
        "{ns}",
        "{{",
        "}}",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"any\"",
        "\"anonymous\"",
        "\"deny\":true",
        "\"all\"",
        "\"names\":",
        "\"authorities\":[\"\"]",
        "\"exact\":",
        "\"prefix\":",
        "\"suffix\":",
        "\"wildcard\":true",
        "\"listeners\":[\"edge\"]",
        "\"mode\":\"report\"",
        "\"unix_uid\":[",
        "null",
        "envoy.config.cluster.v3.Cluster",
    ],
    mutations: 2_500,
    memory: None,
};

const LISTENERS: &[&str] = &["main", "edge"];

/// AUT-1 to AUT-7: the first rule that matches decides, and an empty claim fulfills no condition.
fn read_policy(data: &[u8]) {
    let Some((form, rest)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let policy = match parse_policy(text, format(*form), LISTENERS, &variables) {
        Ok(policy) => policy,
        Err(error) => return check_error(&error),
    };
    assert_eq!(parse_policy(text, format(*form), LISTENERS, &variables).ok().as_ref(), Some(&policy));
    let value: Option<Value> = serde_json::from_str(text).ok().filter(|_| form & 1 == 1);
    let spiffe = |text| SpiffeId::parse(text).map(Identity::Spiffe).expect("an ID");
    let identities = [
        Identity::Anonymous,
        Identity::Unix { uid: 0 },
        Identity::Unix { uid: 1 },
        spiffe("spiffe://d/ns/shop/sa/web"),
        spiffe("spiffe://d/ns/shop"),
        Identity::Dns("web.example".into()),
    ];
    for identity in identities.map(Arc::new) {
        for listener in LISTENERS {
            decide(&policy, value.as_ref(), Claimant { listener, identity: &identity, is_local: false });
        }
    }
}

fn decide(policy: &Policy, value: Option<&Value>, claimant: Claimant<'_>) {
    let decision = policy.decide(claimant, None);
    let types = ["envoy.config.cluster.v3.Cluster", "envoy.extensions.transport_sockets.tls.v3.Secret"];
    let enforces = policy.mode() == Some(sluice_engine::authorization::Mode::Enforce);
    if enforces && decision.denial.is_some() {
        let all = types.map(TypeUrl::of_message);
        assert!(
            all.iter().all(|type_url| decision.grant.of_type(type_url).is_err()),
            "a denied client has rights"
        );
    }
    let Some(rules) = value.and_then(|value| value["rules"].as_array()) else { return };
    let first = rules.iter().position(|rule| naive_rule(&rule["match"], claimant));
    assert_eq!(decision.rule, first, "{claimant:?}");
    let Some(rule) = first.map(|index| &rules[index]) else {
        assert!(decision.denial.is_some());
        return;
    };
    let has_claims = rule["node"].as_object().is_some_and(|node| {
        node.iter().any(|(key, of)| match of {
            Value::Array(list) => !list.is_empty(),
            Value::Object(fields) if key == "locality" => !fields.is_empty(),
            Value::Null => false,
            _ => true,
        })
    });
    assert_eq!(decision.denial.is_some(), rule["deny"] == true || has_claims, "{rule}");
    if !enforces || decision.denial.is_some() {
        return;
    }
    let name = ResourceName::new("shop/a");
    for message in types {
        let type_url = TypeUrl::of_message(message);
        let grant = decision.grant.of_type(&type_url);
        let entries = rule["allow"].as_array().into_iter().flatten();
        let listed = |entry: &&Value| match &entry["types"] {
            Value::Array(types) => {
                types.iter().any(|name| name.as_str().is_some_and(|name| type_of(name) == type_url))
            }
            _ => !type_url.is_secret(),
        };
        let entries: Vec<_> = entries.filter(listed).collect();
        assert_eq!(grant.is_ok(), !entries.is_empty(), "{rule} {message}");
        let wildcard = entries.iter().any(|entry| entry["wildcard"] == true);
        let Ok(grant) = grant else { continue };
        assert_eq!(grant.allows_wildcard(), wildcard, "{rule} {message}");
        let is_open = |entry: &&Value| entry["names"].is_null() && entry["authorities"].is_null();
        assert_eq!(grant.has_every_name(), entries.iter().any(is_open), "{rule} {message}");
        let _ = grant.allows(&name);
    }
}

fn type_of(name: &str) -> TypeUrl {
    TypeUrl::new(&format!("type.googleapis.com/{}", name.rsplit('/').next().unwrap_or_default()))
}

fn naive_rule(wanted: &Value, claimant: Claimant<'_>) -> bool {
    let listeners = wanted["listeners"].as_array().map(Vec::as_slice).unwrap_or_default();
    let at_listener = listeners.is_empty() || listeners.iter().any(|name| name == claimant.listener);
    let identity = &**claimant.identity;
    let is_meant = match (&wanted["identity"], identity) {
        (Value::String(any), _) if any == "any" => true,
        (Value::String(text), identity) if text == "anonymous" => *identity == Identity::Anonymous,
        (Value::String(text), identity) => naive_match(text, identity, true).is_some(),
        (map, Identity::Unix { uid }) => {
            map["unix_uid"].as_array().is_some_and(|users| users.iter().any(|user| user == *uid))
        }
        (map, identity) => {
            map["dns"].as_str().is_some_and(|text| naive_match(text, identity, false).is_some())
        }
    };
    at_listener && is_meant
}
