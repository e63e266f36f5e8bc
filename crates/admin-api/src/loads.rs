//! The load that clients report (LRS-25).

use serde::{Deserialize, Serialize};

use crate::lists::Listed;

/// The finished requests of a group of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FinishedRequests {
    pub success: u64,
    pub error: u64,
    /// The share of the errors, from 0 to 1; null without requests.
    pub error_share: Option<f64>,
}

impl FinishedRequests {
    pub fn new(success: u64, error: u64) -> FinishedRequests {
        let requests = success.saturating_add(error);
        let error_share = (requests > 0).then(|| error as f64 / requests as f64);
        FinishedRequests { success, error, error_share }
    }

    pub fn count(&self) -> u64 {
        self.success.saturating_add(self.error)
    }

    pub fn add(&mut self, more: &FinishedRequests) {
        *self = FinishedRequests::new(
            self.success.saturating_add(more.success),
            self.error.saturating_add(more.error),
        );
    }
}

/// A locality of a cluster, as the clients of one node class see it. Wide because the fields are those of the
/// list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadRow {
    /// The number of the load in the list of classes. A class has several at one server while the use of
    /// reports changes by a reload.
    pub number: u64,
    pub cluster: String,
    /// The name that the server uses for the cluster in endpoints; empty: the same.
    pub service: String,
    pub region: String,
    pub zone: String,
    pub sub_zone: String,
    pub priority: u32,
    /// The digest of the node class.
    pub class: String,
    /// The server of the class, and the key of its list in the configuration.
    pub server: String,
    pub list: String,
    /// Since then the requests are counted.
    pub since: String,
    /// The clients that an open step of a plan has given the push by their seats.
    pub admitted: FinishedRequests,
    /// The clients without the push.
    pub others: FinishedRequests,
    /// Relays, and clients that a label has given the push: they are not compared with the rest.
    pub unjudged: FinishedRequests,
    /// Requests and connections of now.
    pub in_progress: u64,
    pub active_connections: u64,
}

impl LoadRow {
    /// The requests of all groups.
    pub fn requests(&self) -> FinishedRequests {
        let mut all = self.admitted;
        all.add(&self.others);
        all.add(&self.unjudged);
        all
    }

    /// `region/zone/sub_zone`, without empty ends.
    pub fn locality(&self) -> String {
        let whole = [&*self.region, &*self.zone, &*self.sub_zone].join("/");
        whole.trim_end_matches('/').to_owned()
    }
}

impl Listed for LoadRow {
    const KEY: &'static str = "load";
}

/// Finished requests by their fate, since the class began to report. `read` is the sum of all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestFates {
    /// In reports of clients.
    pub read: u64,
    /// The server has them.
    pub delivered: u64,
    /// For the next report to the server.
    pub pending: u64,
    /// In the latest report to the server.
    pub unconfirmed: u64,
    /// The stream ended before the next report, so that nobody can tell whether the server has them.
    pub in_doubt: u64,
    /// Without a place in the table.
    pub left_out: u64,
    /// In clusters that the server does not want.
    pub unwanted: u64,
    /// For operators alone.
    pub local: u64,
}

/// The load of a node class at one server. Wide because the fields are those of the list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassLoad {
    /// Unique in the process of the relay.
    pub number: u64,
    pub class: String,
    pub server: String,
    pub list: String,
    /// `idle`, `waiting`, `opening`, `open`, `ending` or `ended`: the stream to the server; `local`: nothing
    /// goes to the server.
    pub state: String,
    pub state_since: String,
    /// The server takes no load reports.
    pub no_service: bool,
    /// Why the latest stream to the server ended.
    pub error: Option<String>,
    /// Open streams of clients.
    pub reporters: usize,
    /// `all` clusters, or so many, as the server wants; null before the first word of the server.
    pub clusters: Option<String>,
    pub interval_seconds: Option<f64>,
    pub endpoints: bool,
    pub rows: usize,
    pub requests: RequestFates,
    /// Names without a place in the table, and the finished requests behind them.
    pub left_out_names: u64,
    pub left_out_requests: u64,
    /// Sums at the end of their range, and numbers that were none: these sums are too low.
    pub saturated: u64,
    pub not_finite: u64,
}

impl Listed for ClassLoad {
    const KEY: &'static str = "classes";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lrs_25_shares_are_of_the_requests_and_nothing_is_no_share() {
        assert_eq!(FinishedRequests::new(0, 0).error_share, None);
        assert_eq!(FinishedRequests::new(3, 1).error_share, Some(0.25));
        let row = LoadRow {
            region: "eu".into(),
            zone: "a".into(),
            admitted: FinishedRequests::new(1, 1),
            others: FinishedRequests::new(6, 0),
            ..LoadRow::default()
        };
        assert_eq!((row.requests().error_share, &*row.locality()), (Some(0.125), "eu/a"));
    }
}
