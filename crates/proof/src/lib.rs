//! The proof that clients of one node class get the same answers from their server (PRF).
//!
//! Pure, as the engine is. A *shadow* is a private source that shows the server the whole node of one client,
//! and serves nobody. The machine of a server decides whose shadows are opened, compares their content with that of
//! the class, and tells where the two differ. The driver opens the shadows and passes on what they publish.

pub mod node_fields;
pub mod learning;
pub mod proof;
