//! One task per source. Only the task touches the machine; it publishes snapshots for streams.

mod anew;
mod attach;
mod changes;
mod configuration;
mod estate;
mod files;
mod first;
mod lanes;
mod publish;
mod rejections;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use crate::checkpoint::Identity;
use crate::client::{Arrival, StreamEvent};
use crate::driver::api::status::names_type;
use crate::driver::ground::checkpoint_writer::CheckpointWriter;
use crate::driver::ground::class_identity::{class_digest, of_class};
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::plans::PlanHandle;
use crate::driver::ground::servers::{Attach, ListedServer};
use crate::driver::ground::source_key::SourceKey;
use crate::driver::ground::stored_plans::StoredUnit;
use crate::driver::source::checkpoint::CheckpointSchedule;
use crate::driver::source::handle::{Command, Listing, Queued, SourceHandle, Subscriber, failed};
use crate::driver::source::link::{Link, LinkEvent};
use crate::driver::source::member::Member;
use crate::driver::source::report::Report;
use crate::engine::Time;
use crate::engine::cache::SessionId;
use crate::engine::class::UpstreamNode;
use crate::engine::downstream::SourceId;
use crate::engine::downstream::tells_ttl;
use crate::engine::evidence::GivenContents;
use crate::engine::lanes::{Lanes, Published, Wakes};
use crate::engine::snapshot::Snapshot;
use crate::engine::source::{Source, StreamIndex};
use crate::engine::upstream::{self, Input};
use crate::telemetry::wall_now;
use crate::xds::{Response, TypeUrl};

/// The maximum number of commands before a snapshot is published for all of them.
const COMMANDS_PER_TURN: usize = 256;

/// When a timer runs this late, the process was stopped or starved. Unread messages of the server are then read
/// first, for the same time (FP6).
const STALL: Duration = Duration::from_secs(1);

/// Starts the task of a source. `former`: the releases of the source before a failure of the task.
pub fn start(
    id: SourceId,
    key: Arc<SourceKey>,
    listed: ListedServer<'_>,
    (shared, listing): (Arc<DriverContext>, Arc<dyn Listing>),
    former: Option<Arc<Published>>,
) -> Arc<SourceHandle> {
    let (server, in_force) = (listed.server().clone(), shared.epoch());
    let node = of_class(&in_force.node, &key.class);
    let shows_member = key.class.upstream_node == UpstreamNode::Member;
    let (number, tells_ttl) = (fastrand::u64(..), tells_ttl(&key.class.node.client_features));
    let mut report = Report::new(&shared, &node, class_digest(&key.class), &key, (id, listed));
    let identifiers =
        listed.serving().iter().map(|server| format!("{} via {}", in_force.node.id, server.uri).into());
    let status = report.status(None, &shared.clock);
    let (handle, mut queue) = SourceHandle::new(id, key, identifiers.collect(), listed.serving(), status);
    let handle = Arc::new(if former.is_some() { handle.anew() } else { handle });
    let settings = configuration::settings(&in_force, handle.key(), listed);
    let identity = CheckpointWriter::identity(handle.key(), listed);
    let source = Source::new(number, settings, attach::attachment(&server.attach));
    let (mut source, for_task) = (source.of_server(server.uri.clone(), tells_ttl), handle.clone());
    tokio::spawn(async move {
        if let (Some(former), Some(identity)) = (&former, &identity) {
            anew::leave(former, identity, &shared).await;
        }
        // No request is possible before a node is known.
        let first = first::first_watch(shows_member, &mut queue, &for_task, &*listing).await;
        let Some(first) = first else { return };
        let link = match Link::new(&server.attach, &node).await {
            Ok(link) => link,
            Err(error) => return first::refuse(queue, for_task, &*listing, first, error).await,
        };
        source.set_node_bytes(link.node_bytes());
        let checkpoint = restore(&mut source, &mut report, identity.clone(), &shared);
        let task = SourceTask {
            source,
            epoch: in_force.number(),
            number,
            link,
            streams: HashMap::new(),
            handle: for_task,
            report,
            checkpoint,
            identity,
            status_due: None,
            response: None,
            followed: VecDeque::new(),
            stalled_until: None,
            told: false,
            plan: None,
            lanes: None,
            given: GivenContents::default(),
            weighed_at: None,
            wakes: Wakes::default(),
            withheld: Vec::new(),
            telling: rejections::Telling::default(),
            live: Arc::default(),
            member: shows_member.then(Member::default),
            is_displaced: false,
            shared,
            listing,
        };
        anew::run(task, first, former, queue).await;
    });
    handle
}

/// Restores the state of a predecessor, else that of the disk, and starts the schedule of writes.
fn restore(
    source: &mut Source,
    report: &mut Report,
    identity: Option<Identity>,
    shared: &DriverContext,
) -> Option<CheckpointSchedule> {
    let identity = identity?;
    let is_held = || shared.durable.plans.holds(&StoredUnit::from(&identity));
    let inherited = shared.durable.inheritance.take(&identity, is_held);
    let begun = shared.durable.checkpoint.as_ref().map(|writer| CheckpointSchedule::begin(writer, identity));
    let (mut checkpoint, on_disk) = begun.unzip();
    let is_inherited = inherited.is_some();
    if let Some(restored) = inherited.or(on_disk.flatten()) {
        let age = wall_now().duration_since(restored.header.written_at).unwrap_or_default();
        source.restore(&restored.types, age, shared.clock.now());
        if source.is_restored() {
            report.restored(restored.header.confirmed_at, restored.resources());
        }
        match &mut checkpoint {
            // The disk may have an older state.
            Some(checkpoint) if is_inherited => checkpoint.note(false),
            Some(checkpoint) => checkpoint.restored(source),
            None => {}
        }
    }
    checkpoint
}

struct SourceTask {
    source: Source,
    /// The number of the configuration that the source has.
    epoch: u64,
    /// The source's number in the ids of views.
    number: u64,
    link: Link,
    streams: HashMap<SessionId, Arc<dyn Subscriber>>,
    handle: Arc<SourceHandle>,
    report: Report,
    /// `None`: the source is not kept on disk.
    checkpoint: Option<CheckpointSchedule>,
    /// `None`: neither the disk nor a successor of the process has a use for the state.
    identity: Option<Identity>,
    status_due: Option<Instant>,
    /// The version of the response in hand, as the server calls it, and the times of the response.
    response: Option<(String, Arrival)>,
    /// The changes that are not over.
    followed: VecDeque<changes::Followed>,
    /// Timers are delayed until this time.
    stalled_until: Option<Instant>,
    /// A report that the status does not show yet.
    told: bool,
    /// The plan that judges the pushes of a shared source, if there is one.
    plan: Option<Arc<PlanHandle>>,
    /// `None`: nothing is held back from clients.
    lanes: Option<Lanes>,
    /// The contents that the plan refuses, and clients are given all the same.
    given: GivenContents,
    /// The time of the latest look at the weight of the lanes.
    weighed_at: Option<Instant>,
    wakes: Wakes,
    /// The streams left to a successor of the process. At most a single stream of each index.
    withheld: Vec<(StreamIndex, upstream::Output)>,
    /// When the server is told of clients that reject its resources.
    telling: rejections::Telling,
    /// The content of the machine, as last published.
    live: Arc<Snapshot>,
    /// Only for a class that shows a client's node to its server.
    member: Option<Member>,
    /// Another class has this source's place. The source ends when its streams have left.
    is_displaced: bool,
    shared: Arc<DriverContext>,
    listing: Arc<dyn Listing>,
}

impl SourceTask {
    async fn run(
        mut self,
        first: Vec<Queued>,
        former: Option<Arc<Published>>,
        queue: &mut mpsc::UnboundedReceiver<Queued>,
    ) {
        debug!(source = self.handle.id().0, "source started");
        self.follow_plan();
        // A command of before the first client is lost.
        self.follow_configuration();
        first.into_iter().for_each(|(command, _permit)| self.take(command));
        self.publish();
        former.into_iter().for_each(|former| self.hold_anew(&former));
        loop {
            let due = self.source.poll_timeout().map(|time| self.shared.clock.instant(time));
            let due = due.map(|due| self.stalled_until.map_or(due, |until| until.max(due)));
            let save_due = self.checkpoint.as_ref().and_then(CheckpointSchedule::due);
            let lanes_due = self.lanes.as_ref().and_then(Lanes::poll_timeout);
            let lanes_due = lanes_due.map(|due| self.shared.clock.instant(due));
            let member_due = self.member.as_ref().and_then(Member::due);
            let due = [
                due,
                self.status_due,
                save_due,
                member_due,
                lanes_due,
                self.changes_due(),
                self.telling.due(),
            ];
            let due = due.into_iter().flatten().min();
            tokio::select! {
                Some((command, _permit)) = queue.recv() => {
                    self.take(command);
                    for _ in 1..COMMANDS_PER_TURN {
                        let Ok((command, _permit)) = queue.try_recv() else { break };
                        self.take(command);
                    }
                }
                event = self.link.next() => self.take_event(event),
                () = wait_until(due) => self.run_timers(),
            }
            self.publish();
            self.look_at_changes();
            self.save();
            if self.may_retire() {
                self.close_changes();
                // Otherwise counts since the last status would be lost.
                self.report.status(Some(&self.source), &self.shared.clock);
                debug!(source = self.handle.id().0, "source stopped without subscriptions");
                return;
            }
        }
    }

    fn run_timers(&mut self) {
        let now = Instant::now();
        let lanes_due = self.lanes.as_ref().and_then(Lanes::poll_timeout);
        if lanes_due.is_some_and(|due| due <= self.shared.clock.now()) {
            self.publish_lanes();
        }
        self.follow_members();
        self.tell_rejections();
        let late = self
            .source
            .poll_timeout()
            .map(|due| now.saturating_duration_since(self.shared.clock.instant(due)));
        match self.stalled_until {
            Some(until) if now < until => {}
            None if late.is_some_and(|late| late > STALL) => self.stalled_until = Some(now + STALL),
            _ => {
                self.stalled_until = None;
                self.source.handle_timeout(self.shared.clock.now());
            }
        }
    }

    fn take(&mut self, command: Command) {
        let now = self.shared.clock.now();
        self.wakes.asked();
        match command {
            Command::Watch { stream, type_url, collection, former, seen } => {
                let session = stream.id();
                self.count_newcomer(&type_url, seen);
                if self.is_displaced {
                    stream.clone().displaced(self.handle.id());
                }
                self.streams.insert(session, stream);
                self.follow_members();
                self.source.watch_after(session, &type_url, &collection, former.as_deref(), now);
            }
            Command::Unwatch { session, type_url, key } => {
                self.source.unwatch(session, &type_url, key, now);
            }
            Command::Forget(session) if !self.is_displaced => {
                self.streams.remove(&session);
                self.source.forget(session, now);
                self.follow_members();
            }
            Command::Configure => self.follow_configuration(),
            Command::Leaving(session) => {
                self.member.iter_mut().for_each(|member| member.note_leaving(session, Instant::now()));
            }
            Command::Reconnect => self.open_withheld(),
            Command::Rejected => self.telling.note(Instant::now()),
            Command::Order(ordered) => self.take_order(ordered),
            Command::Save(done) => self.save_last(done, now),
            Command::Dismiss(session) | Command::Forget(session) => {
                self.streams.remove(&session);
                self.source.dismiss(session, now);
                self.follow_members();
            }
            Command::Displace => {
                self.is_displaced = true;
                self.streams.values().for_each(|stream| stream.clone().displaced(self.handle.id()));
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
                let of_kinds = self.source.image(now).versions.into_iter();
                let versions = of_kinds.flat_map(|((type_url, _), versions)| {
                    versions.into_iter().map(move |(name, version)| ((type_url.clone(), name), version))
                });
                // The reader may have gone meanwhile.
                let _ = done.send(versions.collect());
            }
            Command::ConfirmDeletions { type_name, done } => {
                self.told = true;
                let is_meant =
                    |type_url: &TypeUrl| type_name.as_deref().is_none_or(|text| names_type(text, type_url));
                let removed = self.source.confirm_deletions(is_meant, now);
                // The operator may have gone meanwhile.
                let _ = done.send(removed);
            }
        }
    }

    fn take_event(&mut self, event: LinkEvent) {
        self.told = true;
        let now = self.shared.clock.now();
        match event {
            LinkEvent::Stream(index, event) => {
                self.report.reported(index, matches!(event, StreamEvent::Ended(_)), now);
                let input = match event {
                    StreamEvent::ConnectFailed(status) => Input::ConnectFailed { status },
                    StreamEvent::Opened => Input::Opened,
                    StreamEvent::Response(response, at) => {
                        return self.take_response(index, response, at, now);
                    }
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
                if let Some(member) = self.member.as_mut().filter(|_| is_open) {
                    let types = self.source.types().map(|(type_url, ..)| type_url.clone());
                    member.opened(index, types, Instant::now());
                }
                let input = if is_open { Input::NextOpened } else { Input::NextFailed };
                self.source.handle_upstream(index, input, now);
            }
            LinkEvent::Files(event) => self.take_files(event, now),
        }
    }

    fn take_response(&mut self, index: StreamIndex, response: Response, arrival: Arrival, now: Time) {
        self.report.response(&response, now);
        let type_url = response.type_url();
        self.member.iter_mut().for_each(|member| member.heard(index, type_url, Instant::now()));
        self.checkpoint.iter_mut().for_each(CheckpointSchedule::heard);
        let type_url = response.type_url().clone();
        self.response = Some((response.version().to_owned(), arrival));
        self.handle.hear(response.control_plane());
        self.handle.rejected.answered(&type_url);
        let before = self.present(&type_url);
        self.source.handle_upstream(index, Input::Received(response), now);
        self.report.changed(&type_url, before, self.present(&type_url));
    }

    /// The number of present resources of a type.
    fn present(&self, type_url: &TypeUrl) -> usize {
        let found = self.source.types().find(|(held, ..)| *held == type_url);
        found.map_or(0, |(_, counts, wildcard)| counts.present + wildcard.map_or(0, |view| view.len()))
    }

    /// Chooses another member if the shown member has left.
    fn follow_members(&mut self) {
        let Some(member) = &mut self.member else { return };
        let Some(node) = member.follow(&self.streams, self.handle.id(), Instant::now()) else { return };
        let node = self.handle.key().class.told_identity(node);
        debug!(
            source = self.handle.id().0,
            node = node.id,
            "the class shows this member's node to its server"
        );
        self.report.shows(&node);
        self.told = true;
        self.link.set_node(&self.handle.server(0).attach, &node);
        self.source.set_node_bytes(self.link.node_bytes());
        self.source.succeed(self.shared.clock.now());
    }

    fn save(&mut self) {
        let stable = self.stable();
        if let Some(checkpoint) = &mut self.checkpoint {
            let (clock, report) = (&self.shared.clock, &self.report);
            checkpoint.run(&self.source, stable.as_deref(), clock.now(), || report.confirmed_at(clock));
        }
    }

    /// The process ends.
    fn save_last(&mut self, done: oneshot::Sender<()>, now: Time) {
        let stable = self.stable();
        if let Some(checkpoint) = &mut self.checkpoint {
            let confirmed = self.report.confirmed_at(&self.shared.clock);
            checkpoint.last(&self.source, stable.as_deref(), now, confirmed, done);
        }
    }

    fn may_retire(&mut self) -> bool {
        // A directory stays open for as long as it is configured.
        let pinned = matches!(self.handle.server(0).attach, Attach::Files { .. })
            && self.shared.settings().lists.find(self.handle.key().place).is_some();
        // Otherwise a class that comes back would be given the content that is held back (WAV-8).
        if pinned || self.stable().is_some() || !self.source.is_idle() {
            return false;
        }
        if self.listing.retire(&self.handle) {
            return true;
        }
        // A stream still holds the handle, or holds it again. The task looks again later.
        self.status_due.get_or_insert(Instant::now() + Duration::from_secs(1));
        false
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
            // The source's streams would wait for ever. Their clients reconnect after the end (FP11).
            warn!(source = self.handle.id().0, "the task of a source panicked; ending its streams");
            for stream in self.streams.values() {
                stream.end(failed());
            }
        }
    }
}
