//! A study without a relay.

use std::sync::Arc;
use std::time::Duration;

use super::target::StudyTarget;
use crate::app::servers::{self, Channels};
use crate::app::settings::{default_response_bytes, relay_settings};
use crate::command::learn::Learn;
use crate::command::outcome::Failure;
use crate::driver::study::inquiry::{Inquiry, InquiryPace, Permit, inquire as ask_all};
use crate::driver::study::nodes::NodeList;
use crate::driver::{AskedTypes, Asker, DriverSettings};
use crate::telemetry::Metrics;
use sluice_engine::class::NodeClasses;
use sluice_engine::source::SourceSettings;
use sluice_proof::learning::Fleet;
use sluice_xds::Node;

/// The names in the distinct answers: some gigabyte of the operator's host.
const NAMES_MAX: usize = 20_000_000;

/// Asks until the study is over.
pub(super) fn inquire(
    target: StudyTarget,
    list: &NodeList,
    fleet: &Fleet,
    types: AskedTypes,
    order: &Learn,
) -> Result<Inquiry, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Unavailable(format!("runtime: {error}")))?;
    let metrics = Arc::new(Metrics::new());
    let (config, before) = (&target.config, Channels::default());
    let pace = InquiryPace {
        streams: order.streams,
        per_minute: order.per_minute,
        longest: order.longest,
        names_max: NAMES_MAX,
    };
    let inquiry = runtime.block_on(async {
        let (lists, _) = servers::lists(&config.servers, default_response_bytes(config), &metrics, &before)
            .map_err(|error| Failure::Usage(format!("{error:#}")))?;
        let settings = only_asking(relay_settings(config, lists, Arc::default(), 1));
        let nobody = || Failure::Usage("there is no server to ask".to_owned());
        let asker = Arc::new(Asker::alone(settings, metrics).ok_or_else(nobody)?);
        Ok(ask_all(asker, list, fleet, types, pace, |_| Permit::Ask).await)
    });
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
        ledger: None,
        // The loss of the server is an answer, too.
        source: SourceSettings { tells_reach: true, coalescing: Duration::ZERO, ..settings.source },
        ..settings
    }
}
