//! What goes into the machine and what comes out of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::backoff::BackoffSettings;
use crate::engine::interest::Shape;
use crate::xds::{
    Request, Resource, ResourceError, ResourceName, Response, SetMark, Status, TypeUrl, Variant, Version,
};

/// How a wildcard is asked for (RLY-18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WildcardStyle {
    /// The name `*` (SUB-8). An empty list of names means "nothing".
    Explicit,
    /// An empty list of names in the first request of the type (SUB-9, DEL-6), for servers to which `*` is a name
    /// like any other. They also take an empty list that follows names for the wildcard, so none is sent.
    Legacy,
}

/// What carries requests and responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// One aggregated stream for all types (RPC-1).
    Aggregated,
    /// A stream per type, to the service of the type (RPC-2).
    PerType,
    /// Polls per type (RST-10): each is a stream of one request and at most one response, which answers all of the
    /// request (RST-12).
    Rest { refresh_delay: Duration },
}

/// For how long a mass deletion is held back (FU18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    For(Duration),
    /// Until the operator says that it was meant.
    UntilConfirmed,
}

/// How the machine behaves towards its server.
#[derive(Clone, Debug)]
pub struct Settings {
    pub transport: Transport,
    /// The variant that is tried first.
    pub variant: Variant,
    /// A server that refuses delta is asked by SotW for an hour (RLY-25).
    pub fall_back_to_sotw: bool,
    pub wildcard: WildcardStyle,
    /// What most of a type vanishes in at once is held back, or obeyed at once (FU18). The source sees to it.
    pub mass_deletion_hold: Option<Hold>,
    /// How long a name may stay unanswered before it is taken as absent (TMR-1, RLY-29).
    pub resource_timeout: Duration,
    /// The same for types that have one of their own (RLY-29).
    pub resource_timeouts: BTreeMap<TypeUrl, Duration>,
    /// `resource_timer_is_transient_error`: a timer that runs out is an [`Event::Timeout`], not an absence (TMR-5).
    pub timeout_is_transient: bool,
    /// `fail_on_data_errors`: PERMISSION_DENIED and malformed instances take the copy of a name away (DAT-2), and what the
    /// server says does not exist is gone, whoever supplied it (RLY-42). Without it the copy stays, as it does for all
    /// other errors (DAT-3). That a name does not exist is passed on in either case, for clients to decide on (DAT-4, ERR-5).
    pub fails_on_data_errors: bool,
    /// A server that was lost is asked so that it has something to say: others serve in its place until it is heard, and one
    /// that finds every version current would keep silent (RLY-44).
    pub needs_answer: bool,
    /// The first change of the subscriptions after a quiet spell is written at once. What follows is written together, first
    /// at short distances, then at longer ones, up to this (FLW-5). ACKs and NACKs never wait.
    pub gather: Duration,
    /// How long a stream stays open of which nothing is wanted any more, if the last was a Secret, which does not linger
    /// (RLY-60). The source sets it.
    pub linger: Duration,
    pub backoff: BackoffSettings,
    /// There is a failover server, which is asked by Envoy's rules; see [`super::failover`].
    pub failover: bool,
    /// Takes the place of `backoff` while the two are asked in turns.
    pub failover_backoff: BackoffSettings,
    /// The bound of the text of a NACK, in bytes.
    pub nack_text_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            transport: Transport::Aggregated,
            variant: Variant::Delta,
            fall_back_to_sotw: true,
            wildcard: WildcardStyle::Explicit,
            mass_deletion_hold: None,
            resource_timeout: Duration::from_secs(10),
            resource_timeouts: BTreeMap::new(),
            timeout_is_transient: false,
            fails_on_data_errors: false,
            needs_answer: false,
            gather: Duration::from_millis(50),
            linger: Duration::ZERO,
            backoff: BackoffSettings::default(),
            failover: false,
            failover_backoff: super::failover::default_backoff(),
            nack_text_max: 4096,
        }
    }
}

impl Settings {
    /// How long a name of this type may stay unanswered.
    pub fn timeout_of(&self, type_url: &TypeUrl) -> Duration {
        self.resource_timeouts.get(type_url).copied().unwrap_or(self.resource_timeout)
    }
}

/// What is wanted, or no longer wanted, of a type.
///
/// One machine carries for each type one of the three, never two (RLY-13, RLY-19).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interest {
    Wildcard,
    /// Glob collections, by their canonical names (NAM-14). Only delta can ask for them.
    Globs(Vec<ResourceName>),
    Names(Vec<ResourceName>),
}

impl Interest {
    pub fn shape(&self) -> Shape {
        match self {
            Interest::Wildcard => Shape::Wildcard,
            Interest::Globs(_) => Shape::Globs,
            Interest::Names(_) => Shape::Names,
        }
    }
}

/// What the shell tells the machine of its one stream.
#[derive(Clone, Debug)]
pub enum Input {
    /// The stream is open, on a connection whose SETTINGS arrived (RLY-29).
    Opened,
    /// An attempt to connect failed. The shell goes on trying, with a backoff of its own (CLI-7); the server is
    /// unreachable (CLI-1 a).
    ConnectFailed { status: Status },
    /// The next response of the stream; what is bad in it is marked element by element.
    Received(Response),
    /// The first bytes of a response have come, and not all of it. [`Input::Received`] follows, or the end of the stream.
    Receiving,
    /// The server marks on this stream what is whole. It comes before the first response.
    Marks,
    /// A mark for this type, right after the [`Input::Received`] of the response that carried it.
    Marked(TypeUrl, SetMark),
    /// REST: what was accepted last is still current (RST-4).
    Unchanged,
    /// The server asked for the connection to be left: the end of the stream that follows is no failure (KAL-5).
    GoingAway,
    /// The stream ended, or could not be opened on a good connection. `jitter` is uniform in [0, 1).
    Closed { status: Status, jitter: f64 },
    /// As [`Input::Closed`], by a status that the server sent on a connection that goes on.
    Ended { status: Status, jitter: f64 },
    /// The answer to [`Output::Probe`]: bytes arrived on the connection.
    Alive,
    /// The stream of [`Output::OpenNext`] is open, on a connection whose SETTINGS arrived.
    NextOpened,
    /// It could not be opened; the one in use goes on.
    NextFailed,
    /// The answer to [`Output::RoundTrip`]: all that came before the transport's answer was reported.
    Returned,
}

/// What the shell has to do, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Open a stream, connecting first if need be.
    ///
    /// `server`: 1 is the failover server, 0 the one that is asked where there is none, or before it.
    Open { variant: Variant, server: u16 },
    /// Drop the stream, or the attempt to open one. No input about it may follow, [`Input::Closed`] neither.
    Close,
    /// Open a stream beside the one in use, which begins with another node. [`Input::NextOpened`] or
    /// [`Input::NextFailed`] follows, unless the stream in use is opened anew or closed before: then it is dropped.
    OpenNext { variant: Variant, server: u16 },
    /// Drop the stream in use. The one beside it takes its place: what is sent from here on goes there.
    TakeNext,
    /// Write a request. With `first`, the first one of the stream, goes the node (STR-2).
    Send { request: Request, first: bool },
    /// A resource timer ran out on a stream that has been silent since: find out whether the transport is alive
    /// (RLY-29). Yes: [`Input::Alive`]; no answer in time: the shell ends the stream.
    Probe,
    /// Make a round trip of the transport, and report [`Input::Returned`]. There is one at a time.
    RoundTrip,
    /// To be applied to the cache in one step.
    Changes(Changes),
    /// For logs, metrics and the fallback machine.
    Event(Event),
}

/// Whose resources a [`Changes`] speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The members of the wildcard.
    Wildcard,
    /// The members of globs.
    Globs,
    /// Names that were asked for one by one.
    Names,
}

impl Scope {
    pub fn shape(self) -> Shape {
        match self {
            Scope::Wildcard => Shape::Wildcard,
            Scope::Globs => Shape::Globs,
            Scope::Names => Shape::Names,
        }
    }
}

/// What one response, or one timer, says about one type. It only ever speaks of what is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes {
    pub type_url: TypeUrl,
    pub scope: Scope,
    /// As received; equal content may come again, after a reconnect above all (RLY-65).
    pub present: Vec<Arc<Resource>>,
    /// Names only: of what is present, the wanted aliases that it answers (ALI-1).
    pub by_alias: Vec<(ResourceName, Arc<Resource>)>,
    /// Known absent from now on, each name once, in the spelling that was subscribed to.
    pub absent: Vec<(ResourceName, Cause)>,
    /// Heartbeats: no update, but the time to live of these resources starts again (TTL-4, RLY-39), with the length that
    /// the heartbeat states.
    pub refreshed: Vec<(ResourceName, Option<Duration>)>,
    /// Wildcard only: `present` is the whole membership; members that are not in it left it.
    pub replaces: bool,
    /// Wildcard only: with this change the membership is known as a whole. Once `true` it stays so, over reconnects
    /// too, until the wildcard is unsubscribed.
    pub complete: bool,
    /// Globs only: with this change their membership is known as a whole, as with `complete`.
    pub settled: Vec<ResourceName>,
}

/// Why a name is known to be absent (RLY-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A delta response said so (DEL-12).
    Removed,
    /// A full-state response lacks it (RLY-27).
    Omitted,
    /// `resource_errors` says NOT_FOUND (ERR-5).
    NotFound,
    /// No answer within [`Settings::resource_timeout`] on a live stream (TMR-5).
    Timeout,
    /// Its time to live ran out (TTL-8).
    Expired,
    /// The server denies it or sent a malformed instance of it, and its copy is given up for that, because of
    /// [`Settings::fails_on_data_errors`] (DAT-2).
    DataError,
}

/// What happened, for those who watch.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A stream is open; nothing has been answered yet. In REST: the server answered, the first time or again.
    Connected {
        variant: Variant,
        /// As in [`Output::Open`].
        server: u16,
    },
    /// The stream ended. No error if it was `answered` (CLI-2).
    Disconnected {
        status: Status,
        answered: bool,
        retry_in: Duration,
    },
    /// No connection, or a stream that ended before its first response (CLI-1), or too many that ended soon after it (FU9).
    /// [`Event::Heard`] ends the state.
    Unreachable {
        status: Status,
    },
    /// The server can be heard on this stream; in REST: since polls are answered.
    Heard,
    /// The server was asked on this stream and says nothing, nor did it ever.
    Unanswered,
    Acked {
        type_url: TypeUrl,
    },
    /// REST: the server says that nothing changed.
    Unchanged {
        type_url: TypeUrl,
    },
    /// The response had structural faults (RLY-37); `names` of the bad elements as far as they are known.
    Nacked {
        type_url: TypeUrl,
        text: String,
        names: Vec<ResourceName>,
    },
    /// Instances of wanted names were structurally bad, by name with the reason (DAT-1). Only of names that are asked for
    /// one by one; [`Event::Nacked`] tells of the response.
    Malformed {
        type_url: TypeUrl,
        faults: Vec<(ResourceName, String)>,
    },
    /// The server refuses delta (RLY-25). Not an unreachability.
    SwitchedToSotw {
        status: Status,
    },
    /// A response that nobody asked for; it was neither ACKed nor NACKed (ACK-11).
    Ignored {
        type_url: TypeUrl,
    },
    /// `resource_errors` for a wanted name (ERR-1). NOT_FOUND is an absence too, of which [`Changes`] tells (ERR-5).
    ResourceError {
        type_url: TypeUrl,
        error: ResourceError,
    },
    /// Globs that cannot be asked for, because the server speaks SotW: nothing is known of them, and their subscribers
    /// wait (SUB-21).
    GlobsUnserved {
        type_url: TypeUrl,
        names: Vec<ResourceName>,
    },
    /// Several variants of a name match the parameters with which it is wanted; one was taken (DYN-4).
    Ambiguous {
        type_url: TypeUrl,
        name: ResourceName,
    },
    /// Resources came under the version that the server gave what is held of these names; of each, what it contains. The
    /// source knows what is held, and passes on those that differ from it (FU20, WIR-2).
    SameVersion {
        type_url: TypeUrl,
        contents: Vec<(ResourceName, Version)>,
    },
    /// A response has a version that is lower than the one before it (FU21), or brings such resources; the first of them.
    WentBackwards {
        type_url: TypeUrl,
        lower: Lower,
    },
    /// Heartbeats came (TTL-4).
    Refreshed {
        type_url: TypeUrl,
        count: usize,
    },
    /// A response took `count` resources away and left `left`: they are served on for the time that is set for it (FU18). The
    /// source says so, as of the next two.
    DeletionHeld {
        type_url: TypeUrl,
        count: usize,
        left: usize,
        hold: Hold,
    },
    /// The server has so many of them again.
    DeletionWithdrawn {
        type_url: TypeUrl,
        count: usize,
    },
    /// The time of so many of them is over: they are gone.
    DeletionCarriedOut {
        type_url: TypeUrl,
        count: usize,
    },
    /// The operator said of so many of them that their deletion was meant: they are gone.
    DeletionConfirmed {
        type_url: TypeUrl,
        count: usize,
    },
    /// Resources were not refreshed in time, and are gone (TTL-8). The source says so, not the stream.
    Expired {
        type_url: TypeUrl,
        count: usize,
    },
    /// The server ended so many streams soon after it was asked for this type, which is asked for on a stream of its own now
    /// (ADR 15). The source says so, as of the next one.
    EndsStream {
        type_url: TypeUrl,
        status: Status,
        ends: u32,
    },
    /// A stream with this type alone stays open: it is asked for with the others again.
    BearsType {
        type_url: TypeUrl,
    },
    /// The server has no service for the one type of this stream, or (in REST) no path: UNIMPLEMENTED, 404. It is reachable all the
    /// same, and asked again with the backoff of a stream without an answer (RLY-25). Told once, until it is otherwise.
    NotServed {
        type_url: TypeUrl,
        status: Status,
    },
    /// Names whose timers ran out, with [`Settings::timeout_is_transient`]: UNAVAILABLE for now (DAT-1).
    Timeout {
        type_url: TypeUrl,
        names: Vec<ResourceName>,
    },
}

/// A version that is lower than the one before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lower {
    /// The resource; `None` in SotW, whose versions are of responses.
    pub name: Option<ResourceName>,
    pub version: Box<str>,
    pub before: Box<str>,
}
