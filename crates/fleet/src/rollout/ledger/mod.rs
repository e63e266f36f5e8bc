//! Several replicas as one: the decisions about the pushes of a plan, shared through a ledger (LDG-1 to
//! LDG-6).
//!
//! Replicas share decisions and never content. Each has its own control plane, units and clients, and gathers
//! by itself. The *record* of a plan in the ledger says which push is under way, and which step is admitted;
//! it is written by compare-and-put only. A replica halts by itself and writes it afterwards. It goes on only
//! by the record, and asks for the next step when the tallies of all live replicas allow it. There is no
//! leader.
//!
//! In order: the word of the record about a push; the parts of the next record; units without stable content;
//! the machine between a plan and the ledger; and whether the ledger is the one that a replica knows.

mod word;
mod next_record;
mod newcomers;
mod share;
pub mod trust;
#[cfg(test)]
mod tests;

pub use newcomers::{
    JoinPolicy, JoinStanding, JoinWait, JoinWay, JoinWord, LedgerPushes, Newcomer, NewcomerContent,
    NewcomerType, contents_of,
};
pub(super) use next_record::{LocalPush, Rules};
pub use share::{Entry, Expected, KeptOrders, LedgerEvent, Link, Replica, Share, Write, WriteResult};
pub(super) use word::{Bid, Consent, Others, Sorted, Word, shared};
