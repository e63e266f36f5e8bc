//! `authorization`, and the faults of its rules.

use super::*;
use sluice_engine::authorization::Mode;

/// A rule with these lines.
fn rule(lines: &str) -> String {
    format!("authorization: {{ rules: [{{ name: a, {lines} }}] }}")
}

fn fault(text: &str) -> String {
    messages(&read(&format!("{SERVER}{text}")).unwrap_err()).join("\n")
}

const SPIFFE: &str = "match: { identity: \"spiffe://d/ns/{ns}/sa/{sa}\" }";
const ALL: &str = "allow: [{ types: all }]";

#[test]
fn authorization_is_off_and_can_be_inline() {
    assert_eq!(with_server("authorization: off").authorization.policy(), None);
    let config = with_server(&rule(&format!("{SPIFFE}, {ALL}")));
    let policy = config.authorization.policy().unwrap();
    assert_eq!((policy.mode(), policy.rules().len()), (Some(Mode::Enforce), 1));
    let config = with_server("authorization: { mode: report, rules: [] }");
    assert_eq!(config.authorization.policy().unwrap().mode(), Some(Mode::Report));
}

#[test]
fn aut_7_a_wildcard_beside_names_is_a_fault() {
    let text = rule(&format!(
        "{SPIFFE}, allow: [{{ types: all }}, {{ types: all, names: [{{ prefix: a }}], wildcard: true }}]"
    ));
    assert_eq!(
        fault(&text),
        "authorization.rules[0].allow[1].wildcard: true, but names are restricted; wildcards are answered whole: \
         leave out one of the two"
    );
}

#[test]
fn aut_3_a_capture_must_be_part_of_the_identity() {
    assert_eq!(
        fault(&rule(&format!("{SPIFFE}, node: {{ id: {{ prefix: \"{{pod}}.\" }} }}, {ALL}"))),
        "authorization.rules[0].node.id.prefix: \"{pod}\" is not a part of match.identity; it has {ns} and {sa}"
    );
    let open = fault(&rule(&format!("{SPIFFE}, node: {{ cluster: {{ prefix: \"a-{{ns}}\" }} }}, {ALL}")));
    assert!(
        open.starts_with("authorization.rules[0].node.cluster.prefix: \"a-{ns}\": a capture at the end"),
        "{open}"
    );
}

#[test]
fn aut_2_faults_are_named_with_the_path_of_their_key() {
    let any = "match: { identity: any }";
    for (text, path) in [
        ("authorization: {}".to_owned(), "authorization.rules: missing"),
        ("authorization: on".to_owned(), "authorization: found \"on\""),
        ("authorization: { mode: deny, rules: [] }".to_owned(), "authorization.mode: found"),
        (
            "authorization: { file: nowhere.yaml }".to_owned(),
            "authorization.file: cannot read /etc/sluice/nowhere.yaml",
        ),
        (
            "authorization: { file: nowhere.yaml, rules: [] }".to_owned(),
            "authorization.rules: does not apply",
        ),
        (rule(ALL), "authorization.rules[0].match.identity: missing"),
        (rule(any), "authorization.rules[0].allow: missing"),
        (rule(&format!("{any}, allow: []")), "authorization.rules[0].allow: found"),
        (rule(&format!("{any}, deny: true, {ALL}")), "authorization.rules[0].allow: and `deny` exclude"),
        (rule(&format!("{any}, deny: false, {ALL}")), "authorization.rules[0].deny: must be true"),
        (
            rule(&format!("{any}, deny: true, node: {{ id: a }}")),
            "authorization.rules[0].node: has no effect",
        ),
        (
            rule(&format!("match: {{ identity: any, listeners: [b] }}, {ALL}")),
            "authorization.rules[0].match.listeners[0]: found \"b\"",
        ),
        (
            rule(&format!("match: {{ identity: \"spiffe://d/x{{a}}\" }}, {ALL}")),
            "authorization.rules[0].match.identity: ",
        ),
        (
            rule(&format!("match: {{ identity: {{ dns: \"*.a\" }} }}, {ALL}")),
            "authorization.rules[0].match.identity.dns: ",
        ),
        (
            rule(&format!("match: {{ identity: {{ unix_uid: [-1] }} }}, {ALL}")),
            "authorization.rules[0].match.identity.unix_uid[0]: found -1",
        ),
        (
            rule(&format!("match: {{ identity: {{ jwt: a }} }}, {ALL}")),
            "authorization.rules[0].match.identity",
        ),
        (
            rule(&format!("{any}, node: {{ metadata: [{{ path: a, exact: \"\" }}] }}, {ALL}")),
            "authorization.rules[0].node.metadata[0].exact: a missing or empty",
        ),
        (
            rule(&format!("{any}, node: {{ id: {{ prefix: a, suffix: b }} }}, {ALL}")),
            "authorization.rules[0].node.id: found",
        ),
        (
            rule(&format!("{any}, allow: [{{ wildcard: true }}]")),
            "authorization.rules[0].allow[0].types: missing",
        ),
        (
            rule(&format!("{any}, allow: [{{ types: all, names: [] }}]")),
            "authorization.rules[0].allow[0].names: found",
        ),
        (
            format!(
                "authorization: {{ rules: [{{ name: a, {any}, {ALL} }}, {{ name: a, {SPIFFE}, {ALL} }}] }}"
            ),
            "authorization.rules[1]",
        ),
    ] {
        let error = fault(&text);
        assert!(error.starts_with(path), "{text}\n{error}");
    }
}

#[test]
fn aut_12_a_file_of_rules_is_read_with_its_errors() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rules.json");
    let config = format!("{SERVER}authorization: {{ file: rules.json }}");
    let load = || parse(&config, Format::Yaml, FileContext { directory: directory.path(), ..context("") });
    std::fs::write(&file, r#"{"rules": [{"name": "a", "match": {"identity": "any"}, "deny": true}]}"#)
        .unwrap();
    let loaded = load().unwrap().config.authorization;
    assert_eq!(loaded.policy().unwrap().rules().len(), 1);
    assert!(matches!(loaded, Authorization::File(path, _) if path == file));
    std::fs::write(&file, r#"{"rules": [{"name": "a", "match": {"identity": "any"}}]}"#).unwrap();
    let error = load().unwrap_err().to_string();
    let expected = format!("2:24: authorization.file: {}:1:12: rules[0].allow: missing", file.display());
    assert!(error.starts_with(&expected), "{error}");
    std::fs::write(&file, "{").unwrap();
    assert!(load().unwrap_err().to_string().contains("rules.json:1:"));
    std::fs::write(&file, " ".repeat((4 << 20) + 1)).unwrap();
    assert!(load().unwrap_err().to_string().contains("at most 4194304 bytes are read"));
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
    assert!(load().unwrap_err().to_string().contains("not a regular file"));
}

#[test]
fn iso_1_iso_2_iso_4_classes_by_identity() {
    let classes = |text: &str| with_server(&format!("node_classes: [{text}]")).node_classes.rules[0].clone();
    let rule = classes("{ split_by: { identity: { segments: 2 } }, identity_metadata: WHO }");
    assert_eq!(rule.projection.identity, sluice_engine::class::IdentityPart::Segments(2));
    assert_eq!(rule.identity_metadata.as_deref(), Some("WHO"));
    let secret = "match: { types: [envoy.extensions.transport_sockets.tls.v3.Secret] }";
    let rule = classes(&format!("{{ {secret}, split_by: {{ identity: full }}, share_secrets: identity }}"));
    assert_eq!(rule.share_secrets, sluice_engine::class::ShareSecrets::Identity);
    for (text, path) in [
        (
            "{ split_by: { identity: { segments: 0 } } }",
            "node_classes[0].split_by.identity.segments: found 0",
        ),
        ("{ split_by: { identity: all } }", "node_classes[0].split_by.identity: found \"all\""),
        ("{ split_by: {}, identity_metadata: WHO }", "node_classes[0].identity_metadata: needs"),
        ("{ share_secrets: maybe }", "node_classes[0].share_secrets: found"),
    ] {
        let error = fault(&format!("node_classes: [{text}]"));
        assert!(error.starts_with(path), "{error}");
    }
}
