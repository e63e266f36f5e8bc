#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::relay::free_address;
use crate::xds::Variant;

/// A small run against the control plane itself, in this process.
fn scenario(variant: Variant) -> Scenario {
    let listen = free_address().unwrap();
    let (clusters, cluster_bytes) = (20, 1000);
    Scenario {
        name: "test".to_owned(),
        target: listen,
        pid: Some(std::process::id().cast_signed()),
        clients: 25,
        profile: Profile { variant, node_bytes: 0, node_every_request: false, endpoint_names: 0 },
        clusters,
        cluster_bytes,
        changes: 3,
        source: Source::Own(Plan { listen, commands: None, clusters, cluster_bytes }),
        in_flight: 10,
        settle: Duration::from_millis(10),
        pause: Duration::from_millis(10),
        patience: Duration::from_secs(10),
    }
}

#[test]
fn every_client_gets_every_change() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let figures = run(&scenario(variant)).unwrap();
        assert_eq!(figures.error_messages, Vec::<String>::new());
        assert_eq!(figures.connected, 25);
        assert!(figures.last_client_ms_p50.unwrap() > 0.0);
        assert!(figures.server_cpu_us_per_update.unwrap() > 0.0);
        let (least, most) = if variant == Variant::Sotw { (20_000.0, 24_000.0) } else { (1_000.0, 1_400.0) };
        let bytes = figures.bytes_per_update.unwrap();
        assert!((least..most).contains(&bytes), "{bytes}");
    }
}

#[test]
fn long_nodes_and_names_go_through() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut scenario = scenario(variant);
        scenario.profile =
            Profile { variant, node_bytes: 61_000, node_every_request: true, endpoint_names: 5 };
        scenario.clusters = 3000;
        scenario.source = match scenario.source {
            Source::Own(plan) => Source::Own(Plan { clusters: 3000, ..plan }),
            other => other,
        };
        let figures = run(&scenario).unwrap();
        assert_eq!(figures.error_messages, Vec::<String>::new());
    }
}

#[test]
fn a_remote_control_plane_makes_the_changes() {
    let mut scenario = scenario(Variant::Delta);
    let commands = free_address().unwrap();
    let plan = Plan { listen: scenario.target, commands: Some(commands), clusters: 20, cluster_bytes: 1000 };
    let control_plane = ControlPlane::start(&plan).unwrap();
    scenario.source = Source::Remote(commands);
    let figures = run(&scenario).unwrap();
    assert_eq!(figures.error_messages, Vec::<String>::new());
    drop(control_plane);
}

#[test]
fn a_target_that_refuses_is_an_error_of_every_client() {
    let mut scenario = scenario(Variant::Sotw);
    scenario.target = free_address().unwrap();
    let figures = run(&scenario).unwrap();
    assert_eq!((figures.connected, figures.errors), (0, 2));
    assert!(figures.error_messages[0].contains("refused"), "{:?}", figures.error_messages);
}

#[test]
fn an_update_that_does_not_come_is_an_error() {
    let mut scenario = scenario(Variant::Sotw);
    let plan = Plan { listen: scenario.target, commands: None, clusters: 20, cluster_bytes: 1000 };
    let control_plane = ControlPlane::start(&plan).unwrap();
    // The changes are made at a control plane of which the target knows nothing.
    let listen = free_address().unwrap();
    scenario.source = Source::Own(Plan { listen, ..plan });
    scenario.patience = Duration::from_millis(300);
    let figures = run(&scenario).unwrap();
    assert_eq!(figures.connected, 0);
    assert!(figures.error_messages[0].contains("25 x no update"), "{:?}", figures.error_messages);
    drop(control_plane);
}

#[test]
fn an_incomplete_answer_is_an_error() {
    let mut scenario = scenario(Variant::Sotw);
    scenario.clusters = 21;
    scenario.patience = Duration::from_millis(300);
    let figures = run(&scenario).unwrap();
    assert!(figures.error_messages[0].contains("no complete first answer"), "{:?}", figures.error_messages);
}

#[test]
fn without_a_control_plane_any_answer_is_complete() {
    let mut scenario = scenario(Variant::Sotw);
    let plan = Plan { listen: scenario.target, commands: None, clusters: 0, cluster_bytes: 1000 };
    let control_plane = ControlPlane::start(&plan).unwrap();
    scenario.source = Source::None;
    scenario.check().unwrap_err();
    scenario.changes = 0;
    scenario.check().unwrap();
    let figures = run(&scenario).unwrap();
    assert_eq!((figures.connected, figures.errors), (25, 0));
    drop(control_plane);
}
