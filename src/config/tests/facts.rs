//! `facts:`, and the file with the table.

use super::*;
use crate::kubernetes::{ClusterAccess, Interest};
use sluice_engine::class::facts::{FactTable, Facts};
use sluice_engine::class::{MetadataParts, NodeKey};
use sluice_xds::Node;

const RULE: &str = "node_classes: [{split_by: {facts: [zone]}}]\n";

fn key(text: &str) -> NodeKey {
    let config = with_server(&format!("{RULE}facts: {{file: facts.yaml, key: {text}}}"));
    assert_eq!(config.facts, Some(FactsSource::File("/etc/sluice/facts.yaml".into())));
    config.node_classes.facts.key
}

#[test]
fn rly_11_the_key_of_the_facts_is_an_id_a_part_of_the_id_or_metadata() {
    assert_eq!(key("id"), NodeKey::Id);
    assert_eq!(key("{id: {separator: '~', part: 2}}"), NodeKey::IdPart { separator: "~".into(), place: 2 });
    assert_eq!(key("{metadata: INSTANCE_IPS}"), NodeKey::Metadata(vec!["INSTANCE_IPS".into()]));
    assert_eq!(key("{metadata: [a, b]}"), NodeKey::Metadata(vec!["a".into(), "b".into()]));
    let by_family = with_server("node_classes: [{split_by: {address_family: {metadata: INSTANCE_IPS}}}]");
    let family = by_family.node_classes.rules[0].projection.address_family.clone();
    assert_eq!(family, Some(NodeKey::Metadata(vec!["INSTANCE_IPS".into()])));
    let rules = with_server(
        "node_classes: [{split_by: {facts: {all_but: [[labels, hash]]}}}]\nfacts: {key: id, file: a}",
    );
    let parts = MetadataParts::AllBut(vec![vec!["labels".into(), "hash".into()]]);
    assert_eq!(rules.node_classes.rules[0].projection.facts, parts);
}

#[test]
fn rly_11_facts_may_come_from_a_cluster() {
    let source =
        |text: &str| with_server(&format!("{RULE}facts: {{key: id, kubernetes: {text}}}")).facts.unwrap();
    let interest = |kubeconfig: Option<&str>, context: Option<&str>, nodes| {
        let access =
            ClusterAccess { kubeconfig: kubeconfig.map(Into::into), context: context.map(str::to_owned) };
        FactsSource::Kubernetes(Interest { access, nodes })
    };
    assert_eq!(source("{}"), interest(None, None, true));
    assert_eq!(source("{nodes: false}"), interest(None, None, false));
    let named = source("{kubeconfig: admin.conf, context: west}");
    assert_eq!(named, interest(Some("/etc/sluice/admin.conf"), Some("west"), true));
}

#[test]
fn rly_11_faults_of_the_keys_are_named() {
    for (text, expected) in [
        (RULE, "node_classes[0].split_by.facts: needs the key `facts` of the file"),
        ("facts: {}", "facts.key: missing; expected id, { id: { separator: TEXT, part: NUMBER } }"),
        ("facts: {key: name, file: a}", "facts.key: found \"name\"; expected id, {"),
        (
            "facts: {key: {}, file: a}",
            "facts.key: found none or several; expected one of `id` and `metadata`",
        ),
        (
            "facts: {key: {id: {separator: '~', part: 64}}, file: a}",
            "facts.key.id.part: found 64; expected the number",
        ),
        ("facts: {key: {id: {part: 1}}, file: a}", "facts.key.id.separator: missing"),
        (
            "facts: {key: {metadata: []}, file: a}",
            "facts.key.metadata: found a list; expected at least one key",
        ),
        ("facts: {key: id}", "facts: found none or several; expected one of `file` and `kubernetes`"),
        (
            "facts: {key: id, file: a, kubernetes: {}}",
            "facts: found none or several; expected one of `file` and `kubernetes`",
        ),
        (
            "facts: {key: id, kubernetes: {context: a}}",
            "facts.kubernetes.context: needs the key `kubeconfig`",
        ),
        (
            "facts: {key: id, kubernetes: {nodes: 1}}",
            "facts.kubernetes.nodes: found 1; expected true or false",
        ),
        ("facts: {key: id, kubernetes: {pods: true}}", "facts.kubernetes.pods: unknown key"),
    ] {
        let error = messages(&read(&format!("{SERVER}{text}")).unwrap_err()).join("\n");
        assert!(error.contains(expected), "{text}\n{error}");
    }
    let unused = read(&format!("{SERVER}facts: {{key: id, file: a}}")).unwrap();
    let warnings: Vec<_> =
        unused.warnings.iter().map(|warning| format!("{}: {}", warning.path, warning.text)).collect();
    assert_eq!(warnings[1..], ["facts: no rule of `node_classes` splits by facts (`split_by.facts`)"]);
}

/// The table of a file, or its fault.
fn load(name: &str, text: &str) -> Result<FactTable, String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(name);
    std::fs::write(&file, text).unwrap();
    load_facts(&file).map_err(|error| error.in_file(Path::new(name)))
}

#[test]
fn rly_11_a_file_of_facts_is_read_in_both_formats() {
    let yaml = "# Pods\n10.1.1.1: { zone: z1, labels: { version: \"1.10\", on: yes } }\n'::1': {}\n";
    let json = r#"{"10.1.1.1": {"zone": "z1", "labels": {"version": "1.10", "on": "yes"}}, "0:0::1": {}}"#;
    let table = load("facts.yaml", yaml).unwrap();
    assert_eq!(table, load("facts.json", json).unwrap());
    let facts = Facts { key: NodeKey::Id, table: table.into() };
    let fields = |id: &str| facts.of(&Node { id: id.into(), ..Node::default() }).cloned();
    assert_eq!(fields("10.1.1.1").unwrap().get("zone"), Some(&sluice_xds::Value::String("z1".into())));
    assert_eq!(fields("::1").unwrap().len(), 0);
    assert_eq!(fields("10.1.1.2"), None);
    assert_eq!(load("facts.yaml", "{}").unwrap().len(), 0);
    for empty in ["", "# nobody yet\n"] {
        assert!(
            load("facts.yaml", empty).unwrap_err().contains("1:1: empty; `{}` is a table without entries")
        );
    }
}

/// Two clients whose labels are `1.10` and `1.1` never share a class by a number.
#[test]
fn rly_11_faults_of_a_file_are_named_with_the_key() {
    let text = "expected text (in quotes if it looks like a number)";
    for (name, file, expected) in [
        (
            "a.yaml",
            "10.1.1.1: { labels: { version: 1.10 } }",
            format!("10.1.1.1.labels.version: found 1.1; {text}"),
        ),
        ("a.yaml", "a: { zone: true }", format!("a.zone: found true; {text}")),
        ("a.yaml", "a: { zone: 08 }", format!("a.zone: found 8; {text}")),
        ("a.yaml", "a: { zone: }", format!("a.zone: found nothing; {text}")),
        ("a.yaml", "a: { zones: [z1, 2] }", format!("a.zones[1]: found 2; {text}")),
        ("a.yaml", "b: {}\na: z1", "a.yaml:2:4: a: found text; expected a map of fields".to_owned()),
        ("a.yaml", "a: [z1]", "invalid type: sequence, expected a map of fields for a".to_owned()),
        ("a.yaml", "[a, b]", "expected a map from keys to fields".to_owned()),
        ("a.yaml", "'': {zone: z1}", "found an empty key".to_owned()),
        ("a.yaml", "a at line 3: {x at line 4: 1}", "a at line 3.x at line 4: found 1".to_owned()),
        ("a.yaml", "a: {}\n---\nb: {}", "more than one YAML document".to_owned()),
        ("a.json", "\n", "a.json:1:1: empty; `{}`".to_owned()),
        ("a.yaml", "a: {zone: z1}\na: {zone: z2}", "the key \"a\" is repeated".to_owned()),
        (
            "a.yaml",
            "'::1': {}\n'0:0::1': {}",
            "the key \"0:0::1\" is repeated, in this or in another spelling".to_owned(),
        ),
        ("a.json", r#"{"a": {"zone": "z1", "zone": "z2"}}"#, "the key \"zone\" is repeated".to_owned()),
        ("a.json", r#"{"a": {"zone": 1}}"#, format!("a.json:1:16: a.zone: found 1; {text}")),
        ("a.json", r#"{"a": {}"#, "a.json:1:8: EOF".to_owned()),
    ] {
        let error = load(name, file).unwrap_err();
        assert!(error.contains(&expected), "{file}\n{error}");
        let line = error.strip_prefix(&format!("{name}:")).and_then(|rest| rest.split(':').next()).unwrap();
        assert!((1..=3).contains(&line.parse::<u32>().unwrap()), "{error}");
    }
    assert!(load_facts(Path::new("/nowhere")).unwrap_err().to_string().contains("cannot read /nowhere"));
}

/// Another file than the operator meant: its text belongs into no log.
#[test]
fn rly_11_no_text_of_a_file_is_quoted() {
    let key = "-----BEGIN PRIVATE KEY-----\nMIIsecret\n-----END PRIVATE KEY-----\n";
    let passwd = "root:x:0:0:MIIsecret:/root:/bin/sh\ndaemon:x:1:1:MIIsecret:/:/bin/false\n";
    let long = format!("{}: MIIsecret", "k".repeat(900));
    for (text, name) in
        [key, passwd, "token: MIIsecret", "a: {b: [MIIsecret, 1]}", &long, "\"MIIsecret\"", "[MIIsecret]"]
            .into_iter()
            .flat_map(|text| [(text, "a.yaml"), (text, "a.json")])
    {
        let error = load(name, text).unwrap_err();
        assert!(!error.contains("MIIsecret") && error.len() < 300, "{error}");
    }
}

/// Aliases may repeat an entry, and may not multiply without bound.
#[test]
fn rly_11_copies_by_aliases_are_bounded() {
    let many = (0..2_000).map(|number| format!("10.0.{}.{}: *web\n", number / 256, number % 256));
    let text = format!("web: &web {{ zone: z1 }}\n{}", many.collect::<String>());
    assert_eq!(load("a.yaml", &text).unwrap().len(), 2_001);
    let mut bomb = "a0: &a0 { f: [x, x, x, x, x, x, x, x, x, x] }\n".to_owned();
    for depth in 1..9 {
        let copies = vec![format!("*a{}", depth - 1); 10].join(", ");
        bomb += &format!("a{depth}: &a{depth} {{ f: [{copies}] }}\n");
    }
    let error = load("a.yaml", &bomb).unwrap_err();
    assert!(error.contains("more values than a file may have"), "{error}");
}

/// Pods of a workload have the same labels: the table keeps them once.
#[test]
fn rly_11_a_table_of_many_entries_is_read() {
    let entry = |number: u32| {
        let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + number);
        let labels =
            format!("{{ app: app-{}, version: v1, team: edge, tier: web, part: api }}", number / 100);
        format!("{address}: {{ zone: z{}, labels: {labels} }}\n", number % 3)
    };
    let text: String = (0..20_000).map(entry).collect();
    let table = load("a.yaml", &text).unwrap();
    assert_eq!((table.len(), table.distinct()), (20_000, 600));
}
