//! Acts of the relay as a whole: a reload, a hand-over, a drain, a write of a checkpoint. Each has a trace
//! (OBS-5).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::Traces;
use crate::telemetry::wall_now;

/// The steps of an act with a span each.
const STEPS_MAX: usize = 16;

/// The kinds of acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Reload,
    HandOver,
    Drain,
    Checkpoint,
}

impl Act {
    /// The name of the span of the act as a whole.
    pub(super) fn span(self) -> &'static str {
        match self {
            Act::Reload => "sluice.reload",
            Act::HandOver => "sluice.handover",
            Act::Drain => "sluice.drain",
            Act::Checkpoint => "sluice.checkpoint",
        }
    }
}

/// An act that is over.
#[derive(Clone, Debug)]
pub struct FinishedAct {
    pub(super) act: Act,
    /// Names the act among all acts of the process.
    pub(super) name: String,
    pub(super) begun_at: SystemTime,
    pub(super) took: Duration,
    pub(super) steps: Vec<Step>,
    pub(super) attributes: Vec<(&'static str, AttributeValue)>,
    /// The reason of a failure.
    pub(super) failure: Option<String>,
}

/// A part of an act. Times count from the begin of the act.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) from: Duration,
    pub(super) until: Duration,
}

/// The value of an attribute.
#[derive(Clone, Debug)]
pub enum AttributeValue {
    Text(String),
    Number(u64),
}

impl From<String> for AttributeValue {
    fn from(text: String) -> AttributeValue {
        AttributeValue::Text(text)
    }
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> AttributeValue {
        AttributeValue::Text(text.to_owned())
    }
}

impl From<u64> for AttributeValue {
    fn from(number: u64) -> AttributeValue {
        AttributeValue::Number(number)
    }
}

/// An act under way. Without an end there is no trace.
#[derive(Debug)]
pub struct ActTrace {
    traces: Arc<Traces>,
    act: FinishedAct,
    since: Instant,
    /// The step under way.
    step: Option<(&'static str, Duration)>,
}

impl ActTrace {
    pub(super) fn begin(traces: Arc<Traces>, act: Act) -> ActTrace {
        let name = format!("{}-{}", act.span(), traces.next_act());
        let (begun_at, took, steps, attributes) = (wall_now(), Duration::ZERO, Vec::new(), Vec::new());
        let act = FinishedAct { act, name, begun_at, took, steps, attributes, failure: None };
        ActTrace { traces, act, since: Instant::now(), step: None }
    }

    /// The id of the trace, for log lines; `None` without a collector.
    pub fn trace_id(&self) -> Option<String> {
        self.traces.trace_id(&self.act.name)
    }

    /// Ends the step under way, and begins another. The name is that of its span.
    pub fn step(&mut self, name: &'static str) {
        self.end_step();
        self.step = Some((name, self.since.elapsed()));
    }

    fn end_step(&mut self) {
        if let Some((name, from)) = self.step.take()
            && self.act.steps.len() < STEPS_MAX
        {
            self.act.steps.push(Step { name, from, until: self.since.elapsed() });
        }
    }

    pub fn note(&mut self, key: &'static str, value: impl Into<AttributeValue>) {
        self.act.attributes.push((key, value.into()));
    }

    /// The act is over. `failure`: the reason, if it failed.
    pub fn end(mut self, failure: Option<String>) {
        self.end_step();
        self.act.took = self.since.elapsed();
        self.act.failure = failure;
        self.traces.offer_act(self.act);
    }
}
