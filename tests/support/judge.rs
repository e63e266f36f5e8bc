//! JudgeSettings for judging a foreign server; `tests/conformance/run` writes these settings.

use std::fmt::Display;
use std::sync::OnceLock;
use std::time::Duration;

use super::adapter::Adapter;
use super::words::Variant;
use super::{DEADLINE, Downstream};

pub struct JudgeSettings {
    /// `host:port` of the server.
    pub target: String,
    pub adapter: Adapter,
    /// The node id of every client, if the server knows only one.
    pub node: Option<String>,
    /// The time that a client waits for a required response.
    pub deadline: Duration,
    /// The time that a client listens for a forbidden response.
    pub quiet: Duration,
    variants: Vec<String>,
}

/// `None` if the cases judge the relay, or the kit's own control plane.
pub fn settings() -> Option<&'static JudgeSettings> {
    static SETTINGS: OnceLock<Option<JudgeSettings>> = OnceLock::new();
    SETTINGS.get_or_init(read).as_ref()
}

fn read() -> Option<JudgeSettings> {
    let target = variable("TARGET").filter(|target| target != "origin")?;
    let node = variable("NODE");
    let spec = variable("ADAPTER").expect("SLUICE_CONFORMANCE_ADAPTER goes with a target");
    let milliseconds = |name, default| {
        let number = variable(name).map_or(default, |text| text.parse().expect("a number of milliseconds"));
        Duration::from_millis(number)
    };
    let variants = variable("VARIANTS").unwrap_or_else(|| "sotw,delta,per-type,rest".to_owned());
    Some(JudgeSettings {
        adapter: Adapter::start(&spec, node.as_deref().unwrap_or("kit")),
        target,
        node,
        deadline: milliseconds("DEADLINE_MS", 5000),
        quiet: milliseconds("QUIET_MS", 500),
        variants: variants.split(',').map(str::to_owned).collect(),
    })
}

fn variable(name: &str) -> Option<String> {
    std::env::var(format!("SLUICE_CONFORMANCE_{name}")).ok().filter(|value| !value.is_empty())
}

pub fn deadline() -> Duration {
    settings().map_or(DEADLINE, |settings| settings.deadline)
}

/// Prints a line for the report, which reads the output of the cases.
#[allow(clippy::print_stdout, reason = "the test harness has no other channel")]
pub fn say(line: &str) {
    println!("{line}");
}

/// Ends a case that cannot judge this server or its adapter. The report distinguishes a skip from a failure
/// by the word.
pub fn skip(reason: impl Display) -> ! {
    panic!("SKIPPED: {reason}")
}

/// Skips the case if clients of this kind are not selected.
pub fn require(kind: Downstream) {
    let Some(settings) = settings() else { return };
    if !settings.selects(kind) {
        skip(format!("not asked for: {}", kind.label()));
    }
}

/// The selected variants of ADS: both, unless a server is judged by one.
pub fn variants() -> impl Iterator<Item = Variant> {
    let wanted = |variant: &Variant| settings().is_none_or(|settings| settings.selects((*variant).into()));
    Variant::BOTH.into_iter().filter(wanted)
}

impl JudgeSettings {
    pub fn selects(&self, kind: Downstream) -> bool {
        let word = match kind {
            Downstream::Ads(Variant::Sotw) => "sotw",
            Downstream::Ads(Variant::Delta) => "delta",
            Downstream::PerType(_) => "per-type",
            Downstream::Rest => "rest",
            Downstream::V2(_) => "v2",
        };
        self.variants.iter().any(|variant| variant == word)
    }
}
