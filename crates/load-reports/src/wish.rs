//! The clusters and the interval of a server's wish, and the wish towards a client.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The shortest interval, for both sides (LRS-8).
pub const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// The interval while no server has spoken (LRS-19), and without a server.
pub const INTERVAL_UNSTATED: Duration = Duration::from_secs(10);
/// The interval for a server without the service (LRS-21).
pub const INTERVAL_OF_NONE: Duration = Duration::from_secs(300);

/// A cluster of nobody, in the place of an empty list: gRPC in Go reads an empty list as "all" (LRS-19).
const NO_CLUSTER: &str = "sluice.no-cluster";

/// A set of clusters. An empty list means none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clusters {
    All,
    Listed(Arc<BTreeSet<Arc<str>>>),
}

impl Clusters {
    pub fn listed<T: Into<Arc<str>>>(names: impl IntoIterator<Item = T>) -> Clusters {
        Clusters::Listed(Arc::new(names.into_iter().map(Into::into).collect()))
    }

    pub fn has(&self, name: &str) -> bool {
        match self {
            Clusters::All => true,
            Clusters::Listed(names) => names.contains(name),
        }
    }

    fn has_all(&self, other: &Clusters) -> bool {
        match (self, other) {
            (Clusters::All, _) => true,
            (Clusters::Listed(_), Clusters::All) => false,
            (Clusters::Listed(names), Clusters::Listed(others)) => {
                Arc::ptr_eq(names, others) || others.is_subset(names)
            }
        }
    }

    fn union(&self, other: &Clusters) -> Clusters {
        match (self, other) {
            // Many clients share the names of a server.
            (Clusters::Listed(_), Clusters::Listed(_)) if other.has_all(self) => other.clone(),
            (Clusters::Listed(names), Clusters::Listed(others)) if !self.has_all(other) => {
                Clusters::listed(names.union(others).cloned())
            }
            (Clusters::Listed(_), Clusters::Listed(_)) | (Clusters::All, _) => self.clone(),
            (Clusters::Listed(_), Clusters::All) => Clusters::All,
        }
    }
}

/// The wish of a server, or the wish towards a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    pub clusters: Clusters,
    /// At least [`INTERVAL_MIN`].
    pub interval: Duration,
    /// Rows for endpoints, beside those for localities (LRS-9).
    pub has_endpoints: bool,
}

impl Wish {
    pub fn new(clusters: Clusters, interval: Duration, has_endpoints: bool) -> Wish {
        Wish { clusters, interval: interval.max(INTERVAL_MIN), has_endpoints }
    }

    /// All clusters, before a server has spoken (LRS-19), and without a server.
    pub fn all() -> Wish {
        Wish::new(Clusters::All, INTERVAL_UNSTATED, false)
    }

    /// Nothing, for a server without the service (LRS-21).
    pub fn nothing() -> Wish {
        Wish::new(Clusters::listed([""; 0]), INTERVAL_OF_NONE, false)
    }

    /// Whether no cluster is wanted.
    pub fn asks_for_nothing(&self) -> bool {
        matches!(&self.clusters, Clusters::Listed(names) if names.is_empty())
    }

    /// The wish of several servers: the clusters of any, at the shortest interval (RLY-69). `None` without a
    /// wish.
    pub fn merged<'a>(wishes: impl IntoIterator<Item = &'a Wish>) -> Option<Wish> {
        wishes.into_iter().cloned().reduce(|one, other| Wish {
            clusters: one.clusters.union(&other.clusters),
            interval: one.interval.min(other.interval),
            has_endpoints: one.has_endpoints || other.has_endpoints,
        })
    }
}

/// The facts of a client that shape its answers.
pub trait Client {
    /// Whether the client may hear of this cluster (LRS-22, AUT).
    fn may_have(&self, cluster: &str) -> bool;

    /// Whether the client may have every cluster there is.
    fn may_have_all(&self) -> bool;

    /// The clusters of the client's class, for a client without a word for "all". Clients of a class share
    /// the set.
    fn clusters(&self) -> Arc<BTreeSet<Arc<str>>>;
}

/// The clusters to ask a client for: the wish, within the rights of the client. `takes_all`: the client
/// understands `send_all_clusters`.
pub fn clusters_for(wish: &Clusters, takes_all: bool, client: &dyn Client) -> Clusters {
    match wish {
        Clusters::All if takes_all && client.may_have_all() => Clusters::All,
        Clusters::All if client.may_have_all() => Clusters::Listed(client.clusters()),
        Clusters::All => {
            Clusters::listed(client.clusters().iter().filter(|name| client.may_have(name)).cloned())
        }
        Clusters::Listed(_) if client.may_have_all() => wish.clone(),
        Clusters::Listed(names) => {
            Clusters::listed(names.iter().filter(|name| client.may_have(name)).cloned())
        }
    }
}

/// The next list for a client, after the list `asked` (LRS-19). Lists grow by union and shrink rarely,
/// because a cluster begins at zero with each new entry.
pub fn grown(asked: &Clusters, wish: &Clusters, may_shrink: bool, client: &dyn Client) -> Clusters {
    if may_shrink {
        return wish.clone();
    }
    match asked {
        Clusters::Listed(names) if !client.may_have_all() => {
            let allowed = Clusters::listed(names.iter().filter(|name| client.may_have(name)).cloned());
            allowed.union(wish)
        }
        // "All" ends at once with the right to all.
        Clusters::All if !client.may_have_all() => wish.clone(),
        Clusters::All | Clusters::Listed(_) => asked.union(wish),
    }
}

/// The names to write for a list: never none (LRS-19). `skips_first`: the client never reports the first.
pub fn names_to_write(names: &BTreeSet<Arc<str>>, skips_first: bool) -> Vec<&str> {
    let nobody = (names.is_empty() || skips_first).then_some(NO_CLUSTER);
    nobody.into_iter().chain(names.iter().map(|name| &**name)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use prost::Message;
    use sluice_proto::load::LoadStatsResponse;

    use super::*;
    use crate::codec::{
        read_answer, skips_first_cluster, takes_all_clusters, write_answer, write_answer_for,
    };

    struct Clusterless(Vec<&'static str>);

    impl Client for Clusterless {
        fn may_have(&self, cluster: &str) -> bool {
            self.0.contains(&cluster)
        }

        fn may_have_all(&self) -> bool {
            false
        }

        fn clusters(&self) -> Arc<BTreeSet<Arc<str>>> {
            Arc::new(["a", "b", "c"].map(Arc::from).into())
        }
    }

    fn answer(names: &[&str], seconds: i64, is_all: bool) -> Wish {
        let clusters = names.iter().map(|name| (*name).to_owned()).collect();
        let load_reporting_interval = Some(sluice_proto::Duration { seconds, nanos: 0 });
        let (report_endpoint_granularity, send_all_clusters) = (true, is_all);
        let answer = LoadStatsResponse {
            clusters,
            load_reporting_interval,
            report_endpoint_granularity,
            send_all_clusters,
        };
        read_answer(&answer.encode_to_vec()).unwrap()
    }

    #[test]
    fn lrs_2_and_8_answers_read_and_write_as_generated_code_does_it() {
        let wish = answer(&["b", "a"], 5, false);
        assert_eq!(wish, Wish::new(Clusters::listed(["a", "b"]), Duration::from_secs(5), true));
        let written = LoadStatsResponse::decode(write_answer(&wish)).unwrap();
        assert_eq!((written.clusters, written.send_all_clusters), (vec!["a".into(), "b".into()], false));
        assert_eq!(
            (written.load_reporting_interval.unwrap().seconds, written.report_endpoint_granularity),
            (5, true)
        );
        for seconds in [0, -7] {
            assert_eq!(answer(&["a"], seconds, true), Wish::new(Clusters::All, INTERVAL_MIN, true));
        }
        assert_eq!(answer(&[], i64::MAX, false).interval, Duration::from_secs(86_400));
        let all = LoadStatsResponse::decode(write_answer(&answer(&["a"], 1, true))).unwrap();
        assert!(all.send_all_clusters && all.clusters.is_empty());
    }

    #[test]
    fn lrs_19_an_empty_wish_is_never_read_as_all() {
        let empty = LoadStatsResponse::decode(write_answer(&Wish::nothing())).unwrap();
        assert_eq!((empty.clusters, empty.send_all_clusters), (vec![NO_CLUSTER.into()], false));
        // A client that never reports the first of a list.
        let padded = LoadStatsResponse::decode(write_answer_for(&answer(&["a"], 1, false), true)).unwrap();
        assert_eq!(padded.clusters, vec![NO_CLUSTER.to_owned(), "a".into()]);
        let client = Clusterless(vec!["z"]);
        let left = clusters_for(&Clusters::listed(["a"]), true, &client);
        assert_eq!(left, Clusters::listed([""; 0]));
    }

    #[test]
    fn lrs_19_a_client_is_asked_for_what_it_may_have() {
        let client = Clusterless(vec!["a", "c", "x"]);
        // "All" would name clusters that the client may not have, so the client gets a list.
        for takes_all in [false, true] {
            assert_eq!(clusters_for(&Clusters::All, takes_all, &client), Clusters::listed(["a", "c"]));
        }
        assert_eq!(clusters_for(&Clusters::listed(["b", "x"]), true, &client), Clusters::listed(["x"]));
        // A right that is gone leaves the list, whatever grows.
        let asked = Clusters::listed(["a", "b"]);
        assert_eq!(grown(&asked, &Clusters::listed(["c"]), false, &client), Clusters::listed(["a", "c"]));
        assert_eq!(grown(&Clusters::All, &Clusters::listed(["c"]), false, &client), Clusters::listed(["c"]));
    }

    #[test]
    fn rly_69_the_wish_of_several_servers_is_the_union_at_the_shortest_interval() {
        let (one, other) = (answer(&["a"], 30, false), answer(&["b"], 7, false));
        let merged = Wish::merged([&one, &other]).unwrap();
        assert_eq!(merged, Wish::new(Clusters::listed(["a", "b"]), Duration::from_secs(7), true));
        let all = Wish::merged([&one, &answer(&[], 9, true)]).unwrap();
        assert_eq!((all.clusters, all.interval), (Clusters::All, Duration::from_secs(9)));
        assert_eq!(Wish::merged([]), None);
    }

    #[test]
    fn lrs_1_the_feature_of_a_node_is_seen() {
        let node = |feature: &str| sluice_proto::Node {
            client_features: vec!["x".into(), feature.into()],
            ..Default::default()
        };
        assert!(takes_all_clusters(&node("envoy.lrs.supports_send_all_clusters").encode_to_vec()));
        assert!(!takes_all_clusters(&node("envoy.lrs.supports_send_all").encode_to_vec()));
        let user_agent_name = "gRPC Node Pure JS".to_owned();
        let node_js = sluice_proto::Node { user_agent_name, ..Default::default() };
        assert!(skips_first_cluster(&node_js.encode_to_vec()));
        assert!(!skips_first_cluster(&node("x").encode_to_vec()));
    }
}
