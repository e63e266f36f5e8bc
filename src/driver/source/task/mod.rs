//! One task per source. Only the task touches the machine; it publishes snapshots for streams.
//!
//! The modules, in order: the surroundings of the source; its streams; the content that they are given; the
//! streams to servers; the changes of the content; the state that outlives the task; and rejections for the
//! server. The task follows.

pub(super) mod surroundings;
mod audience;
mod serving;
mod uplink;
mod changes;
pub(super) mod saver;
mod telling;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use crate::client::{Arrival, FileEvent, StreamEvent};
use crate::driver::api::content::UpstreamVersions;
use crate::driver::api::estate::Estate;
use crate::driver::api::status::names_type;
use crate::driver::ground::context::DriverSettings;
use crate::driver::ground::servers::{Attach, ListedServer};
use crate::driver::ground::source_key::{Owner, SourceKey};
use crate::driver::source::handle::{Command, Queued, Subscriber};
use crate::driver::source::lane_order::Ordered;
use crate::driver::source::link::{Link, LinkEvent};
use crate::driver::source::report::SourceReport;
use audience::Audience;
use changes::ChangeFollower;
use saver::Saver;
use serving::Serving;
use sluice_engine::Time;
use sluice_engine::cache::SessionId;
use sluice_engine::collection::Collection;
use sluice_engine::lanes::Published;
use sluice_engine::source::{Attachment, Source, SourceOutput, SourceSettings, StreamIndex};
use sluice_engine::upstream::{self, Event, Input};
use sluice_fleet::rollout::shared::UnitKey;
use sluice_xds::{Code, Response, Status, TypeUrl};
use surroundings::Surroundings;
use telling::RejectionTeller;
use uplink::{Uplink, lost_type, serve_by};

/// The maximum number of commands before a snapshot is published for all of them.
const COMMANDS_PER_TURN: usize = 256;

/// When a timer runs this late, the process was stopped or starved. Unread messages of the server are then
/// read first, for the same time (FP6).
const STALL: Duration = Duration::from_secs(1);

/// The maximum age of the published status.
const STATUS_PERIOD: Duration = Duration::from_millis(250);

/// A source at work: the machine, and the parts that supply its inputs and carry out its outputs.
pub(super) struct SourceTask {
    source: Source,
    /// The number of the configuration that the source has.
    epoch: u64,
    around: Surroundings,
    audience: Audience,
    serving: Serving,
    uplink: Uplink,
    changes: ChangeFollower,
    saver: Saver,
    report: SourceReport,
    status: StatusTimer,
    telling: RejectionTeller,
    stall: Stall,
}

/// The number of a source in the ids of views, and of the configuration that the source has; and the unit of
/// a source without content from before.
pub(super) struct Numbers {
    pub source: u64,
    pub epoch: u64,
    pub newcomer: Option<UnitKey>,
}

/// When the status is brought up to date.
#[derive(Default)]
struct StatusTimer {
    due: Option<Instant>,
    /// A report that the status does not show yet.
    is_outdated: bool,
}

/// A delay of timers after the process was stopped.
#[derive(Default)]
struct Stall {
    until: Option<Instant>,
}

impl Stall {
    fn delayed(&self, due: Instant) -> Instant {
        self.until.map_or(due, |until| until.max(due))
    }

    /// Whether a timer of the machine may run now. `due`: when it was due.
    fn is_over(&mut self, due: Option<Instant>) -> bool {
        let now = Instant::now();
        let late = due.map(|due| now.saturating_duration_since(due));
        match self.until {
            Some(until) if now < until => false,
            None if late.is_some_and(|late| late > STALL) => {
                self.until = Some(now + STALL);
                false
            }
            _ => {
                self.until = None;
                true
            }
        }
    }
}

impl SourceTask {
    pub(super) fn new(
        source: Source,
        numbers: Numbers,
        link: Link,
        saver: Saver,
        report: SourceReport,
        shows_member: bool,
        around: Surroundings,
    ) -> SourceTask {
        SourceTask {
            source,
            epoch: numbers.epoch,
            around,
            audience: Audience::new(shows_member),
            serving: Serving::new(numbers.source, numbers.newcomer),
            uplink: Uplink::new(link),
            changes: ChangeFollower::default(),
            saver,
            report,
            status: StatusTimer::default(),
            telling: RejectionTeller::default(),
            stall: Stall::default(),
        }
    }

    pub(super) fn surroundings(&self) -> &Surroundings {
        &self.around
    }

    /// Runs until nobody uses the source. Each turn tells the machine commands of streams, events of servers,
    /// or the time, and then publishes the result: streams see all of a turn at once. `failed`: the releases
    /// of the source before a failure of its task.
    pub(super) async fn run(
        mut self: Box<Self>,
        first: Vec<Queued>,
        failed: Option<Arc<Published>>,
        queue: &mut mpsc::UnboundedReceiver<Queued>,
    ) {
        debug!(source = self.around.handle.id().0, "source started");
        self.begin(first, failed);
        loop {
            self.take_next(queue).await;
            self.publish();
            self.changes.look(&mut self.report, &self.audience, &self.around);
            self.save();
            if self.may_retire() {
                return self.end();
            }
        }
    }

    fn begin(&mut self, first: Vec<Queued>, failed: Option<Arc<Published>>) {
        self.serving.follow_plan(&self.around, &self.audience);
        // A `Configure` that came before the first client is lost.
        self.follow_configuration();
        first.into_iter().for_each(|(command, _permit)| self.take(command));
        self.publish();
        if let Some(failed) = failed {
            self.serving.hold_anew(&failed, self.source.is_restored(), &self.around, &self.audience);
        }
    }

    fn end(mut self: Box<Self>) {
        self.changes.close_all(&mut self.report, &self.around);
        // Otherwise counts since the last status would be lost.
        self.report.status(Some(&self.source), &self.around.shared.clock);
        debug!(source = self.around.handle.id().0, "source stopped without subscriptions");
    }

    /// Waits for commands, an event or a timer.
    async fn take_next(&mut self, queue: &mut mpsc::UnboundedReceiver<Queued>) {
        let due = self.due();
        tokio::select! {
            Some((command, _permit)) = queue.recv() => {
                self.take(command);
                for _ in 1..COMMANDS_PER_TURN {
                    let Ok((command, _permit)) = queue.try_recv() else { break };
                    self.take(command);
                }
            }
            event = self.uplink.next() => self.take_event(event),
            () = wait_until(due) => self.run_timers(),
        }
    }

    fn due(&self) -> Option<Instant> {
        let clock = &self.around.shared.clock;
        let machine = self.source.poll_timeout().map(|due| self.stall.delayed(clock.instant(due)));
        let due = [
            machine,
            self.status.due,
            self.saver.due().filter(|_| !self.serving.is_newcomer()),
            self.audience.member_due(),
            self.serving.poll_timeout().map(|due| clock.instant(due)),
            self.changes.due(),
            self.telling.due(),
        ];
        due.into_iter().flatten().min()
    }

    fn run_timers(&mut self) {
        self.serving.handle_timeout(&self.around, &self.audience);
        self.follow_members();
        self.telling.tell(self.audience.len(), &mut self.source, &mut self.report, &self.around);
        let due = self.source.poll_timeout().map(|due| self.around.shared.clock.instant(due));
        if self.stall.is_over(due) {
            self.source.handle_timeout(self.around.now());
        }
    }

    fn take(&mut self, command: Command) {
        let now = self.around.now();
        self.serving.wakes.asked();
        match command {
            Command::Watch { stream, type_url, collection, previous, seen } => {
                let session = stream.id();
                self.changes.count_newcomer(&type_url, seen);
                self.audience.add(stream, self.around.handle.id());
                self.follow_members();
                self.source.watch_after(session, &type_url, &collection, previous.as_deref(), now);
            }
            Command::WatchAll { stream, parts } => self.watch_all(stream, parts, now),
            Command::Unwatch { session, type_url, key } => {
                self.source.unwatch(session, &type_url, key, now);
            }
            Command::Forget(session) if !self.audience.is_displaced() => {
                self.audience.remove(session);
                self.source.forget(session, now);
                self.follow_members();
            }
            Command::Configure => self.follow_configuration(),
            Command::Leaving(session) => {
                let member = self.audience.member.iter_mut();
                member.for_each(|member| member.note_leaving(session, Instant::now()));
            }
            Command::Reconnect => {
                self.uplink.open_withheld(&self.source, &mut self.report, &self.audience, &self.around);
            }
            Command::Rejected => self.telling.note(Instant::now()),
            Command::Order(Ordered { order, done }) => {
                let is_restored = self.source.is_restored();
                let content = self.serving.obey(order, is_restored, &self.around, &self.audience);
                // The next process begins with the content of a finished push.
                self.saver.note_change(false);
                // The plan may have ended meanwhile.
                let _ = done.send(content);
            }
            Command::Save(done) => self.save_last(done),
            Command::Dismiss(session) | Command::Forget(session) => {
                self.audience.remove(session);
                self.source.dismiss(session, now);
                self.follow_members();
            }
            Command::Displace => {
                self.audience.displace(self.around.handle.id());
                // Lingering names end at once.
                self.source.dismiss(SessionId(u64::MAX), now);
            }
            Command::Show(done) => {
                self.show();
                // The reader may have gone meanwhile.
                let _ = done.send(());
            }
            Command::PassOn(done) => {
                if let Some(estate) = self.estate(now) {
                    // The hand-over may have ended meanwhile.
                    let _ = done.send(estate);
                }
            }
            Command::Versions(done) => {
                // The reader may have gone meanwhile.
                let _ = done.send(self.versions(now));
            }
            Command::ConfirmDeletions { type_name, done } => {
                // The operator may have gone meanwhile.
                let _ = done.send(self.confirm_deletions(type_name.as_deref(), now));
            }
        }
    }

    /// Adds a stream with all that it asks for.
    fn watch_all(&mut self, stream: Arc<dyn Subscriber>, parts: Vec<(TypeUrl, Collection)>, now: Time) {
        let session = stream.id();
        self.audience.add(stream, self.around.handle.id());
        self.follow_members();
        for (type_url, collection) in parts {
            self.source.watch_after(session, &type_url, &collection, None, now);
        }
    }

    /// Carries out held deletions. `None`: of all types. Returns the number of removed resources.
    fn confirm_deletions(&mut self, type_name: Option<&str>, now: Time) -> usize {
        self.status.is_outdated = true;
        let is_meant = |type_url: &TypeUrl| type_name.is_none_or(|text| names_type(text, type_url));
        self.source.confirm_deletions(is_meant, now)
    }

    /// The state for a successor of the process.
    fn estate(&self, now: Time) -> Option<Estate> {
        if self.serving.is_newcomer() {
            return None;
        }
        let stable = self.serving.stable(&self.around);
        self.saver.estate(&self.source, stable.as_deref(), &self.report, &self.around, now)
    }

    /// The server's versions of the cached resources.
    fn versions(&self, now: Time) -> UpstreamVersions {
        let of_kinds = self.source.image(now).versions.into_iter();
        let versions = of_kinds.flat_map(|((type_url, _), versions)| {
            versions.into_iter().map(move |(name, version)| ((type_url.clone(), name), version))
        });
        versions.collect()
    }

    fn take_event(&mut self, event: LinkEvent) {
        self.status.is_outdated = true;
        let now = self.around.now();
        match event {
            LinkEvent::Stream(index, event) => {
                self.report.reported(index, matches!(event, StreamEvent::Ended(_)), now);
                let input = match event {
                    StreamEvent::ConnectFailed(status) => Input::ConnectFailed { status },
                    StreamEvent::Opened => {
                        self.report.last_words.opened(index);
                        Input::Opened
                    }
                    StreamEvent::TellsLastWords => return self.report.last_words.tells(index),
                    StreamEvent::LastWord(word) => return self.report.last_words.hear(index, word, now),
                    StreamEvent::Response(response, at) => {
                        return self.take_response(index, *response, at, now);
                    }
                    // From other services than discovery.
                    StreamEvent::Message(_) => return,
                    StreamEvent::Marks => Input::Marks,
                    StreamEvent::Marked(type_url, mark) => Input::Marked(type_url, mark),
                    StreamEvent::Unchanged => Input::Unchanged,
                    StreamEvent::Undecodable(status) => return self.report.undecodable(&status),
                    StreamEvent::Receiving => Input::Receiving,
                    StreamEvent::Alive => Input::Alive,
                    StreamEvent::Returned => Input::Returned,
                    StreamEvent::Flushed => Input::Flushed,
                    StreamEvent::GoingAway => Input::GoingAway,
                    StreamEvent::Closed(status) => Input::Closed { status, jitter: fastrand::f64() },
                    StreamEvent::Ended(status) => Input::Ended { status, jitter: fastrand::f64() },
                };
                self.source.handle_upstream(index, input, now);
            }
            LinkEvent::Next(index, is_open) => {
                if is_open {
                    self.report.last_words.opened(index);
                }
                if let Some(member) = self.audience.member.as_mut().filter(|_| is_open) {
                    let types = self.source.types().map(|(type_url, ..)| type_url.clone());
                    member.opened(index, types, Instant::now());
                }
                let input = if is_open { Input::NextOpened } else { Input::NextFailed };
                self.source.handle_upstream(index, input, now);
            }
            LinkEvent::Files(event) => self.take_files(event, now),
        }
    }

    fn take_response(&mut self, index: StreamIndex, mut response: Response, arrival: Arrival, now: Time) {
        self.report.response(&response, now);
        self.report.last_words.answered(index);
        let type_url = response.type_url();
        let member = self.audience.member.iter_mut();
        member.for_each(|member| member.heard(index, type_url, Instant::now()));
        self.saver.note_answer();
        let type_url = response.type_url().clone();
        self.changes.note_response(response.version().to_owned(), arrival);
        self.around.handle.hear(response.control_plane());
        self.around.handle.rejected.answered(&type_url);
        let before = self.present(&type_url);
        // A stream shares while it reads: one look-up for each resource (BOD-4).
        if self.report.is_polled && !matches!(self.around.handle.key().owner, Owner::Stream(_)) {
            self.around.shared.content.copies.share(&mut response);
        }
        self.source.handle_upstream(index, Input::Received(response), now);
        self.report.changed(&type_url, before, self.present(&type_url));
    }

    /// The number of present resources of a type.
    fn present(&self, type_url: &TypeUrl) -> usize {
        let cached = self.source.types().find(|(cached, ..)| *cached == type_url);
        cached.map_or(0, |(_, counts, wildcard)| counts.present + wildcard.map_or(0, |view| view.len()))
    }

    fn take_files(&mut self, event: FileEvent, now: Time) {
        let handle = &self.around.handle;
        match event {
            FileEvent::State(state, arrival) => {
                self.report.files_read(now);
                self.changes.note_response(String::new(), arrival);
                let before = counts_of_files(&self.source);
                self.source.handle_files(state, now);
                let after = counts_of_files(&self.source);
                for (type_url, before) in before {
                    let after = after.get(&type_url).copied().unwrap_or_default();
                    self.report.changed(&type_url, before, after);
                }
                handle.loaded.send_replace(Some(Ok(())));
            }
            FileEvent::Bad { path, reason } => {
                self.source.handle_bad_files();
                self.report.bad_file(&path, &reason, now);
                let text = format!("{}: {reason}", path.display());
                // Only the first state decides whether the relay may start. After a later failure, the last
                // good state stays.
                handle.loaded.send_if_modified(|loaded| {
                    let first = loaded.is_none();
                    loaded.get_or_insert(Err(Status::new(Code::FailedPrecondition, text)));
                    first
                });
            }
        }
    }

    /// Takes over the configuration in force, if there is a new one.
    fn follow_configuration(&mut self) {
        let in_force = self.around.shared.epoch();
        if self.epoch == in_force.number() {
            return;
        }
        self.epoch = in_force.number();
        self.serving.follow_plan(&self.around, &self.audience);
        // A place that left the configuration keeps its settings until its streams have left.
        let handle = &self.around.handle;
        let Some(listed) = in_force.lists.find(handle.key().place) else { return };
        handle.servers.store(Arc::new(listed.serving().to_vec()));
        let settings = settings_of(&in_force, handle.key(), listed);
        self.source.configure(settings, listed.server().upstream_settings(), self.around.now());
        if let Attach::Files { mass_deletion_hold, .. } = &listed.server().attach {
            self.source.hold_files(*mass_deletion_hold);
        }
    }

    /// Chooses another member if the shown member has left.
    fn follow_members(&mut self) {
        let handle = &self.around.handle;
        let Some(node) = self.audience.choose_member(handle.id()) else { return };
        let node = handle.key().class.with_identity(node);
        debug!(source = handle.id().0, node = node.id, "the class shows this member's node to its server");
        self.report.shows(&node);
        self.status.is_outdated = true;
        self.source.set_node_bytes(self.uplink.set_node(&node, &self.around));
        handle.shown.store(Some(Arc::new(node)));
        self.source.succeed(self.around.now());
    }

    /// Publishes the changes and the snapshot, then carries out the outputs of the machine. The wakes of
    /// streams are among the outputs, so a stream that wakes finds the new content.
    fn publish(&mut self) {
        let member = self.audience.member.as_ref();
        self.changes.publish(&mut self.source, &mut self.report, member, &self.around);
        self.source.share(&*self.around.shared.content.copies);
        let snapshot = self.source.take_snapshot();
        let changed = snapshot.is_some();
        if let Some(snapshot) = snapshot {
            self.serving.publish(&snapshot, &self.around, &self.audience);
        }
        while let Some(output) = self.source.poll_output() {
            self.carry_out(output);
        }
        self.serving.wakes.woke(self.source.owes_wakes());
        let is_outdated = std::mem::take(&mut self.status.is_outdated);
        if changed || is_outdated {
            self.saver.note_change(is_outdated && self.source.has_leases());
            // Making the status takes time proportional to the number of types.
            self.status.due.get_or_insert_with(|| Instant::now() + STATUS_PERIOD);
        }
        if self.status.due.is_some_and(|due| due <= Instant::now()) {
            self.show();
        }
    }

    fn carry_out(&mut self, output: SourceOutput) {
        match output {
            SourceOutput::Wake(sessions) => self.serving.wake(&sessions, &self.audience),
            SourceOutput::DoNotCache { type_url, names, sessions } => {
                let list = self.around.handle.key().place.list;
                for name in &names {
                    self.around.shared.content.do_not_cache.add(list, &type_url, name.as_ref());
                }
                self.audience.divert(&sessions, &type_url);
            }
            SourceOutput::Unserved(type_url) => self.report.unserved(&type_url),
            SourceOutput::Confirmed => {
                self.status.is_outdated = true;
                self.saver.note_answer();
                self.report.confirmed(self.around.now());
                self.serving.confirm(&self.around, &self.audience);
            }
            SourceOutput::Upstream(index, upstream::Output::Event(event)) => {
                self.status.is_outdated = true;
                match &event {
                    Event::Heard => serve_by(&mut self.source, index, &self.around),
                    Event::Unreachable { status } => {
                        let member = self.audience.member.iter_mut();
                        member.for_each(|member| member.refused(status.code));
                        self.report.note_lost_type(lost_type(&self.source, index));
                    }
                    _ => {}
                }
                self.report.event(index, &event, self.around.now());
            }
            SourceOutput::Upstream(index, output) => {
                let (uplink, report) = (&mut self.uplink, &mut self.report);
                uplink.carry_out(index, output, &self.source, report, &self.audience, &self.around);
            }
        }
    }

    fn show(&mut self) {
        self.status.due = None;
        let status = self.report.status(Some(&self.source), &self.around.shared.clock);
        self.around.handle.status.store(Arc::new(status));
    }

    fn save(&mut self) {
        if self.serving.is_newcomer() {
            return;
        }
        let stable = self.serving.stable(&self.around);
        self.saver.run(&self.source, stable.as_deref(), &self.report, &self.around);
    }

    /// After a newcomer, the next process begins without content, too.
    fn save_last(&mut self, done: oneshot::Sender<()>) {
        if !self.serving.is_newcomer() {
            let stable = self.serving.stable(&self.around);
            self.saver.run_last(&self.source, stable.as_deref(), &self.report, &self.around, done);
        }
    }

    fn may_retire(&mut self) -> bool {
        let (handle, shared) = (&self.around.handle, &self.around.shared);
        // A directory stays open for as long as it is configured.
        let pinned = matches!(handle.server(0).attach, Attach::Files { .. })
            && shared.settings().lists.find(handle.key().place).is_some();
        // Otherwise a class that comes back would be given the content that is held back (WAV-8).
        if pinned || self.serving.stable(&self.around).is_some() || !self.source.is_idle() {
            return false;
        }
        if self.around.listing.retire(handle) {
            return true;
        }
        // A stream still holds the handle, or holds it again. The task looks again later.
        self.status.due.get_or_insert(Instant::now() + Duration::from_secs(1));
        false
    }
}

/// The settings of a source, at the start and when another configuration is in force.
pub(super) fn settings_of(
    in_force: &DriverSettings,
    key: &SourceKey,
    listed: ListedServer<'_>,
) -> SourceSettings {
    let mut settings = in_force.source.clone();
    settings.tells_reach |= listed.list.servers().len() > 1;
    if key.class.is_of_one() {
        settings.linger = settings.linger.min(settings.linger_of_one);
        settings.unasked_names = Some(in_force.stream.names_per_stream);
    }
    if matches!(key.owner, Owner::Stream(_)) {
        // A private source ends with its stream.
        (settings.private, settings.linger) = (true, Duration::ZERO);
        // It is for the names that may not be shared, and for no others.
        settings.unasked_names = None;
    }
    if matches!(key.owner, Owner::Shadow(_)) {
        // It ends with its question (PRF-1), and the loss of the server is a part of the answer. It is not
        // private: it holds the bodies that classes hold (BOD-1).
        (settings.linger, settings.tells_reach) = (Duration::ZERO, true);
        settings.unasked_names = None;
    }
    settings
}

/// The number of resources in the files by type, with those whose deletion is held back.
fn counts_of_files(source: &Source) -> BTreeMap<TypeUrl, usize> {
    match source.attachment() {
        Attachment::Files(files) => files.counts().collect(),
        Attachment::Streams(_) => BTreeMap::new(),
    }
}

async fn wait_until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

impl Drop for SourceTask {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let source = self.around.handle.id().0;
            warn!(source, "the task of a source panicked; ending its streams");
            self.audience.end_all();
        }
    }
}
