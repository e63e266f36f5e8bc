//! The questions of a study, one stream each.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::target::StudyTarget;
use crate::app::servers::{self, Channels};
use crate::app::settings::{default_response_bytes, relay_settings};
use crate::command::learn::Learn;
use crate::command::outcome::Failure;
use crate::driver::{AskedTypes, Asker, DriverSettings};
use crate::telemetry::Metrics;
use sluice_engine::class::NodeClasses;
use sluice_engine::source::SourceSettings;
use sluice_proof::learning::{Fleet, Step, Study, StudyEnd, StudyPace};
use sluice_xds::Node;

/// The longest wait for the answers to one node. A server without a word about a name is silent for up to
/// 15 s before the name counts as missing, first for the endpoints and then for the routes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A study that is over.
pub(super) struct Inquiry {
    pub study: Study,
    pub end: StudyEnd,
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
            StudyEnd::TooLarge => "the answers are too many to hold; ask for fewer --types".to_owned(),
        }
    }
}

/// Asks until the study is over.
pub(super) fn inquire(
    target: StudyTarget,
    fleet: &Fleet,
    types: AskedTypes,
    order: &Learn,
) -> Result<Inquiry, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Unavailable(format!("runtime: {error}")))?;
    let metrics = Arc::new(Metrics::new());
    let (config, before) = (&target.config, Channels::default());
    let settings = runtime.block_on(async {
        let (lists, _) = servers::lists(&config.servers, default_response_bytes(config), &metrics, &before)
            .map_err(|error| Failure::Usage(format!("{error:#}")))?;
        Ok::<_, Failure>(only_asking(relay_settings(config, lists, Arc::default(), 1)))
    })?;
    let inquiry = runtime.block_on(ask_all(settings, metrics, fleet, types, order));
    // Streams that are still open end with the process.
    runtime.shutdown_background();
    inquiry
}

/// The settings of a relay that serves nobody. The server sees the nodes of the file, and nothing of the
/// relay's own.
fn only_asking(settings: DriverSettings) -> DriverSettings {
    DriverSettings {
        node: Node::default(),
        classes: NodeClasses::default(),
        rollouts: Vec::new(),
        checkpoint: None,
        // The loss of the server is an answer, too.
        source: SourceSettings { tells_reach: true, coalescing: Duration::ZERO, ..settings.source },
        ..settings
    }
}

async fn ask_all(
    settings: DriverSettings,
    metrics: Arc<Metrics>,
    fleet: &Fleet,
    types: AskedTypes,
    order: &Learn,
) -> Result<Inquiry, Failure> {
    let (asker, types) = (Arc::new(Asker::new(settings, metrics)), Arc::new(types));
    let pace = StudyPace {
        streams: usize::try_from(order.streams).unwrap_or(1),
        per_minute: order.per_minute,
        until: asker.now() + order.longest,
    };
    let (mut study, mut open) = (Study::new(fleet, pace), JoinSet::new());
    loop {
        match study.next_step(asker.now()) {
            Step::Done(end) => return Ok(Inquiry { study, end }),
            Step::Ask(number) => {
                let Some(node) = fleet.nodes.get(number).cloned() else { continue };
                let (asker, types) = (asker.clone(), types.clone());
                open.spawn(async move { (number, asker.ask(&node, &types, PATIENCE).await) });
            }
            Step::Wait(until) => tokio::select! {
                Some(asked) = open.join_next() => match asked {
                    Ok((number, Ok(answers))) => study.answered(number, answers),
                    Ok((number, Err(status))) => study.failed(number, status, asker.now()),
                    Err(error) => return Err(Failure::Internal(error.to_string())),
                },
                () = sleep_until(asker.instant(until)) => {}
            },
        }
    }
}
