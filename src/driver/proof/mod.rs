//! The proof that the clients of a class get the same answers (PRF). One task for each server with `proof:`
//! feeds the machine, and opens the shadows that the machine asks for. Without `proof:` there is no task.
//!
//! In order: the client's question; the classes of the server; their clients; the open shadows; the
//! comparisons of replicas; the meaning of contents; the happenings; the task; all tasks. Nothing here is
//! on the path of an update: the task looks at published snapshots and at streams, once a second or while a
//! shadow is open.

mod wanted;
mod classes;
mod members;
mod shadows;
mod replicas;
mod meaning;
mod tell;
mod task;
pub mod table;
