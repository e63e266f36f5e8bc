//! The questions of a study, one stream each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::driver::api::study::AskedTypes;
use crate::driver::source::asker::Asker;
use crate::driver::study::nodes::NodeList;
use sluice_engine::Time;
use sluice_proof::learning::{Fleet, Step, Study, StudyEnd, StudyPace, TypeAnswer};
use sluice_xds::{Status, TypeUrl};

/// The longest wait for the answers to one node. A server without a word about a name is silent for up to
/// 15 s before the name counts as missing, first for the endpoints and then for the routes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time between two looks at what the caller permits.
const LOOK: Duration = Duration::from_secs(1);

/// The bounds of an inquiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InquiryPace {
    /// Nodes asked at once.
    pub streams: u32,
    /// Streams begun in a minute.
    pub per_minute: u32,
    /// The end, even if nodes are left.
    pub longest: Duration,
    /// See [`StudyPace::names_max`].
    pub names_max: usize,
}

/// Whether the caller permits another question (PRF-20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    Ask,
    /// Something is short for now.
    Wait,
    End(StudyEnd),
}

/// A study that is over.
pub struct Inquiry {
    pub study: Study,
    pub end: StudyEnd,
    /// The nodes that were left out, because the relay shows them already.
    pub shown: Vec<usize>,
}

impl Inquiry {
    /// Why the study ended, with the status of the server.
    pub fn reason(&self) -> String {
        let status = self.study.last_failure().map(|status| format!(": {status}")).unwrap_or_default();
        match self.end {
            StudyEnd::Complete => format!("the server answered no node{status}"),
            StudyEnd::TimeIsUp => format!("the time was up{status}"),
            StudyEnd::Refused => format!("the server refuses the nodes{status}"),
            StudyEnd::Lost => format!("the server cannot be asked any more{status}"),
            StudyEnd::TooLarge => "the answers are too many to hold; ask for fewer types".to_owned(),
            StudyEnd::Leaving => "the relay is going out of service".to_owned(),
            StudyEnd::Abandoned => "nobody asked for the findings any more".to_owned(),
        }
    }
}

/// Asks until the study is over. `look` is told the number of nodes with an answer, and says whether to go
/// on.
pub async fn inquire(
    asker: Arc<Asker>,
    list: &NodeList,
    fleet: &Fleet,
    types: AskedTypes,
    pace: InquiryPace,
    look: impl Fn(usize) -> Permit,
) -> Inquiry {
    let until = asker.now() + pace.longest;
    let InquiryPace { streams, per_minute, longest: _, names_max } = pace;
    let streams = usize::try_from(streams).unwrap_or(1);
    let types = Arc::new(types);
    let mut inquirer = Inquirer {
        study: Study::new(fleet, StudyPace { streams, per_minute, until, names_max }),
        list,
        bears_twins: None,
        postponed: BTreeSet::new(),
        shown: Vec::new(),
        open: JoinSet::new(),
        asker,
        types,
    };
    loop {
        let now = inquirer.asker.now();
        let permit = look(inquirer.study.answered_count());
        if let Permit::End(end) = permit {
            inquirer.study.stop(end);
        }
        let step = match permit {
            Permit::Wait => Step::Wait(now + LOOK),
            Permit::Ask | Permit::End(_) => inquirer.study.next_step(now),
        };
        match step {
            Step::Done(end) => {
                let Inquirer { study, shown, .. } = inquirer;
                return Inquiry { study, end, shown };
            }
            Step::Ask(number) => inquirer.ask(number).await,
            Step::Wait(until) => inquirer.wait(until.min(now + LOOK)).await,
        }
    }
}

/// The answers of a server to one node.
type Answered = Result<BTreeMap<TypeUrl, TypeAnswer>, Status>;

/// The work on an inquiry.
struct Inquirer<'a> {
    asker: Arc<Asker>,
    list: &'a NodeList,
    types: Arc<AskedTypes>,
    study: Study,
    open: JoinSet<(usize, Answered)>,
    /// Whether the server bears two streams of a node; `None`: not known so far.
    bears_twins: Option<bool>,
    /// The nodes that wait for this, as the relay shows them.
    postponed: BTreeSet<usize>,
    shown: Vec<usize>,
}

impl Inquirer<'_> {
    async fn ask(&mut self, number: usize) {
        let now = self.asker.now();
        let (Some(node), Some(identity)) = (self.list.nodes.get(number), self.list.identities.get(number))
        else {
            return self.study.leave_out(number, now);
        };
        if self.asker.is_shown(&node.id) && !self.may_double().await {
            // A node that the relay does not show may have an answer first.
            let is_first = self.postponed.insert(number);
            if self.bears_twins.is_none() && (is_first || !self.open.is_empty()) {
                self.study.postpone(number, now);
                if !is_first {
                    self.wait(now + LOOK).await;
                }
                return;
            }
            self.shown.push(number);
            return self.study.leave_out(number, now);
        }
        let (asker, types) = (self.asker.clone(), self.types.clone());
        let (node, identity) = (node.clone(), identity.clone());
        self.open.spawn(async move { (number, asker.ask(&node, &identity, &types, PATIENCE).await) });
    }

    /// Whether a node may be shown that the relay shows already: a control plane may end the stream of the
    /// class for it. Found out once, with a node that the relay does not show.
    async fn may_double(&mut self) -> bool {
        if let Some(verdict) = self.bears_twins {
            return verdict;
        }
        let Some(number) = self.study.reference() else { return false };
        let (Some(node), Some(identity)) = (self.list.nodes.get(number), self.list.identities.get(number))
        else {
            return false;
        };
        if self.asker.is_shown(&node.id) {
            return false;
        }
        let verdict = self.asker.bears_twins(node, identity, &self.types, PATIENCE).await;
        *self.bears_twins.insert(verdict)
    }

    /// Waits for an answer, at most until then.
    async fn wait(&mut self, until: Time) {
        tokio::select! {
            Some(asked) = self.open.join_next() => match asked {
                Ok((number, Ok(answers))) => self.study.answered(number, answers),
                Ok((number, Err(status))) => self.study.failed(number, status, self.asker.now()),
                // A question that panicked.
                Err(_) => self.study.stop(StudyEnd::Lost),
            },
            () = sleep_until(self.asker.instant(until)) => {}
        }
    }
}
