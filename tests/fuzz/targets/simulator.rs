//! The simulator of `tests/sim`, whose schedules come from bytes here.

#![allow(
    dead_code,
    clippy::needless_range_loop,
    reason = "the simulator has other uses, and tables by number"
)]

#[path = "../../sim/checkpoint.rs"]
mod checkpoint;
#[path = "../../sim/client.rs"]
pub mod client;
#[path = "../../sim/clock.rs"]
mod clock;
#[path = "../../sim/confirming.rs"]
mod confirming;
#[path = "../../sim/control_plane.rs"]
mod control_plane;
#[path = "../../sim/current.rs"]
mod current;
#[path = "../../sim/failing.rs"]
mod failing;
#[path = "../../sim/faults.rs"]
mod faults;
#[path = "../../sim/calm.rs"]
mod calm;
#[path = "../../sim/firsts.rs"]
mod firsts;
#[path = "../../sim/flight.rs"]
mod flight;
#[path = "../../sim/guarded.rs"]
mod guarded;
#[path = "../../sim/hearing.rs"]
mod hearing;
#[path = "../../sim/held.rs"]
pub mod held;
#[path = "../../sim/judge.rs"]
mod judge;
#[path = "../../sim/lists.rs"]
mod lists;
#[path = "../../sim/message.rs"]
mod message;
#[path = "../../sim/places.rs"]
mod places;
#[path = "../../sim/polls.rs"]
mod polls;
#[path = "../../sim/reference.rs"]
mod reference;
#[path = "../../sim/relay.rs"]
mod relay;
#[path = "../../sim/removals.rs"]
mod removals;
#[path = "../../sim/rest.rs"]
mod rest;
#[path = "../../sim/restored.rs"]
mod restored;
#[path = "../../sim/reloads.rs"]
mod reloads;
#[path = "../../sim/returns.rs"]
mod returns;
#[path = "../../sim/rng.rs"]
mod rng;
#[path = "../../sim/routes.rs"]
mod routes;
#[path = "../../sim/schedule.rs"]
pub mod schedule;
#[path = "../../sim/scheduler.rs"]
mod scheduler;
#[path = "../../sim/track.rs"]
mod track;
#[path = "../../sim/upstream.rs"]
mod upstream;
#[path = "../../sim/words.rs"]
pub mod words;
#[path = "../../sim/world.rs"]
pub mod world;
