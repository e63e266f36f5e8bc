//! The proof of node classes: clients of a class get the same answers from the server (PRF).
//!
//! Pure, as the engine is. A *shadow* is a private source with the whole node of one client, and
//! serves nobody. The machine of a server chooses the clients, compares the shadows with the class, and tells
//! the differences. The driver opens the shadows and passes on their content.

pub mod node_fields;
pub mod explanation;
pub mod learning;
pub mod proof;
