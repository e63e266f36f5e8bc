//! `proof`.

use super::*;
use crate::driver::ground::proof_rules::{IgnoredField, ProofRules};
use sluice_engine::class::{MetadataMatch, NodeMatch, TextMatch, ValueMatch};
use sluice_fleet::rollout::plan::UnitMatch;
use sluice_proof::proof::{Policy, ProofPace, ProofSettings, Standing};
use sluice_setting::{minutes, seconds};
use sluice_xds::TypeUrl;

const MEMBER: &str = "node_classes: [{split_by: {cluster: true}, upstream_node: member}]\n";

fn proof(text: &str) -> Option<Arc<ProofRules>> {
    with_server(&format!("{MEMBER}{text}")).proof
}

fn faults(text: &str) -> Vec<String> {
    messages(&read(&format!("{SERVER}{text}")).unwrap_err())
}

/// The errors of a proof, without its path.
fn proof_faults(keys: &str) -> Vec<String> {
    let faults = faults(&format!("{MEMBER}proof: {{{keys}}}"));
    faults.iter().map(|line| line.trim_start_matches("proof.").to_owned()).collect()
}

fn warnings(text: &str) -> Vec<String> {
    read(text).unwrap().warnings.iter().map(|warning| format!("{}: {}", warning.path, warning.text)).collect()
}

#[test]
fn prf_5_without_the_key_nobody_is_asked() {
    assert_eq!(proof(""), None);
    assert_eq!(proof("proof: {}"), Some(Arc::new(ProofRules::default())));
}

#[test]
fn prf_19_every_key_is_read() {
    let read = proof(
        "
proof:
  policy: warn
  match: {lists: [xds_servers], node: {cluster: edge}}
  streams: 3
  per_minute: 60
  standing: 12
  settle: 2s
  window: 2m
  slow_down: 4
  secrets: versions
  never: [{metadata: [{path: VM, present: true}]}]
  ignore: [{type: envoy.config.listener.v3.Listener, path: filter_chains.filters.typed_config.stat_prefix}]
",
    );
    let vm = MetadataMatch { path: vec!["VM".into()], value: ValueMatch::Present };
    let cluster = Some(TextMatch::Exact("edge".into()));
    let expected = ProofRules {
        settings: ProofSettings {
            policy: Policy::Warn,
            pace: ProofPace {
                streams: 3,
                per_minute: 60,
                settle: seconds(2),
                window: minutes(2),
                slow_down: 4,
            },
            standing: Standing::Count(12),
            compares_secrets: true,
            ..ProofSettings::default()
        },
        units: UnitMatch {
            lists: vec!["xds_servers".into()],
            nodes: NodeMatch { cluster, ..NodeMatch::default() },
        },
        never: vec![NodeMatch { metadata: vec![vm], ..NodeMatch::default() }],
        ignored: vec![IgnoredField {
            type_url: TypeUrl::of_message("envoy.config.listener.v3.Listener"),
            path: "filter_chains.filters.typed_config.stat_prefix".into(),
        }],
    };
    assert_eq!(read, Some(Arc::new(expected)));
    for (text, standing) in
        [("2%", Standing::Share(20)), ("0.5%", Standing::Share(5)), ("0", Standing::Count(0))]
    {
        assert_eq!(proof(&format!("proof: {{standing: {text}}}")).unwrap().settings.standing, standing);
    }
}

#[test]
fn prf_19_numbers_have_their_ranges() {
    for (keys, key) in [
        ("settle: 500ms", "settle"),
        ("window: 9s", "window"),
        ("per_minute: 1201", "per_minute"),
        ("streams: 0", "streams"),
        ("standing: 257", "standing"),
        ("standing: 101%", "standing"),
        ("standing: 2.55%", "standing"),
        ("policy: move", "policy"),
        ("secrets: bodies", "secrets"),
        ("never: [{}]", "never[0]"),
        ("ignore: [{type: a.B, path: 'a[0].b'}]", "ignore[0].path"),
        ("ignore: [{path: a}]", "ignore[0].type"),
    ] {
        let faults = proof_faults(keys);
        assert!(faults.len() == 1 && faults[0].starts_with(&format!("{key}: ")), "{keys}: {faults:?}");
    }
}

#[test]
fn prf_5_a_proof_that_cannot_work_is_refused_with_the_key() {
    let projection = faults("node_classes: [{split_by: {cluster: true}}]\nproof: {}");
    assert!(
        projection.len() == 1
            && projection[0].starts_with("proof: cannot work with `upstream_node: projection`")
    );
    let default = faults("proof: {}");
    assert!(default.len() == 1 && default[0].starts_with("proof: cannot work without a rule"), "{default:?}");
    let files = read(&format!("xds_servers: [{{server_uri: 'file:a'}}]\n{MEMBER}proof: {{}}")).unwrap_err();
    assert!(messages(&files)[0].starts_with("proof: cannot work: no server of these lists"));
    // A class of one client has nobody to differ.
    let alone = "node_classes: [{match: {types: [a.B]}, split_by: {id: true}}, {split_by: {cluster: true}, upstream_node: member}]";
    assert!(with_server(&format!("{alone}\nproof: {{}}")).proof.is_some());
    let all_alone = warnings(&format!("{SERVER}node_classes: [{{split_by: {{id: true}}}}]\nproof: {{}}"));
    assert!(all_alone.iter().any(|line| line.contains("each class has one client")), "{all_alone:?}");
}

#[test]
fn prf_5_servers_that_are_not_asked_are_named() {
    let kuma = "xds_servers: [{server_uri: 'kuma-control-plane:5678', channel_creds: [{type: insecure}]}]\n";
    let warned = warnings(&format!("{kuma}{MEMBER}proof: {{}}"));
    assert!(warned.iter().any(|line| line.starts_with("proof: kuma-control-plane:5678: Kuma")), "{warned:?}");
    let files = format!(
        "{SERVER}authorities: {{b: {{xds_servers: [{{server_uri: 'file:a'}}]}}}}\n{MEMBER}proof: {{}}"
    );
    let warned = warnings(&files);
    assert!(warned.iter().any(|line| line.starts_with("proof: does not apply to file:a")), "{warned:?}");
    let some = "node_classes: [{match: {cluster: a}, split_by: {cluster: true}, upstream_node: member}]";
    let built_in = |classes: &str| {
        let warned = warnings(&format!("{SERVER}{classes}\nproof: {{}}"));
        warned.iter().any(|line| line.starts_with("proof: does not apply to clients and types that no rule"))
    };
    assert!(built_in(some) && !built_in(MEMBER));
    let ignored = format!("{SERVER}{MEMBER}proof: {{ignore: [{{type: a.B, path: c}}]}}");
    assert!(warnings(&ignored).iter().any(|line| line.starts_with("proof.ignore[0].path: ")));
}
