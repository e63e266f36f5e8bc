//! Studies: a server is asked as one client after the other, and rules of node classes follow from the
//! answers (LRN-2). In a running relay on an operator's order, and without a relay for a list of nodes.
//!
//! 1. [`nodes`]: the clients to ask as.
//! 2. [`inquiry`]: the questions.
//! 3. [`coarse`]: rules against the evidence. [`findings`]: everything that a study found, as plain data.
//! 4. [`table`]: the studies of a running relay.

pub mod nodes;
pub mod inquiry;
pub mod coarse;
pub mod findings;
pub mod table;
