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
//! SotW and delta differ in the form of requests ([`request`]) and in three rules for responses
//! ([`apply`]): the meaning of an element without payload, the proof by omission, and the completeness of a
//! wildcard.

mod api;
mod backoff;
mod variant_guess;
mod failover;
mod one_by_one;
mod stream;
mod link;
mod health;
mod response;
mod variants;
mod names;
mod repetition;
mod wildcard;
mod order;
mod settling;
mod confirmation;
mod currency;
mod request_size;
mod exchange;
mod globs;
mod want;
mod type_request;
mod unasked;
mod variant_step;
mod apply;
mod request;
mod type_requests;
mod blame;
mod machine;

pub use api::{
    Cause, Changes, Event, FormerResource, Hold, Input, Lower, Output, ResourceSelection, Resumed, Transport,
    UnaskedRule, UpstreamSettings, WildcardStyle,
};
pub use api::{MASS_DELETION_HOLD, REFRESH_DELAY, RESOURCE_TIMEOUT, TRANSIENT_RESOURCE_TIMEOUT};
pub use backoff::BackoffSettings;
pub use blame::SOON;
pub use machine::control::{CarriedType, LinkState, TypeView};

pub use machine::Upstream;
