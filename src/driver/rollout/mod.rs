//! One task for each plan: gathers the changes that sources publish, asks the machine, and counts the clients
//! of a push (WAV-12, WAV-19).
//!
//! The task decides nothing: the machine does. The task locks one stream at a time, once a second, and only
//! while a push is under way. After a panic the task begins anew, without the push under way.
//!
//! In order: the sources and streams that a plan reaches; the state of the plan; the condemned contents of
//! other replicas; the contents of units; the clients of a push, the hook, and the evidence of both; restated
//! and refused contents; units without stable content; the record; the commands of operators; the state for
//! readers, and the wait for the disk before a word; the ledger of several replicas; the task; and all plans.

mod fleet;
mod state;
mod inspect;
mod condemner;
mod gatherer;
mod clients;
mod hook;
mod tallier;
mod restater;
mod refuser;
mod newcomers;
mod keeper;
mod orders;
mod display;
mod announcer;
pub mod hub;
mod task;
pub mod table;
