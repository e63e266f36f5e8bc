//! The bounds of kept reports.

use sluice_setting::{count, settings};

settings! {
    /// The bounds of load reports, for each node class at a server. Clusters, localities, endpoints, drop
    /// categories and metric names are entries.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LoadLimits {
        /// Entries of a class: 100,000, some 20 MB. The last eighth is for clients with few. Endpoints give
        /// way first; counters without an entry have a row of their own (LRS-18).
        load_rows: usize = 100_000, count(100..=10_000_000);
        /// Entries of one stream that no other stream of the class shares: 10,000 (LRS-18).
        load_rows_per_stream: usize = 10_000, count(100..=10_000_000);
        /// Entries of all classes together: 1,000,000, some 200 MB. Clients may bring ever new classes.
        load_rows_total: usize = 1_000_000, count(100..=100_000_000);
    }
}
