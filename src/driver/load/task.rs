//! The task of a load: carries out the outputs of the machine, and passes the words of the server in.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep_until;
use tracing::warn;

use super::handle::{END_WITHIN, LoadHandle, LoadState};
use super::uplink::{LoadUplink, next_event};
use crate::client::StreamEvent;
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::servers::Attach;
use crate::telemetry::events::tell;
use crate::telemetry::metrics::RequestFate;
use sluice_engine::Time;
use sluice_load_reports::link::LinkState;
use sluice_load_reports::{Happening, Output};
use sluice_xds::{Code, Status};

/// Sums that the server has not got stay for this long after the last client. A fleet with a class for each
/// client would else fill the memory while a server is away.
const KEPT_AFTER: Duration = Duration::from_secs(300);

/// The time between two tries to leave the table.
const RETRY: Duration = Duration::from_secs(1);

/// The table of loads.
pub trait LoadListing: Send + Sync {
    /// Removes a load from the table if nobody reports, and returns whether it was removed. Called by the
    /// load's own task.
    fn retire(&self, load: &Arc<LoadHandle>) -> bool;
}

/// The task of one load.
pub struct LoadTask {
    pub handle: Arc<LoadHandle>,
    pub shared: Arc<DriverContext>,
    pub listing: Arc<dyn LoadListing>,
}

/// The time after a look at the machine.
enum Rest {
    /// The time of the next look, if there is one.
    Until(Option<Time>),
    Over,
}

impl LoadTask {
    pub async fn run(self) {
        let LoadTask { handle, shared, .. } = &self;
        let mut link: Option<LoadUplink> = None;
        loop {
            self.carry_out(&mut link);
            let next_look = match self.rest() {
                Rest::Until(time) => time,
                Rest::Over => break,
            };
            let wait = async {
                match next_look {
                    Some(time) => sleep_until(shared.clock.instant(time)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = next_event(&mut link) => self.take_event(&mut link, event),
                () = handle.woken.notified() => {}
                () = wait => handle.state.lock().machine.handle_timeout(shared.clock.now()),
            }
        }
        self.close();
    }

    /// Carries out all outputs.
    fn carry_out(&self, link: &mut Option<LoadUplink>) {
        loop {
            let mut state = self.handle.state.lock();
            let output = state.machine.poll_output();
            let Some(output) = output else {
                state.count(&self.shared.metrics.load);
                return;
            };
            match output {
                Output::Open(first) => {
                    state.link_since = self.shared.clock.now();
                    drop(state);
                    match self.open() {
                        Ok(opened) => {
                            opened.send_first(&first);
                            *link = Some(opened);
                        }
                        Err(status) => self.ended(link, &status),
                    }
                }
                Output::Send(message) => {
                    drop(state);
                    link.iter().for_each(|link| link.send(&message));
                }
                Output::Finish => {
                    state.link_since = self.shared.clock.now();
                    drop(state);
                    link.iter().for_each(LoadUplink::finish);
                }
                Output::WishChanged => state.tell_wish(),
                Output::Tell(happening) => {
                    drop(state);
                    self.tell(link, happening);
                }
            }
        }
    }

    fn open(&self) -> Result<LoadUplink, Status> {
        // Also behind a successor (HND-3): sums of two processes add up, and the clients here report here.
        let settings = self.shared.settings();
        let listed = settings.lists.find(self.handle.facts.key.place);
        match listed.map(|listed| &listed.server().attach) {
            Some(Attach::Grpc { pool, .. }) => {
                let facts = &self.handle.facts;
                Ok(LoadUplink::open(pool, &facts.relays, &facts.server, &self.shared.metrics))
            }
            _ => Err(Status::new(Code::Unavailable, "the server is gone from the configuration")),
        }
    }

    fn take_event(&self, link: &mut Option<LoadUplink>, event: StreamEvent) {
        let now = self.shared.clock.now();
        match event {
            StreamEvent::ConnectFailed(status) => self.handle.state.lock().error = Some(status),
            StreamEvent::Message(message) => {
                let mut state = self.handle.state.lock();
                let before = state.machine.link_state();
                state.machine.answered(&message, now);
                state.error = None;
                if state.machine.link_state() != before {
                    state.link_since = now;
                }
            }
            StreamEvent::Flushed => self.handle.state.lock().machine.written(now),
            StreamEvent::Closed(status) | StreamEvent::Ended(status) => self.ended(link, &status),
            // The end follows, or another connection takes the place of this one.
            _ => {}
        }
    }

    fn ended(&self, link: &mut Option<LoadUplink>, status: &Status) {
        *link = None;
        let now = self.shared.clock.now();
        let mut state = self.handle.state.lock();
        state.machine.ended(status, fastrand::u64(..), now);
        (state.link_since, state.error) = (now, Some(status.clone()));
    }

    fn tell(&self, link: &mut Option<LoadUplink>, happening: Happening) {
        let (facts, once) = (&self.handle.facts, &self.shared.once.load);
        let server = &*facts.server;
        match happening {
            Happening::NoService(status) => {
                // One line for all classes (LRS-21).
                if once.is_first_without_service(&facts.server) {
                    warn!(server, %status, "the server takes no load reports (LRS), which its entry in the configuration says; \
                        clients are kept and asked for nothing, and the server is asked again each minute");
                }
            }
            Happening::InDoubt { requests, status } => {
                let suppressed = self.shared.throttle.allow("load in doubt");
                tell!(self.shared.metrics.events, warn(UpstreamLost, "load reports are in doubt")
                    .detail(format_args!("{server}: {requests} requests")), if suppressed;
                    { server, requests, %status }
                    + ": a stream ended after a report, and nobody knows whether the server has it; it is not sent again");
            }
            Happening::BadAnswer(status) => {
                if let Some(suppressed) = self.shared.throttle.allow("bad answer to load reports") {
                    warn!(server, %status, suppressed, "cannot read a server's answer to load reports; ending the stream");
                }
                self.ended(link, &status);
            }
            Happening::UnknownField { message, number } => {
                if once.is_first_field(message, number) {
                    warn!(
                        ?message,
                        number, "clients report a field that this build does not know; sums lack it"
                    );
                }
            }
            Happening::NoRoom { entries } => {
                if let Some(suppressed) = self.shared.throttle.allow("no room for load") {
                    warn!(
                        server,
                        entries,
                        suppressed,
                        "no room for another name in load reports; the limits are limits.load_rows \
                        and limits.load_rows_per_stream, and what has no room is counted as left out"
                    );
                }
            }
        }
    }

    /// Retires an unused load, and finds out whether all is over.
    fn rest(&self) -> Rest {
        let now = self.shared.clock.now();
        let mut state = self.handle.state.lock();
        state.look_for_room(&self.shared.settings().load);
        state.count(&self.shared.metrics.load);
        if state.machine.is_drained() {
            return Rest::Over;
        }
        if let Some(end) = state.ends_at {
            let is_over = now >= end || !self.handle.facts.key.is_reported;
            return if is_over { Rest::Over } else { Rest::Until(Some(end)) };
        }
        let timeout = state.machine.poll_timeout();
        let Some(due) = self.retires_at(&state) else { return Rest::Until(timeout) };
        if now < due {
            return Rest::Until(Some(timeout.map_or(due, |timeout| timeout.min(due))));
        }
        // The table's lock comes first.
        drop(state);
        if self.listing.retire(&self.handle) {
            self.handle.drain(END_WITHIN, now);
        }
        // A client may be on its way.
        Rest::Until(Some(now + RETRY))
    }

    /// When a load without clients leaves the table.
    fn retires_at(&self, state: &LoadState) -> Option<Time> {
        let empty_since = state.empty_since?;
        let is_sendable = !state.machine.has_pending() || state.machine.link_state() == LinkState::Open;
        let linger = self.shared.settings().source.linger;
        Some(empty_since + if is_sendable { linger } else { linger.max(KEPT_AFTER) })
    }

    /// Accounts for what no server will get.
    fn close(&self) {
        let metrics = &self.shared.metrics.load;
        let mut state = self.handle.state.lock();
        if state.machine.link_state() != LinkState::Ended {
            let status = Status::new(Code::Cancelled, "the server did not end the stream in time");
            state.machine.ended(&status, 0, self.shared.clock.now());
        }
        let outputs: Vec<Output> = std::iter::from_fn(|| state.machine.poll_output()).collect();
        state.count(metrics);
        let lost = state.machine.accounts().pending;
        drop(state);
        for output in outputs {
            if let Output::Tell(happening) = output {
                self.tell(&mut None, happening);
            }
        }
        if lost > 0 && self.handle.facts.key.is_reported {
            metrics.fate(RequestFate::Lost, lost);
            warn!(
                server = &*self.handle.facts.server,
                requests = lost,
                "load reports are lost: the server was away, or did not take the last report in time"
            );
        }
    }
}
