//! Make before break (ORD-1 to ORD-11, RLY-50 to RLY-53).
//!
//! Additions go by rank: clusters and endpoints before the routing types that may name them. Removals go the
//! other way round. Payloads are opaque, so the relay cannot tell which route names a removed cluster. A
//! stream therefore withholds a removal from the first look until the client has ACKed every routing type of
//! the same source as of the end of the removal's rest (below): the type has nothing unsent and nothing
//! unanswered, or the client ACKed an answer that was begun since the type's last change in the rest.
//! Removals do not wait for later news, so routes that change all the time hold no removal up. No removal
//! waits longer than [`ORDER_WAIT_MAX`].
//!
//! A control plane may send the removal a moment before the route that makes the removal safe:
//! go-control-plane does so in delta. So a removal rests first, for `REST`, and again after each change
//! of a routing type, for `REST_MAX` at the most. The removal then also waits for the ACK of a route that
//! came meanwhile.
//!
//! A client that asks by name tells its own needs, as gRPC does in the state-of-the-world variant. After a
//! move to another server, the listener may lead the client to other names. A former name then stays in the
//! client's complete sets until the client has unsubscribed, which is the last step of the client's own
//! move (ORD-11).
//!
//! No names are kept for these waits. [`Withheld`](withheld::Withheld) consists of the views that still have
//! the names: pointers, shared by all clients at the same place. `targets` in [`super::answer`] computes the
//! target of all these clients once, at the composition of the answer.

pub(super) mod acknowledged;
pub(super) mod turn;
pub(super) mod withheld;

use std::time::Duration;

/// The maximum wait of a removal for the routing types, and of the routing types for the cluster side.
pub const ORDER_WAIT_MAX: Duration = Duration::from_secs(15);
