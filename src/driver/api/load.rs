//! The load that clients report, as plain data (LRS-25).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sluice_load_reports::Accounts;
use sluice_load_reports::counters::{Gauges, Oddities, PerGroup, Tally};
use sluice_load_reports::table::LeftOut;
use sluice_xds::{Locality, Status};

/// The load that clients report.
pub trait LoadsView {
    /// The load of all classes, without rows.
    fn loads(&self) -> Vec<ClassLoadStatus>;

    /// The rows of the load with the number, in no order; of one cluster, if one is named. None for a load
    /// that is over.
    fn load_rows(&self, number: u64, cluster: Option<&str>) -> Vec<LoadRow>;
}

/// The load of a node class at one server of a list. Wide because the fields are those of an item of the
/// admin API.
#[derive(Clone, Debug)]
pub struct ClassLoadStatus {
    /// Unique in this process.
    pub number: u64,
    /// The key of the server list in the configuration.
    pub list: Arc<str>,
    /// `server_uri` of the configuration.
    pub server: Arc<str>,
    /// The digest of the node class.
    pub class: Arc<str>,
    /// The sums go to the server; otherwise they are for operators alone.
    pub is_reported: bool,
    pub link: LoadLinkStatus,
    /// `None` before the first word of the server.
    pub wish: Option<LoadWishStatus>,
    /// Open streams of clients.
    pub reporters: usize,
    /// The streams of each group with a share of the tallies.
    pub observed: PerGroup<u64>,
    /// The begin of the tallies.
    pub since: SystemTime,
    /// Finished requests by their fate, since the class began to report.
    pub accounts: Accounts,
    pub left_out: LeftOut,
    pub oddities: Oddities,
    pub row_count: usize,
}

/// The stream to the server.
#[derive(Clone, Debug)]
pub struct LoadLinkStatus {
    /// `idle`, `waiting`, `opening`, `open`, `ending`, `ended`, or `local` without a server.
    pub state: &'static str,
    /// The begin of the state.
    pub since: SystemTime,
    /// The server takes no reports (LRS-21).
    pub lacks_service: bool,
    /// Why the latest stream or attempt to connect ended.
    pub error: Option<Status>,
}

/// The wish of a server.
#[derive(Clone, Debug)]
pub struct LoadWishStatus {
    /// `None`: all.
    pub clusters: Option<Vec<Arc<str>>>,
    pub interval: Duration,
    pub has_endpoints: bool,
}

/// A locality of a cluster, with the requests of both groups.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadRow {
    pub cluster: Box<str>,
    pub service: Box<str>,
    pub locality: Locality,
    pub priority: u32,
    pub tallies: PerGroup<Tally>,
    pub gauges: Gauges,
}
