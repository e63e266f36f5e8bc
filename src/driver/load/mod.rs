//! Load reports (LRS): streams of clients, and the sums of node classes on their way to servers. Each file
//! uses only the files before it.
//!
//! A client's own task counts its report, in one step under the short lock of the class: no report waits in a
//! queue. The task of a class is woken for its server's words, for its timers, and for the first and the last
//! client.

mod room;
mod clusters;
pub mod handle;
mod uplink;
mod task;
mod forward;
pub mod table;
pub mod groups;
pub mod reporter;

#[cfg(test)]
mod tests;
