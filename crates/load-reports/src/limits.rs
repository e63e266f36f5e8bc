//! The bounds of kept reports.

use sluice_setting::{count, settings};

settings! {
    /// The bounds of the load reports of one node class at one server. Clusters, localities, endpoints, drop
    /// categories and metric names are entries.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LoadLimits {
        /// Entries of a class: 100,000, some 20 MB. Endpoints give way first; counters without an entry
        /// have a row of their own (LRS-18).
        load_rows: usize = 100_000, count(100..=10_000_000);
        /// New entries of one stream between two looks at idle entries: 10,000, so one client leaves room for
        /// the neighbours (LRS-18).
        load_rows_per_stream: usize = 10_000, count(100..=10_000_000);
    }
}
