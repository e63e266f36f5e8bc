//! Downstream streams. Each file uses only the files before it.

pub mod private_part;
pub mod own_sources;
pub mod restating;
pub mod diversions;
pub mod schedule;
pub mod outbox;
pub mod context;
pub mod tail;
pub mod changes;
pub mod loss;
pub mod authorization;
pub mod delayed;
pub mod destination;
pub mod refused_types;
pub mod routes;
pub mod placement;
pub mod inner;
mod last_word;
pub mod poll;
pub mod state;
