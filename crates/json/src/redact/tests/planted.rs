//! Secrets in places that no descriptor marks: by the name of a value, and by the shape of a text (ADM-12).

use super::*;

/// The place of a text in a resource.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// The value of a header with this name.
    Header(&'static str),
    /// The value of a key of metadata.
    Metadata(&'static str),
    /// A field that any text may be in.
    Text,
}
use Place::{Header, Metadata, Text};

/// The dumps of a resource with the text.
fn dumps(place: Place, text: &str) -> Vec<String> {
    let (message, resource) = match place {
        Header(name) => (
            "envoy.config.route.v3.RouteConfiguration",
            json!({ "request_headers_to_add": [{ "header": { "key": name, "value": text } }] }),
        ),
        Metadata(key) => (
            "envoy.config.cluster.v3.Cluster",
            json!({ "metadata": { "filter_metadata": { "x": { "list": [{ key: text }] } } } }),
        ),
        Text => (
            "envoy.config.route.v3.RouteConfiguration",
            json!({ "virtual_hosts": [{ "routes": [{ "redirect": { "path_redirect": text } }], "domains": [text] }],
                "typed_per_filter_config": { "f": { "@type": "type.googleapis.com/google.protobuf.StringValue", "value": text } } }),
        ),
    };
    let body = encode_json(message, resource).unwrap();
    let descriptor = pool().unwrap().get_message_by_name(message).unwrap();
    shown(&DynamicMessage::decode(descriptor, body).unwrap())
}

const JWT: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.c2lnbmF0dXJlLWNhbmFyeQ";

/// A place, the text there, and the part that nobody may see.
const PLANTED: [(Place, &str, &str); 72] = [
    (Header("authorization"), "c4n4ry", "c4n4ry"),
    (Header("Proxy-Authorization"), "c4n4ry", "c4n4ry"),
    (Header("cookie"), "sid=c4n4ry", "c4n4ry"),
    (Header("set-cookie"), "sid=c4n4ry; Secure", "c4n4ry"),
    (Header("x-api-key"), "c4n4ry", "c4n4ry"),
    (Header("apikey"), "c4n4ry", "c4n4ry"),
    (Header("ApiKey"), "c4n4ry", "c4n4ry"),
    (Header("api_key"), "c4n4ry", "c4n4ry"),
    (Header("x-auth-token"), "c4n4ry", "c4n4ry"),
    (Header("x-amz-security-token"), "c4n4ry", "c4n4ry"),
    (Header("x-csrf-token"), "c4n4ry", "c4n4ry"),
    (Header("x-vault-token"), "c4n4ry", "c4n4ry"),
    (Header("private-token"), "c4n4ry", "c4n4ry"),
    (Header("x-goog-api-key"), "c4n4ry", "c4n4ry"),
    (Header("ocp-apim-subscription-key"), "c4n4ry", "c4n4ry"),
    (Header("x-functions-key"), "c4n4ry", "c4n4ry"),
    (Header("x-shared-secret"), "c4n4ry", "c4n4ry"),
    (Header("x-client-secret"), "c4n4ry", "c4n4ry"),
    (Header("x-password"), "c4n4ry", "c4n4ry"),
    (Header("x-amz-credential"), "c4n4ry", "c4n4ry"),
    (Header("x-aws-access-key-id"), "c4n4ry", "c4n4ry"),
    (Header("x-upstream"), "Bearer c4n4ry", "c4n4ry"),
    (Header("x-upstream"), "Basic dXNlcjpjYW5hcnk=", "dXNlcjpjYW5hcnk="),
    (Header("x-upstream"), "AKIAIOSFODNN7EXAMPLE", "IOSFODNN7EXAMPLE"),
    (Header("x-upstream"), JWT, "c2lnbmF0dXJl"),
    (Metadata("apiKey"), "c4n4ry", "c4n4ry"),
    (Metadata("apikey"), "c4n4ry", "c4n4ry"),
    (Metadata("api.key"), "c4n4ry", "c4n4ry"),
    (Metadata("client_secret"), "c4n4ry", "c4n4ry"),
    (Metadata("clientSecret"), "c4n4ry", "c4n4ry"),
    (Metadata("secretAccessKey"), "c4n4ry", "c4n4ry"),
    (Metadata("accessKeyId"), "c4n4ry", "c4n4ry"),
    (Metadata("AWS_ACCESS_KEY_ID"), "c4n4ry", "c4n4ry"),
    (Metadata("db_password"), "c4n4ry", "c4n4ry"),
    (Metadata("passwd"), "c4n4ry", "c4n4ry"),
    (Metadata("pwd"), "c4n4ry", "c4n4ry"),
    (Metadata("passphrase"), "c4n4ry", "c4n4ry"),
    (Metadata("refresh_token"), "c4n4ry", "c4n4ry"),
    (Metadata("privateKey"), "c4n4ry", "c4n4ry"),
    (Metadata("credentials"), "c4n4ry", "c4n4ry"),
    (Metadata("client_assertion"), "c4n4ry", "c4n4ry"),
    (Metadata("uri"), "https://u:c4n4ry@host/", "c4n4ry"),
    (Text, "https://user:c4n4ry@host/path", "c4n4ry"),
    (Text, "redis://:c4n4ry@host:6379", "c4n4ry"),
    (Text, "amqp://c4n4ry@host", "c4n4ry"),
    (Text, "https://h/token?grant=a&client_secret=c4n4ry", "c4n4ry"),
    (Text, "/login?access_token=c4n4ry&x=y", "c4n4ry"),
    (Text, "/login?api_key=c4n4ry", "c4n4ry"),
    (Text, "/login?apikey=c4n4ry", "c4n4ry"),
    (Text, "/login?password=c4n4ry", "c4n4ry"),
    (Text, "/o?X-Amz-Signature=c4n4ry", "c4n4ry"),
    (Text, "/o?X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2Feu", "IOSFODNN7EXAMPLE"),
    (Text, "/o?AWSAccessKeyId=c4n4ry", "c4n4ry"),
    (Text, "/blob?sv=1&sig=c4n4ry%3D", "c4n4ry"),
    (Text, "AccountName=a;AccountKey=c4n4ry==", "c4n4ry"),
    (Text, "host=db user=u password=c4n4ry", "c4n4ry"),
    (Text, "{\"client_secret\": \"c4n4ry\"}", "c4n4ry"),
    (Text, "/x?id=AKIAIOSFODNN7EXAMPLE", "IOSFODNN7EXAMPLE"),
    (Text, "ghp_c4n4ry0123456789abcdef", "c4n4ry"),
    // Of letters alone.
    (Header("x-upstream"), "Basic dXNlcjpwYXNz", "dXNlcjpw"),
    (Header("x-upstream"), "Bearer canarycanarycanarycanary", "canary"),
    (Metadata("dbpassword"), "canary", "canary"),
    (Metadata("authtoken"), "canary", "canary"),
    (Metadata("password_v2"), "canary", "canary"),
    (Metadata("apiKeys"), "canary", "canary"),
    (Text, "password: canary", "canary"),
    (Text, "x-api-key: canary", "canary"),
    (Text, "mysqldump --password canary", "canary"),
    (Text, "user:canary@tcp(db:3306)/x", "canary"),
    (Text, "https://user:can/ary@host/x", "can/ary"),
    (Text, "https://hooks.slack.com/services/T/B/canary", "canary"),
    (Text, "-----BEGIN PRIVATE KEY-----\nc4n4ry\n-----END PRIVATE KEY-----", "c4n4ry"),
];

#[test]
fn adm_12_planted_secrets_are_in_no_dump() {
    for (place, text, secret) in PLANTED {
        for dump in dumps(place, text) {
            assert!(!dump.contains(secret), "{place:?} {text}: {dump}");
            assert!(dump.contains("[redacted ") || dump.len() < 200, "{place:?} {text}: {dump}");
        }
    }
}

#[test]
fn adm_12_innocent_texts_are_in_every_dump() {
    for (place, text) in [
        (Header("x-request-id"), "c4n4ry"),
        (Header("x-envoy-original-path"), "/a?key=c4n4ry&page=1"),
        (Header("accept"), "application/c4n4ry"),
        (Header("x-token-count"), "c4n4ry"),
        (Metadata("tokens_per_fill"), "c4n4ry"),
        (Metadata("cookie_name"), "c4n4ry"),
        (Metadata("key"), "c4n4ry"),
        (Text, "https://c4n4ry:443/path@2"),
        (Text, "outbound|80||c4n4ry.default.svc.cluster.local"),
        (Text, "%REQ(AUTHORITY)% c4n4ry=%DURATION%"),
        (Text, "basic authentication of c4n4ry"),
        (Text, "spiffe://c4n4ry.example/ns/shop/sa/web"),
    ] {
        assert!(dumps(place, text).iter().all(|dump| dump.contains("c4n4ry")), "{place:?} {text}");
    }
}
