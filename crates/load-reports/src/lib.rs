//! Load reports (LRS): clients report, and servers get the sums of a node class.
//!
//! Pure, as the engine is. A [`Reporter`] is the stream of one client, and decides about the answers. A
//! [`ClassLoad`] is a class at one server: counts the reports of many reporters, and reports the sums on one
//! stream. The caller passes each report to the reporter and to the classes of its clusters, passes the time,
//! carries out the outputs until `poll_output` gives none, and calls again at `poll_timeout`.

pub mod counters;
pub mod report;
pub mod wish;
pub mod codec;
pub mod limits;
pub mod table;
pub mod link;
pub mod class_load;
pub mod reporter;

pub use class_load::{Accounts, ClassLoad, Destination, Happening, Output};
pub use codec::{ReportError, read_report};
pub use limits::LoadLimits;
pub use reporter::{Asking, Reporter};
pub use table::{Departure, StreamId};
pub use wish::{Client, Clusters, Wish};
