//! Inputs and outputs of the machine.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::backoff::BackoffSettings;
use crate::Time;
use crate::collection::{Collection, CollectionKind};
use sluice_setting::{Range, Setting, hours, minutes, ms, seconds, time};
use sluice_xds::{
    Request, Resource, ResourceError, ResourceName, Response, SetMark, Status, TypeUrl, Variant, Version,
};

/// The request form for a wildcard (RLY-18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WildcardStyle {
    /// The name `*` (SUB-8). An empty list of names subscribes to nothing.
    Explicit,
    /// An empty list of names in the first request of the type (SUB-9, DEL-6), for servers that treat `*` as
    /// an ordinary name. Those servers also read an empty list after names as the wildcard, so the machine
    /// never sends an empty list after names.
    Legacy,
}

/// The transport of requests and responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// One aggregated stream for all types (RPC-1).
    Aggregated,
    /// A stream per type, to the service of the type (RPC-2).
    PerType,
    /// Polls per type (RST-10). A poll is a stream of one request and at most one response, and the response
    /// answers the whole request (RST-12).
    Rest { refresh_delay: Duration },
}

/// The delay between two polls of a type: a random part of at most the same length is added (RST-10). Below
/// 10 ms, polls would load the server without end.
pub const REFRESH_DELAY: Range = time(ms(10)..=hours(24));

/// The time after which an unanswered name counts as absent (TMR-1): above the slowest answer of a server,
/// and below the 15 s of gRPC clients (RLY-29).
pub const RESOURCE_TIMEOUT: Setting<Duration> =
    Setting::new("resource_timeout", seconds(10), time(seconds(1)..=seconds(600)));

/// [`RESOURCE_TIMEOUT`] for servers that report absent names themselves: 30 s, as silence is an error then
/// (A88).
pub const TRANSIENT_RESOURCE_TIMEOUT: Duration = seconds(30);

/// [`Hold::For`]: the time in which an operator or the server can restore what was deleted by mistake.
pub const MASS_DELETION_HOLD: Setting<Duration> =
    Setting::new("hold", minutes(5), time(seconds(1)..=hours(24)));

/// The length of the hold on a mass deletion (FU18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    For(Duration),
    /// Until the operator confirms the deletion.
    UntilConfirmed,
}

impl Hold {
    /// The end of a hold that begins now; `None` until the operator confirms.
    pub fn end(self, now: Time) -> Option<Time> {
        match self {
            Hold::For(time) => Some(now + time),
            Hold::UntilConfirmed => None,
        }
    }
}

/// The treatment of unasked resources ([`super::unasked`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnaskedRule {
    /// Several clients share the stream, and the server may mean a single client.
    #[default]
    Ignored,
    /// The stream is of one client. A type takes unasked resources up to a number of names.
    Taken { names_max: usize },
}

/// The machine's behaviour towards its server. Wide because each field is a setting of a server, and the
/// machine's parts read one or two each.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamSettings {
    pub transport: Transport,
    /// The variant of the first attempt.
    pub variant: Variant,
    /// Uses SotW for an hour with a server that refuses delta (RLY-25). False if the operator configured the
    /// variant.
    pub fall_back_to_sotw: bool,
    pub wildcard: WildcardStyle,
    /// The hold on a response that removes most of a type; `None` obeys at once (FU18). The source implements
    /// the hold.
    pub mass_deletion_hold: Option<Hold>,
    /// See [`RESOURCE_TIMEOUT`].
    pub resource_timeout: Duration,
    /// Timeouts of types that differ from `resource_timeout` (RLY-29).
    pub resource_timeouts: BTreeMap<TypeUrl, Duration>,
    /// `resource_timer_is_transient_error`: an expired timer is an [`Event::Timeout`], not an absence
    /// (TMR-5).
    pub timeout_is_transient: bool,
    /// `fail_on_data_errors`: PERMISSION_DENIED and malformed instances remove the copy of a name (DAT-2). A
    /// name that the server calls nonexistent is gone, whichever server supplied it (RLY-42). Without the
    /// setting the copy stays, as for all other errors (DAT-3). Clients learn of nonexistence in either case,
    /// and decide (DAT-4, ERR-5).
    pub fails_on_data_errors: bool,
    /// Requests to a lost server demand an answer. Other servers serve until the lost server is heard, and a
    /// server that finds every version current would keep silent (RLY-44).
    pub needs_answer: bool,
    /// Looks for names that silence a SotW server, and asks for these names apart (ADR 54). False in the
    /// simulator, whose reference has no streams for single names.
    pub looks_into_silence: bool,
    /// Delays the answers to responses that repeat the same content again and again (ADR 67). False in the
    /// simulator, whose reference answers at once.
    pub paces_answers: bool,
    /// Tells the server of clients' rejections. The driver counts the rejections.
    pub reports_rejections: bool,
    /// The treatment of unasked resources. The source sets the value.
    pub unasked: UnaskedRule,
    /// The maximum wait of gathered changes of subscriptions (FLW-5). The first change after a quiet spell is
    /// written at once. Later changes are written together, at growing intervals up to the maximum. ACKs and
    /// NACKs do not wait for them.
    pub gather: Duration,
    /// The time for which a stream without wanted resources stays open, if the last resource was a Secret.
    /// Secrets do not linger (RLY-60). The source sets the value.
    pub linger: Duration,
    pub backoff: BackoffSettings,
    /// A failover server exists. Envoy's rules decide its turns; see [`super::failover`].
    pub failover: bool,
    /// Replaces `backoff` while the machine alternates between the two servers.
    pub failover_backoff: BackoffSettings,
    /// The maximum length of a request, and the part of it that the node takes in the first request of a
    /// stream.
    pub request_bytes_max: usize,
    pub node_bytes: usize,
    /// The maximum length of a NACK's text, in bytes: 4 KiB, where `wire` cuts every status message.
    pub nack_text_max: usize,
}

impl Default for UpstreamSettings {
    fn default() -> Self {
        UpstreamSettings {
            transport: Transport::Aggregated,
            variant: Variant::Delta,
            fall_back_to_sotw: true,
            wildcard: WildcardStyle::Explicit,
            mass_deletion_hold: None,
            resource_timeout: RESOURCE_TIMEOUT.default,
            resource_timeouts: BTreeMap::new(),
            timeout_is_transient: false,
            fails_on_data_errors: false,
            needs_answer: false,
            looks_into_silence: true,
            paces_answers: true,
            reports_rejections: false,
            unasked: UnaskedRule::default(),
            gather: Duration::from_millis(50),
            linger: Duration::ZERO,
            backoff: BackoffSettings::default(),
            failover: false,
            failover_backoff: super::failover::default_backoff(),
            request_bytes_max: (4 << 20) - (64 << 10),
            node_bytes: 0,
            nack_text_max: 4096,
        }
    }
}

impl UpstreamSettings {
    pub(super) fn polls(&self) -> bool {
        matches!(self.transport, Transport::Rest { .. })
    }

    /// Each type has a stream, or polls, of its own.
    pub(super) fn has_one_type(&self) -> bool {
        self.transport != Transport::Aggregated
    }

    /// The resource timeout of a type.
    pub fn timeout_of(&self, type_url: &TypeUrl) -> Duration {
        self.resource_timeouts.get(type_url).copied().unwrap_or(self.resource_timeout)
    }
}

/// Resources of a type to subscribe to, or to unsubscribe from. Only delta has requests for globs, by their
/// canonical names (NAM-14).
///
/// A machine has at most one of the three kinds for each type (RLY-13, RLY-19).
pub type ResourceSelection = Collection<Vec<ResourceName>>;

/// Reports of the shell about the machine's stream.
#[derive(Clone, Debug)]
pub enum Input {
    /// The stream is open, on a connection with received SETTINGS (RLY-29).
    Opened,
    /// A connection attempt failed: the server is unreachable (CLI-1 a). The shell retries with its own
    /// backoff (CLI-7).
    ConnectFailed { status: Status },
    /// The next response of the stream. Bad elements are marked individually.
    Received(Response),
    /// The first bytes of a response have arrived; the rest is outstanding. [`Input::Received`] or the end of
    /// the stream follows.
    Receiving,
    /// The server announces marks of whole sets on the stream. The announcement precedes the first response.
    Marks,
    /// A mark for the type, right after the [`Input::Received`] of the response with the mark.
    Marked(TypeUrl, SetMark),
    /// REST: the last accepted version is still current (RST-4).
    Unchanged,
    /// The server asked the client to leave the connection. The end of the stream follows, and is no failure
    /// (KAL-5).
    GoingAway,
    /// The stream ended, or did not open on a good connection. `jitter` is uniform in [0, 1).
    Closed { status: Status, jitter: f64 },
    /// Like [`Input::Closed`], with a status from the server on a connection that stays open.
    Ended { status: Status, jitter: f64 },
    /// The answer to [`Output::Probe`]: bytes arrived on the connection.
    Alive,
    /// The answer to [`Output::Flush`].
    Flushed,
    /// The stream of [`Output::OpenNext`] is open, on a connection with received SETTINGS.
    NextOpened,
    /// The stream of [`Output::OpenNext`] did not open. The current stream continues.
    NextFailed,
    /// The answer to [`Output::RoundTrip`]. The shell has reported everything that arrived before the
    /// transport's answer.
    Returned,
}

/// Instructions to the shell, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Open a stream, and connect first if necessary.
    ///
    /// `server`: 1 is the failover server, 0 the primary or only server.
    Open { variant: Variant, server: u16 },
    /// Drop the stream, or the attempt to open a stream. No further input about the stream may follow, not
    /// even [`Input::Closed`].
    Close,
    /// Open a second stream beside the current stream. The second stream begins with another node.
    /// [`Input::NextOpened`] or [`Input::NextFailed`] follows. If the current stream is reopened or closed
    /// before, the shell drops the second stream.
    OpenNext { variant: Variant, server: u16 },
    /// Drop the current stream. The second stream takes over: later requests go there.
    TakeNext,
    /// Write a request. `first` marks the first request of the stream, which carries the node (STR-2).
    Send { request: Request, first: bool },
    /// Report [`Input::Flushed`] once the transport has taken all earlier requests of the stream. At most one
    /// is pending.
    Flush,
    /// Check the transport, because a resource timer expired on a silent stream (RLY-29). The shell reports
    /// [`Input::Alive`], or ends the stream if no answer arrives in time.
    Probe,
    /// Make a round trip of the transport, and report [`Input::Returned`]. At most one round trip is pending.
    RoundTrip,
    /// Apply the changes to the cache in one step.
    Changes(Changes),
    /// For logs, metrics and the fallback machine.
    Event(Event),
}

/// Instructions that the shell has not taken yet, in order.
#[derive(Debug, Default)]
pub(super) struct OutputQueue(VecDeque<Output>);

impl OutputQueue {
    pub(super) fn push(&mut self, output: Output) {
        self.0.push_back(output);
    }

    pub(super) fn event(&mut self, event: Event) {
        self.push(Output::Event(event));
    }

    pub(super) fn extend(&mut self, outputs: impl IntoIterator<Item = Output>) {
        self.0.extend(outputs);
    }

    pub(super) fn pop(&mut self) -> Option<Output> {
        self.0.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A request belongs to the stream for which it was made. A stale ACK must not reach the next stream
    /// (STR-5).
    pub(super) fn withdraw_requests(&mut self) {
        self.0.retain(|output| {
            !matches!(output, Output::Send { .. } | Output::Flush | Output::Probe | Output::RoundTrip)
        });
    }
}

/// The changes of one type by one response, or by one timer. Only wanted resources occur.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes {
    pub type_url: TypeUrl,
    pub kind: CollectionKind,
    /// As received. Equal content may arrive again, especially after a reconnect (RLY-65).
    pub present: Vec<Arc<Resource>>,
    /// Names only: the wanted aliases that present resources answer (ALI-1).
    pub by_alias: Vec<(ResourceName, Arc<Resource>)>,
    /// Names only: unasked names, wanted from now on (DEL-17).
    pub unasked: Vec<ResourceName>,
    /// Names that are absent from now on. Each name occurs once, in the spelling of the subscription.
    pub absent: Vec<(ResourceName, Cause)>,
    /// Heartbeats: no update, but the time to live of these resources restarts (TTL-4, RLY-39), with the
    /// length from the heartbeat.
    pub refreshed: Vec<(ResourceName, Option<Duration>)>,
    /// Wildcard only: `present` is the whole membership. Other members have left.
    pub replaces: bool,
    /// Wildcard only: the whole membership is known from now on. The value stays `true`, over reconnects too,
    /// until the wildcard is unsubscribed.
    pub complete: bool,
    /// Globs only: globs with a completely known membership from now on, as with `complete`.
    pub settled: Vec<ResourceName>,
}

impl Changes {
    pub(crate) fn new(type_url: &TypeUrl, kind: CollectionKind) -> Self {
        let (present, by_alias, unasked, absent, refreshed, settled) = Default::default();
        Changes {
            type_url: type_url.clone(),
            kind,
            present,
            by_alias,
            unasked,
            absent,
            refreshed,
            replaces: false,
            complete: false,
            settled,
        }
    }

    /// Names that are absent for one reason.
    pub(crate) fn names_absent(type_url: &TypeUrl, names: Vec<ResourceName>, cause: Cause) -> Self {
        let absent = names.into_iter().map(|name| (name, cause)).collect();
        Changes { absent, ..Changes::new(type_url, CollectionKind::Names) }
    }

    /// The members of a wildcard have settled. The members in `gone` have left.
    pub(super) fn wildcard_settled(type_url: &TypeUrl, gone: Vec<ResourceName>) -> Self {
        let absent = gone.into_iter().map(|name| (name, Cause::Omitted)).collect();
        Changes { absent, complete: true, ..Changes::new(type_url, CollectionKind::Wildcard) }
    }

    /// Returns true if the response has no effect.
    pub(super) fn is_empty(&self) -> bool {
        let nothing = self.present.is_empty() && self.absent.is_empty() && self.refreshed.is_empty();
        nothing && self.settled.is_empty() && !self.replaces
    }
}

/// The reason for an absence (RLY-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A delta response removed the name (DEL-12).
    Removed,
    /// A full-state response lacks it (RLY-27).
    Omitted,
    /// `resource_errors` says NOT_FOUND (ERR-5).
    NotFound,
    /// No answer within [`UpstreamSettings::resource_timeout`] on a live stream (TMR-5).
    Timeout,
    /// The time to live expired (TTL-8).
    Expired,
    /// The server denies the name or sent a malformed instance, and the relay drops the copy because of
    /// [`UpstreamSettings::fails_on_data_errors`] (DAT-2).
    DataError,
}

/// Events for observers.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A stream is open, without a response yet. REST: the server answered for the first time, or again.
    Connected {
        variant: Variant,
        /// As in [`Output::Open`].
        server: u16,
    },
    /// The stream ended. No error if `answered` is true (CLI-2).
    Disconnected {
        status: Status,
        answered: bool,
        retry_in: Duration,
    },
    /// No connection, a stream that ended before its first response (CLI-1), or too many streams that ended
    /// soon after their first responses (FU9). [`Event::Heard`] ends the state.
    Unreachable {
        status: Status,
    },
    /// The server can be heard on this stream; REST: polls are answered.
    Heard,
    /// The server does not answer the requests of this stream, and has never answered.
    Unanswered,
    Acked {
        type_url: TypeUrl,
    },
    /// The answer to a response waits, because this number of responses of the type in sequence had no news
    /// (ADR 67).
    Repeated {
        type_url: TypeUrl,
        count: u64,
    },
    /// REST: the server reports no change.
    Unchanged {
        type_url: TypeUrl,
    },
    /// The response had structural faults (RLY-37). `names`: the known names of bad elements.
    Nacked {
        type_url: TypeUrl,
        text: String,
        names: Vec<ResourceName>,
    },
    /// Instances of wanted names were structurally bad, with a reason for each name (DAT-1). Only names from
    /// subscriptions one by one occur; [`Event::Nacked`] reports the response.
    Malformed {
        type_url: TypeUrl,
        faults: Vec<(ResourceName, String)>,
    },
    /// The server refuses delta (RLY-25). The server is not unreachable.
    SwitchedToSotw {
        status: Status,
    },
    /// The server refused delta, and is silent in SotW, too. The next stream is delta again.
    BackToDelta,
    /// An unrequested response, which was neither ACKed nor NACKed (ACK-11).
    Ignored {
        type_url: TypeUrl,
    },
    /// `resource_errors` for a wanted name (ERR-1). NOT_FOUND is also an absence, which [`Changes`] reports
    /// (ERR-5).
    ResourceError {
        type_url: TypeUrl,
        error: ResourceError,
    },
    /// Unasked resources were ignored, of a type with clients that take them (FU15). `limit`: the maximum
    /// number of names, if there were more. Otherwise several clients may share the stream.
    Unasked {
        type_url: TypeUrl,
        count: usize,
        limit: Option<usize>,
    },
    /// Globs without requests, because the server speaks SotW. Their state is unknown, and their subscribers
    /// wait (SUB-21).
    GlobsUnserved {
        type_url: TypeUrl,
        names: Vec<ResourceName>,
    },
    /// SotW: `names` names of the type stay without a request, because the request would be longer than the
    /// limit.
    RequestTooLong {
        type_url: TypeUrl,
        names: usize,
        limit: usize,
    },
    /// Several variants of a name match the wanted parameters; the machine chose a variant (DYN-4).
    Ambiguous {
        type_url: TypeUrl,
        name: ResourceName,
    },
    /// Resources arrived under the version string of the held resources; `contents` has the arrived content
    /// by name. The source compares the arrived content with the held content, and passes on the differences
    /// (FU20, WIR-2).
    SameVersion {
        type_url: TypeUrl,
        contents: Vec<(ResourceName, Version)>,
    },
    /// A response, or a resource, has a lower version than before (FU21). `lower` describes the first
    /// occurrence.
    WentBackwards {
        type_url: TypeUrl,
        lower: Lower,
    },
    /// Heartbeats arrived (TTL-4).
    Refreshed {
        type_url: TypeUrl,
        count: usize,
    },
    /// A response removed `count` resources and left `left`. The removed resources are served for the
    /// duration of the hold (FU18). The source, not the stream, reports the events of held deletions.
    DeletionHeld {
        type_url: TypeUrl,
        count: usize,
        left: usize,
        hold: Hold,
    },
    /// `count` held resources exist on the server again.
    DeletionWithdrawn {
        type_url: TypeUrl,
        count: usize,
    },
    /// The hold of `count` resources expired: the resources are gone.
    DeletionCarriedOut {
        type_url: TypeUrl,
        count: usize,
    },
    /// The operator confirmed the deletion of `count` resources: the resources are gone.
    DeletionConfirmed {
        type_url: TypeUrl,
        count: usize,
    },
    /// `resources` of a response were refused, because the content of the source would take more than `limit`
    /// bytes (ADR 68). The source reports the event.
    NoRoom {
        type_url: TypeUrl,
        resources: usize,
        limit: usize,
    },
    /// Resources were not refreshed in time, and are gone (TTL-8). The source reports the event, not the
    /// stream.
    Expired {
        type_url: TypeUrl,
        count: usize,
    },
    /// The server ended `ends` streams soon after requests for the type. The type moves to a stream of its
    /// own (ADR 15). The source reports this event and the next.
    EndsStream {
        type_url: TypeUrl,
        status: Status,
        ends: u32,
    },
    /// A stream with the type alone stays open. The type returns to the stream of the other types.
    BearsType {
        type_url: TypeUrl,
    },
    /// The server has been silent about the type since it was asked for these names too (ADR 54). `is_cured`:
    /// it answers the others, and the names are requested on streams of their own. Otherwise it does not
    /// answer for a part of the type either, and the requests stay as they are. The source reports this event
    /// and the next two.
    Silenced {
        type_url: TypeUrl,
        names: Vec<ResourceName>,
        is_cured: bool,
    },
    /// The server does not answer a request for this name alone.
    SilentAbout {
        type_url: TypeUrl,
        name: ResourceName,
    },
    /// The server answers a request for this name. The name returns to the request for the others.
    SpeaksOf {
        type_url: TypeUrl,
        name: ResourceName,
    },
    /// The server has no service for the only type of this stream, or no path in REST: UNIMPLEMENTED, 404.
    /// The server is reachable all the same, and is asked again with the backoff of an unanswered stream
    /// (RLY-25). Reported once, until the state changes.
    NotServed {
        type_url: TypeUrl,
        status: Status,
    },
    /// The timers of names expired, with [`UpstreamSettings::timeout_is_transient`]: UNAVAILABLE for now
    /// (DAT-1).
    Timeout {
        type_url: TypeUrl,
        names: Vec<ResourceName>,
    },
}

/// A version that is lower than the version before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lower {
    /// The resource; `None` in SotW, where versions belong to responses.
    pub name: Option<ResourceName>,
    pub version: Box<str>,
    pub before: Box<str>,
}

/// A resource that was held before the restart of the relay, or on another stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormerResource {
    /// The subscribed name.
    pub name: ResourceName,
    /// The resource's own name, which differs for an alias (ALI-1).
    pub own_name: ResourceName,
    /// The server's version in delta; empty if no version may be claimed.
    pub version: Box<str>,
}

/// The wanted and held resources of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resumed {
    Names(Vec<FormerResource>),
    /// The members of a completely known wildcard.
    Wildcard(Vec<FormerResource>),
    /// Completely known globs, each with its members.
    Globs(Vec<(ResourceName, Vec<FormerResource>)>),
}

impl Resumed {
    /// The resources to subscribe to.
    pub(crate) fn selection(&self) -> ResourceSelection {
        match self {
            Resumed::Names(names) => {
                ResourceSelection::Names(names.iter().map(|resource| resource.name.clone()).collect())
            }
            Resumed::Wildcard(_) => ResourceSelection::Wildcard,
            Resumed::Globs(globs) => {
                ResourceSelection::Globs(globs.iter().map(|(glob, _)| glob.clone()).collect())
            }
        }
    }

    /// Returns true if the next request claims everything held, so that the server has to report removals
    /// (DEL-30).
    pub(crate) fn is_restated(&self) -> bool {
        let all = |list: &[FormerResource]| list.iter().all(|resource| !resource.version.is_empty());
        match self {
            Resumed::Names(list) | Resumed::Wildcard(list) => all(list),
            Resumed::Globs(globs) => globs.iter().all(|(_, members)| all(members)),
        }
    }
}
