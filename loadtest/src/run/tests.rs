#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::SocketAddr;
use std::time::Duration;

use super::*;
use crate::client::{Manner, Profile, Reading, Subscription, Wanted};
use crate::control_plane::{ControlPlane, Plan};
use crate::function::Function;
use crate::load::Load;
use crate::relay::free_address;
use crate::stamp::Sought;
use crate::xds::{Kind, Variant};

const RESOURCES: usize = 20;
const LOAD_INTERVAL: Duration = Duration::from_millis(100);

fn plan(listen: SocketAddr) -> Plan {
    let kinds = vec![(Kind::Cluster, 1000), (Kind::Endpoints, 1000), (Kind::Listener, 0), (Kind::Route, 0)];
    Plan {
        listen,
        commands: None,
        resources: RESOURCES,
        kinds,
        function: Function::default(),
        load_interval: LOAD_INTERVAL,
    }
}

/// A small run against the control plane itself, in this process.
fn spec(variant: Variant) -> Spec {
    let listen = free_address().unwrap();
    let profile = Profile::plain(variant, RESOURCES);
    let spec = Spec::rounds("test", listen, profile, 25, Source::Own(plan(listen)));
    let short = Duration::from_millis(10);
    Spec {
        pid: Some(std::process::id().cast_signed()),
        changes: 3,
        in_flight: 10,
        settle: short,
        pause: short,
        patience: Duration::from_secs(20),
        duration: Duration::from_millis(600),
        interval: Duration::from_millis(50),
        ..spec
    }
}

fn scenario(scenario: Scenario, variant: Variant) -> Spec {
    let mut spec = Spec { scenario, ..spec(variant) };
    spec.pace.rate = 20.0;
    spec
}

fn run(spec: &Spec) -> Figures {
    spec.check().unwrap();
    super::run(spec, None).unwrap()
}

/// Runs, and asserts that there was no error.
fn good(spec: &Spec) -> Figures {
    let figures = run(spec);
    assert_eq!(figures.error_messages, Vec::<String>::new());
    assert_eq!(figures.connected, spec.clients);
    figures
}

/// The phases with updates, and their numbers of updates.
fn phases(figures: &Figures) -> Vec<(&str, u64)> {
    let counted =
        figures.phases.iter().filter_map(|phase| Some((phase.name.as_str(), phase.update_ms?.count)));
    counted.collect()
}

#[test]
fn every_client_gets_every_change() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let figures = good(&spec(variant));
        assert_eq!((figures.updates, figures.changes), (75, 3));
        assert!(figures.last_client_ms_p50.unwrap() > 0.0);
        assert!(figures.server_cpu_us_per_update.unwrap() > 0.0);
        let (least, most) = if variant == Variant::Sotw { (20_000.0, 24_000.0) } else { (1_000.0, 1_400.0) };
        let bytes = figures.bytes_per_update.unwrap();
        assert!((least..most).contains(&bytes), "{bytes}");
        assert_eq!((figures.spread.max_ms.len(), figures.distribution.is_empty()), (25, false));
    }
}

#[test]
fn every_kind_of_client_is_served() {
    let by_name = |kind| Subscription { kind, wanted: Wanted::Names { count: 3, step: 3 } };
    for variant in [Variant::Sotw, Variant::Delta] {
        for (per_type, shared) in [(false, 1), (true, 1), (false, 4), (true, 10)] {
            let mut spec = spec(variant);
            spec.profile.subscriptions.extend([Kind::Endpoints, Kind::Listener, Kind::Route].map(by_name));
            spec.profile.node.bytes = 61_000;
            spec.profile.node.every_request = true;
            spec.profile.chained = true;
            (spec.profile.per_type, spec.profile.clients_per_connection) = (per_type, shared);
            assert_eq!(good(&spec).updates, 75, "{variant:?} {per_type} {shared}");
        }
    }
}

#[test]
fn named_clients_get_the_changes_that_they_want() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut spec = spec(variant);
        let wanted = Wanted::Names { count: 5, step: 5 };
        spec.profile.subscriptions = vec![Subscription { kind: Kind::Endpoints, wanted }];
        spec.profile.sought.most = usize::MAX;
        (spec.pace.kind, spec.pace.stride, spec.pace.rotate, spec.changes) = (Kind::Endpoints, 10, true, 20);
        // Each change touches two of twenty resources that are ten apart; a client has five in a row.
        assert_eq!(good(&spec).updates, 20 * 25 / 2, "{variant:?}");
    }
}

#[test]
fn changes_at_a_rate_are_all_seen() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let figures = good(&scenario(Scenario::Steady, variant));
        assert!(figures.changes >= 12, "{} changes, of which one is due every 50 ms", figures.changes);
        assert_eq!(figures.updates, figures.changes as u64 * 25);
        assert!(figures.series.len() > 5);
        let counted: f64 = figures.series.iter().map(|sample| sample.updates_per_s * sample.for_s).sum();
        assert!((counted - figures.updates as f64).abs() < 1.0, "{counted}");
    }
}

#[test]
fn a_ramp_opens_clients_while_changes_go_on() {
    let figures = good(&scenario(Scenario::Ramp, Variant::Delta));
    assert_eq!(phases(&figures).iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["ramp", "hold"]);
    let connected: Vec<usize> = figures.series.iter().map(|sample| sample.connected).collect();
    assert!(connected.iter().any(|count| (2..24).contains(count)), "{connected:?}");
}

#[test]
fn a_storm_and_a_rolling_restart_bring_everybody_back() {
    for (kind, variant) in [(Scenario::Storm, Variant::Sotw), (Scenario::Rolling, Variant::Delta)] {
        let figures = good(&scenario(kind, variant));
        assert_eq!(figures.reconnect_ms.unwrap().count, 25, "{kind:?}");
        assert_eq!(figures.first_answer_ms.unwrap().count, 25);
        assert_eq!(figures.recovery_ms.is_some(), kind == Scenario::Storm);
    }
}

#[test]
fn clients_that_churn_get_their_new_names() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut spec = scenario(Scenario::Churn, variant);
        let wanted = Wanted::Names { count: 4, step: 1 };
        spec.profile.subscriptions = vec![Subscription { kind: Kind::Endpoints, wanted }];
        spec.profile.sought = Sought { unchanged: true, most: usize::MAX };
        spec.pace.kind = Kind::Endpoints;
        spec.churn = Churn { rate: 10.0, names: 2 };
        let figures = good(&spec);
        assert_eq!(figures.subscribe_ms.unwrap().count, 6 * 25, "{variant:?}");
    }
}

#[test]
fn others_get_their_updates_while_some_misbehave() {
    let slow = Manner { reading: Reading::Slow(500_000), ack_delay_ns: 50_000_000, ..Manner::default() };
    let stuck = Manner { reading: Reading::Stopped, ..Manner::default() };
    let nack = Manner { nack: true, remembers: true, ..Manner::default() };
    let cases = [
        (Scenario::Slow, slow, Variant::Sotw),
        (Scenario::Stuck, stuck, Variant::Delta),
        (Scenario::Nack, nack, Variant::Sotw),
    ];
    for (kind, manner, variant) in cases {
        let spec = Spec { odd_share: 0.2, odd_manner: manner, ..scenario(kind, variant) };
        let figures = good(&spec);
        let [(before, all), (during, others)] = phases(&figures)[..] else { panic!() };
        assert_eq!((before, during), ("before", kind.name().as_str()));
        let odd = figures.odd_update_ms.map_or(0, |odd| odd.count);
        assert_eq!(odd > 0, kind != Scenario::Stuck, "{kind:?} {variant:?}: {odd}");
        // An update that is under way when the others begin to misbehave counts in both phases, in parts.
        let (changes, seen) = (figures.changes as u64, all + others + odd);
        let range = 20 * changes..=25 * changes;
        assert!(range.contains(&seen), "{kind:?}: {seen} updates of {changes} changes");
        match kind {
            // Reading 24 KB takes five steps of 10 ms.
            Scenario::Slow => assert!(figures.odd_update_ms.unwrap().p50 > 40.0),
            Scenario::Stuck => {
                let changes_before = changes - others / 20;
                let most = 25 + 25 * changes_before + others;
                assert!(figures.responses <= most, "{} were read, {most} at most", figures.responses);
            }
            _ => {}
        }
        assert!(figures.p99_ratio.is_some());
    }
}

/// A run in which the rule selects four of 25 clients: every sixth.
fn rule(variant: Variant) -> Spec {
    let pairs = |pairs: [(&str, &str); 2]| pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut spec = scenario(Scenario::Rule, variant);
    let function =
        Function::new(&pairs([("app", "3"), ("team", "2")]), &pairs([("app", "1"), ("team", "1")]));
    spec.profile.function = function.unwrap();
    spec.profile.sought = Sought { unchanged: true, most: usize::MAX };
    spec.source = Source::Own(Plan { function: spec.profile.function.clone(), ..plan(spec.target) });
    spec.patience = Duration::from_millis(300);
    spec
}

#[test]
fn a_rule_reaches_the_clients_that_it_selects_and_nobody_else() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let figures = good(&rule(variant));
        assert_eq!(figures.rule_ms.unwrap().count, 4, "{variant:?}");
        assert_eq!((figures.misplaced, figures.removals, figures.streams_ended), (0, 0, 0), "{variant:?}");
        assert!(figures.rule_at_ns.is_some() && figures.updates >= 20 * 12);
    }
}

#[test]
fn a_control_plane_that_does_not_look_at_a_label_is_told() {
    let errors = |edit: &dyn Fn(&mut Plan)| {
        let mut spec = rule(Variant::Delta);
        if let Source::Own(plan) = &mut spec.source {
            edit(plan);
        }
        run(&spec).error_messages.join("; ")
    };
    let labels = [("app".to_owned(), "3".to_owned()), ("team".to_owned(), "2".to_owned())];
    let text = errors(&|plan| plan.function = Function::new(&labels, &[]).unwrap());
    assert_eq!(text, "4 clients had not the content of the rule 0.3 s after the last change");
    let text = errors(&|plan| plan.function = Function::default());
    assert!(text.contains("resources that the control plane made for others"), "{text}");
}

#[test]
fn a_control_plane_that_goes_away_loses_its_clients() {
    let mut spec = scenario(Scenario::Outage, Variant::Delta);
    spec.retry = true;
    let figures = run(&spec);
    let words = ["closed by the server", "Connection refused", "Connection reset", "Broken pipe"];
    let known = |message: &String| words.iter().any(|words| message.contains(words));
    let messages = &figures.error_messages;
    assert!(!messages.is_empty() && messages.iter().all(known), "{messages:?}");
    assert_eq!(figures.connected, 25, "they have come back");
    let outage = figures.phases.iter().find(|phase| phase.name == "outage").unwrap();
    assert!(outage.update_ms.unwrap().max > 200.0, "changes during the outage were seen after it");
}

#[test]
fn a_remote_control_plane_makes_the_changes() {
    let mut spec = spec(Variant::Delta);
    let commands = free_address().unwrap();
    let control_plane = ControlPlane::start(&Plan { commands: Some(commands), ..plan(spec.target) }).unwrap();
    spec.source = Source::Remote(commands);
    assert_eq!(good(&spec).updates, 75);
    drop(control_plane);
}

#[test]
fn a_target_that_refuses_is_an_error_of_every_client() {
    let mut spec = spec(Variant::Sotw);
    spec.target = free_address().unwrap();
    let figures = run(&spec);
    assert_eq!((figures.connected, figures.errors), (0, 2));
    assert!(figures.error_messages[0].contains("refused"), "{:?}", figures.error_messages);
}

#[test]
fn an_update_that_does_not_come_is_an_error() {
    for kind in [Scenario::Rounds, Scenario::Steady] {
        let mut spec = scenario(kind, Variant::Delta);
        // The changes happen at a control plane without connections.
        let elsewhere = free_address().unwrap();
        let control_plane = ControlPlane::start(&plan(spec.target)).unwrap();
        spec.source = Source::Own(plan(elsewhere));
        spec.patience = Duration::from_millis(300);
        spec.duration = Duration::from_millis(100);
        let figures = run(&spec);
        let text = figures.error_messages.join("; ");
        let expected = if kind == Scenario::Rounds { "25 x no update" } else { "updates had not come" };
        assert!(text.contains(expected), "{text}");
        drop(control_plane);
    }
}

#[test]
fn an_incomplete_answer_is_an_error() {
    let mut spec = spec(Variant::Sotw);
    spec.profile.resources = RESOURCES + 1;
    spec.patience = Duration::from_millis(300);
    let figures = run(&spec);
    assert!(figures.error_messages[0].contains("no complete first answer"), "{:?}", figures.error_messages);
}

#[test]
fn without_a_control_plane_any_answer_is_complete() {
    let mut spec = spec(Variant::Sotw);
    let control_plane = ControlPlane::start(&Plan { resources: 0, ..plan(spec.target) }).unwrap();
    spec.source = Source::Foreign;
    spec.profile.resources = 0;
    spec.check().unwrap_err();
    spec.changes = 0;
    good(&spec);
    drop(control_plane);
}

#[test]
fn all_but_one_leave_if_they_are_told_to() {
    let mut spec = spec(Variant::Delta);
    (spec.leave, spec.clients) = (Some(spec.settle), 3);
    let figures = run(&spec);
    assert!(figures.rss_bytes_per_departed_client.is_some());
    assert_eq!((figures.connected, figures.errors), (3, 0));
}

#[test]
fn a_change_that_the_tool_makes_late_counts_from_when_it_was_due() {
    let spec = scenario(Scenario::Steady, Variant::Delta);
    let mut driver = driver::Driver::new(&spec, None).unwrap();
    driver.phase("late").unwrap();
    (0..25).for_each(|id| driver.open(id, crate::measure::monotonic_ns()));
    let patience = crate::measure::monotonic_ns() + 20_000_000_000;
    assert!(driver.until(patience, |driver| driver.fleet.connected() == 25).unwrap());
    driver.set_changing(true);
    // The thread sleeps for the time of at least four changes.
    std::thread::sleep(Duration::from_millis(200));
    assert!(driver.until(patience, |driver| driver.tracker.updates.count() >= 100).unwrap());
    let found = driver.tracker.updates.percentiles().unwrap();
    assert!(driver.late_ns >= 200_000_000 && found.max >= 200.0, "{found:?}");
    assert!(found.p50 >= 50.0, "the changes were due 200, 150, 100 and 50 ms ago: {found:?}");
}

#[test]
fn a_server_that_ends_during_the_run_is_told_and_the_rest_is_reported() {
    // Finds its port before there is a child that could hold it.
    let spec = scenario(Scenario::Steady, Variant::Delta);
    let mut process = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let pid = process.id().cast_signed();
    // The run takes three times as long as the process lives.
    let spec = Spec { pid: Some(pid), ..spec };
    let ending = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        process.kill().unwrap();
        process.wait().unwrap();
    });
    let figures = run(&spec);
    ending.join().unwrap();
    assert_eq!(figures.error_messages, ["the process of the server ended during the run"]);
    assert_eq!((figures.server_cpu_us_per_update, figures.updates), (None, figures.changes as u64 * 25));
    assert!(super::run(&spec, None).is_err(), "there is nothing to measure from the begin");
}

/// Reports of clients that are on a connection of their own, or share one.
fn reporting(shared: usize) -> Spec {
    let mut spec = scenario(Scenario::Steady, Variant::Delta);
    spec.profile.load = Some(Load { clusters: RESOURCES, localities: 3, interval: LOAD_INTERVAL });
    spec.profile.clients_per_connection = shared;
    spec
}

#[test]
fn load_reports_are_counted_to_the_request() {
    for shared in [1, 10] {
        let figures = good(&reporting(shared));
        let load = figures.load.unwrap();
        assert!(load.reports >= 2 * 25, "{} reports of 25 clients", load.reports);
        // The first message of each client is no report.
        let received = load.received;
        assert_eq!((received.streams, received.messages), (25, load.reports + 25));
        assert_eq!((received.sums, received.in_progress), (load.sums, load.in_progress));
        assert!(load.sums.issued > load.sums.success && load.sums.dropped > 0 && load.in_progress > 0);
        assert_eq!((load.answers, load.early_answers, load.shortest_interval_ms), (25, 0, Some(100.0)));
        assert!(figures.updates > 0);
    }
}

#[test]
fn a_server_that_does_not_count_all_reports_is_an_error() {
    let mut spec = reporting(1);
    // Nobody is asked for a report before the end.
    let Source::Own(plan) = &mut spec.source else { panic!() };
    plan.load_interval = Duration::from_secs(60);
    let errors = run(&spec).error_messages;
    assert_eq!(errors.len(), 1);
    assert!(errors[0].starts_with("no client sent a load report"), "{errors:?}");
    for (scenario, part) in
        [(Scenario::Storm, "keeps its connections"), (Scenario::Outage, "keeps its connections")]
    {
        let error = Spec { scenario, ..reporting(1) }.check().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
