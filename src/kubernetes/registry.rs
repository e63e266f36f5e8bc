//! The facts of all Pods, kept up to date.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::stream::{self, Stream, StreamExt};
use tokio::task::consume_budget;
use tokio::time::{Instant, sleep_until};

use super::access::ClusterAccess;
use super::follow::{WatchNews, follow};
use super::object::{Node, Pod};
use super::pods::Pods;
use sluice_engine::class::facts::FactTable;

/// Changes within this time come into force together.
const GATHER: Duration = Duration::from_millis(10);
/// The least time between two tables: each makes the relay look at all streams.
const BETWEEN: Duration = Duration::from_millis(500);
/// The least time between two reports of Pods without room.
const REFUSED_AGAIN: Duration = Duration::from_secs(600);

/// The objects of a cluster to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interest {
    pub access: ClusterAccess,
    /// Whether facts have the place of the Pod's Node: region and zones.
    pub nodes: bool,
}

/// News of the registry.
#[derive(Debug)]
pub enum RegistryNews {
    /// Other facts. The first report has the facts of all Pods.
    Facts(Arc<FactTable>),
    /// The API server was heard just now, and the facts are up to date.
    Confirmed,
    /// The facts may be old, for this reason. A reason is told again when all was well in between.
    Fault(String),
    /// So many Pods have no facts for want of room.
    Refused(usize),
}

enum Word {
    Pod(Result<WatchNews<Pod>, String>),
    Node(Result<WatchNews<Node>, String>),
}

/// The facts of all Pods.
pub struct PodRegistry {
    words: Pin<Box<dyn Stream<Item = Word> + Send>>,
    pods: Pods,
    of_pods: KindState,
    of_nodes: KindState,
    /// The time of the next table. `None`: nothing has changed.
    due: Option<Instant>,
    last: Option<Instant>,
    /// The last report of Pods without room.
    refused_told: Option<Instant>,
    /// Makes the Pods be listed again.
    lists_again: Arc<AtomicBool>,
}

/// The state of a kind of objects.
#[derive(Debug, Default)]
struct KindState {
    /// All objects were listed once.
    is_complete: bool,
    /// The last attempt was no fault.
    is_well: bool,
    /// The last fault, until all is well.
    fault: Option<String>,
    /// The objects so far of the present list.
    listed: Option<HashSet<Arc<str>>>,
}

impl PodRegistry {
    /// Asks the API server as soon as [`PodRegistry::next`] is called.
    pub fn new(interest: &Interest) -> PodRegistry {
        let lists_again = Arc::new(AtomicBool::new(false));
        let pods = follow::<Pod>(interest.access.clone(), lists_again.clone()).map(Word::Pod);
        let words: Pin<Box<dyn Stream<Item = Word> + Send>> = if interest.nodes {
            let nodes = follow::<Node>(interest.access.clone(), Arc::default()).map(Word::Node);
            Box::pin(stream::select(Box::pin(pods), Box::pin(nodes)))
        } else {
            Box::pin(pods)
        };
        let no_nodes = KindState { is_complete: true, is_well: true, ..KindState::default() };
        PodRegistry {
            words,
            pods: Pods::new(interest.nodes),
            of_pods: KindState::default(),
            of_nodes: if interest.nodes { KindState::default() } else { no_nodes },
            due: None,
            last: None,
            refused_told: None,
            lists_again,
        }
    }

    /// Waits for something new. Callers may stop waiting, and lose nothing.
    pub async fn next(&mut self) -> RegistryNews {
        loop {
            // A list has all objects of an answer at hand.
            consume_budget().await;
            let due = self.due;
            let word = tokio::select! {
                biased;
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => None,
                word = self.words.next() => word,
            };
            let Some(word) = word else {
                self.due = None;
                if let Some(table) = self.pods.take_change() {
                    self.last = Some(Instant::now());
                    return RegistryNews::Facts(Arc::new(table));
                }
                continue;
            };
            if let Some(report) = self.take(word) {
                return report;
            }
        }
    }

    fn take(&mut self, word: Word) -> Option<RegistryNews> {
        let was_complete = self.is_complete();
        let is_confirmed = match word {
            Word::Pod(Ok(news)) => self.take_pod(news),
            Word::Node(Ok(news)) => self.take_node(news),
            Word::Pod(Err(fault)) => return self.of_pods.tell(fault),
            Word::Node(Err(fault)) => return self.of_nodes.tell(fault),
        };
        if !self.is_complete() {
            return None;
        }
        if !was_complete {
            return Some(self.first());
        }
        if self.pods.has_changed() && self.due.is_none() {
            let earliest = self.last.map_or_else(Instant::now, |last| last + BETWEEN);
            self.due = Some(earliest.max(Instant::now() + GATHER));
        }
        self.note_refused().or_else(|| (is_confirmed && self.is_well()).then_some(RegistryNews::Confirmed))
    }

    /// The first table, also if empty.
    fn first(&mut self) -> RegistryNews {
        self.last = Some(Instant::now());
        RegistryNews::Facts(Arc::new(self.pods.table()))
    }

    fn is_complete(&self) -> bool {
        self.of_pods.is_complete && self.of_nodes.is_complete
    }

    fn is_well(&self) -> bool {
        self.of_pods.is_well && self.of_nodes.is_well
    }

    /// Pods without room: told now and then, and listed again once there is room.
    fn note_refused(&mut self) -> Option<RegistryNews> {
        let refused = self.pods.refused();
        if refused == 0 {
            return None;
        }
        if self.pods.has_room() {
            self.lists_again.store(true, Ordering::Relaxed);
        }
        if self.refused_told.is_some_and(|at| at.elapsed() < REFUSED_AGAIN) {
            return None;
        }
        self.refused_told = Some(Instant::now());
        Some(RegistryNews::Refused(refused))
    }

    /// Returns whether the server has confirmed all earlier news.
    fn take_pod(&mut self, news: WatchNews<Pod>) -> bool {
        match news {
            WatchNews::Begins => self.of_pods.begins(),
            WatchNews::Found(pod) => {
                let name = self.pods.put_pod(pod);
                return self.of_pods.note(name);
            }
            WatchNews::Gone(pod) => {
                self.pods.remove_pod(&pod.metadata.pod_name());
                return self.of_pods.heard();
            }
            WatchNews::Complete => {
                let listed = self.of_pods.complete();
                self.pods.keep_pods(&listed);
                return true;
            }
            WatchNews::Alive => return self.of_pods.heard(),
        }
        false
    }

    fn take_node(&mut self, news: WatchNews<Node>) -> bool {
        match news {
            WatchNews::Begins => self.of_nodes.begins(),
            WatchNews::Found(node) => {
                let name = self.pods.put_node(node);
                return self.of_nodes.note(name);
            }
            WatchNews::Gone(node) => {
                self.pods.remove_node(&node.metadata.name);
                return self.of_nodes.heard();
            }
            WatchNews::Complete => {
                let listed = self.of_nodes.complete();
                self.pods.keep_nodes(&listed);
                return true;
            }
            WatchNews::Alive => return self.of_nodes.heard(),
        }
        false
    }
}

impl KindState {
    fn tell(&mut self, fault: String) -> Option<RegistryNews> {
        self.is_well = false;
        if self.fault.as_ref() == Some(&fault) {
            return None;
        }
        self.fault = Some(fault.clone());
        Some(RegistryNews::Fault(fault))
    }

    /// Until the end of the list, nobody knows how old the facts are.
    fn begins(&mut self) {
        self.is_well = false;
        self.listed = Some(HashSet::new());
    }

    /// Notes an object. Returns whether the object is news of a watch.
    fn note(&mut self, name: Arc<str>) -> bool {
        match &mut self.listed {
            Some(listed) => {
                listed.insert(name);
                false
            }
            None => self.heard(),
        }
    }

    fn complete(&mut self) -> HashSet<Arc<str>> {
        self.is_complete = true;
        self.heard();
        self.listed.take().unwrap_or_default()
    }

    fn heard(&mut self) -> bool {
        self.is_well = true;
        self.fault = None;
        true
    }
}
