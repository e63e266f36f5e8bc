//! Lines and columns of errors and warnings, and the bounds of a file.

use super::*;

fn places(text: &str, format: Format) -> Vec<(String, String)> {
    let ConfigError::Invalid { errors } = parse(text, format, context("")).unwrap_err() else {
        panic!("no errors of keys: {text}")
    };
    errors.into_iter().map(|error| (error.place.to_string(), error.path)).collect()
}

fn expect(places: &[(String, String)], expected: &[(&str, &str)]) {
    let places: Vec<_> = places.iter().map(|(place, path)| (place.as_str(), path.as_str())).collect();
    assert_eq!(places, expected);
}

#[test]
fn an_error_has_the_place_of_its_value_or_key() {
    let text = "# relay
node:
  id: 7
xds_servers:
  - server_uri: 'cp.example:1'
    channel_creds: [{type: insecure}]
    api_type: XDS
listeners:
  - name: main
    address: nowhere
  - { adress: 'x', name: \"ü\", v2: 3 }
lingr: 1s
";
    expect(
        &places(text, Format::Yaml),
        &[
            ("3:7", "node.id"),
            ("7:15", "xds_servers[0].api_type"),
            ("10:14", "listeners[0].address"),
            // A missing key has the place of its map; an unknown one has its own.
            ("11:5", "listeners[1].address"),
            ("11:35", "listeners[1].v2"),
            ("11:7", "listeners[1].adress"),
            ("12:1", "lingr"),
        ],
    );
}

#[test]
fn an_error_in_json_has_a_place_too() {
    let text = "{\n  \"lingr\": \"1s\",\n\t\"node\": {\"id\": 7, \"clüster\": [\"\\\"]\", {}]},\n  \"drain\" : -1.5e3,\
                \"listeners\": [ {\"name\": \"a\", \"address\": \"x\"} ] }";
    expect(
        &places(text, Format::Json),
        &[
            ("3:17", "node.id"),
            ("3:20", "node.clüster"),
            ("1:1", "xds_servers"),
            ("4:60", "listeners[0].address"),
            ("4:13", "drain"),
            ("2:3", "lingr"),
        ],
    );
}

#[test]
fn an_error_by_an_alias_has_the_place_of_the_anchor() {
    let text = "x-base: &base
  name: main
  address: nowhere
listeners:
  - *base
  - { <<: *base, name: other }
";
    expect(
        &places(text, Format::Yaml),
        &[("1:1", "xds_servers"), ("3:12", "listeners[0].address"), ("3:12", "listeners[1].address")],
    );
}

#[test]
fn an_empty_file_and_a_scalar_have_a_place() {
    for text in ["", "# nothing\n", "---\n", "~", "7"] {
        let errors = places(text, Format::Yaml);
        assert_eq!(errors.len(), 1, "{text}: {errors:?}");
        assert!(!errors[0].0.contains(":0"), "{text}: {errors:?}");
    }
}

#[test]
fn a_warning_has_a_place() {
    let text = format!(
        "{SERVER}listeners:\n  - {{name: a, address: '127.0.0.1:1'}}\n  - name: b\n    address: '127.0.0.1:2'\n    tls: \
         {{certificates: [{{certificate_file: a, private_key_file: b}}], ca_certificate_file: c, trust_domain: d}}\n"
    );
    let warnings = read(&text).unwrap().warnings;
    let warned: Vec<_> = warnings.iter().map(|warning| (warning.place.to_string(), &*warning.path)).collect();
    let expected =
        [("1:28".to_owned(), "xds_servers[0].server_uri"), ("6:10".to_owned(), "listeners[1].tls")];
    assert_eq!(warned, expected);
}

#[test]
fn a_report_names_the_file_in_each_line() {
    let error = read("xds_servers: []\nlingr: 1s").unwrap_err();
    assert_eq!(
        error.in_file(Path::new("relay.yaml")),
        "relay.yaml: 2 errors:\n  relay.yaml:1:14: xds_servers: found a list; expected a list of 1 to 16 servers\n  \
         relay.yaml:2:1: lingr: unknown key; did you mean `linger`?"
    );
    let torn = read("a: [").unwrap_err().in_file(Path::new("relay.yaml"));
    assert!(torn.starts_with("relay.yaml:1:") || torn.starts_with("relay.yaml:2:"), "{torn}");
}

#[test]
fn holders_of_anchors_are_ignored_at_the_top() {
    let text = "
x-timers: &timers { connect_timeout: 1s, resource_timeout: 20s }
x-creds: &creds [{ type: insecure }]
x-unused: { anything: [1, ~, '${UNSET}'] }
xds_servers:
  - { <<: *timers, server_uri: 'a.example:1', channel_creds: *creds, connect_timeout: 2s }
  - { <<: [*timers], server_uri: 'b.example:1', channel_creds: *creds }
";
    let config = config(text);
    let servers = &config.servers.default.servers;
    let timeouts = |index: usize| match &servers[index].kind {
        ServerKind::Grpc(server) => {
            (server.connection.connect_timeout.as_secs(), server.stream.resource_timeout.as_secs())
        }
        other => panic!("{other:?}"),
    };
    // A key of the map itself counts, and not the merged one.
    assert_eq!((timeouts(0), timeouts(1)), ((2, 20), (1, 20)));
    let below = format!("{SERVER}node: {{ x-a: 1 }}");
    assert_eq!(messages(&read(&below).unwrap_err())[0].split(';').next(), Some("node.x-a: unknown key"));
    let json = "{\"x-a\": {}, \"xds_servers\": [{\"server_uri\": \"file:a\"}]}";
    assert!(parse(json, Format::Json, context("")).is_ok());
}

/// A few lines could otherwise fill the memory.
#[test]
fn an_alias_bomb_is_refused() {
    let mut nested = "x-0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
    for level in 1..20 {
        let items = vec![format!("*a{}", level - 1); 9].join(", ");
        nested.push_str(&format!("x-{level}: &a{level} [{items}]\n"));
    }
    let long = format!("x-long: &a \"{}\"\nx-b: [{}*a]\n", "a".repeat(1 << 20), "*a, ".repeat(1000));
    let itself = "x-a: &a [*a]".to_owned();
    for text in [nested, long, itself] {
        let error = read(&format!("{SERVER}{text}")).unwrap_err();
        assert!(matches!(error, ConfigError::Syntax { .. }), "{error}");
    }
}
