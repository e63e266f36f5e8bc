//! Another configuration for the running process, all or nothing (ADR 35).
//!
//! Read, parse, validate, plan, prepare, commit. A fault before the commit changes nothing, and frees all
//! preparations; nothing in the commit can fail. One reload runs at a time, and later requests become a
//! single further reload.
//!
//! 1. [`file`](ConfigFile): the text. `generations`: the latest configurations.
//! 2. `listeners`, `next`: the next configuration, prepared. `guard`: whether it may be taken without a yes.
//!    `live`: the parts that it changes.
//! 3. `watch`: the file under watch.

mod file;
mod generations;
mod guard;
mod listeners;
mod live;
mod next;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinError;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

pub use file::{ConfigFile, with_collector};
pub(super) use live::Live;

use self::generations::Generations;
use self::next::{Next, Obstacle, PreparationDepth};
use crate::admin::reloading::{
    ConfigHistory, KeyChange, LastReload, ReloadResult, Reloading, Report, Wanted,
};
use crate::config::{Authorization, Config, Effect, Loaded, Shown, load_policy, process_keys};
use crate::driver::PreparedSources;
use crate::driver::api::reload::ReloadPlan;
use crate::telemetry::events::tell;
use crate::telemetry::traces::act::Act;
use crate::telemetry::wall_now;
use sluice_engine::class::NodeClasses;
use sluice_text::secrets;
use sluice_xds::Status;

/// The time for everything before the commit. A disk that hangs must not keep the next reload waiting.
const PREPARE_MAX: Duration = Duration::from_secs(10);

/// A warning of each plan for a text.
const OF_A_TEXT: &str =
    "a text is planned without files and variables: certificates, tokens and directories are not looked at";

/// Requests in the queue. Operators' requests are bounded by the admin listener; signals beyond are the same
/// reload.
const WAITING_MAX: usize = 64;

/// A request for a reload.
pub(super) struct Pending {
    request: Wanted,
    trigger: &'static str,
    answer: Option<oneshot::Sender<Report>>,
}

/// The handle to the task that reloads.
#[derive(Clone)]
pub(super) struct Reloader {
    file: ConfigFile,
    queue: mpsc::Sender<Pending>,
    published: Arc<ArcSwap<Published>>,
}

/// The generations, for the operator.
struct Published {
    history: Arc<ConfigHistory>,
    /// The texts of the generations, by number.
    shown: Vec<(u64, Arc<Shown>)>,
    /// The rules in force, which the text of a caller may name.
    authorization: Authorization,
}

/// The other end of a [`Reloader`].
pub(super) struct ReloadRequests {
    queue: mpsc::Receiver<Pending>,
    reloader: Reloader,
}

impl Reloader {
    pub(super) fn new(file: &ConfigFile) -> (Reloader, ReloadRequests) {
        let (sender, queue) = mpsc::channel(WAITING_MAX);
        let history = ConfigHistory {
            file: Some(file.path().to_owned()),
            generations: Vec::new(),
            last_reload: None,
            needs_process: process_keys(),
        };
        let authorization = Authorization::default();
        let published = Published { history: Arc::new(history), shown: Vec::new(), authorization };
        let published = Arc::new(ArcSwap::from_pointee(published));
        let reloader = Reloader { file: file.clone(), queue: sender, published };
        let requests = ReloadRequests { queue, reloader: reloader.clone() };
        (reloader, requests)
    }

    /// Asks for a reload without a wait. With a full queue, an earlier request will read the same file.
    pub(super) fn notify(&self, trigger: &'static str) {
        let _ = self.queue.try_send(Pending { request: Wanted::File { yes: false }, trigger, answer: None });
    }

    fn ending(&self) -> Report {
        let number = self.status().current().map_or(0, |current| current.number);
        let faults = vec!["the relay is about to end, or has just begun".to_owned()];
        Report { faults, ..Report::new(ReloadResult::Ending, number) }
    }
}

impl Reloading for Reloader {
    fn reload(&self, request: Wanted) -> BoxFuture<'static, Report> {
        let this = self.clone();
        async move {
            let (answer, report) = oneshot::channel();
            let asked = Pending { request, trigger: "request", answer: Some(answer) };
            if this.queue.send(asked).await.is_err() {
                return this.ending();
            }
            report.await.unwrap_or_else(|_| this.ending())
        }
        .boxed()
    }

    fn rules_of(&self, text: String) -> BoxFuture<'static, Result<NodeClasses, Vec<String>>> {
        let (file, published) = (self.file.clone(), self.published.load_full());
        let read = move || file.parse_foreign(&text, &published.authorization);
        async move { blocking(read).await.map(|loaded| loaded.config.node_classes) }.boxed()
    }

    fn status(&self) -> Arc<ConfigHistory> {
        self.published.load().history.clone()
    }

    fn difference(&self, from: u64, to: u64) -> Option<Vec<KeyChange>> {
        let published = self.published.load();
        let find = |asked| {
            let mut all = published.shown.iter();
            all.find(|(number, _)| *number == asked).map(|(_, shown)| shown)
        };
        Some(key_changes(find(from)?, find(to)?))
    }
}

/// The task that reloads.
pub(super) struct Reloads {
    requests: ReloadRequests,
    file: ConfigFile,
    live: Live,
    generations: Generations,
    last: Option<LastReload>,
    /// Follows the file, if the configuration says so.
    watch: Option<AbortOnDropHandle<()>>,
}

impl Reloads {
    pub(super) fn new(requests: ReloadRequests, file: ConfigFile, live: Live, loaded: Loaded) -> Reloads {
        let generations = Generations::new(loaded, wall_now());
        let mut reloads = Reloads { requests, file, live, generations, last: None, watch: None };
        reloads.publish();
        let started = reloads.generations.current().map(|current| current.config.hash.clone());
        reloads.follow_file(started);
        reloads
    }

    /// Reloads until `stop`.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        while let Some(Some(first)) = stop.run_until_cancelled(self.requests.queue.recv()).await {
            let mut waiting = vec![first];
            while let Ok(asked) = self.requests.queue.try_recv() {
                waiting.push(asked);
            }
            let (files, others): (Vec<_>, Vec<_>) =
                waiting.into_iter().partition(|asked| matches!(asked.request, Wanted::File { .. }));
            if let Some(first) = files.first() {
                let yes = files.iter().any(|asked| asked.request == Wanted::File { yes: true });
                let report = self.serve(Wanted::File { yes }, first.trigger, &stop).await;
                files.into_iter().for_each(|asked| asked.answer(&report));
            }
            for asked in others {
                let report = self.serve(asked.request.clone(), asked.trigger, &stop).await;
                asked.answer(&report);
            }
        }
        // Whoever still waits is told by the end of the queue.
    }

    /// Carries one request out, and tells of the result.
    async fn serve(&mut self, request: Wanted, trigger: &'static str, stop: &CancellationToken) -> Report {
        let is_plan =
            matches!(request, Wanted::PlanFile | Wanted::PlanText(_) | Wanted::PlanGeneration { .. });
        let mut act = self.live.base.metrics.traces.begin(Act::Reload);
        act.step("sluice.reload.prepare");
        let attempt = self.attempt(&request, is_plan);
        let prepared = stop.run_until_cancelled(timeout(PREPARE_MAX, attempt)).await;
        let (mut report, ready) = match prepared {
            None => return self.requests.reloader.ending(),
            Some(Ok(attempt)) => attempt,
            Some(Err(_)) => {
                let text = format!("not ready within {} s; nothing has changed", PREPARE_MAX.as_secs());
                (self.report(ReloadResult::Failed, vec![text]), None)
            }
        };
        // A fault quotes the value, which log, trace and every reader of `/reload` and `/config` see (REL-9).
        for text in report.faults.iter_mut().chain(&mut report.warnings) {
            if let Some(hidden) = secrets::hide(text) {
                *text = hidden;
            }
        }
        report.is_plan = is_plan;
        if is_plan {
            return report;
        }
        if let Some((loaded, prepared)) = ready {
            act.step("sluice.reload.commit");
            report.generation = self.commit(loaded, prepared).await;
        }
        self.tell(&report, trigger, act.trace_id());
        act.note("sluice.generation", report.generation);
        act.note("sluice.outcome", report.result.name());
        act.note("sluice.trigger", trigger);
        act.end((!report.result.is_success()).then(|| report.faults.join("; ")));
        report
    }

    /// Everything before the commit.
    async fn attempt(
        &self,
        request: &Wanted,
        is_plan: bool,
    ) -> (Report, Option<(Loaded, Option<PreparedReload>)>) {
        let depth = match request {
            Wanted::PlanText(_) => PreparationDepth::Text,
            _ if is_plan => PreparationDepth::Files,
            _ => PreparationDepth::Sockets,
        };
        let loaded = match self.load(request).await {
            Ok(loaded) => loaded,
            Err(faults) => return (self.report(ReloadResult::Invalid, faults), None),
        };
        let Some(current) = self.generations.current() else {
            return (self.requests.reloader.ending(), None);
        };
        let before = current.config.clone();
        let mut report = self.report(ReloadResult::Unchanged, Vec::new());
        report.warnings = loaded.warnings.iter().map(ToString::to_string).collect();
        report.warnings.extend((depth == PreparationDepth::Text).then(|| OF_A_TEXT.to_owned()));
        report.changes = key_changes(&current.shown, &loaded.shown);
        if (Config { hash: before.hash.clone(), ..loaded.config.clone() }) == before {
            return (report, Some((loaded, None)));
        }
        let keys = before.needs_process(&loaded.config);
        if !keys.is_empty() {
            report.result = ReloadResult::NeedsProcess;
            report.faults = keys.iter().map(|key| needs_process(key, &report.changes)).collect();
            report.say = Some("sluice upgrade".to_owned());
            return (report, None);
        }
        let (prepared, plan) = match self.prepare(&before, &loaded.config, depth).await {
            Ok(next) => next,
            Err(Obstacle::Invalid(faults)) => {
                (report.result, report.faults) = (ReloadResult::Invalid, faults);
                return (report, None);
            }
            Err(Obstacle::Failed(faults)) => {
                (report.result, report.faults) = (ReloadResult::Failed, faults);
                return (report, None);
            }
        };
        report.listeners = prepared.next.listeners.changes.clone();
        report.moves = Some(guard::moves(&plan));
        report.warnings.extend(guard::warnings(&plan));
        if let Some(refusal) = &plan.refused {
            report.result = ReloadResult::Invalid;
            report.faults = vec![format!("{}: {}", refusal.key, refusal.text)];
            return (report, None);
        }
        // The bound in force: no file loosens the guard against itself.
        let reasons = guard::reasons(&plan, before.reload.max_moved);
        if !reasons.is_empty() && !says_yes(request) {
            (report.result, report.faults) = (ReloadResult::Held, reasons);
            report.say = Some(guard::yes(request));
            return (report, None);
        }
        report.result = ReloadResult::Changed;
        (report, Some((loaded, Some(prepared))))
    }

    /// Reads and parses.
    async fn load(&self, request: &Wanted) -> Result<Loaded, Vec<String>> {
        let file = self.file.clone();
        match request {
            Wanted::File { .. } | Wanted::PlanFile => {
                blocking(move || file.parse(&file.read().map_err(|fault| vec![fault])?)).await
            }
            Wanted::PlanText(text) => {
                let text = text.clone();
                let in_force = self.generations.current().map(|current| current.config.authorization.clone());
                blocking(move || file.parse_foreign(&text, &in_force.unwrap_or_default())).await
            }
            Wanted::Generation { to, .. } | Wanted::PlanGeneration { to } => {
                let generation = self.generations.find(*to).map_err(|fault| vec![fault])?;
                let (config, shown) = (generation.config.clone(), Shown::clone(&generation.shown));
                let loaded = Loaded { config, shown, warnings: Vec::new() };
                blocking(move || with_policy_of_today(loaded)).await
            }
        }
    }

    /// Prepares a configuration, and finds its effects.
    async fn prepare(
        &self,
        before: &Config,
        config: &Config,
        depth: PreparationDepth,
    ) -> Result<(PreparedReload, ReloadPlan), Obstacle> {
        let preparation = self.live.preparation(before, self.generations.number() + 1);
        let config = config.clone();
        let failed = |error: JoinError| Obstacle::Failed(vec![error.to_string()]);
        let prepared = tokio::task::spawn_blocking(move || preparation.prepare(&config, depth)).await;
        let next = prepared.unwrap_or_else(|error| Err(failed(error)))?;
        let sources = match depth {
            PreparationDepth::Text => None,
            PreparationDepth::Files | PreparationDepth::Sockets => {
                let sources = self.live.relay.prepare(&next.driver).await;
                let failed = |(uri, status): (Arc<str>, Status)| {
                    Obstacle::Failed(vec![format!("{uri}: {}", status.message)])
                };
                Some(sources.map_err(failed)?)
            }
        };
        let prepared = PreparedReload { next, sources };
        // The plan looks at each stream in turn.
        let relay = self.live.relay.clone();
        let planned = move || {
            let plan = relay.plan(&prepared.next.driver);
            (prepared, plan)
        };
        tokio::task::spawn_blocking(planned).await.map_err(failed)
    }

    /// Puts a configuration in force. Returns the generation in force. Without preparations, only the
    /// spelling is another.
    async fn commit(&mut self, loaded: Loaded, prepared: Option<PreparedReload>) -> u64 {
        let Loaded { config, shown, .. } = loaded;
        let Some(PreparedReload { next, sources }) = prepared else {
            self.generations.respell(config, shown);
            return self.generations.number();
        };
        if let Some(before) = self.generations.current().map(|current| current.config.clone()) {
            self.live.commit(&before, &config, next).await;
        }
        drop(sources);
        self.generations.add(config, shown, wall_now())
    }

    fn report(&self, result: ReloadResult, faults: Vec<String>) -> Report {
        Report { faults, ..Report::new(result, self.generations.number()) }
    }

    /// One line, one event, and the metrics (REL-4).
    fn tell(&mut self, report: &Report, trigger: &'static str, trace_id: Option<String>) {
        let Report { result, generation, faults, say, .. } = report;
        let metrics = self.live.base.metrics.clone();
        let (name, file) = (result.name(), self.file.path().display());
        let all = faults.join("; ");
        match result {
            ReloadResult::Changed => {
                let keys: Vec<_> = report.changes.iter().map(|change| change.key.as_str()).collect();
                let changed = keys.join(", ");
                tell!(metrics.events, info(Reload, "reloaded the configuration").place(&file)
                    .detail(format_args!("generation {generation}, by {trigger}: {changed}"));
                    { generation, trigger, changed });
                report.warnings.iter().for_each(|warning| warn!("{warning}"));
                self.follow_file(None);
            }
            ReloadResult::Unchanged => info!(generation, trigger, "reloaded the configuration: unchanged"),
            ReloadResult::Ending => return,
            // The file is good, and stays out of force until somebody acts.
            ReloadResult::Held => {
                tell!(metrics.events, error(Reload, "the configuration waits for a yes; the one before stays in force")
                    .traced(*generation, trace_id.as_deref()).place(&file).detail(&all);
                    { %file, generation, trace_id, trigger, faults = all, say });
            }
            ReloadResult::Invalid | ReloadResult::NeedsProcess | ReloadResult::Failed => {
                tell!(metrics.events, warn(Reload, "cannot take the configuration; the last good one stays in force")
                    .traced(*generation, trace_id.as_deref()).place(&file).detail(&all);
                    { %file, generation, trace_id, trigger, result = name, faults = all, say });
            }
        }
        metrics.config.reloaded(name, result.is_success());
        let (faults, say) = (faults.clone(), say.clone());
        self.last = Some(LastReload { at: wall_now(), trigger, result: *result, faults, say });
        self.publish();
    }

    /// Shows the configuration in force.
    fn publish(&mut self) {
        let status = self.generations.status(self.file.path(), self.last.clone());
        let is_good = self.last.as_ref().is_none_or(|last| last.result.is_success());
        if let (Some(current), true) = (status.current(), is_good) {
            self.live.base.metrics.config.in_force(current.number, &current.hash, wall_now());
        }
        let authorization = self
            .generations
            .current()
            .map(|current| current.config.authorization.clone())
            .unwrap_or_default();
        let shown = self.generations.shown();
        let published = Published { history: Arc::new(status), shown, authorization };
        self.requests.reloader.published.store(Arc::new(published));
    }

    /// Begins or ends the watch of the file (REL-8).
    fn follow_file(&mut self, started: Option<String>) {
        let is_wanted = self.generations.current().is_some_and(|current| current.config.reload.watch);
        if is_wanted == self.watch.is_some() {
            return;
        }
        let watch = || {
            let task = watch::follow(self.file.clone(), self.requests.reloader.clone(), started);
            AbortOnDropHandle::new(tokio::spawn(task))
        };
        self.watch = is_wanted.then(watch);
    }
}

impl Pending {
    fn answer(self, report: &Report) {
        if let Some(answer) = self.answer {
            // Whoever asked may have left.
            let _ = answer.send(report.clone());
        }
    }
}

/// A configuration that can come into force, and the sources that it needs at once.
struct PreparedReload {
    next: Next,
    /// `None` in the plan of a text.
    sources: Option<PreparedSources>,
}

fn says_yes(request: &Wanted) -> bool {
    matches!(request, Wanted::File { yes: true } | Wanted::Generation { yes: true, .. })
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Vec<String>> + Send + 'static,
) -> Result<T, Vec<String>> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(vec![error.to_string()]))
}

/// A policy in a file of its own has a life of its own: a way back takes the rules of today.
fn with_policy_of_today(loaded: Loaded) -> Result<Loaded, Vec<String>> {
    let Authorization::File(file, _) = &loaded.config.authorization else { return Ok(loaded) };
    let names: Vec<&str> = loaded.config.listeners.iter().map(|listener| &*listener.name).collect();
    let policy = load_policy(file, &names).map_err(|error| vec![error.to_string()])?;
    let authorization = Authorization::File(file.clone(), policy);
    Ok(Loaded { config: Config { authorization, ..loaded.config }, ..loaded })
}

fn key_changes(before: &Shown, after: &Shown) -> Vec<KeyChange> {
    let change = |key: crate::config::ChangedKey| KeyChange {
        key: key.key,
        from: key.from,
        to: key.to,
        effect: key.effect.name(),
    };
    before.difference(after).into_iter().map(change).collect()
}

/// A fault with the key to blame and the values.
fn needs_process(key: &str, changes: &[KeyChange]) -> String {
    let is_it = |change: &&KeyChange| change.effect == Effect::Process.name() && change.key.starts_with(key);
    match changes.iter().find(is_it) {
        Some(KeyChange { key, from, to, .. }) => {
            let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "unset".to_owned());
            format!("{key}: from {} to {} needs a new process", shown(from), shown(to))
        }
        None => format!("{key}: another value needs a new process"),
    }
}
