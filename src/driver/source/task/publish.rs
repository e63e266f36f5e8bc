//! Publishes the changes of a source: snapshot, outputs, wake-ups, status.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::SourceTask;
use crate::driver::source::checkpoint::CheckpointSchedule;
use crate::engine::cache::SessionId;
use crate::engine::rollout::UnitId;
use crate::engine::snapshot::Snapshot;
use crate::engine::source::{Attachment, Output, StreamIndex};
use crate::engine::upstream::{self, Event};
use crate::xds::{RelayPath, TypeUrl};

/// The maximum age of the published status.
const STATUS_PERIOD: Duration = Duration::from_millis(250);

impl SourceTask {
    /// Publishes the changes, then carries out the outputs of the machine, then wakes the streams.
    pub(super) fn publish(&mut self) {
        self.publish_changes();
        let snapshot = self.source.take_snapshot();
        let changed = snapshot.is_some();
        if let Some(snapshot) = snapshot {
            self.store(&snapshot);
        }
        while let Some(output) = self.source.poll_output() {
            match output {
                Output::Wake(sessions) => self.wake(&sessions),
                Output::DoNotCache { type_url, names, sessions } => {
                    for name in &names {
                        self.shared.content.do_not_cache.add(
                            self.handle.key().place.list,
                            &type_url,
                            name.as_ref(),
                        );
                    }
                    let streams = sessions.iter().filter_map(|session| self.streams.get(session));
                    streams.for_each(|stream| stream.clone().divert(type_url.clone()));
                }
                Output::Unserved(type_url) => self.report.unserved(&type_url),
                Output::Confirmed => {
                    self.told = true;
                    self.checkpoint.iter_mut().for_each(CheckpointSchedule::heard);
                    self.report.confirmed(self.shared.clock.now());
                    self.note_confirmed();
                }
                Output::Upstream(index, upstream::Output::Event(event)) => {
                    self.told = true;
                    match &event {
                        Event::Heard => self.is_heard(index),
                        Event::Unreachable { status } => {
                            self.member.iter_mut().for_each(|member| member.refused(status.code));
                            self.report.note_lost_type(self.lost_type(index));
                        }
                        _ => {}
                    }
                    self.report.event(index, &event, self.shared.clock.now());
                }
                Output::Upstream(index, output) => self.carry_out_upstream(index, output),
            }
        }
        self.wakes.woke(self.source.owes_wakes());
        let told = std::mem::take(&mut self.told);
        if changed || told {
            let lives = told && self.source.has_leases();
            self.checkpoint.iter_mut().for_each(|checkpoint| checkpoint.note(lives));
        }
        self.publish_status(changed || told);
    }

    fn carry_out_upstream(&mut self, index: StreamIndex, output: upstream::Output) {
        let opens = matches!(output, upstream::Output::Open { .. } | upstream::Output::OpenNext { .. });
        if opens || output == upstream::Output::Close {
            self.withheld.retain(|(of, _)| *of != index);
        }
        // HND-3: the successor has the streams to the servers from now on.
        if opens && self.shared.process.is_succeeded.load(Ordering::Relaxed) {
            return self.withheld.push((index, output));
        }
        // An attempt given up in favour of the other server does not end the outage.
        if output == upstream::Output::Close && !self.is_lost(index) {
            self.report.closed(index, self.shared.clock.now());
        }
        let type_url = match self.source.attachment() {
            Attachment::Streams(streams) => streams.type_of(index),
            Attachment::Files(_) => None,
        };
        let number = match output {
            upstream::Output::Open { server, .. } | upstream::Output::OpenNext { server, .. } => {
                self.link.set_relays(&self.relay_path());
                server
            }
            _ => 0,
        };
        let server = self.handle.server(number);
        let metrics = || self.shared.metrics.of_server(&server.uri);
        self.link.carry_out(&server.attach, index, type_url, output, metrics);
    }

    /// Opens the streams of a successor of the process after the successor's death.
    pub(super) fn open_withheld(&mut self) {
        for (index, output) in std::mem::take(&mut self.withheld) {
            self.carry_out_upstream(index, output);
        }
    }

    fn store(&mut self, snapshot: &Arc<Snapshot>) {
        let (before, served) = (self.live.clone(), self.handle.published());
        let published = self.serve_next(snapshot);
        let (published, given) = self.note_given(published);
        let is_held = published.lanes.is_some() && self.plan.is_some() && published.reads_the_same(&served);
        self.wakes.published(is_held);
        self.store_published(published);
        if let Some(plan) = &self.plan {
            let serves = self.handle.published();
            plan.published(UnitId(self.handle.id().0), (&before, snapshot), (&served, &serves), given);
        }
    }

    /// Whether the stream's server is unreachable.
    fn is_lost(&self, index: StreamIndex) -> bool {
        let Attachment::Streams(streams) = self.source.attachment() else { return false };
        streams.machines().nth(index).is_some_and(|(_, machine)| machine.reach().is_lost())
    }

    /// The type of a lost stream, where each type has its own stream (ADR 18), and whether the server was
    /// lost with the stream.
    fn lost_type(&self, index: StreamIndex) -> Option<(TypeUrl, bool)> {
        let Attachment::Streams(streams) = self.source.attachment() else { return None };
        Some((streams.type_of(index)?.clone(), streams.reach().is_lost()))
    }

    /// The server of this stream serves from now on.
    fn is_heard(&mut self, index: StreamIndex) {
        let Attachment::Streams(streams) = self.source.attachment() else { return };
        let Some((_, machine)) = streams.machines().nth(index) else { return };
        let number = machine.server();
        if self.handle.serving.swap(number, Ordering::Relaxed) != number {
            let server = self.handle.server(number);
            self.source.set_server(server.uri.clone());
        }
    }

    /// The path of the next call (TIR-2), behind the client with most relays on the way. The call is for all clients, and
    /// a loop is in the longest path.
    fn relay_path(&self) -> RelayPath {
        let paths = self.streams.values().filter_map(|stream| stream.relays());
        let longest = paths.max_by_key(|path| (path.hops(), Reverse(*path)));
        RelayPath::through(longest, &self.shared.process.relay_id)
    }

    /// Changes that are held back wake only relays, which are served live (TIR-1).
    fn wake(&self, sessions: &[SessionId]) {
        let is_for_live_only = self.wakes.are_for_live_only();
        for session in sessions {
            if let Some(stream) = self.streams.get(session)
                && (!is_for_live_only || stream.relays().is_some())
            {
                stream.wake();
            }
        }
    }

    /// Making the status takes time proportional to the number of types, so the interval is at least
    /// [`STATUS_PERIOD`].
    fn publish_status(&mut self, changed: bool) {
        let now = Instant::now();
        if changed && self.status_due.is_none() {
            self.status_due = Some(now + STATUS_PERIOD);
        }
        if self.status_due.is_some_and(|due| due <= now) {
            self.show();
        }
    }

    pub(super) fn show(&mut self) {
        self.status_due = None;
        let status = self.report.status(Some(&self.source), &self.shared.clock);
        self.handle.status.store(Arc::new(status));
    }
}
