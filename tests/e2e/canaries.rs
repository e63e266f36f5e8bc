//! Canaries in every field that Envoy marks as sensitive: they reach the client, and nothing that an operator or a tool
//! sees (ADM-12). The library's tests hold the same for each field alone.

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, ReflectMessage, Value};

use crate::support::control_plane::eventually;
use crate::support::proto::Any;
use crate::support::{CDS, Client, ControlPlane, LDS, RDS, Relay, SDS, Setup, Variant};
use crate::traces::collector;

const ECDS: &str = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig";

/// No part of it stands in a text by chance, and it is valid in a PEM, a token and a password.
const CANARY: &str = "CANARYcanaryCANARY";

fn leaks(text: &str) -> bool {
    use base64::Engine as _;
    let encoded = base64::prelude::BASE64_STANDARD.encode(CANARY);
    text.to_lowercase().contains("canary") || text.contains(encoded.trim_end_matches('='))
}

fn pool() -> DescriptorPool {
    let packed = include_bytes!("../../proto/envoy-v3.binpb.zst");
    DescriptorPool::decode(&*zstd::decode_all(&packed[..]).unwrap()).unwrap()
}

/// The fields with the mark `udpa.annotations.sensitive`, found in the bytes of their options.
fn marked(pool: &DescriptorPool) -> Vec<FieldDescriptor> {
    let mark = [0xb8, 0xb7, 0x8b, 0xa4, 0x02, 0x01];
    let fields = pool.all_messages().flat_map(|message| message.fields().collect::<Vec<_>>());
    fields.filter(|field| field.options().encode_to_vec().windows(6).any(|bytes| bytes == mark)).collect()
}

/// A value with the canary in each of its texts.
fn planted(kind: &Kind, depth: usize) -> Option<Value> {
    Some(match kind {
        Kind::String => Value::String(CANARY.to_owned()),
        Kind::Bytes => Value::Bytes(CANARY.into()),
        Kind::Message(of) if of.full_name() == "google.protobuf.Any" => {
            let mut any = DynamicMessage::new(of.clone());
            let type_url = "type.googleapis.com/google.protobuf.StringValue".to_owned();
            any.set_field_by_name("type_url", Value::String(type_url));
            any.set_field_by_name("value", Value::Bytes(CANARY.to_owned().encode_to_vec().into()));
            Value::Message(any)
        }
        Kind::Message(of) if depth > 0 => {
            let mut message = DynamicMessage::new(of.clone());
            of.fields().for_each(|field| plant(&mut message, &field, depth - 1));
            Value::Message(message)
        }
        _ => return None,
    })
}

fn plant(message: &mut DynamicMessage, field: &FieldDescriptor, depth: usize) {
    let kind = field.kind();
    let value = match kind.as_message().filter(|_| field.is_map()) {
        Some(entry) => planted(&entry.map_entry_value_field().kind(), depth)
            .filter(|_| entry.map_entry_key_field().kind() == Kind::String)
            .map(|value| Value::Map([(MapKey::String("key".to_owned()), value)].into())),
        None => planted(&kind, depth).map(|value| match field.is_list() {
            true => Value::List(vec![value]),
            false => value,
        }),
    };
    if let Some(value) = value {
        message.set_field(field, value);
    }
}

fn any(type_url: String, value: Vec<u8>) -> Any {
    Any { type_url, value }
}

/// An extension in each kind of resource that can hold one.
fn holders(pool: &DescriptorPool, name: &str, payload: &Any) -> Vec<(&'static str, Any)> {
    let made = |type_url: &'static str, path: &[&str]| {
        let descriptor = pool.get_message_by_name(type_url.rsplit('/').next().unwrap()).unwrap();
        let mut resource = DynamicMessage::new(descriptor);
        resource.set_field_by_name("name", Value::String(name.to_owned()));
        fill(&mut resource, path, payload);
        (type_url, any(type_url.to_owned(), resource.encode_to_vec()))
    };
    vec![
        made(ECDS, &["typed_config"]),
        made(CDS, &["transport_socket", "typed_config"]),
        made(LDS, &["filter_chains", "transport_socket", "typed_config"]),
        made(RDS, &["typed_per_filter_config"]),
    ]
}

/// Puts the payload at the end of a path of fields.
fn fill(message: &mut DynamicMessage, path: &[&str], payload: &Any) {
    let (first, rest) = path.split_first().unwrap();
    let field = message.descriptor().get_field_by_name(first).unwrap();
    let kind = field.kind();
    let of = kind.as_message().unwrap();
    let of = if field.is_map() {
        of.map_entry_value_field().kind().as_message().unwrap().clone()
    } else {
        of.clone()
    };
    let mut inner = DynamicMessage::new(of);
    if rest.is_empty() {
        inner.set_field_by_name("type_url", Value::String(payload.type_url.clone()));
        inner.set_field_by_name("value", Value::Bytes(payload.value.clone().into()));
    } else {
        fill(&mut inner, rest, payload);
    }
    let inner = Value::Message(inner);
    let value = match (field.is_map(), field.is_list()) {
        (true, _) => Value::Map([(MapKey::String("f".to_owned()), inner)].into()),
        (_, true) => Value::List(vec![inner]),
        _ => inner,
    };
    message.set_field(&field, value);
}

/// Resources with a canary in each field, and a Secret with canaries in all: their names.
fn serve(origin: &ControlPlane, pool: &DescriptorPool, fields: &[FieldDescriptor]) -> Vec<String> {
    let mut names = Vec::new();
    for field in fields {
        let mut holder = DynamicMessage::new(field.parent_message().clone());
        plant(&mut holder, field, 4);
        let name = format!("{}.{}", field.parent_message().full_name(), field.name());
        let type_url = format!("type.googleapis.com/{}", field.parent_message().full_name());
        let payload = any(type_url, holder.encode_to_vec());
        let of_field = holders(pool, &name, &payload);
        origin.change(|world| of_field.into_iter().for_each(|(of, body)| world.set(of, &name, body, true)));
        names.push(name);
    }
    let secret = pool.get_message_by_name(SDS.rsplit('/').next().unwrap()).unwrap();
    let mut whole = DynamicMessage::new(secret.clone());
    secret.fields().for_each(|field| plant(&mut whole, &field, 5));
    whole.set_field_by_name("name", Value::String("secret".to_owned()));
    let whole = any(SDS.to_owned(), whole.encode_to_vec());
    origin.change(|world| world.set(SDS, "secret", whole, true));
    names.push("secret".to_owned());
    names
}

/// Every answer of the admin listener that can show a resource, and the pages.
async fn look(relay: &Relay, names: &[String]) -> Vec<(String, String)> {
    let mut paths: Vec<String> = [
        "/",
        "/overview",
        "/clients?names=1",
        "/sources",
        "/resources?limit=all",
        "/changes",
        "/events",
        "/classes",
        "/config",
        "/refused",
        "/metrics",
        "/ready",
        "/ui/",
        "/ui/clients",
        "/ui/resources",
        "/ui/changes",
        "/ui/events",
        "/ui/sources",
        "/ui/classes",
    ]
    .map(str::to_owned)
    .to_vec();
    let id = relay.json("/clients").await["clients"][0]["id"].as_u64().unwrap();
    paths.push(format!("/clients/{id}?names=1"));
    paths.push(format!("/ui/clients/{id}"));
    for of in ["Cluster", "Listener", "RouteConfiguration", "TypedExtensionConfig", "Secret"] {
        for format in ["names", "patch", "text"] {
            paths.push(format!("/clients/{id}/diff?to=desired&type={of}&format={format}"));
        }
        paths.push(format!("/ui/clients/{id}/diff?type={of}"));
        for name in names {
            paths.extend(
                ["json", "yaml", "sizes"].map(|format| format!("/resources/{of}/{name}?format={format}")),
            );
            paths.push(format!("/ui/resources/{of}/{name}"));
            paths.push(format!("/who?type={of}&name={name}"));
        }
    }
    let changes = relay.json("/changes").await;
    for change in changes["changes"].as_array().unwrap() {
        paths.push(format!("/changes/{}", change["id"].as_str().unwrap()));
    }
    let mut answers = Vec::new();
    for path in paths {
        let (_, body) = relay.get(&path).await;
        answers.push((path, body));
    }
    answers
}

#[tokio::test]
async fn adm_12_no_sensitive_field_leaves_the_process_but_to_its_client() {
    let pool = pool();
    let fields = marked(&pool);
    assert!(fields.len() >= 15, "{}", fields.len());
    let (address, mut spans) = collector().await;
    let origin = ControlPlane::obedient().await;
    let names = serve(&origin, &pool, &fields);
    let lines = format!(
        "log: {{ level: trace }}\ntraces: {{ endpoint: 'http://{address}', slow: 0s, per_second: 1000 }}"
    );
    let relay = Relay::start(Setup::of(origin.address).line(&lines)).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "reader").await;
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut seen = 0;
    for (of, wanted) in [(CDS, &["*"][..]), (LDS, &["*"]), (RDS, &all), (ECDS, &all), (SDS, &["secret"])] {
        client.want(of, wanted);
        let answer = client.next(of).await;
        seen += answer
            .items
            .iter()
            .filter(|item| leaks(&String::from_utf8_lossy(&item.body.as_ref().unwrap().value)))
            .count();
        // The words of a NACK may quote a Secret.
        match of {
            SDS => client.nack(&answer, &format!("cannot parse {CANARY}")),
            _ => client.ack(&answer),
        }
    }
    assert_eq!(seen, 4 * fields.len() + 1, "the client has all of them");
    // A difference between what the client has and should have.
    let payload = any("type.googleapis.com/google.protobuf.StringValue".to_owned(), Vec::new());
    let (_, changed) = holders(&pool, &names[0], &payload).remove(1);
    origin.change(|world| world.set(CDS, &names[0], changed, true));
    client.next(CDS).await;
    // The rejected Secret has a trace.
    let mut traced = Vec::new();
    while !traced.iter().any(|text: &String| text.contains("xds.deliver") && text.contains("withheld")) {
        traced.push(format!("{:?}", spans.recv().await.unwrap()));
    }
    eventually("the log has the rejection", || async { relay.log().contains("withheld") }).await;

    let mut shown = look(&relay, &names).await;
    for body in ["{}", r#"{"node_matchers": [{"node_id": {"prefix": ""}}]}"#] {
        let (status, text) = relay.post_body("/v3/discovery:client_status", body).await;
        assert!(status == 200 && text.contains(&names[0]), "{status} {text}");
        shown.push((format!("client status {body}"), text));
    }
    assert!(
        shown.iter().filter(|(_, text)| text.contains("[redacted")).count() >= fields.len(),
        "contents are shown"
    );
    shown.push(("the log".to_owned(), relay.log()));
    assert!(relay.log().contains(" TRACE "), "at every level");
    shown.extend(traced.into_iter().map(|text| ("a trace".to_owned(), text)));
    let leaking: Vec<_> = shown.iter().filter(|(_, text)| leaks(text)).map(|(place, _)| place).collect();
    assert!(leaking.is_empty(), "{leaking:#?}");
}
