//! The client side of the protocol: one ADS stream to one server, SotW or delta.
//!
//! [`Upstream`] owns what is wanted of the server, what has been said of it on the stream, the nonce and version
//! bookkeeping, the resource timers and the backoff between streams. What responses bring leaves it as [`Changes`], and it
//! remembers only names and version strings, O(names wanted); of resources nothing, but for those that come in [`variants`].
//! It never connects, writes or reads: the shell does what each [`Output`] says, in order, and reports each [`Input`].
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
//! SotW and delta differ in how a request is spelled ([`sotw`], [`delta`]) and in three rules of how a response is
//! read ([`apply`]): what an element without payload means, what an omission proves, and when a wildcard is whole.

mod api;
mod backoff;
mod response;
mod pace;
mod names;
mod variants;
mod said;
mod wildcard;
mod order;
mod settling;
mod proof;
mod failover;
mod succession;
mod gathering;
mod globs;
mod subscription;
mod variant_step;
mod apply;
mod sotw;
mod delta;
mod machine;

pub use api::{
    Cause, Changes, Event, Hold, Input, Interest, Lower, Output, Scope, Settings, Transport, WildcardStyle,
};
pub use backoff::BackoffSettings;
pub use machine::blame::{Carried, SOON};
pub use machine::inspect::{State, TypeView};
pub use machine::resume::{Former, Resumed};

pub use machine::Upstream;
