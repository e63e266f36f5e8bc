//! Canaries in every field that could be secret, in resources of every type (ADM-12).

mod planted;

use prost::Message;
use prost_reflect::{FieldDescriptor, Kind, MapKey, ReflectMessage};
use serde_json::json;

use super::super::{encode as encode_json, pool};
use super::*;

const CANARY: &str = "CANARY-canary-CANARY";

fn leaks(shown: &str) -> bool {
    use base64::Engine;
    let encoded = base64::prelude::BASE64_STANDARD.encode(CANARY);
    shown.contains(CANARY) || shown.contains(&encoded) || shown.to_lowercase().contains("canary")
}

/// A value with the canary in each text, some messages deep.
fn planted(kind: &Kind, depth: usize) -> Option<Field> {
    Some(match kind {
        Kind::String => Field::String(CANARY.to_owned()),
        Kind::Bytes => Field::Bytes(CANARY.into()),
        Kind::Message(descriptor) if descriptor.full_name() == "google.protobuf.Any" => {
            let text = CANARY.to_owned().encode_to_vec();
            let mut any = DynamicMessage::new(descriptor.clone());
            any.set_field_by_number(
                1,
                Field::String("type.googleapis.com/google.protobuf.StringValue".into()),
            );
            any.set_field_by_number(2, Field::Bytes(text.into()));
            Field::Message(any)
        }
        Kind::Message(descriptor) if depth > 0 => {
            let mut message = DynamicMessage::new(descriptor.clone());
            for field in descriptor.fields() {
                plant(&mut message, &field, depth - 1);
            }
            Field::Message(message)
        }
        _ => return None,
    })
}

fn plant(message: &mut DynamicMessage, field: &FieldDescriptor, depth: usize) {
    let kind = field.kind();
    let value = if field.is_map() {
        let entry = kind.as_message().unwrap();
        let value = planted(&entry.map_entry_value_field().kind(), depth);
        let is_text = entry.map_entry_key_field().kind() == Kind::String;
        value
            .filter(|_| is_text)
            .map(|value| Field::Map([(MapKey::String("entry".to_owned()), value)].into_iter().collect()))
    } else {
        let value = planted(&kind, depth);
        if field.is_list() { value.map(|value| Field::List(vec![value])) } else { value }
    };
    if let Some(value) = value {
        message.set_field(field, value);
    }
}

fn shown(message: &DynamicMessage) -> Vec<String> {
    let type_url = TypeUrl::of_message(message.descriptor().full_name());
    let body = Bytes::from(message.encode_to_vec());
    let bytes = redact_bytes(&type_url, &body).unwrap_or_default();
    vec![
        redact(&type_url, &body, Reader::Person).to_string(),
        redact(&type_url, &body, Reader::Parser).to_string(),
        String::from_utf8_lossy(&bytes).into_owned(),
    ]
}

/// The fields with Envoy's mark, read from the bytes of the options: the number of the extension, and 1.
fn marked() -> Vec<FieldDescriptor> {
    let fields = pool().unwrap().all_messages().flat_map(|message| message.fields().collect::<Vec<_>>());
    let mark = [0xb8, 0xb7, 0x8b, 0xa4, 0x02, 0x01];
    fields.filter(|field| field.options().encode_to_vec().windows(6).any(|bytes| bytes == mark)).collect()
}

type Listed = (&'static str, &'static str, Option<(&'static str, &'static str)>);

/// Our list: a message, the field with the secret, and the field with its name, if there is one.
const LISTED: [Listed; 22] = [
    ("envoy.config.core.v3.DataSource", "inline_string", None),
    ("envoy.config.core.v3.DataSource", "inline_bytes", None),
    ("envoy.config.core.v3.HeaderValue", "value", Some(("key", "Authorization"))),
    ("envoy.config.core.v3.HeaderValue", "raw_value", Some(("key", "cookie"))),
    ("envoy.config.core.v3.HeaderValue", "value", Some(("key", "x-api-key"))),
    ("envoy.config.core.v3.HeaderValue", "value", Some(("key", "X-Auth-Token"))),
    ("envoy.config.core.v3.HeaderValue", "value", Some(("key", "set-cookie"))),
    ("envoy.config.core.v3.KeyValue", "value", Some(("key", "x-api-key"))),
    ("envoy.config.route.v3.HeaderMatcher", "exact_match", Some(("name", "authorization"))),
    ("envoy.config.route.v3.HeaderMatcher", "string_match", Some(("name", "authorization"))),
    ("envoy.config.route.v3.QueryParameterMatcher", "string_match", Some(("name", "access_token"))),
    ("envoy.extensions.filters.http.lua.v3.Lua", "inline_code", None),
    ("envoy.extensions.filters.http.lua.v3.LuaPerRoute", "filter_context", None),
    ("envoy.extensions.wasm.v3.PluginConfig", "configuration", None),
    ("envoy.extensions.wasm.v3.VmConfig", "configuration", None),
    ("envoy.extensions.wasm.v3.EnvironmentVariables", "key_values", None),
    ("envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter", "filter_config", None),
    ("envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials", "access_token", None),
    ("envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials", "google_refresh_token", None),
    (
        "envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials.ServiceAccountJWTAccessCredentials",
        "json_key",
        None,
    ),
    ("envoy.extensions.filters.http.aws_lambda.v3.Credentials", "secret_access_key", None),
    ("envoy.extensions.grpc_service.call_credentials.access_token.v3.AccessTokenCredentials", "token", None),
];

fn with_secret(message: &str, field: &str, name: Option<(&str, &str)>) -> DynamicMessage {
    let descriptor = pool().unwrap().get_message_by_name(message).expect(message);
    let mut made = DynamicMessage::new(descriptor.clone());
    if let Some((key, name)) = name {
        made.set_field_by_name(key, Field::String(name.to_owned()));
    }
    plant(&mut made, &descriptor.get_field_by_name(field).expect(field), 4);
    assert!(leaks(&String::from_utf8_lossy(&made.encode_to_vec())), "{message}.{field} has no canary");
    made
}

/// The message, and each kind of resource that can hold it in an `Any`.
fn inside(message: &DynamicMessage) -> Vec<DynamicMessage> {
    let any = json!({ "@type": format!("type.googleapis.com/{}", message.descriptor().full_name()) });
    let holders = [
        ("envoy.config.core.v3.TypedExtensionConfig", json!({ "name": "x", "typed_config": any })),
        (
            "envoy.config.listener.v3.Listener",
            json!({ "name": "l", "filter_chains": [{ "filters": [{ "name": "hcm", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                "http_filters": [{ "name": "f", "typed_config": any }]
            } }] }] }),
        ),
        (
            "envoy.config.cluster.v3.Cluster",
            json!({ "name": "c", "transport_socket": { "name": "tls", "typed_config": any } }),
        ),
        (
            "envoy.config.route.v3.RouteConfiguration",
            json!({ "virtual_hosts": [{ "name": "v", "typed_per_filter_config": { "f": any } }] }),
        ),
    ];
    let mut made = vec![message.clone()];
    for (holder, json) in holders {
        let bytes = encode_json(holder, json.clone()).unwrap();
        let descriptor = pool().unwrap().get_message_by_name(holder).unwrap();
        let mut holder = DynamicMessage::decode(descriptor, bytes).unwrap();
        assert!(fill_any(&mut holder, message), "no place for the payload");
        made.push(holder);
    }
    made
}

/// Puts the payload into the `Any` with its type.
fn fill_any(holder: &mut DynamicMessage, payload: &DynamicMessage) -> bool {
    if holder.descriptor().full_name() == "google.protobuf.Any" {
        let type_url = holder.get_field_by_number(1).unwrap().as_str().unwrap().to_owned();
        let name = type_url.rsplit('/').next().unwrap().to_owned();
        if name == payload.descriptor().full_name() {
            holder.set_field_by_number(2, Field::Bytes(payload.encode_to_vec().into()));
            return true;
        }
        let descriptor = pool().unwrap().get_message_by_name(&name).unwrap();
        let value = holder.get_field_by_number(2).unwrap().as_bytes().unwrap().clone();
        let mut inner = DynamicMessage::decode(descriptor, value).unwrap();
        let filled = fill_any(&mut inner, payload);
        holder.set_field_by_number(2, Field::Bytes(inner.encode_to_vec().into()));
        return filled;
    }
    let mut filled = false;
    for (_, value) in holder.fields_mut() {
        match value {
            Field::Message(inner) => filled |= fill_any(inner, payload),
            Field::List(values) => {
                for inner in values.iter_mut().filter_map(Field::as_message_mut) {
                    filled |= fill_any(inner, payload);
                }
            }
            Field::Map(values) => {
                for inner in values.values_mut().filter_map(Field::as_message_mut) {
                    filled |= fill_any(inner, payload);
                }
            }
            _ => {}
        }
    }
    filled
}

#[test]
fn adm_12_the_descriptors_have_envoys_marks() {
    let marked: Vec<_> = marked().iter().map(|field| field.full_name().to_owned()).collect();
    assert!(marked.len() >= 25, "{marked:?}");
    for field in [
        "envoy.extensions.transport_sockets.tls.v3.TlsCertificate.private_key",
        "envoy.extensions.transport_sockets.tls.v3.GenericSecret.secret",
        "envoy.config.core.v3.GrpcService.GoogleGrpc.SslCredentials.private_key",
        "envoy.extensions.filters.http.basic_auth.v3.BasicAuth.users",
        "envoy.config.trace.v3.ClientConfig.backend_token",
    ] {
        assert!(marked.contains(&field.to_owned()), "{field}");
        assert!(rules().unwrap().hidden().contains(field), "{field}");
    }
}

#[test]
fn adm_12_no_marked_field_is_ever_shown() {
    for field in marked() {
        let message = field.parent_message();
        let mut made = DynamicMessage::new(message.clone());
        plant(&mut made, &field, 4);
        assert!(leaks(&String::from_utf8_lossy(&made.encode_to_vec())), "{}", field.full_name());
        for holder in inside(&made) {
            for shown in shown(&holder) {
                assert!(
                    !leaks(&shown),
                    "{} in {}: {shown}",
                    field.full_name(),
                    holder.descriptor().full_name()
                );
            }
        }
    }
}

#[test]
fn adm_12_no_listed_field_is_ever_shown() {
    for (message, field, name) in LISTED {
        for holder in inside(&with_secret(message, field, name)) {
            for shown in shown(&holder) {
                assert!(!leaks(&shown), "{message}.{field} in {}: {shown}", holder.descriptor().full_name());
            }
        }
    }
}

/// The other direction: the search above finds the canary wherever no rule hides the field.
#[test]
fn adm_12_a_leak_is_seen() {
    let header = with_secret("envoy.config.core.v3.HeaderValue", "value", Some(("key", "x-harmless")));
    for holder in inside(&header) {
        assert!(shown(&holder).iter().all(|shown| leaks(shown)), "{}", holder.descriptor().full_name());
    }
}

#[test]
fn adm_12_a_secret_is_withheld_everywhere() {
    let secret = with_secret(SECRET, "generic_secret", None);
    let type_url = TypeUrl::of_message(SECRET);
    let body = Bytes::from(secret.encode_to_vec());
    let expected = format!("[withheld {} B]", body.len());
    assert_eq!(redact(&type_url, &body, Reader::Person), json!(expected));
    assert_eq!(redact_bytes(&type_url, &body), None);
    assert_eq!(sizes(&type_url, &body), None);
    let v2 = TypeUrl::of_message("envoy.api.v2.auth.Secret");
    assert_eq!(redact(&v2, &body, Reader::Person), json!(expected));
    for holder in inside(&secret).iter().skip(1) {
        let shown = shown(holder);
        assert!(shown.iter().all(|shown| !leaks(shown)));
        assert!(shown[0].contains("[withheld "), "{}", shown[0]);
    }
}

fn listener(extension: serde_json::Value) -> (TypeUrl, Bytes) {
    let listener = json!({ "name": "l", "filter_chains": [{ "filters": [{ "name": "f", "typed_config": extension }] }] });
    let body = encode_json("envoy.config.listener.v3.Listener", listener.clone()).unwrap();
    (TypeUrl::of_message("envoy.config.listener.v3.Listener"), body)
}

#[test]
fn adm_12_keys_of_structures_are_judged() {
    let (type_url, body) = listener(json!({
        "@type": "type.googleapis.com/google.protobuf.Struct",
        "value": { "apiKey": CANARY, "nested": [{ "my_token": { "a": CANARY } }], "timeout": 3.0, "password": CANARY }
    }));
    let shown = redact(&type_url, &body, Reader::Person);
    let expected = json!({
        "@type": "type.googleapis.com/google.protobuf.Struct",
        "value": { "apiKey": "[redacted 22 B]", "nested": [{ "my_token": "[redacted 31 B]" }], "timeout": 3.0,
            "password": "[redacted 22 B]" }
    });
    assert_eq!(shown["filter_chains"][0]["filters"][0]["typed_config"], expected);
    assert!(!leaks(&String::from_utf8_lossy(&redact_bytes(&type_url, &body).unwrap())));
    let (type_url, body) = listener(json!({
        "@type": "type.googleapis.com/google.protobuf.StringValue",
        "value": format!("{{\"client_secret\": \"{CANARY}\"}}")
    }));
    assert!(!leaks(&redact(&type_url, &body, Reader::Person).to_string()));
    assert!(!leaks(&String::from_utf8_lossy(&redact_bytes(&type_url, &body).unwrap())));
}

/// Keys of maps are names that a person chose, too.
#[test]
fn adm_12_keys_of_maps_are_judged() {
    let metadata = json!({ "oauth.token": { "a": CANARY }, "plain": { "a": "b" } });
    let cluster = json!({ "name": "web", "metadata": { "filter_metadata": metadata } });
    let body = encode_json("envoy.config.cluster.v3.Cluster", cluster.clone()).unwrap();
    let type_url = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
    let shown = redact(&type_url, &body, Reader::Person)["metadata"]["filter_metadata"].clone();
    assert_eq!(shown["plain"], json!({ "a": "b" }));
    assert!(shown["oauth.token"].as_str().unwrap().starts_with("[redacted "), "{shown}");
    assert!(!leaks(&redact(&type_url, &body, Reader::Parser).to_string()));
    assert!(!leaks(&String::from_utf8_lossy(&redact_bytes(&type_url, &body).unwrap())));
}

#[test]
fn adm_12_contents_read_as_the_proto_files_name_them() {
    let cluster = json!({
        "name": "web", "connect_timeout": "0.250s", "type": "EDS",
        "per_connection_buffer_limit_bytes": 32768,
        "typed_extension_protocol_options": { "b": { "@type": "type.googleapis.com/google.protobuf.BoolValue", "value": true } },
        "load_assignment": { "cluster_name": "web", "endpoints": [{ "load_balancing_weight": 3, "lb_endpoints": [
            { "endpoint": { "address": { "socket_address": { "address": "10.0.0.1", "port_value": 80 } } } }
        ] }] }
    });
    let body = encode_json("envoy.config.cluster.v3.Cluster", cluster.clone()).unwrap();
    let type_url = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
    assert_eq!(redact(&type_url, &body, Reader::Person), cluster);
    assert_eq!(redact(&type_url, &body, Reader::Parser), cluster);
    assert_eq!(redact_bytes(&type_url, &body).unwrap(), body);
    let sizes = sizes(&type_url, &body).unwrap();
    assert_eq!(sizes["name"], 3);
    assert!(sizes["load_assignment"].as_u64().unwrap() > 20);
    let unknown = TypeUrl::of_message("example.Unknown");
    assert_eq!(redact(&unknown, &body, Reader::Person), json!(format!("[unknown type, {} B]", body.len())));
    assert_eq!(redact_bytes(&unknown, &body), None);
    assert_eq!(
        redact(&type_url, &Bytes::from_static(b"\x0a\xff"), Reader::Person),
        json!("[undecodable, 2 B]")
    );
}

/// Fields that the descriptors do not know could be secrets of a later version.
#[test]
fn adm_12_unknown_fields_are_dropped() {
    let mut body = Vec::new();
    prost::encoding::string::encode(1, &"web".to_owned(), &mut body);
    prost::encoding::string::encode(40_000, &CANARY.to_owned(), &mut body);
    let type_url = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
    let body = Bytes::from(body);
    assert_eq!(redact(&type_url, &body, Reader::Person), json!({ "name": "web" }));
    assert_eq!(redact_bytes(&type_url, &body).unwrap(), b"\x0a\x03web");
}

#[test]
fn adm_12_bombs_are_not_decoded() {
    let type_url = TypeUrl::of_message("envoy.config.endpoint.v3.ClusterLoadAssignment");
    // A million empty localities, then a large body, then payloads within payloads.
    let localities = Bytes::from(b"\x12\x00".repeat(1 << 20));
    assert_eq!(redact(&type_url, &localities, Reader::Person), json!("[too large to show, 2097152 B]"));
    let large = Bytes::from(b"\x12\x00".repeat(8 << 20));
    assert_eq!(redact(&type_url, &large, Reader::Person), json!("[too large to show, 16777216 B]"));
    assert_eq!(redact_bytes(&type_url, &large), None);
    let mut any = Vec::new();
    for _ in 0..1_000 {
        let mut around = Vec::new();
        prost::encoding::string::encode(
            1,
            &"type.googleapis.com/google.protobuf.Any".to_owned(),
            &mut around,
        );
        prost::encoding::bytes::encode(2, &any, &mut around);
        any = around;
    }
    let type_url = TypeUrl::of_message("google.protobuf.Any");
    let any = Bytes::from(any);
    assert!(redact(&type_url, &any, Reader::Person).to_string().contains("nested too deep"));
    assert!(redact_bytes(&type_url, &any).is_some());
}

#[test]
fn differences_are_of_shown_contents() {
    let old = json!({ "name": "web", "connect_timeout": "1s", "hosts": ["a", "b"] });
    let new = json!({ "hosts": ["a", "b"], "connect_timeout": "2s", "name": "web" });
    let expected = json!([{ "op": "replace", "path": "/connect_timeout", "value": "2s" }]);
    assert_eq!(patch(&old, &new), expected);
    let text = diff_text("a: 1\nb: 1\n", "a: 1\nb: 2\n");
    assert_eq!(text, "@@ -1,2 +1,2 @@\n a: 1\n-b: 1\n+b: 2\n");
    assert_eq!(diff_text("a: 1\n", "a: 1\n"), "");
}
