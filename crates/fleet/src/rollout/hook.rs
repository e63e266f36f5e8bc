//! The hook of a plan: a web server of the operator with a word in each step (WAV-20).

use std::time::Duration;

use sluice_engine::Time;
use sluice_setting::{minutes, ms, seconds, settings, time};

/// The hook, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// `http://` or `https://`, with a host.
    pub url: Box<str>,
    pub settings: HookSettings,
}

impl Hook {
    /// Whether two plans ask the same server, or none.
    pub(super) fn is_same(one: Option<&Hook>, other: Option<&Hook>) -> bool {
        one.map(|hook| &hook.url) == other.map(|hook| &hook.url)
    }
}

settings! {
    /// The settings of a hook beside its URL.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HookSettings {
        /// The time for one answer, from the begin of the connection to the last byte.
        timeout: Duration = seconds(5), time(ms(100)..=minutes(1));
    }
}

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum HookVerdict {
        /// The push goes on.
        Go = "go",
        /// The push stays where it is, and the hook is asked again.
        Wait = "wait",
        /// The push halts.
        Halt = "halt",
        /// There was no answer, or none with a verdict. Counts as `wait`.
        Failed = "failed",
    }
}

/// An answer of the hook, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookAnswer {
    pub verdict: HookVerdict,
    /// In the hook's words; of a failure, in ours.
    pub reason: Box<str>,
}

/// The latest word of the hook about a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookReport {
    /// The step at whose end the hook was asked; 0: before the first step.
    pub step: u8,
    /// The time of the latest question.
    pub asked: Time,
    /// `None`: no answer about this step yet.
    pub answer: Option<HookAnswer>,
}
