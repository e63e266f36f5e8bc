//! `rollouts`.

use super::*;
use sluice_engine::class::{MetadataMatch, NodeMatch, TextMatch, ValueMatch};
use sluice_fleet::rollout::Plan;
use sluice_fleet::rollout::hook::{Hook, HookSettings};
use sluice_fleet::rollout::plan::{
    BucketBy, Gated, Gather, GuardAction, Guards, HaltOn, Mode, OnHalt, Step, Times, UnitMatch,
};
use sluice_setting::{minutes, ms, seconds};
use sluice_xds::{TypeUrl, Value};

fn plans(text: &str) -> Vec<Arc<Plan>> {
    with_server(text).rollouts
}

/// The errors of a file with two plans at most, without the path of the first.
fn faults(text: &str) -> Vec<String> {
    let error = read(&format!("{SERVER}{text}")).unwrap_err();
    let messages = messages(&error);
    messages.iter().map(|line| line.trim_start_matches("rollouts[0].").to_owned()).collect()
}

/// The errors of a plan with a name and a mode.
fn plan_faults(keys: &str) -> Vec<String> {
    faults(&format!("rollouts: [{{name: a, mode: observe, {keys}}}]"))
}

#[test]
fn wav_19_a_plan_needs_a_name_and_its_mode() {
    assert_eq!(plans(""), []);
    assert_eq!(plans("rollouts: []"), []);
    assert_eq!(plans("rollouts: [{name: edge, mode: observe}]"), [Arc::new(Plan::new("edge"))]);
    assert_eq!(
        faults("rollouts: [{match: {}}]"),
        [
            "name: missing; expected a name of at most 64 letters, digits, `-`, `_` and `.`, with no `.` at the beginning",
            "mode: missing; expected observe or enforce",
        ]
    );
}

#[test]
fn wav_12_every_key_of_a_plan_is_read() {
    let [plan] = &plans(
        "
authorities: {b: {}}
rollouts:
  - name: edge.eu-1_a
    mode: observe
    match:
      lists: [xds_servers, 'authorities[b]']
      node: {cluster: {prefix: ed}, locality: {zone: {suffix: a}}}
    gated: [envoy.config.listener.v3.Listener, a.B]
    bucket_by: [labels, host]
    salt: ''
    gather: {quiet: 500ms, max: 3s}
    steps:
      - {clients: {metadata: [{path: [labels, canary], exact: true}]}, bake: 2m}
      - {at_least: 3}
      - {clients: {cluster: edx}, percent: 10, bake: 5m}
      - {percent: 100}
    final_bake: 10m
    condemn_after: 3
    halt_on: {rejected: 5, rejected_percent: 2, lost_percent: 20, accepted_percent: 90, patience: 1m}
    guards: {growth: warn, dangling: off}
    hook: {url: 'http://127.0.0.1:9099/gate', timeout: 2s}
",
    )[..] else {
        panic!("one plan")
    };
    let canary = MetadataMatch {
        path: vec!["labels".into(), "canary".into()],
        value: ValueMatch::Equal(Value::Bool(true)),
    };
    let step = |clients, threshold, at_least, bake| Step { clients, threshold, at_least, bake };
    let cluster = |cluster| NodeMatch { cluster: Some(cluster), ..NodeMatch::default() };
    let zone = Some(TextMatch::Suffix("a".into()));
    let expected = Plan {
        units: UnitMatch {
            lists: vec!["xds_servers".into(), "authorities[b]".into()],
            nodes: NodeMatch { zone, ..cluster(TextMatch::Prefix("ed".into())) },
        },
        gated: Gated::Types(["envoy.config.listener.v3.Listener", "a.B"].map(TypeUrl::of_message).to_vec()),
        bucket_by: BucketBy::Metadata(vec!["labels".into(), "host".into()]),
        gather: Gather { quiet: ms(500), max: seconds(3) },
        steps: vec![
            step(Some(NodeMatch { metadata: vec![canary], ..NodeMatch::default() }), 0, 0, minutes(2)),
            step(None, 0, 3, minutes(1)),
            step(Some(cluster(TextMatch::Exact("edx".into()))), 1_000, 1, minutes(5)),
            step(None, 10_000, 1, minutes(1)),
        ],
        times: Times { final_bake: minutes(10), condemn_after: 3 },
        halt_on: HaltOn {
            rejected: 5,
            rejected_percent: 2,
            lost_percent: 20,
            accepted_percent: 90,
            patience: minutes(1),
            error_points: 0,
        },
        guards: Guards { growth: GuardAction::Warn, dangling: GuardAction::Off, ..Guards::default() },
        hook: Some(Hook {
            url: "http://127.0.0.1:9099/gate".into(),
            settings: HookSettings { timeout: seconds(2) },
        }),
        ..Plan::new("edge.eu-1_a")
    };
    assert_eq!(**plan, expected);
    let by = |word: &str| plans(&format!("rollouts: [{{name: a, mode: observe, bucket_by: {word}}}]"));
    let bucketings = ["id", "cluster", "locality.zone"].map(|word| by(word)[0].bucket_by.clone());
    assert_eq!(bucketings, [BucketBy::Id, BucketBy::Cluster, BucketBy::Zone]);
}

#[test]
fn wav_16_a_plan_that_enforces_says_who_keeps_a_halted_push() {
    let plan = |keys: &str| {
        let plans = plans(&format!("rollouts: [{{name: a, mode: enforce{keys}}}]"));
        (plans[0].mode, plans[0].on_halt)
    };
    assert_eq!(plan(""), (Mode::Enforce, OnHalt::Rollback));
    assert_eq!(plan(", on_halt: stay"), (Mode::Enforce, OnHalt::Stay));
    assert_eq!(
        plan_faults("on_halt: stay"),
        ["on_halt: does not apply to `mode: observe`, which holds nothing back"]
    );
}

#[test]
fn keys_of_later_versions_are_refused_with_a_reason() {
    let expected = ["mode: found \"watch\"; expected observe or enforce"];
    assert_eq!(faults("rollouts: [{name: a, mode: watch}]"), expected);
    assert_eq!(
        plan_faults("guards: {dangling: pause}"),
        ["guards.dangling: found \"pause\"; expected halt, warn or off",]
    );
}

#[test]
fn tir_1_a_plan_for_relays_names_them_by_labels_and_does_not_judge_by_load() {
    let warnings = |plan: &str| {
        let text = format!("{SERVER}rollouts: [{{name: a, mode: observe, {plan}}}]");
        let read = read(&text).unwrap();
        assert!(read.config.rollouts[0].relays);
        let texts = read.warnings.iter().map(ToString::to_string);
        texts.filter(|text| text.contains("chooses among a few relays by chance")).count()
    };
    let regions = "[{clients: {locality: {region: a}}}, {clients: {locality: {region: b}}}]";
    assert_eq!(warnings(&format!("relays: true, steps: {regions}")), 0);
    for steps in ["[{percent: 10}]", "[{clients: {cluster: a}, at_least: 2}]"] {
        assert_eq!(warnings(&format!("relays: true, steps: {steps}")), 1, "{steps}");
    }
    assert_eq!(warnings("relays: true"), 1, "the default steps");
    let load = with_load(
        "local",
        &format!("mode: enforce, relays: true, halt_on: {{error_points: 7}}, steps: {regions}"),
    );
    let problem = read(&load).unwrap_err().to_string();
    assert!(problem.contains("`halt_on.error_points` cannot judge relays"), "{problem}");
    assert!(plan_faults("relays: 1")[0].starts_with("relays: found"));
}

/// The server, with the use of load reports.
fn with_load(load: &str, plan: &str) -> String {
    let server = SERVER.replacen("server_uri", &format!("lrs: {load}, server_uri"), 1);
    format!("{server}rollouts: [{{name: a, {plan}}}]")
}

#[test]
fn lrs_24_load_reports_need_a_server_that_counts_them_and_clients_without_the_push() {
    let points = "halt_on: {error_points: 7}";
    let plan =
        read(&with_load("local", &format!("mode: enforce, {points}"))).unwrap().config.rollouts[0].clone();
    assert_eq!(plan.halt_on.error_points, 7);
    let problem = |text: &str| read(text).unwrap_err().to_string();
    for text in [
        with_load("forward", &format!("mode: enforce, {points}")),
        format!("{SERVER}rollouts: [{{name: a, mode: enforce, {points}}}]"),
    ] {
        let words = "rollouts[0].halt_on: `error_points` needs load reports: no server of the plan's lists has `lrs: aggregate` or `lrs: local`";
        assert!(problem(&text).contains(words), "{}", problem(&text));
    }
    let observing = problem(&with_load("local", &format!("mode: observe, {points}")));
    assert!(observing.contains("rollouts[0].halt_on.error_points: needs `mode: enforce`"), "{observing}");
    for steps in ["{percent: 100}", "{clients: {cluster: edge}}"] {
        let text = with_load("local", &format!("mode: enforce, {points}, steps: [{steps}]"));
        assert!(problem(&text).contains("no step of the plan is such a step"), "{}", problem(&text));
    }
    let short = with_load("local", &format!("mode: enforce, {points}, steps: [{{percent: 10, bake: 5s}}]"));
    let warnings = read(&short).unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.to_string().contains("no step bakes longer than 5")));
    let listener = |name: &str, load: &str| format!("{{name: {name}, address: 'unix:{name}.sock'{load}}}");
    let listeners = |first: &str| {
        let listeners = [listener("a", first), listener("b", ", load_reports: drop")].join(", ");
        let plan = with_load("local", &format!("mode: enforce, {points}"));
        read(&format!("{plan}\nlisteners: [{listeners}]"))
    };
    let warnings = listeners("").unwrap().warnings;
    let words = "listeners[1].load_reports: the plan \"a\" judges pushes by load reports, without those";
    assert!(warnings.iter().any(|warning| warning.to_string().contains(words)), "{warnings:?}");
    let nobody = listeners(", load_reports: refuse").unwrap_err().to_string();
    assert!(nobody.contains("no listener takes them (`load_reports`)"), "{nobody}");
    let zones =
        read(&with_load("local", &format!("mode: enforce, bucket_by: locality.zone, {points}"))).unwrap();
    assert!(zones.warnings.iter().any(|warning| warning.to_string().contains("load reports cannot tell")));
}

#[test]
fn wav_20_a_hook_needs_a_url_that_can_be_asked() {
    let form = "expected http[s]://host[:port][/path]";
    let fault = |text: &str, problem: &str| {
        assert_eq!(plan_faults(&format!("hook: {text}")), [problem], "{text}");
    };
    fault("{}", &format!("hook.url: missing; {form}"));
    for url in ["gate:9099", "ftp://gate/", "http://", "http://gate/?token=a", "http://me:secret@gate/"] {
        fault(&format!("{{url: \"{url}\"}}"), &format!("hook.url: found {url:?}; {form}"));
    }
    fault("{url: \"http://gate:0/\"}", "hook.url: found \"http://gate:0/\"; expected a port from 1 to 65535");
    fault(
        "{url: \"https://gate\", timeout: 2m}",
        "hook.timeout: found \"2m\"; expected a duration from 100ms to 1m, written like 500ms, 10s, 5m or 1h",
    );
    fault("{url: \"https://gate\", token: a}", "hook.token: unknown key; known here: url, timeout");
}

#[test]
fn an_error_of_a_plan_has_the_place_of_its_key() {
    let text = format!("{SERVER}rollouts:\n  - name: a\n    mode: watch\n    steps: [{{percent: 101}}]\n");
    let error = read(&text).unwrap_err().to_string();
    let places: Vec<_> = error.lines().map(|line| line.split(": ").take(2).collect::<Vec<_>>()).collect();
    assert_eq!(places, [["4:11", "rollouts[0].mode"], ["5:23", "rollouts[0].steps[0].percent"]]);
}

#[test]
fn plans_of_the_same_units_are_refused() {
    let two = |first: &str, second: &str| {
        let plan = |name, keys| format!("{{name: {name}, mode: observe, {keys}}}");
        format!("rollouts: [{}, {}]", plan("a", first), plan("b", second))
    };
    let never = ["rollouts[1]: never reached: the plan \"a\" before it has all of its units"];
    assert_eq!(faults(&two("", "match: {lists: [xds_servers]}")), never);
    assert_eq!(faults(&two("match: {lists: [xds_servers]}", "match: {lists: [xds_servers]}")), never);
    let matching = |cluster: &str| format!("match: {{node: {{cluster: {cluster}}}}}");
    assert_eq!(faults(&two(&matching("x"), &matching("x"))), never);
    assert_eq!(plans(&two(&matching("x"), &matching("y"))).len(), 2);
    assert_eq!(plans(&two("match: {lists: [xds_servers]}", "")).len(), 2);
    let twice = "rollouts: [{name: a, mode: observe, match: {node: {cluster: x}}}, {name: a, mode: observe}]";
    assert_eq!(faults(twice), ["rollouts[1].name: repeats \"a\""]);
    for name in ["''", "a/b", ".a", "'a b'", &"n".repeat(65)] {
        let errors = faults(&format!("rollouts: [{{name: {name}, mode: observe}}]"));
        assert!(errors[0].starts_with("name: found ") && errors.len() == 1, "{errors:?}");
    }
    let many: Vec<_> =
        (0..65).map(|n| format!("{{name: p{n}, mode: observe, {}}}", matching(&format!("c{n}")))).collect();
    let errors = faults(&format!("rollouts: [{}]", many.join(", ")));
    assert!(errors.len() == 1 && errors[0].starts_with("rollouts[64]: found "), "{errors:?}");
    assert!(errors[0].ends_with("expected at most 64 plans"), "{errors:?}");
}

#[test]
fn wav_14_steps_admit_somebody_and_grow() {
    let steps = |steps: &str| plan_faults(&format!("steps: [{steps}]"));
    let none = "admits no further client; state a greater `percent` or `at_least`, or `clients`";
    assert_eq!(steps("{percent: 0, at_least: 0}"), [format!("steps[0]: {none}")]);
    assert_eq!(steps("{percent: 5}, {bake: 1m}"), [format!("steps[1]: {none}")]);
    for percent in ["5", "4"] {
        assert_eq!(
            steps(&format!("{{percent: 5}}, {{percent: {percent}}}")),
            ["steps[1].percent: is not more than 5, which an earlier step admits"]
        );
    }
    assert_eq!(
        steps("{percent: 100}, {clients: {cluster: a}}"),
        ["steps[1]: never begins: the step before it admits all clients"]
    );
    assert_eq!(
        steps("{clients: {}}"),
        ["steps[0].clients: found a map; expected at least one condition; all clients are `percent: 100`"]
    );
    let many = vec!["{at_least: 1}"; 21].join(", ");
    let bound = "expected 1 to 20 steps; without the key, the plan has the default steps";
    for text in ["", &many] {
        assert!(steps(text)[0].ends_with(bound), "{:?}", steps(text));
    }
}

#[test]
fn a_plan_names_lists_and_parts_that_exist() {
    assert_eq!(
        plan_faults("match: {lists: ['authorities[x]']}"),
        ["match.lists[0]: found \"authorities[x]\"; expected a server list of this file: xds_servers"]
    );
    assert_eq!(
        plan_faults("match: {lists: []}"),
        [
            "match.lists: found a list; expected at least one server list; without the key, the plan covers every list"
        ]
    );
    assert_eq!(
        plan_faults("match: {node: {id: a, cluster: b}}"),
        ["match.node.id: no rule of `node_classes` splits by this part, so no node class has it"]
    );
    let classes = |rules: &str, node: &str| {
        format!("node_classes: [{rules}]\nrollouts: [{{name: a, mode: observe, match: {{node: {node}}}}}]")
    };
    let all = "match: {names: old}, split_by: {locality: region, metadata: [[labels, rev]]}";
    let all = format!("{{{all}}}");
    let absent = "splits by this part, so no node class has it";
    for (node, key) in [
        ("{locality: {zone: z}}", "locality.zone"),
        ("{metadata: [{path: [labels, app], present: true}]}", "metadata"),
        ("{user_agent_name: envoy}", "user_agent_name"),
    ] {
        assert_eq!(
            faults(&classes(&all, node)),
            [format!("match.node.{key}: no rule of `node_classes` {absent}")]
        );
    }
    for node in
        ["{locality: {region: z}}", "{metadata: [{path: [labels, rev, x], exact: 1}]}", "{cluster: ''}"]
    {
        assert_eq!(plans(&classes(&all, node)).len(), 1, "{node}");
    }
    let all_but = "{match: {names: old}, split_by: {metadata: {all_but: [[labels, app]]}}}";
    let of_path = |path: &str| format!("{{metadata: [{{path: [{path}], present: true}}]}}");
    let left_out = faults(&classes(all_but, &of_path("labels, app, x")));
    assert_eq!(left_out, [format!("match.node.metadata: no rule of `node_classes` {absent}")]);
    assert_eq!(plans(&classes(all_but, &of_path("labels, rev"))).len(), 1);
    let parts = "{match: {names: old}, split_by: {id: {separator: '~', parts: [0]}}}";
    assert_eq!(
        faults(&classes(parts, "{id: {prefix: sidecar}}")),
        [format!("match.node.id: no rule of `node_classes` {absent}")]
    );
    let apart = "{match: {cluster: c}, split_by: {cluster: true}}, {split_by: {id: true}}";
    assert_eq!(
        faults(&classes(apart, "{cluster: c, id: i}")),
        ["match.node: no rule of `node_classes` splits by all of these parts, so no node class has them"]
    );
}

#[test]
fn a_plan_gates_types_and_gathers_in_time() {
    assert!(plan_faults("gated: []")[0].contains("expected at least one type"));
    let secret = "envoy.extensions.transport_sockets.tls.v3.Secret";
    assert!(plan_faults(&format!("gated: [{secret}]"))[0].contains("a type other than Secret"));
    assert_eq!(
        plan_faults("gather: {quiet: 20s}"),
        ["gather.max: is shorter than `quiet`: each push would be cut in the middle"]
    );
    let by = "expected id, cluster, locality.zone or a list of keys of the metadata";
    for value in ["zone", "7", "{}"] {
        assert!(plan_faults(&format!("bucket_by: {value}"))[0].ends_with(by), "{value}");
    }
}

/// The warnings of plans, each with its path.
fn warned(text: &str) -> Vec<(String, String)> {
    let warnings = read(&format!("{SERVER}{text}")).expect(text).warnings;
    let of_plans = warnings.into_iter().filter(|warning| warning.path.starts_with("rollouts"));
    of_plans.map(|warning| (warning.path, warning.text)).collect()
}

#[test]
fn wav_8_a_plan_that_enforces_without_a_checkpoint_is_warned_of() {
    let plan = "rollouts: [{name: a, mode: enforce}]";
    let warnings = warned(plan);
    assert_eq!((warnings.len(), &*warnings[0].0), (1, "rollouts[0].mode"));
    assert!(
        warnings[0].1.starts_with("without `checkpoint`, a restart forgets what the plan holds back"),
        "{warnings:?}"
    );
    assert_eq!(warned(&format!("{plan}\ncheckpoint: off")).len(), 1);
    assert_eq!(warned(&format!("{plan}\ncheckpoint: {{directory: a}}")), []);
    assert_eq!(warned("rollouts: [{name: a, mode: observe}]"), []);
}

#[test]
fn units_of_two_plans_are_warned_of() {
    let two = |first: &str, second: &str| {
        let classes = "node_classes: [{split_by: {cluster: true, locality: zone}}]\n";
        let plan = |name, keys: &str| format!("{{name: {name}, mode: observe, match: {{{keys}}}}}");
        warned(&format!("{classes}rollouts: [{}, {}]", plan("a", first), plan("b", second)))
    };
    let shared = "units that the plan \"a\" matches, too, are that plan's: the first match decides";
    let shared = [("rollouts[1].match".to_owned(), shared.to_owned())];
    let (edge, zone) = ("node: {cluster: edge}", "node: {locality: {zone: z}}");
    assert_eq!(two(edge, zone), shared);
    assert_eq!(two("node: {cluster: {prefix: ed}}", edge), shared);
    assert_eq!(two("lists: [xds_servers]", edge), shared);
    assert_eq!(two(edge, "node: {cluster: batch}"), []);
    assert_eq!(two(edge, ""), [], "the rest of the units");
    assert_eq!(two("lists: [xds_servers], node: {cluster: edge}", "lists: [xds_servers]"), []);
}

#[test]
fn wav_14_a_step_for_clients_outside_of_the_plans_units_is_refused() {
    let plan = |units: &str, clients: &str| {
        format!(
            "node_classes: [{{split_by: {{cluster: true, metadata: [[labels, app]]}}}}]\n\
             rollouts: [{{name: a, mode: observe, match: {{node: {units}}}, steps: [{{clients: {clients}}}]}}]"
        )
    };
    let reason =
        "steps[0].clients: no client of the plan's units is so: `match.node` of the plan says otherwise";
    let label = |value: &str| format!("{{metadata: [{{path: [labels, app], exact: {value}}}]}}");
    assert_eq!(faults(&plan("{cluster: edge}", "{cluster: batch}")), [reason]);
    assert_eq!(faults(&plan(&label("edge"), &label("batch"))), [reason]);
    for (units, clients) in [
        ("{cluster: edge}".to_owned(), "{cluster: {prefix: ed}}".to_owned()),
        ("{cluster: ''}".to_owned(), "{cluster: batch}".to_owned()),
        (label("edge"), "{metadata: [{path: [labels, canary], exact: true}]}".to_owned()),
    ] {
        assert_eq!(plans(&plan(&units, &clients)).len(), 1, "{units} {clients}");
    }
}

#[test]
fn his_1_the_past_of_all_plans_is_as_long_as_history_says() {
    let two = "rollouts: [{name: a, mode: observe, match: {lists: [xds_servers]}}, {name: b, mode: observe}]";
    let lengths = |text: &str| plans(text).iter().map(|plan| plan.releases).collect::<Vec<_>>();
    assert_eq!(
        (lengths(two), lengths(&format!("history: {{pushes: 3}}\n{two}"))),
        (vec![10, 10], vec![3, 3])
    );
    assert_eq!(
        faults("history: {pushes: 0}"),
        ["history.pushes: found 0; expected an integer from 1 to 100"]
    );
    let later = faults("history: {directory: a}");
    assert!(later[0].starts_with("history.directory: ") && later[0].contains("kept in memory"), "{later:?}");
}
