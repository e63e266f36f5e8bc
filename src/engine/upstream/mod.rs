//! The client side of the protocol: one ADS stream to one server, SotW or delta.
//!
//! [`Upstream`] owns the wanted resources of the server, the record of the stream's requests, the bookkeeping
//! of nonces and versions, the resource timers, and the backoff between streams. The content of responses
//! leaves the machine as [`Changes`]. The machine remembers only names and version strings, O(names wanted),
//! and no resources except those in [`variants`]. The machine never connects, writes or reads: the shell
//! executes each [`Output`], in order, and reports each [`Input`].
//!
//! ```text
//!             something wanted                    Opened
//!   Closed ───────────────────▶ Opening ───────────────────────▶ Open
//!     ▲ ▲                        ▲   │                            │
//!     │ │                  timer │   │ Closed                     │ Closed
//!     │ │   nothing wanted       │   ▼                            │
//!     │ └───────────────────── Waiting ◀──────────────────────────┘
//!     └─────────────────────── from Opening and Open: nothing wanted (Close)
//! ```
//!
//! SotW and delta differ in the form of requests ([`sotw`], [`delta`]) and in three rules for responses
//! ([`apply`]): the meaning of an element without payload, the proof by omission, and the completeness of a
//! wildcard.

mod api;
mod backoff;
mod response;
mod pace;
mod names;
mod variants;
mod silence;
mod repetition;
mod said;
mod wildcard;
mod unasked;
mod order;
mod settling;
mod confirmation;
mod proof;
mod failover;
mod succession;
mod gathering;
mod globs;
mod type_request;
mod variant_step;
mod apply;
mod request_size;
mod sotw;
mod delta;
mod machine;

pub use api::{
    Cause, Changes, Event, Hold, Input, Lower, Output, Transport, UpstreamSettings, Wanted, WildcardStyle,
};
pub use api::{MASS_DELETION_HOLD, REFRESH_DELAY, RESOURCE_TIMEOUT, TRANSIENT_RESOURCE_TIMEOUT};
pub use backoff::BackoffSettings;
pub use machine::blame::{Carried, SOON};
pub use machine::inspect::{State, TypeView};
pub use machine::resume::{Former, Resumed};
pub use unasked::Unasked;

pub use machine::Upstream;
