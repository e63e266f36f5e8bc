//! The description of a run.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde::Serialize;

use crate::client::{Manner, Profile, Wanted};
use crate::control_plane::{Change, Plan};
use crate::load::MOST_LOCALITIES;
use crate::stamp::MOST_RESOURCES;
use crate::tls::Tls;
use crate::xds::Kind;

/// The scenario of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scenario {
    /// One change after the other, each after all clients have the previous one: latency and cost
    Rounds,
    /// Changes at a fixed rate, whether or not the server keeps up
    Steady,
    /// Clients connect one by one over the first half of the time, while changes continue
    Ramp,
    /// In the middle all clients lose their connection and reconnect at once
    Storm,
    /// Each client leaves and reconnects once, evenly over the time, as in a rolling restart
    Rolling,
    /// Each client drops names and adds others all the time
    Churn,
    /// In the second half a share of the clients reads slowly and delays each ACK
    Slow,
    /// In the second half a share of the clients reads nothing at all
    Stuck,
    /// In the second half a share of the clients rejects every update
    Nack,
    /// In the middle third the control plane is down; changes continue in the meantime and arrive after it
    Outage,
    /// In the middle the control plane begins to answer by further labels: the clients that --rule selects get
    /// another first resource
    Rule,
}

impl Scenario {
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The source of changes.
#[derive(Clone, Debug)]
pub enum Source {
    /// A control plane in this process, which is the upstream of the server under test.
    Own(Plan),
    /// A `sluice-load control-plane` in another process of this machine, by its command address.
    Remote(SocketAddr),
    /// Unknown: any answer is complete, and changes are visible only if resources carry stamps.
    Foreign,
}

/// The changing resources, and the rate of changes.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub kind: Kind,
    /// Every `stride`th resource changes.
    pub stride: usize,
    /// Change other resources each time, until all have had their turn.
    pub rotate: bool,
    /// Changes per second; 0 means none.
    pub rate: f64,
}

impl Pace {
    pub fn change(&self, number: usize) -> Change {
        let residue = if self.rotate { number % self.stride } else { 0 };
        Change { kind: self.kind, residue, stride: self.stride }
    }

    /// The number of changes after which the same resources change again.
    pub fn cycle(&self) -> usize {
        if self.rotate { self.stride } else { 1 }
    }
}

/// Changing subscriptions.
#[derive(Clone, Copy, Debug)]
pub struct Churn {
    /// Moves per client and second.
    pub rate: f64,
    /// The number of names dropped and added in each move.
    pub names: usize,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Spec {
    pub name: String,
    pub scenario: Scenario,
    pub target: SocketAddr,
    /// `None`: plaintext.
    pub tls: Option<Tls>,
    pub pid: Option<i32>,
    pub clients: usize,
    pub profile: Profile,
    /// The number of resources of each type at the control plane.
    pub resources: usize,
    pub resource_bytes: usize,
    pub source: Source,
    /// The number of changes in rounds.
    pub changes: usize,
    pub pace: Pace,
    pub duration: Duration,
    /// The share of the connections with misbehaving clients, from 0 to 1, and their behaviour.
    pub odd_share: f64,
    pub odd_manner: Manner,
    pub churn: Churn,
    /// The maximum number of clients that wait for their first answer at once while all connect.
    pub in_flight: usize,
    /// The wait before memory is read.
    pub settle: Duration,
    /// The wait after a change has reached all clients.
    pub pause: Duration,
    /// The time without an answer or an update after which a client has failed.
    pub patience: Duration,
    /// Clients reconnect after the loss of their connection.
    pub retry: bool,
    /// At the end all clients but one leave, and memory is read once more after this time.
    pub leave: Option<Duration>,
    /// The interval between points of the time series.
    pub interval: Duration,
}

impl Spec {
    /// The standard small run: rounds of one changed resource.
    pub fn rounds(name: &str, target: SocketAddr, profile: Profile, clients: usize, source: Source) -> Spec {
        let resources = profile.resources;
        Spec {
            name: name.to_owned(),
            scenario: Scenario::Rounds,
            target,
            tls: None,
            pid: None,
            clients,
            profile,
            resources,
            resource_bytes: 500,
            source,
            changes: 5,
            pace: Pace { kind: Kind::Cluster, stride: resources.max(1), rotate: false, rate: 1.0 },
            duration: Duration::from_secs(10),
            odd_share: 0.0,
            odd_manner: Manner::default(),
            churn: Churn { rate: 1.0, names: 1 },
            in_flight: 128,
            settle: Duration::from_secs(3),
            pause: Duration::from_millis(500),
            patience: Duration::from_secs(30),
            retry: false,
            leave: None,
            interval: Duration::from_millis(250),
        }
    }

    /// Index and size of the first subscription by names.
    pub fn named(&self) -> Option<(usize, usize, usize)> {
        self.profile.subscriptions.iter().enumerate().find_map(|(index, subscription)| {
            match subscription.wanted {
                Wanted::Names { count, step } => Some((index, count, step)),
                Wanted::Wildcard => None,
            }
        })
    }

    /// Checks conditions that the types of the arguments do not guarantee.
    pub fn check(&self) -> Result<()> {
        ensure!(self.clients > 0, "--clients must be at least 1");
        ensure!(self.in_flight > 0, "--in-flight must be at least 1");
        ensure!(self.profile.clients_per_connection > 0, "--clients-per-connection must be at least 1");
        ensure!(
            !self.profile.subscriptions.is_empty(),
            "the clients want nothing: give --wildcard or --named"
        );
        ensure!(self.pace.rate >= 0.0 && self.pace.rate <= 10_000.0, "--rate must be between 0 and 10000");
        ensure!((0.0..=1.0).contains(&self.odd_share), "--share must be between 0 and 100 %");
        self.check_source()?;
        ensure!(
            self.scenario != Scenario::Rule || self.profile.function.has_rule(),
            "--scenario rule needs --labels and --rule"
        );
        self.check_load()?;
        if self.scenario == Scenario::Churn {
            let (_, count, _) = self.named().context("--scenario churn needs a type in --named")?;
            let most = count.min(self.resources.saturating_sub(count));
            ensure!(
                self.churn.names > 0 && self.churn.rate > 0.0,
                "churn needs --churn-names and --churn-rate"
            );
            ensure!(
                self.churn.names <= most,
                "--churn-names must not be more than --names, and with them not more than --resources"
            );
        }
        Ok(())
    }

    fn check_load(&self) -> Result<()> {
        let Some(load) = self.profile.load else { return Ok(()) };
        ensure!(load.clusters <= MOST_RESOURCES, "--load-clusters must be at most {MOST_RESOURCES}");
        ensure!(
            (1..=MOST_LOCALITIES).contains(&load.localities),
            "--load-localities must be between 1 and {MOST_LOCALITIES}"
        );
        let loses =
            matches!(self.scenario, Scenario::Storm | Scenario::Rolling | Scenario::Outage) || self.retry;
        ensure!(
            !loses,
            "--load-clusters needs a scenario that keeps its connections: a lost one may lose a report"
        );
        ensure!(
            !matches!(self.source, Source::Foreign),
            "--load-clusters needs the tool's own control plane, which counts the reports"
        );
        Ok(())
    }

    fn check_source(&self) -> Result<()> {
        if matches!(self.source, Source::Foreign) {
            let changes = self.scenario == Scenario::Rounds && self.changes > 0;
            ensure!(
                !changes,
                "without a control plane nothing changes: give --changes 0, or another --scenario"
            );
            let needs = matches!(self.scenario, Scenario::Outage | Scenario::Churn | Scenario::Rule)
                || self.profile.function.has_labels();
            ensure!(
                !needs,
                "--scenario {} and --labels need the tool's own control plane",
                self.scenario.name()
            );
            return Ok(());
        }
        ensure!(self.resources > 0, "--resources must be at least 1: there must be something to change");
        ensure!(self.resources <= MOST_RESOURCES, "--resources must be at most {MOST_RESOURCES}");
        for subscription in &self.profile.subscriptions {
            if let Wanted::Names { count, .. } = subscription.wanted {
                let kind = subscription.kind.short();
                ensure!(count > 0, "clients that want {kind} by name must want one: give --names");
                ensure!(
                    count <= self.resources,
                    "clients want {count} names of {kind}, which is more than --resources"
                );
            }
        }
        let changing =
            self.profile.subscriptions.iter().any(|subscription| subscription.kind == self.pace.kind);
        let kind = self.pace.kind.short();
        ensure!(changing, "--change-type is {kind}, which no client asks for");
        Ok(())
    }
}

/// The first address of `HOST:PORT`.
pub fn resolve(target: &str) -> Result<SocketAddr> {
    let mut addresses = std::net::ToSocketAddrs::to_socket_addrs(target)
        .with_context(|| format!("{target} is not HOST:PORT or its host is unknown"))?;
    addresses.next().with_context(|| format!("{target} has no address"))
}
