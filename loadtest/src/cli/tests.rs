#![allow(clippy::unwrap_used)]

use clap::{Parser, ValueEnum};

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    run: Run,
}

fn spec(options: &str) -> Result<Spec, String> {
    let words = ["run", "--target", "127.0.0.1:1"].into_iter().chain(options.split_whitespace());
    let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
    line.run.spec().map_err(|error| format!("{error:#}"))
}

fn subscriptions(options: &str) -> Vec<String> {
    spec(options).unwrap().profile.describe()
}

#[test]
fn the_short_command_is_a_standard_run() {
    let spec = spec("--clients 7 --resources 9 --size 300 --mode delta --changes 2 --pid 1").unwrap();
    assert_eq!((spec.clients, spec.resources, spec.resource_bytes, spec.changes), (7, 9, 300, 2));
    assert_eq!((spec.scenario, spec.pid, spec.profile.variant), (Scenario::Rounds, Some(1), Variant::Delta));
    assert_eq!(spec.profile.describe(), ["cds wildcard"]);
    assert_eq!((spec.pace.kind, spec.pace.stride, spec.pace.cycle()), (Kind::Cluster, 9, 1));
}

#[test]
fn clients_ask_for_what_they_imitate() {
    assert_eq!(
        subscriptions("--like envoy"),
        ["cds wildcard", "eds by 10 names", "lds wildcard", "rds by 10 names"]
    );
    assert_eq!(
        subscriptions("--like grpc"),
        ["lds by 1 names", "rds by 1 names", "cds by 1 names", "eds by 1 names"]
    );
    assert_eq!(subscriptions("--eds-names 3"), ["cds wildcard", "eds by 3 names"]);
    assert_eq!(subscriptions("--named rds,eds --names 4"), ["eds by 4 names", "rds by 4 names"]);
    assert_eq!(subscriptions("--scenario churn"), ["eds by 10 names"]);
    assert_eq!(subscriptions("--like envoy --resources 2")[1], "eds by 2 names");
    let envoy = spec("--like envoy").unwrap();
    assert!(envoy.profile.chained && envoy.profile.node.bytes == 61_000);
    assert_eq!(spec("--like envoy --node-bytes 5").unwrap().profile.node.bytes, 5);
    assert_eq!(spec("--scenario churn").unwrap().pace.kind, Kind::Endpoints);
}

#[test]
fn changes_touch_about_as_many_as_asked() {
    let pace = |options: &str| spec(options).unwrap().pace;
    assert_eq!(pace("--resources 1000 --touch 10 --rotate").stride, 100);
    assert_eq!(pace("--resources 1000 --touch 10 --rotate").cycle(), 100);
    assert_eq!(pace("--resources 10 --touch 100").stride, 1);
    assert_eq!(spec("--resources 1000 --touch 10").unwrap().profile.sought.most, 10);
}

#[test]
fn only_scenarios_with_odd_clients_have_some() {
    assert_eq!(spec("--share 50").unwrap().odd_share, 0.0);
    let stuck = spec("--scenario stuck --share 50").unwrap();
    assert_eq!((stuck.odd_share, stuck.odd_manner.reading), (0.5, Reading::Stopped));
    assert!(spec("--scenario nack").unwrap().odd_manner.nack);
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    for (options, words) in [
        ("--clients 0", "--clients"),
        ("--resources 0", "--resources"),
        ("--no-control-plane", "--changes 0"),
        ("--no-control-plane --scenario outage", "own control plane"),
        ("--named eds --names 101", "more than --resources"),
        ("--wildcard cds --eds-names 101", "more than --resources"),
        ("--wildcard eds --named eds", "requested twice"),
        ("--wildcard lds --change-type rds", "no client asks for"),
        ("--scenario churn --wildcard cds", "--named"),
        ("--scenario churn --resources 10", "--churn-names"),
        ("--duration 1e9", "--duration"),
        ("--rate 1e9", "--rate"),
        ("--scenario stuck --share 101", "--share"),
        ("--node-metadata x", "KEY=VALUE"),
        ("--assert p99", "none of"),
        ("--eds-names 1 --named eds", "cannot be used"),
        ("--identities 2", "--tls"),
        ("--key-exchange classic", "--tls"),
        ("--tls /nowhere --key-exchange quantum", "hybrid, classic"),
    ] {
        let error = spec(options).map(drop).unwrap_err();
        assert!(error.contains(words), "{options}: {error}");
    }
}

#[test]
fn names_may_come_from_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "one\n\n two \nthree\n").unwrap();
    let path = file.path().display();
    let options = format!("--no-control-plane --changes 0 --named eds --names 2 --names-file {path}");
    let profile = spec(&options).unwrap().profile;
    assert_eq!([2, 3].map(|index| profile.name(index)), ["three", "one"]);
}

/// The words of a shell line, without quotes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in line.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            None if c == ' ' => words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty())),
            _ => word.push(c),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

#[test]
fn every_command_of_the_readme_is_one() {
    let readme = include_str!("../../README.md").replace("\\\n", " ").replace("\"$(pidof sluice)\"", "1");
    let commands: Vec<&str> =
        readme.lines().filter_map(|line| line.strip_prefix("sluice-load run ")).collect();
    let mut scenarios = Vec::new();
    for command in &commands {
        let words = words(&command.replace("T --", "--target 127.0.0.1:1 --pid 1 --"));
        let line = Line::try_parse_from(["run".to_owned()].into_iter().chain(words));
        let spec = line.map_err(|error| format!("{command}: {error}")).unwrap().run.spec();
        scenarios.push(spec.map_err(|error| format!("{command}: {error:#}")).unwrap().scenario);
    }
    for scenario in Scenario::value_variants() {
        assert!(scenarios.contains(scenario), "the README has no command for {scenario:?}");
    }
}
