//! The happenings of the proof, for operators: the log, the events and the metrics. No value of a resource
//! and no value of a node is among the words (PRF-17).

use std::sync::Arc;

use tokio::sync::watch;
use tracing::info;

use crate::driver::api::proof::ProofSummary;
use crate::driver::api::proof::{Replica, ReplicaComparison};
use crate::driver::ground::context::DriverContext;
use crate::telemetry::events::{Kind, Occurrence, tell};
use crate::telemetry::metrics::ServerProofMetrics;
use sluice_proof::proof::{ClassKey, Divergence, Happening, Lagging, Split};
use sluice_xds::{ResourceName, TypeUrl};

/// The names, or paths, in a line.
const SHOWN_MAX: usize = 5;

/// The events of one server.
pub(super) struct ProofTeller {
    pub shared: Arc<DriverContext>,
    pub server: Arc<str>,
    pub list: Arc<str>,
    pub metrics: ServerProofMetrics,
    /// The numbers for `/ready` (PRF-26).
    pub summary: watch::Sender<ProofSummary>,
}

/// The events of one class.
struct ClassEvents<'a> {
    teller: &'a ProofTeller,
    class: &'a ClassKey,
}

impl ClassEvents<'_> {
    fn add(&self, occurrence: Occurrence) {
        let event = occurrence.at_server(&self.teller.server, &self.teller.list).of_class(self.class);
        self.teller.shared.metrics.events.add(event);
    }
}

impl ProofTeller {
    /// `compared`: the comparison of replicas that has ended with the happening.
    pub fn tell(&self, happening: &Happening, compared: Option<&ReplicaComparison>) {
        let server = &self.server;
        match happening {
            Happening::Sampled { class: _, result } => self.metrics.sampled(*result),
            Happening::Diverged(divergence) => self.tell_divergence(divergence),
            Happening::DivergenceEnded(divergence) => {
                let Divergence { class, type_url, .. } = &**divergence;
                tell!(self.of(class), info(Proof, "the clients of a class get the same answers again")
                    .of_type(type_url); { %server, %class, %type_url });
            }
            Happening::Restless { class, type_url, names } => {
                let detail = words(names.iter().map(ResourceName::as_str), names.len());
                let names = (!type_url.is_secret()).then_some(&detail);
                tell!(self.of(class), warn(Proof, "the upstream answers the same question in two ways")
                    .of_type(type_url).detail(names.unwrap_or(&String::new()));
                    { %server, %class, %type_url, names }
                    + ", so these names cannot be proved: they differ for one and the same node");
            }
            Happening::Encoding { class, type_url, name } => {
                info!(%server, %class, %type_url, %name, "the upstream encodes equal content in unequal bytes, as with \
                    maps at random: each reconnect sends the resource again");
            }
            Happening::Lagging { class, who, type_url, name, behind } => {
                self.tell_lag(class, *who, type_url, name, behind)
            }
            Happening::Impossible { class, status } => {
                let none: ClassKey = "".into();
                let class = class.as_ref().unwrap_or(&none);
                tell!(self.of(class), warn(Proof, "the upstream cannot be asked in the place of clients").detail(status);
                    { %server, %class, error = %status }
                    + "; the classes stay unproved. Clients notice nothing");
            }
            Happening::ReplicasDisagree { class, type_url, names, shadow: _ } => {
                let names = words(names.iter().map(ResourceName::as_str), names.len());
                let [one, other] = both_replicas(compared);
                tell!(self.of(class), warn(Proof, "replicas of the upstream disagree").of_type(type_url)
                    .detail(format_args!("{one} and {other}: {names}"));
                    { %server, %class, %type_url, names, %one, %other }
                    + ": another connection gives the same node other answers");
            }
            Happening::ReplicasAgree { class, shadow: _, ends_disagreement } => {
                let [one, other] = both_replicas(compared);
                if *ends_disagreement {
                    tell!(self.of(class), info(Proof, "replicas of the upstream agree again")
                        .detail(format_args!("{one} and {other}")); { %server, %class, %one, %other });
                }
            }
            Happening::SplitOff { split } => self.tell_split(split),
            Happening::SplitWaits { class, type_url, reason } => {
                tell!(self.of(class), warn(Proof, "a split of a class waits").of_type(type_url).detail(reason);
                    { %server, %class, %type_url, %reason }
                    + "; clients whose answers differ have the content of their class until then");
            }
            Happening::Joined { class, parent } => {
                tell!(self.of(parent), info(Proof, "the parts of a class are one again").detail(class);
                    { %server, %class, %parent } + ": both had the same content for long enough");
            }
            Happening::Breaker { reason, pause } => {
                let seconds = pause.as_secs();
                let none: ClassKey = "".into();
                tell!(self.of(&none), error(Proof, "too many classes differ at once to be a matter of grouping").detail(reason);
                    { %server, %reason, seconds } + "; no class is split or refused meanwhile. The control plane is in motion, or \
                    its replicas are at odds");
            }
            Happening::SecretBearing { class, type_url } => {
                info!(%server, %class, %type_url, "resources of a type have secrets in them; the proof compares the \
                    type by versions only");
            }
        }
    }

    fn of<'a>(&'a self, class: &'a ClassKey) -> ClassEvents<'a> {
        ClassEvents { teller: self, class }
    }

    /// PRF-26: the machine tells a class and type once an hour.
    fn tell_divergence(&self, divergence: &Divergence) {
        let Divergence { class, type_url, rule, .. } = divergence;
        let (names, paths) = (divergent_names(divergence), divergent_paths(divergence));
        let (explained_by, clients) = (explanations(divergence).join("; or "), divergence.clients);
        let detail = match type_url.is_secret() {
            true => format!("{} of {} differ", divergence.name_count, divergence.compared),
            false => format!("{names}: {paths}; explained by {explained_by}"),
        };
        let server = &self.server;
        tell!(self.of(class), warn(Proof, "a class is too coarse: the upstream tells some of its clients otherwise")
            .of_type(type_url).count(divergence.name_count as u64).detail(detail);
            { %server, list = %self.list, %class, %rule, %type_url, names, paths, explained_by, clients,
            member = %divergence.member_id, representative = %divergence.representative_id }
            + "; these clients have the content of their class. Split the class by the fields that explain it \
                (`split_by` in `node_classes`); GET /classes/divergences shows more");
    }

    fn tell_split(&self, split: &Split) {
        let Split { class, type_url, member_id, fields, values, .. } = split;
        let (server, fields, classes) = (&self.server, fields.join(","), values.len());
        let detail = format!("by {fields}, {classes} further");
        tell!(self.of(class), warn(Proof, "a class was split").of_type(type_url).detail(&detail);
            { %server, %class, %type_url, fields, classes, member = %member_id }
            + ": the control plane tells these clients otherwise. Split the class by these fields (`split_by` in \
                `node_classes`)");
    }

    fn tell_lag(
        &self,
        class: &ClassKey,
        who: Lagging,
        type_url: &TypeUrl,
        name: &ResourceName,
        behind: &std::time::Duration,
    ) {
        let (server, seconds) = (&self.server, behind.as_secs());
        let stream = match who {
            Lagging::Class => "the stream of the class",
            Lagging::Shadow(_) => "another stream with the node of a client",
        };
        let text = "the upstream tells one of its streams late";
        let Some(suppressed) = self.shared.throttle.allow(&format!("proof lags {server}")) else { return };
        let event = Occurrence::warn(Kind::Proof, text).of_type(type_url);
        self.of(class).add(event.detail(format_args!("{stream} is {seconds} s behind")));
        tracing::warn!(%server, %class, %type_url, %name, seconds, suppressed, "the upstream tells one of its streams \
            late: {stream} is behind");
    }
}

/// Both sides of a comparison, with addresses and identifiers.
fn both_replicas(compared: Option<&ReplicaComparison>) -> [Replica; 2] {
    compared.map(|compared| [compared.class.clone(), compared.other.clone()]).unwrap_or_default()
}

/// The first names of a divergence, without those of Secrets.
fn divergent_names(divergence: &Divergence) -> String {
    let names = divergence.names.iter().map(|name| name.name.as_str());
    words(names, divergence.name_count)
}

fn divergent_paths(divergence: &Divergence) -> String {
    let mut paths: Vec<&str> =
        divergence.names.iter().flat_map(|name| &name.paths).map(|path| &**path).collect();
    paths.sort_unstable();
    paths.dedup();
    if paths.is_empty() { "bytes".to_owned() } else { words(paths.iter().copied(), paths.len()) }
}

/// The fields that explain a divergence: alternatives, each a field or several together.
fn explanations(divergence: &Divergence) -> Vec<String> {
    let explanations = divergence.explained_by.iter().map(|fields| fields.join(" and "));
    let explanations: Vec<String> = explanations.collect();
    if explanations.is_empty() { vec!["no field so far".to_owned()] } else { explanations }
}

fn words<'a>(all: impl Iterator<Item = &'a str>, total: usize) -> String {
    let shown: Vec<&str> = all.take(SHOWN_MAX).collect();
    match total.saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{}, and {more} more", shown.join(", ")),
    }
}
