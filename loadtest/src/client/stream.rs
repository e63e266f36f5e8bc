//! One xDS stream of a simulated client: responses in, requests out.

use std::collections::VecDeque;

use super::connection::ConnectionError;
use super::flow::{ReceiveWindow, SendWindow};
use super::headers::ResponseHeaders;
use super::profile::{Profile, Wanted};
use super::reporting::Reporting;
use super::request::{From, Purpose, Requests};
use super::response::{Response, ResponseReader};
use super::{Manner, Observer, Tally};
use crate::measure::monotonic_ns;
use crate::xds::{Kind, Variant};

/// A subscription of a stream.
struct Subscribed {
    /// The index in the profile's list.
    index: usize,
    asked: bool,
    complete: bool,
    /// The number of received resources, and of names known to be absent.
    have: u64,
    /// The number of names that the client has moved on.
    offset: usize,
    /// Version and nonce of the newest response, and of the newest accepted response; only kept for clients
    /// that move or reject.
    last: Option<Box<Last>>,
}

#[derive(Default)]
struct Last {
    version: Vec<u8>,
    nonce: Vec<u8>,
}

/// The effects of a response beyond its stream.
#[derive(Clone, Copy, Default)]
pub struct Outcome {
    /// The number of subscriptions that became complete.
    pub completed: usize,
    /// The next subscription to request, on another stream.
    pub next: Option<usize>,
}

pub struct Stream {
    /// The HTTP/2 stream id.
    pub id: u32,
    /// The client's number among all clients.
    pub client: usize,
    subscribed: Vec<Subscribed>,
    pub headers: ResponseHeaders,
    responses: ResponseReader,
    pub received: ReceiveWindow,
    pub sent: SendWindow,
    /// gRPC messages that wait for a window to be framed.
    pub queued: Vec<u8>,
    /// Requests to send later, with their times; ordered by time.
    late: VecDeque<(u64, Vec<u8>)>,
    silent: bool,
    /// For load reports; such a stream has no subscriptions.
    reporting: Option<Box<Reporting>>,
}

impl Stream {
    pub fn new(id: u32, client: usize, subscriptions: &[usize], window: u32) -> Stream {
        let subscribed = subscriptions.iter().map(|&index| Subscribed {
            index,
            asked: false,
            complete: false,
            have: 0,
            offset: 0,
            last: None,
        });
        Stream {
            id,
            client,
            subscribed: subscribed.collect(),
            headers: ResponseHeaders::default(),
            responses: ResponseReader::new(),
            received: ReceiveWindow::new(window),
            sent: SendWindow::new(),
            queued: Vec::new(),
            late: VecDeque::new(),
            silent: true,
            reporting: subscriptions.is_empty().then(|| Box::new(Reporting::new(client))),
        }
    }

    /// Introduces a reporter: the first message has the node, and no report (LRS-1).
    pub fn introduce(&mut self, requests: &Requests) {
        if self.reporting.is_some() {
            requests.put_report(&mut self.queued, self.client, None);
        }
    }

    /// Requests a subscription if it is on this stream.
    pub fn ask(&mut self, index: usize, requests: &Requests) -> bool {
        let Some(subscribed) = self.subscribed.iter_mut().find(|subscribed| subscribed.index == index) else {
            return false;
        };
        subscribed.asked = true;
        let from = subscribed.from(self.client, self.silent);
        self.silent = false;
        requests.put(&mut self.queued, from, Purpose::Subscribe);
        true
    }

    /// Handles bytes of the response stream, and answers complete responses.
    pub fn data(
        &mut self,
        mut bytes: &[u8],
        requests: &Requests,
        manner: Manner,
        observer: &mut impl Observer,
    ) -> Result<Outcome, ConnectionError> {
        let mut outcome = Outcome::default();
        if let Some(reporting) = &mut self.reporting {
            reporting.data(bytes, monotonic_ns())?;
            return Ok(outcome);
        }
        let profile = &requests.profile;
        while let Some(response) = self.responses.next(&mut bytes, profile.sought)? {
            let now = monotonic_ns();
            let kind = Kind::of(&response.type_url).ok_or(ConnectionError::UnknownType)?;
            let place = self.subscribed.iter().position(|subscribed| {
                subscribed.asked && profile.subscriptions[subscribed.index].kind == kind
            });
            let place = place.ok_or(ConnectionError::UnknownType)?;
            let first = self.subscribed[place].is_new();
            let next = Some(self.subscribed[place].index + 1)
                .filter(|next| profile.chained && first && *next < profile.subscriptions.len());
            let own_next = next.filter(|next| ask_now(&mut self.subscribed, *next));
            outcome.next = outcome.next.or(next.filter(|_| own_next.is_none()));
            let subscribed = &mut self.subscribed[place];
            let from = subscribed.from(self.client, false);
            if subscribed.count(profile, response) {
                outcome.completed += 1;
            }
            let later = manner.ack_delay_ns > 0;
            let mut ack = Vec::new();
            let out = if later { &mut ack } else { &mut self.queued };
            // The request for the next type precedes the ACK of this type, as with Envoy.
            if let Some(subscription) = own_next {
                requests.put(out, From { subscription, ..from }, Purpose::Subscribe);
            }
            requests.put(out, from, subscribed.purpose(response, manner, first));
            if later {
                self.late.push_back((now + manner.ack_delay_ns, ack));
            }
            observer.response(self.client, kind, response, now);
            if manner.remembers {
                self.subscribed[place].remember(response, manner, first);
            }
        }
        Ok(outcome)
    }

    /// Moves a subscription by name on by this number of names.
    pub fn move_on(&mut self, index: usize, by: usize, requests: &Requests) {
        let Some(subscribed) = self.subscribed.iter_mut().find(|subscribed| subscribed.index == index) else {
            return;
        };
        subscribed.offset += by;
        let last = subscribed.last.as_deref();
        let (version, nonce) = last.map_or((&[][..], &[][..]), |last| (&last.version, &last.nonce));
        let purpose = Purpose::Move { by, version, nonce };
        requests.put(&mut self.queued, subscribed.from(self.client, false), purpose);
    }

    /// The time of the next late request or load report.
    pub fn due(&self) -> Option<u64> {
        let late = self.late.front().map(|(due, _)| *due);
        late.or_else(|| self.reporting.as_ref()?.due())
    }

    /// Queues the requests and reports that are due.
    pub fn release(&mut self, now: u64, requests: &Requests) {
        while self.late.front().is_some_and(|(due, _)| *due <= now)
            && let Some((_, request)) = self.late.pop_front()
        {
            self.queued.extend_from_slice(&request);
        }
        let is_waiting = !self.queued.is_empty();
        if let Some(number) = self.reporting.as_mut().and_then(|own| own.take_due(now, is_waiting)) {
            requests.put_report(&mut self.queued, self.client, Some(number));
        }
    }

    /// Sends no further load reports.
    pub fn stop_reporting(&mut self) {
        self.reporting.iter_mut().for_each(|reporting| reporting.stop());
    }

    pub fn tally(&self) -> Option<Tally> {
        self.reporting.as_ref().map(|reporting| reporting.tally)
    }
}

impl Subscribed {
    /// Whether nothing was received yet.
    fn is_new(&self) -> bool {
        self.have == 0 && !self.complete
    }

    fn from(&self, client: usize, first: bool) -> From {
        From { client, subscription: self.index, offset: self.offset, first }
    }

    /// Counts a response; true if the response completed the first answer.
    fn count(&mut self, profile: &Profile, response: &Response) -> bool {
        let subscription = profile.subscriptions[self.index];
        // A SotW response of a full-state type is the whole set (SST-1); any other response may be a part.
        match profile.variant {
            Variant::Sotw if subscription.kind.is_full_state() => self.have = response.resources,
            Variant::Sotw => self.have += response.resources,
            Variant::Delta => self.have += response.resources + response.removed,
        }
        let wanted = match subscription.wanted {
            Wanted::Wildcard => profile.resources,
            Wanted::Names { count, .. } if profile.resources > 0 => count,
            // The number of existing names is unknown for a foreign server.
            Wanted::Names { .. } => 0,
        };
        let completes = !self.complete && self.have >= wanted as u64;
        self.complete |= completes;
        completes
    }

    /// The first answer is always accepted: a client without any resources would be a broken client.
    fn purpose<'a>(&'a self, response: &'a Response, manner: Manner, first: bool) -> Purpose<'a> {
        if manner.nack && !first {
            let accepted = self.last.as_ref().map_or(&[][..], |last| &last.version);
            return Purpose::Nack(response, accepted);
        }
        Purpose::Ack(response)
    }

    fn remember(&mut self, response: &Response, manner: Manner, first: bool) {
        let last = self.last.get_or_insert_default();
        last.nonce.clone_from(&response.nonce);
        if first || !manner.nack {
            last.version.clone_from(&response.version);
        }
    }
}

/// Marks a subscription as requested, if the list has it.
fn ask_now(subscribed: &mut [Subscribed], index: usize) -> bool {
    let own = subscribed.iter_mut().find(|subscribed| subscribed.index == index);
    own.map(|own| own.asked = true).is_some()
}
