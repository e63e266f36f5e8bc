#![allow(clippy::unwrap_used)]

use super::*;

fn read(text: &str) -> Result<SotwRequest, ReadError> {
    read_request(text.as_bytes(), &ReaderLimits::default())
}

/// FD9: small texts with many entries are refused before their entries are kept.
#[test]
fn fd9_a_text_of_many_small_entries_is_refused() {
    let many = |entry: &dyn Fn(usize) -> String, bytes: usize| {
        let mut text = String::with_capacity(bytes + 64);
        let mut number = 0;
        while text.len() < bytes {
            text.push_str(&entry(number));
            text.push(',');
            number += 1;
        }
        text.pop();
        text
    };
    let features = many(&|_| "\"\"".to_owned(), 900_000);
    let parameters = many(&|number| format!("\"{number:x}\":{{}}"), 900_000);
    for text in [
        format!(r#"{{"node": {{"id": "n", "client_features": [{features}]}}}}"#),
        format!(r#"{{"node": {{"id": "n", "dynamic_parameters": {{{parameters}}}}}}}"#),
    ] {
        let error = read(&text).unwrap_err();
        assert!(matches!(error, ReadError::OverLimit { limit: Bound::NodeRetainedBytes, .. }), "{error}");
    }
    let entries = many(&|number| format!("\"{number:x}\":\"\""), 7 << 20);
    let text = format!(r#"{{"resource_locators": [{{"name": "a", "dynamic_parameters": {{{entries}}}}}]}}"#);
    assert_eq!(read(&text), Err(ReadError::Unsupported("dynamic parameters of resource locators")));
    assert!(read(r#"{"resource_locators": [{"name": "a", "dynamic_parameters": {}}]}"#).is_ok());
    assert!(read(r#"{"node": {"id": "n", "client_features": null}}"#).is_ok());
}

#[test]
fn rst_2_both_spellings_mean_the_same() {
    let snake = r#"{"version_info": "7", "resource_names": ["a", "b"], "resource_locators": [{"name": "c"}],
        "node": {"id": "n", "user_agent_name": "envoy", "client_features": ["y", "x", "y"],
            "user_agent_build_version": {"version": {"major_number": 1, "minor_number": 40}},
            "locality": {"region": "r", "sub_zone": "s"},
            "dynamic_parameters": {"k": {"params": {"p": "v"}}}}}"#;
    let camel = r#"{"versionInfo": "7", "resourceNames": ["a", "b"], "resourceLocators": [{"name": "c"}],
        "node": {"id": "n", "userAgentName": "envoy", "clientFeatures": ["y", "x", "y"],
            "userAgentBuildVersion": {"version": {"majorNumber": 1, "minorNumber": 40}},
            "locality": {"region": "r", "subZone": "s"},
            "dynamicParameters": {"k": {"params": {"p": "v"}}}}}"#;
    let request = read(snake).unwrap();
    assert_eq!(read(camel).unwrap(), request);
    assert_eq!(request.version_info, "7");
    let names: Vec<_> = request.resource_names.iter().map(ResourceName::as_str).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let node = request.node.unwrap();
    assert_eq!(node.client_features, ["x", "y"]);
    assert_eq!(node.user_agent_version, Some(UserAgentVersion::Build { major: 1, minor: 40, patch: 0 }));
    assert_eq!(node.dynamic_parameters, [&b"\x0a\x01k\x12\x08\x0a\x06\x0a\x01p\x12\x01v"[..]]);
}

#[test]
fn rst_1_a_type_url_of_the_body_and_what_is_not_known_mean_nothing() {
    let request = read(
        r#"{"type_url": "x", "response_nonce": "y", "error_detail": {"message": "z"}, "later": [{}],
        "node": {"extensions": [{"name": "e", "type_descriptor": "t"}], "listening_addresses": [{}], "later": 1,
            "metadata": null}, "resource_names": null}"#,
    );
    assert_eq!(request, Ok(SotwRequest { node: Some(Box::default()), ..SotwRequest::default() }));
    assert_eq!(read("{}"), Ok(SotwRequest::default()));
}

#[test]
fn metadata_keeps_its_values() {
    let request = read(r#"{"node": {"metadata": {"a": [1, -2.5, null, true], "b": {"c": "d"}}}}"#).unwrap();
    let metadata = request.node.unwrap().metadata;
    let number = |number: f64| Value::Number(number.to_bits());
    assert_eq!(metadata["a"], Value::List(vec![number(1.0), number(-2.5), Value::Null, Value::Bool(true)]));
    assert_eq!(metadata["b"], Value::Struct([("c".to_owned(), Value::String("d".to_owned()))].into()));
}

#[test]
fn rst_5_what_is_malformed_is_named() {
    for (text, part) in [
        ("", "EOF"),
        ("[]", "expected a JSON object"),
        (r#"{"node": ["n"]}"#, "expected a JSON object"),
        (r#"{"resource_names": "a"}"#, "list of resource names"),
        (r#"{"resource_names": ["a"], "resourceNames": ["a"]}"#, "duplicate field"),
        (r#"{"node": {"metadata": [1]}}"#, "not an object"),
        (r#"{"node": {"id": 1}}"#, "string"),
        (r#"{} x"#, "trailing"),
        ("{\"resource_names\": [\"x\u{fdd0}k=v\u{fdd0}\"]}", "U+FDD0"),
    ] {
        let error = read(text).unwrap_err();
        assert!(matches!(error, ReadError::NotJson(_)), "{text}: {error}");
        assert!(error.to_string().contains(part), "{text}: {error}");
    }
    for (text, part) in [
        (r#"{"resource_names": ["a", null]}"#, "resource_names: invalid type: null, expected a string"),
        (r#"{"node": {"id": 1}}"#, "node: invalid type: integer"),
        (r#"{"node": {"metadata": {"a": 1e999}}}"#, "metadata of the node: number out of range"),
        (r#"{"resource_locators": [1]}"#, "resource_locators: invalid type: integer"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(part) && !error.contains("protobuf"), "{text}: {error}");
    }
    let error = read(r#"{"resource_locators": [{"name": "a", "dynamic_parameters": {"k": "v"}}]}"#);
    assert!(matches!(error, Err(ReadError::Unsupported(_))));
}

#[test]
fn fd_16_each_limit_holds() {
    let limits = ReaderLimits {
        request_bytes: 400,
        node_bytes: 200,
        node_retained_bytes: 40,
        metadata_depth: 2,
        names_per_request: 2,
        name_bytes: 3,
        ..ReaderLimits::default()
    };
    let nested = |levels: usize| {
        format!(r#"{{"node": {{"metadata": {}1{}}}}}"#, r#"{"a": "#.repeat(levels), "}".repeat(levels))
    };
    for (text, bound) in [
        (format!(r#"{{"x": "{}"}}"#, "x".repeat(400)), Bound::RequestBytes),
        (format!(r#"{{"node": {{"extensions": "{}"}}}}"#, "x".repeat(200)), Bound::NodeBytes),
        (format!(r#"{{"node": {{"id": "{}"}}}}"#, "x".repeat(41)), Bound::NodeRetainedBytes),
        (format!(r#"{{"node": {{"metadata": {{"a": "{}"}}}}}}"#, "x".repeat(41)), Bound::NodeRetainedBytes),
        (nested(3), Bound::MetadataDepth),
        (r#"{"resource_names": ["a", "b", "c"]}"#.to_owned(), Bound::Names),
        (r#"{"resource_names": ["abcd"]}"#.to_owned(), Bound::NameBytes),
        (r#"{"version_info": "abcd"}"#.to_owned(), Bound::VersionBytes),
    ] {
        let error = read_request(text.as_bytes(), &limits).unwrap_err();
        assert!(matches!(error, ReadError::OverLimit { limit, .. } if limit == bound), "{text}: {error}");
    }
    assert!(read_request(nested(2).as_bytes(), &limits).is_ok());
}
