//! `${NAME}` in values.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use proptest::prelude::*;

use super::*;
use sluice_xds::Value;

fn variable(name: &str) -> Option<OsString> {
    let value = match name {
        "HOST" => "cp.example",
        "PORT" => "15010",
        "LIMIT" => "7",
        "ON" => "true",
        "EMPTY" => "",
        "TOKEN" => "s3cret",
        "WILD" => "a, v2: true}\n- {name: b\n  # '\" ${HOST}",
        "BYTES" => return Some(OsString::from_vec(vec![0xFF])),
        _ => return None,
    };
    Some(value.into())
}

fn expanded(text: &str, format: Format) -> Result<Loaded, ConfigError> {
    parse(text, format, FileContext { variables: &variable, ..context("/etc/sluice") })
}

fn yaml(text: &str) -> Result<Loaded, ConfigError> {
    expanded(&format!("{SERVER}{text}"), Format::Yaml)
}

fn error(text: &str) -> String {
    messages(&yaml(text).unwrap_err()).join("\n")
}

fn id(value: &str) -> String {
    yaml(&format!("node:\n  id: {value}\n")).unwrap().config.node.id
}

#[test]
fn variables_and_defaults_are_put_into_values() {
    let text = "xds_servers: [{server_uri: \"${HOST}:${PORT}\", channel_creds: [{type: insecure}]}]
linger: ${LINGER:-5s}
limits: { connections: \"${LIMIT}\" }
cache:
  unwatched_bytes: ${LIMIT}
listeners: [{ name: a, address: '127.0.0.1:1', v2: '${ON}' }]
";
    let config = expanded(text, Format::Yaml).unwrap().config;
    assert_eq!(config.servers.default.servers[0].server_uri, "cp.example:15010");
    assert_eq!(config.source.linger, Duration::from_secs(5));
    // Quotes don't matter where a number is expected; in braces, YAML demands them.
    assert_eq!((config.limits.server.connections, config.source.unwatched_bytes), (7, 7));
    assert!(config.listeners[0].options.v2);
}

#[test]
fn dollars_are_escaped() {
    for (value, expected) in [
        ("a-${LIMIT}", "a-7"),
        ("${LIMIT}", "7"),
        ("\"${LIMIT}\"", "7"),
        ("${EMPTY:-d}", "d"),
        ("\"${UNSET:-a:b}\"", "a:b"),
        ("\"${UNSET:-}x\"", "x"),
        ("\"$${LIMIT}\"", "${LIMIT}"),
        ("$$$${LIMIT}", "$${LIMIT}"),
        ("\"$$${LIMIT}\"", "$7"),
        ("$LIMIT", "$LIMIT"),
        ("a$", "a$"),
        ("\"{LIMIT}\"", "{LIMIT}"),
    ] {
        assert_eq!(id(value), expected, "{value}");
    }
}

/// Where any type is fine, quotes keep a text.
#[test]
fn quotes_matter_in_metadata_alone() {
    let number = |number: f64| Value::Number(number.to_bits());
    let text = || Value::String("7".into());
    for (value, expected) in [
        ("${LIMIT}", number(7.0)),
        ("-${LIMIT}.5e1", number(-75.0)),
        ("${ON}", Value::Bool(true)),
        ("a${LIMIT}", Value::String("a7".into())),
        ("'${LIMIT}'", text()),
        ("\"${LIMIT}\"", text()),
        ("&a '${LIMIT}'", text()),
        ("!!str ${LIMIT}", text()),
        ("|-\n      ${LIMIT}", text()),
        (">-\n      ${LIMIT}", text()),
        ("${EMPTY}", Value::String("".into())),
    ] {
        let config = yaml(&format!("node:\n  metadata:\n    a: {value}\n")).unwrap().config;
        assert_eq!(config.node.metadata["a"], expected, "{value}");
    }
    let json = "{\"xds_servers\": [{\"server_uri\": \"file:a\"}], \"linger\": \"${LIMIT}s\",
        \"limits\": {\"connections\": \"${LIMIT}\"}, \"node\": {\"metadata\": {\"a\": \"${LIMIT}\"}}}";
    let config = expanded(json, Format::Json).unwrap().config;
    assert_eq!((config.limits.server.connections, &config.node.metadata["a"]), (7, &text()));
}

#[test]
fn a_missing_variable_is_an_error_with_its_key() {
    let hint = |name: &str| {
        format!("the environment variable {name} is not set; set it, or write ${{{name}:-DEFAULT}}")
    };
    let text = "node: { id: \"${A}\", metadata: { a: [1, \"${B}\"], b: { c: \"${C}\" } } }
listeners: [{ name: a, address: \"${D}\", rest_hold: '${E}' }]
checkpoint: ${F}
node_classes: [{ match: { metadata: [{ path: a, exact: \"${G}\" }] } }]
";
    let expected = [
        ("node.id", "A"),
        ("node.metadata.a[1]", "B"),
        ("node.metadata.b.c", "C"),
        ("listeners[0].address", "D"),
        ("listeners[0].rest_hold", "E"),
        ("node_classes[0].match.metadata[0].exact", "G"),
        ("checkpoint", "F"),
    ];
    let errors = error(text);
    for (path, name) in expected {
        assert!(errors.contains(&format!("{path}: {}", hint(name))), "{path}\n{errors}");
    }
    assert_eq!(errors.lines().count(), expected.len(), "{errors}");
}

#[test]
fn a_dollar_brace_without_a_variable_is_an_error() {
    for value in
        ["${", "${}", "${A", "${a-b}", "${1A}", "${:-x}", "${A:-${B}}", "${ A }", "${A:=x}", "${A:?x}"]
    {
        let errors = error(&format!("node: {{ id: '{value}' }}"));
        assert!(
            errors.starts_with("node.id: `${` without a variable; expected ${NAME}"),
            "{value}: {errors}"
        );
    }
    assert_eq!(
        error("node: { id: '${BYTES}' }"),
        "node.id: the environment variable BYTES is not text in UTF-8"
    );
}

#[test]
fn keys_are_never_expanded() {
    assert!(error("'${HOST}': 1").starts_with("${HOST}: unknown key"));
    let config = yaml("authorities: { '${HOST}': {} }").unwrap().config;
    assert!(config.servers.authorities.contains_key("${HOST}"));
}

#[test]
fn a_value_adds_no_structure() {
    let text = "listeners:\n- name: ${WILD}\n  address: '127.0.0.1:1'\n";
    let listeners = yaml(text).unwrap().config.listeners;
    assert_eq!(listeners.len(), 1);
    assert_eq!(Some(&*listeners[0].name), variable("WILD").unwrap().to_str());
    assert!(!listeners[0].options.v2);
}

/// A variable may hold a secret, also one under a wrong key.
#[test]
fn an_error_shows_the_variable_and_not_its_value() {
    for text in [
        "linger: ${TOKEN}",
        "limits: { connections: \"${TOKEN}\" }",
        "listeners: [{ name: a, address: \"${TOKEN}:1\" }]",
        "log: { level: '${TOKEN}' }",
        "node_classes: [{ split_by: { metadata: '${TOKEN}' } }]",
        "node_classes: [{ upstream_node: { template: { id: '${TOKEN}{' } } }]",
        "node_classes: [{ upstream_node: { template: { metadata: { a: '${TOKEN}{' } } } }]",
        "authorization: { rules: [{ name: a, match: { identity: 'spiffe:${TOKEN}' }, deny: true }] }",
        "authorization: { rules: [{ name: a, match: { identity: 'spiffe://d/{a}' }, node: { id: { prefix: '${TOKEN}{' } }, \
         allow: [{ types: all }] }] }",
        "traces: { endpoint: '${TOKEN}' }",
    ] {
        let errors = error(text);
        assert!(!errors.contains("s3cret"), "{text}: {errors}");
        assert!(errors.contains("${TOKEN}") || errors.contains("variables"), "{text}: {errors}");
    }
}

fn scalar() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("${"),
        Just("}"),
        Just("$"),
        Just("$$"),
        Just(":-"),
        Just("HOST"),
        Just("TOKEN"),
        Just("UNSET"),
        Just("${PORT}"),
        Just("${TOKEN}"),
        Just("${UNSET}"),
        Just("${UNSET:-10s}"),
        Just("7"),
        Just("ü"),
        Just(" "),
    ];
    (proptest::collection::vec(part, 0..6), 0..3).prop_map(|(parts, quotes): (Vec<&str>, i32)| {
        let text = parts.concat();
        match quotes {
            0 => text,
            1 => format!("'{text}'"),
            _ => format!("\"{text}\""),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any text in any value is read or refused with places inside the file, and without the secret.
    #[test]
    fn any_expansion_is_read_or_refused_with_a_place(
        values in proptest::collection::vec(scalar(), 8), broken in 0..120_usize, is_json: bool,
    ) {
        let [uri, node, meta, limit, linger, name, address, key] = &values[..] else { unreachable!() };
        let mut text = format!(
            "xds_servers: [{{server_uri: {uri}, channel_creds: [{{type: insecure}}]}}]\nnode:\n  id: {node}\n  metadata: \
             {{a: [{meta}]}}\nlimits: {{connections: {limit}}}\nlinger: {linger}\nlisteners:\n- name: {name}\n  address: \
             {address}\n? {key}\n: 1\n"
        );
        // A file torn anywhere is no exception.
        if broken < 40 && text.is_char_boundary(text.len() - broken) {
            text.truncate(text.len() - broken);
        }
        let format = if is_json { Format::Json } else { Format::Yaml };
        let Err(error) = expanded(&text, format) else { return Ok(()) };
        let shown = error.in_file(Path::new("f"));
        prop_assert!(!shown.contains("s3cret"), "{}\n{}", text, shown);
        let places: Vec<Place> = match &error {
            ConfigError::Invalid { errors } => errors.iter().map(|error| error.place).collect(),
            ConfigError::Syntax { place, .. } => vec![*place],
            ConfigError::Unreadable { .. } => vec![],
        };
        prop_assert!(!places.is_empty(), "{}", shown);
        let lines = u32::try_from(text.lines().count()).unwrap_or(u32::MAX);
        for place in places {
            prop_assert!(place >= Place::START && place.line <= lines + 1, "{}\n{}", text, shown);
        }
    }
}
