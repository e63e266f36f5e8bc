//! The command line of `run`, and its conversion to a [`Spec`].

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::assertion::Assertion;
use crate::client::{ENVOY_NODE_BYTES, Like, Manner, Node, Profile, Reading, Subscription, Wanted};
use crate::control_plane::Plan;
use crate::function::Function;
use crate::load::Load;
use crate::run::{Churn, Pace, Scenario, Source, Spec, resolve};
use crate::stamp::Sought;
use crate::tls::{KeyExchange, Tls};
use crate::xds::{Kind, Variant};

/// The default number of names of a type for a client.
const ENVOY_NAMES: usize = 10;
const GRPC_NAMES: usize = 1;

#[derive(Args)]
#[command(after_long_help = crate::assertion::help())]
pub struct Run {
    /// The xDS server under test
    #[arg(long, value_name = "HOST:PORT")]
    target: String,
    /// Process of the server, to read its memory and CPU time; without a pid those figures are left out.
    /// Memory per client is meaningful only for a fresh server: allocators keep memory of earlier clients
    #[arg(long)]
    pid: Option<i32>,
    /// The scenario to run
    #[arg(long, value_enum, default_value_t = Scenario::Rounds)]
    scenario: Scenario,
    /// Duration of the scenario in seconds, without connecting and settling (rounds: until done)
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    duration: f64,

    #[command(flatten)]
    clients: Clients,
    #[command(flatten)]
    plane: Plane,
    #[command(flatten)]
    events: Events,
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
#[command(next_help_heading = "Clients")]
struct Clients {
    /// Number of simulated clients
    #[arg(long, default_value_t = 1000)]
    clients: usize,
    /// Variant of the clients
    #[arg(long, value_enum, default_value_t = Variant::Sotw)]
    mode: Variant,
    /// Kind of client whose node and first requests to imitate
    #[arg(long, value_enum, default_value_t = Like::Plain)]
    like: Like,
    /// Use a stream per type, on the service of the type, instead of one aggregated stream
    #[arg(long)]
    per_type: bool,
    /// Number of clients that share a connection, each with its own streams
    #[arg(long, default_value_t = 1, value_name = "COUNT")]
    clients_per_connection: usize,
    /// Types to ask for by wildcard [default: cds, or as in --like]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "TYPES")]
    wildcard: Vec<Kind>,
    /// Types to ask for by name [default: none, or as in --like]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "TYPES")]
    named: Vec<Kind>,
    /// Number of names of each of those types [default: 10; with --like grpc 1]
    #[arg(long, value_name = "COUNT")]
    names: Option<usize>,
    /// Offset between the first names of two consecutive clients; 0 gives all clients the same names
    /// [default: as many as --names, so that neighbours have different names]
    #[arg(long, value_name = "COUNT")]
    names_step: Option<usize>,
    /// Take the names from this file, one per line, instead of from the tool's own control plane
    #[arg(long, value_name = "FILE")]
    names_file: Option<PathBuf>,
    /// Like --named eds with this number of names, the same for all clients
    #[arg(long, default_value_t = 0, value_name = "COUNT", conflicts_with = "named")]
    eds_names: usize,
    /// Approximate size of a client's node in bytes [default: as small as possible; with --like envoy 61000]
    #[arg(long, value_name = "BYTES")]
    node_bytes: Option<usize>,
    /// Repeat the node in every request, ACKs included, as Envoy does by default
    #[arg(long)]
    node_every_request: bool,
    /// Id of the node; `{}` stands for the client's number
    #[arg(long, value_name = "ID", default_value = "sluice-load-{}")]
    node_id: String,
    /// Cluster of the node
    #[arg(long, value_name = "NAME", default_value = "sluice-load")]
    node_cluster: String,
    /// A string in the node's metadata; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    node_metadata: Vec<(String, String)>,
    /// Speak TLS, with the certificates that `sluice-load certs` wrote to this directory
    #[arg(long, value_name = "DIRECTORY")]
    tls: Option<PathBuf>,
    /// Number of client certificates, which connections take in turn; 0: clients show none
    #[arg(long, default_value_t = 1, value_name = "COUNT", requires = "tls")]
    identities: usize,
    /// Groups that clients offer for the key exchange of TLS
    #[arg(long, value_enum, default_value_t = KeyExchange::Hybrid, requires = "tls")]
    key_exchange: KeyExchange,
    /// Number of clusters in the load reports of each client; 0: clients do not report
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    load_clusters: usize,
    /// Number of localities of each of these clusters
    #[arg(long, default_value_t = 3, value_name = "COUNT")]
    load_localities: usize,
    /// Reconnect clients a second after a lost connection, instead of leaving them disconnected; the loss
    /// counts as an error in both cases
    #[arg(long)]
    retry: bool,
}

#[derive(Args)]
#[command(next_help_heading = "Control plane")]
struct Plane {
    /// Address of the tool's own control plane, the upstream of the server under test
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:18001")]
    control_plane: SocketAddr,
    /// Use a running `sluice-load control-plane` on this machine instead, by its command address
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["control_plane", "no_control_plane"])]
    remote_control_plane: Option<SocketAddr>,
    /// Serve nothing and change nothing: connect to a server with resources from elsewhere
    #[arg(long, conflicts_with = "control_plane")]
    no_control_plane: bool,
    /// Number of resources of each type
    #[arg(long, default_value_t = 100)]
    resources: usize,
    /// Approximate size of a resource of the changing type in bytes, at least about 200; resources of other
    /// types are small
    #[arg(long, default_value_t = 500, value_name = "BYTES")]
    size: usize,
    /// rounds: number of changes
    #[arg(long, default_value_t = 5)]
    changes: usize,
    /// Other scenarios: changes per second, whether or not the server keeps up; 0 for none
    #[arg(long, default_value_t = 1.0, value_name = "PER_SECOND")]
    rate: f64,
    /// Approximate number of resources in each change
    #[arg(long, default_value_t = 1, value_name = "COUNT")]
    touch: usize,
    /// Change other resources each time, until all have had their turn
    #[arg(long)]
    rotate: bool,
    /// Type of the changing resources [default: cds if clients ask for clusters, or the first type that they
    /// ask for]
    #[arg(long, value_enum, value_name = "TYPE")]
    change_type: Option<Kind>,
    /// Interval at which the control plane asks for load reports, in seconds. A control plane in another process needs
    /// the same --load-interval
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    load_interval: f64,
    #[command(flatten)]
    function: FunctionOptions,
}

/// The labels that the tool's control plane looks at in its clients.
#[derive(Args)]
pub struct FunctionOptions {
    /// Labels in the metadata of the clients' nodes, with the number of values of each; clients take the values in
    /// turn. The control plane has other content for each value of the first label, and clients check that they
    /// have theirs. A control plane in another process needs the same --labels and --rule
    #[arg(long, value_name = "KEY=COUNT", value_delimiter = ',', value_parser = key_value)]
    labels: Vec<(String, String)>,
    /// rule: the clients that get another first resource, by the numbers of their values
    #[arg(long, value_name = "KEY=NUMBER", value_delimiter = ',', value_parser = key_value, requires = "labels")]
    rule: Vec<(String, String)>,
}

impl FunctionOptions {
    pub fn read(&self) -> Result<Function> {
        Function::new(&self.labels, &self.rule)
    }
}

#[derive(Args)]
#[command(next_help_heading = "Events of scenarios")]
struct Events {
    /// slow, stuck, nack: share of misbehaving clients, in percent
    #[arg(long, default_value_t = 10.0, value_name = "PERCENT")]
    share: f64,
    /// slow: bytes per second that each of them reads
    #[arg(long, default_value_t = 100_000, value_name = "BYTES")]
    slow_bytes: u64,
    /// slow: delay before each of their ACKs, in milliseconds
    #[arg(long, default_value_t = 500, value_name = "MS")]
    ack_delay_ms: u64,
    /// churn: moves to other names per client and second
    #[arg(long, default_value_t = 1.0, value_name = "PER_SECOND")]
    churn_rate: f64,
    /// churn: names dropped and added in each move
    #[arg(long, default_value_t = 1, value_name = "COUNT")]
    churn_names: usize,
    /// Disconnect all clients but one at the end, and measure the remaining memory of the server after this
    /// number of seconds [default without a number: 5]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "5")]
    leave: Option<f64>,
}

#[derive(Args)]
#[command(next_help_heading = "Timing")]
struct Timing {
    /// Maximum number of connections that wait for a first answer while all connect at the beginning
    #[arg(long, default_value_t = 128, value_name = "COUNT")]
    in_flight: usize,
    /// Wait before memory is read, in milliseconds
    #[arg(long, default_value_t = 3000, value_name = "MS")]
    settle_ms: u64,
    /// rounds: wait after a change has reached all clients, in milliseconds
    #[arg(long, default_value_t = 500, value_name = "MS")]
    pause_ms: u64,
    /// Time without an answer or an update after which a client has failed, in seconds
    #[arg(long, default_value_t = 30.0, value_name = "SECONDS")]
    timeout_s: f64,
    /// Interval between points of the time series, in milliseconds
    #[arg(long, default_value_t = 250, value_name = "MS")]
    interval_ms: u64,
}

#[derive(Args)]
#[command(next_help_heading = "Output")]
struct Output {
    /// Write all figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with plots to this file; the page needs no other file and no network
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Fail if this does not hold, for example p99<200ms, errors=0 or rss_bytes_per_client<=24KiB; may be
    /// given several times. `--help` lists the figures
    #[arg(long, value_name = "FIGURE<VALUE", value_parser = Assertion::parse)]
    assert: Vec<Assertion>,
}

impl Run {
    pub fn json(&self) -> Option<&PathBuf> {
        self.output.json.as_ref()
    }

    pub fn report(&self) -> Option<&PathBuf> {
        self.output.report.as_ref()
    }

    pub fn assertions(&self) -> &[Assertion] {
        &self.output.assert
    }

    pub fn spec(&self) -> Result<Spec> {
        let profile = self.profile()?;
        let kinds: Vec<Kind> = profile.subscriptions.iter().map(|subscription| subscription.kind).collect();
        let first = kinds.first().copied().unwrap_or(Kind::Cluster);
        let default = if kinds.contains(&Kind::Cluster) { Kind::Cluster } else { first };
        let kind = self.plane.change_type.unwrap_or(default);
        let touch = self.plane.touch.clamp(1, self.plane.resources.max(1));
        let stride = (self.plane.resources / touch).max(1);
        let spec = Spec {
            name: self.target.clone(),
            scenario: self.scenario,
            target: resolve(&self.target)?,
            tls: self
                .clients
                .tls
                .as_ref()
                .map(|path| Tls::read(path, self.clients.identities, self.clients.key_exchange))
                .transpose()?,
            pid: self.pid,
            clients: self.clients.clients,
            resources: self.plane.resources,
            resource_bytes: self.plane.size,
            source: self.source(&kinds, kind, &profile.function)?,
            changes: self.plane.changes,
            pace: Pace { kind, stride, rotate: self.plane.rotate, rate: self.plane.rate },
            duration: seconds(self.duration, "--duration")?,
            odd_share: self.odd_share(),
            odd_manner: self.odd_manner(),
            churn: Churn { rate: self.events.churn_rate, names: self.events.churn_names },
            in_flight: self.timing.in_flight,
            settle: Duration::from_millis(self.timing.settle_ms),
            pause: Duration::from_millis(self.timing.pause_ms),
            patience: seconds(self.timing.timeout_s, "--timeout-s")?,
            retry: self.clients.retry,
            leave: self.events.leave.map(|after| seconds(after, "--leave")).transpose()?,
            interval: Duration::from_millis(self.timing.interval_ms.max(10)),
            profile: Profile { sought: self.sought(stride, profile.function.has_labels()), ..profile },
        };
        spec.check()?;
        Ok(spec)
    }

    /// The approximate duration of the run, for the live view.
    pub fn expected(&self, spec: &Spec) -> Duration {
        let acting = match spec.scenario {
            Scenario::Rounds => spec.pause * u32::try_from(spec.changes).unwrap_or(u32::MAX),
            _ => spec.duration,
        };
        acting.saturating_add(spec.settle * 3)
    }

    fn source(&self, kinds: &[Kind], changing: Kind, function: &Function) -> Result<Source> {
        Ok(match self.plane.remote_control_plane {
            Some(address) => Source::Remote(address),
            None if self.plane.no_control_plane => Source::Foreign,
            None => Source::Own(Plan {
                listen: self.plane.control_plane,
                commands: None,
                resources: self.plane.resources,
                kinds: plan_kinds(kinds, changing, self.plane.size),
                function: function.clone(),
                load_interval: load_interval(self.plane.load_interval)?,
            }),
        })
    }

    fn load(&self) -> Result<Option<Load>> {
        let Clients { load_clusters: clusters, load_localities: localities, .. } = self.clients;
        let interval = load_interval(self.plane.load_interval)?;
        Ok((clusters > 0).then_some(Load { clusters, localities, interval }))
    }

    /// The stamps to look for. With a known number of stamps per message, the search can end early.
    fn sought(&self, stride: usize, has_labels: bool) -> Sought {
        let is_churn = self.scenario == Scenario::Churn;
        let all = self.plane.rotate || self.plane.no_control_plane || is_churn || has_labels;
        let most = if all { usize::MAX } else { self.plane.resources.div_ceil(stride) };
        Sought { unchanged: is_churn || has_labels, most }
    }

    fn odd_share(&self) -> f64 {
        let odd = matches!(self.scenario, Scenario::Slow | Scenario::Stuck | Scenario::Nack);
        if odd { self.events.share / 100.0 } else { 0.0 }
    }

    fn odd_manner(&self) -> Manner {
        let prompt = Manner::default();
        match self.scenario {
            Scenario::Slow => Manner {
                reading: Reading::Slow(self.events.slow_bytes.max(1)),
                ack_delay_ns: self.events.ack_delay_ms * 1_000_000,
                ..prompt
            },
            Scenario::Stuck => Manner { reading: Reading::Stopped, ..prompt },
            Scenario::Nack => Manner { nack: true, remembers: true, ..prompt },
            _ => prompt,
        }
    }

    fn profile(&self) -> Result<Profile> {
        let clients = &self.clients;
        let names = clients.names_file.as_ref().map(|path| read_names(path.as_path())).transpose()?;
        let (wildcard, named) = self.types();
        let default = if clients.like == Like::Grpc { GRPC_NAMES } else { ENVOY_NAMES };
        let available = names.as_ref().map_or(self.plane.resources, |names| names.len());
        let count = clients.names.unwrap_or(default.min(available.max(1)));
        let step = clients.names_step.unwrap_or(count);
        let by_name = |kind: &Kind| Subscription { kind: *kind, wanted: Wanted::Names { count, step } };
        let all = |kind: &Kind| Subscription { kind: *kind, wanted: Wanted::Wildcard };
        let mut subscriptions: Vec<_> = wildcard.iter().map(all).chain(named.iter().map(by_name)).collect();
        if clients.eds_names > 0 {
            let wanted = Wanted::Names { count: clients.eds_names, step: 0 };
            subscriptions.push(Subscription { kind: Kind::Endpoints, wanted });
        }
        let order = match clients.like {
            Like::Grpc => [Kind::Listener, Kind::Route, Kind::Cluster, Kind::Endpoints],
            Like::Plain | Like::Envoy => [Kind::Cluster, Kind::Endpoints, Kind::Listener, Kind::Route],
        };
        let rank = |subscription: &Subscription| order.iter().position(|kind| *kind == subscription.kind);
        subscriptions.sort_by_key(rank);
        let twice = subscriptions.windows(2).find(|pair| pair[0].kind == pair[1].kind);
        if let Some([again, _]) = twice {
            anyhow::bail!("{} is requested twice: give --wildcard or --named, not both", again.kind.short());
        }
        let foreign = self.plane.no_control_plane;
        Ok(Profile {
            variant: clients.mode,
            per_type: clients.per_type,
            subscriptions,
            chained: clients.like != Like::Plain,
            node: self.node(),
            function: self.plane.function.read()?,
            resources: if foreign { 0 } else { self.plane.resources },
            names,
            clients_per_connection: clients.clients_per_connection,
            sought: Sought { unchanged: false, most: 1 },
            load: self.load()?,
        })
    }

    /// The types by wildcard and those by name.
    fn types(&self) -> (Vec<Kind>, Vec<Kind>) {
        let (wildcard, named) = (&self.clients.wildcard, &self.clients.named);
        if !wildcard.is_empty() || !named.is_empty() {
            return (wildcard.clone(), named.clone());
        }
        match self.clients.like {
            _ if self.scenario == Scenario::Churn => (Vec::new(), vec![Kind::Endpoints]),
            Like::Plain => (vec![Kind::Cluster], Vec::new()),
            Like::Envoy => (vec![Kind::Cluster, Kind::Listener], vec![Kind::Endpoints, Kind::Route]),
            Like::Grpc => (Vec::new(), vec![Kind::Listener, Kind::Route, Kind::Cluster, Kind::Endpoints]),
        }
    }

    fn node(&self) -> Node {
        let clients = &self.clients;
        let default = if clients.like == Like::Envoy { ENVOY_NODE_BYTES } else { 0 };
        Node {
            like: clients.like,
            id: clients.node_id.clone(),
            cluster: clients.node_cluster.clone(),
            metadata: clients.node_metadata.clone(),
            bytes: clients.node_bytes.unwrap_or(default),
            every_request: clients.node_every_request,
        }
    }
}

/// Only the changing type has the requested size; resources of other types are as small as possible.
pub fn plan_kinds(kinds: &[Kind], changing: Kind, bytes: usize) -> Vec<(Kind, usize)> {
    kinds.iter().map(|kind| (*kind, if *kind == changing { bytes } else { 0 })).collect()
}

fn read_names(path: &Path) -> Result<Arc<[String]>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let names: Vec<String> = lines.map(str::to_owned).collect();
    ensure!(!names.is_empty(), "{} has no names", path.display());
    Ok(names.into())
}

fn seconds(value: f64, option: &str) -> Result<Duration> {
    let valid = Duration::try_from_secs_f64(value).ok().filter(|time| *time <= Duration::from_secs(86_400));
    valid.with_context(|| format!("{option} must be between 0 and 86400 seconds, not {value}"))
}

pub fn load_interval(value: f64) -> Result<Duration> {
    let interval = seconds(value, "--load-interval")?;
    ensure!(!interval.is_zero(), "--load-interval must be more than 0 seconds");
    Ok(interval)
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("it is not KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests;
