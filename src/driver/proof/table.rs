//! The proofs of all servers: their tasks, from one configuration to the next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;
use tracing::error;

use super::task::{ProofCommand, ProofTask};
use super::tell::ProofTeller;
use crate::driver::api::proof::{ProofSummary, ProveRefusal, ProveStatus, ServerProof, ServerSamples};
use crate::driver::ground::context::{DriverContext, DriverSettings};
use crate::driver::ground::proof_rules::ProofRules;
use crate::driver::ground::servers::{Attach, ListedServer, Place};
use crate::driver::stream::state::Tables;
use sluice_proof::proof::{ClassKey, OrderId, ProveOrder};

/// The pause before a task begins anew.
const ANEW_AFTER: Duration = Duration::from_secs(1);

/// The remembered orders of operators.
const ORDERS_MAX: usize = 64;

/// The proofs under way.
#[derive(Default)]
pub struct Proofs(Mutex<UnderWay>);

#[derive(Default)]
struct UnderWay {
    /// In the order of the lists of servers.
    servers: Vec<RunningProof>,
    /// Each with the parts at the servers of the class.
    orders: BTreeMap<u64, Vec<(Place, OrderId)>>,
    last_order: u64,
}

#[derive(Clone)]
struct RunningProof {
    place: Place,
    /// Closing it ends the task.
    commands: mpsc::UnboundedSender<ProofCommand>,
    summary: watch::Receiver<ProofSummary>,
}

/// A server to prove.
#[derive(Clone)]
struct ProvedServer {
    place: Place,
    server: Arc<str>,
    list: Arc<str>,
    rules: Arc<ProofRules>,
}

impl Proofs {
    /// Puts a configuration in force: starts a task for each new server that is proved, and ends the others.
    /// Must be called within a tokio runtime if there is a proof, after the configuration is published.
    pub fn configure(&self, settings: &DriverSettings, shared: &Arc<DriverContext>, tables: &Tables) {
        let running = &mut *self.0.lock();
        let mut left = std::mem::take(&mut running.servers);
        for server in proved_servers(settings) {
            match left.iter().position(|running| running.place == server.place) {
                Some(index) => {
                    let present = left.swap_remove(index);
                    // The task lives as long as its sender.
                    let _ = present.commands.send(ProofCommand::Configure);
                    running.servers.push(present);
                }
                None => running.servers.push(start(server, shared, tables)),
            }
        }
    }

    /// The reports of all servers.
    pub async fn all(&self) -> Vec<ServerProof> {
        let servers = self.0.lock().servers.clone();
        let mut reports = Vec::new();
        for server in servers {
            reports.extend(server.ask(ProofCommand::Report).await);
        }
        reports
    }

    /// The proofs of all servers in numbers.
    pub fn summaries(&self) -> Vec<ProofSummary> {
        self.0.lock().servers.iter().map(|server| server.summary.borrow().clone()).collect()
    }

    /// An operator joined the parts of a class.
    pub fn joined(&self, class: &ClassKey) {
        for server in &self.0.lock().servers {
            // A task that begins anew has split nothing.
            let _ = server.commands.send(ProofCommand::Joined(class.clone()));
        }
    }

    /// See [`ProofView::prove`](crate::driver::api::proof::ProofView::prove).
    pub async fn prove(&self, order: ProveOrder) -> Result<u64, ProveRefusal> {
        let servers = self.0.lock().servers.clone();
        if servers.is_empty() {
            return Err(ProveRefusal::Off);
        }
        let mut parts = Vec::new();
        for server in servers {
            // After a panic the task cannot say whether the server has the class.
            let asked = server.ask(|reply| ProofCommand::Prove(order.clone(), reply)).await;
            match asked.unwrap_or(Err(ProveRefusal::Busy)) {
                Ok(id) => parts.push((server.place, id)),
                Err(ProveRefusal::NotProved) => {}
                Err(refusal) => return Err(refusal),
            }
        }
        if parts.is_empty() { Err(ProveRefusal::NotProved) } else { Ok(self.0.lock().remember(parts)) }
    }

    /// See [`ProofView::prove_state`](crate::driver::api::proof::ProofView::prove_state).
    pub async fn prove_state(&self, order: u64) -> Option<ProveStatus> {
        let (parts, servers) = {
            let running = self.0.lock();
            (running.orders.get(&order)?.clone(), running.servers.clone())
        };
        let mut sum: Option<ProveStatus> = None;
        for (place, id) in parts {
            let server = servers.iter().find(|server| server.place == place)?;
            let part = server.ask(|reply| ProofCommand::State(id, reply)).await.flatten()?;
            match &mut sum {
                Some(sum) => sum.add(part),
                None => sum = Some(part),
            }
        }
        sum
    }

    /// See [`ProofView::samples`](crate::driver::api::proof::ProofView::samples).
    pub async fn samples(&self, class: ClassKey) -> Vec<ServerSamples> {
        let servers = self.0.lock().servers.clone();
        let mut samples = Vec::new();
        for server in servers {
            let asked = server.ask(|reply| ProofCommand::Samples(class.clone(), reply)).await;
            samples.extend(asked.flatten());
        }
        samples
    }
}

impl UnderWay {
    fn remember(&mut self, parts: Vec<(Place, OrderId)>) -> u64 {
        self.last_order += 1;
        self.orders.insert(self.last_order, parts);
        while self.orders.len() > ORDERS_MAX {
            self.orders.pop_first();
        }
        self.last_order
    }
}

impl RunningProof {
    /// `None` if the task has ended or begins anew.
    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> ProofCommand) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(question(reply)).ok()?;
        answer.await.ok()
    }
}

/// The control planes with classes to prove. Directories ignore nodes, and polls have no streams (PRF-6).
fn proved_servers(settings: &DriverSettings) -> Vec<ProvedServer> {
    let Some(rules) = &settings.proof else { return Vec::new() };
    let lists = &rules.units.lists;
    let is_meant = |label: &str| lists.is_empty() || lists.iter().any(|list| **list == *label);
    let listed = settings.lists.configured().filter(|listed| {
        is_meant(&listed.list.label) && matches!(listed.server().attach, Attach::Grpc { .. })
    });
    let server = |listed: ListedServer<'_>| ProvedServer {
        place: listed.place(),
        server: listed.server().uri.clone(),
        list: listed.list.label.clone(),
        rules: rules.clone(),
    };
    listed.map(server).collect()
}

fn start(server: ProvedServer, shared: &Arc<DriverContext>, tables: &Tables) -> RunningProof {
    let (commands, queue) = mpsc::unbounded_channel();
    let place = server.place;
    let nothing =
        ProofSummary { server: server.server.clone(), list: server.list.clone(), differ: 0, split_waits: 0 };
    let (sender, summary) = watch::channel(nothing);
    tokio::spawn(keep_running(server, queue, sender, shared.clone(), tables.clone()));
    RunningProof { place, commands, summary }
}

/// Runs the task until its commands are closed. A panic harms neither sources nor streams: the shadows close,
/// and the task begins anew without evidence.
async fn keep_running(
    server: ProvedServer,
    queue: mpsc::UnboundedReceiver<ProofCommand>,
    summary: watch::Sender<ProofSummary>,
    shared: Arc<DriverContext>,
    tables: Tables,
) {
    let queue = Arc::new(tokio::sync::Mutex::new(queue));
    loop {
        let (server, shared, tables, queue) = (server.clone(), shared.clone(), tables.clone(), queue.clone());
        let summary = summary.clone();
        let uri = server.server.clone();
        let task = tokio::spawn(async move {
            let rules = shared.settings().proof.clone().unwrap_or(server.rules);
            let metrics = shared.metrics.proof.server(&server.server);
            let teller = ProofTeller { shared, server: server.server, list: server.list, metrics, summary };
            ProofTask::new(server.place, rules, tables, teller).run(&mut *queue.lock().await).await;
        });
        match task.await {
            Err(failure) if failure.is_panic() => {
                error!(server = %uri, "the task of a proof panicked, and begins anew without evidence");
                sleep(ANEW_AFTER).await;
            }
            _ => return,
        }
    }
}
