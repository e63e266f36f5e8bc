//! Studies of a running relay, as plain data (LRN-2).

use std::sync::Arc;
use std::time::Duration;

use sluice_admin_api::learning::StudyReport;
use sluice_engine::class::NodeClasses;
use sluice_xds::{Kind, TypeUrl};

/// The studies of the relay.
pub trait StudyView {
    /// Begins to ask a server as the connected clients. Returns the number of the order, for
    /// [`StudyView::learn_state`].
    ///
    /// # Errors
    /// The order has no effect.
    fn learn(&self, _order: LearnOrder) -> Result<u64, LearnRefusal> {
        Err(LearnRefusal::NoServer(Vec::new()))
    }

    /// The progress of an order; `None` for an order of long ago.
    fn learn_state(&self, _order: u64) -> Option<LearnState> {
        None
    }
}

/// An order to learn the rules of a server.
#[derive(Clone, Debug)]
pub struct LearnOrder {
    /// `server_uri` of the configuration; `None`: the first server for the types.
    pub server: Option<String>,
    pub types: AskedTypes,
    /// Clients asked at once.
    pub streams: u32,
    /// Streams begun in a minute.
    pub per_minute: u32,
    /// The end, even if clients are left.
    pub longest: Duration,
    /// The rules to compare with the evidence.
    pub check: Option<CheckedRules>,
}

/// Rules to compare with the evidence.
#[derive(Clone, Debug)]
pub enum CheckedRules {
    InForce,
    /// Those of another configuration, with the facts in force.
    Of(Box<NodeClasses>),
}

/// The reason why an order has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LearnRefusal {
    /// The configuration has other servers only.
    NoServer(Vec<Arc<str>>),
    /// The server cannot be asked, for this reason.
    NotAsked(&'static str),
    /// The order with this number asks the server already.
    Busy(u64),
}

/// The progress of an order.
#[derive(Clone, Debug)]
pub struct LearnState {
    /// `server_uri` of the configuration.
    pub server: Arc<str>,
    /// Clients to ask as, and those with an answer.
    pub nodes: usize,
    pub asked: usize,
    /// `None`: under way. An error is the reason why there is nothing to report.
    pub result: Option<Result<Arc<StudyReport>, Arc<str>>>,
}

/// The parts of an answer that are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedTypes {
    /// Types of which everything is asked for.
    pub whole: Vec<TypeUrl>,
    /// Types of which the names are asked for that the answers name: endpoints of clusters, and routes of
    /// listeners.
    pub named: Vec<TypeUrl>,
}

const CLUSTERS: &str = "envoy.config.cluster.v3.Cluster";
const LISTENERS: &str = "envoy.config.listener.v3.Listener";
const ENDPOINTS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";
const ROUTES: &str = "envoy.config.route.v3.RouteConfiguration";

impl AskedTypes {
    /// Reads `cds`, `lds`, `eds`, `rds` and full names of messages. Endpoints and routes are asked for by the
    /// names that clusters and listeners name.
    ///
    /// # Errors
    /// The fault in words.
    pub fn of_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<AskedTypes, String> {
        let mut types = AskedTypes { whole: Vec::new(), named: Vec::new() };
        for word in words {
            let message = match word.to_ascii_lowercase().as_str() {
                "cds" => CLUSTERS,
                "lds" => LISTENERS,
                "eds" => ENDPOINTS,
                "rds" => ROUTES,
                _ if word.contains('.') => word.strip_prefix("type.googleapis.com/").unwrap_or(word),
                _ => return Err(format!("{word} is none of cds, lds, eds, rds, and no full message name")),
            };
            let type_url = TypeUrl::of_message(message);
            if type_url.is_secret() {
                return Err("Secrets are split by client in any case, and never asked for here".to_owned());
            }
            let list = match type_url.kind() {
                Kind::ClusterLoadAssignment | Kind::RouteConfiguration => &mut types.named,
                _ => &mut types.whole,
            };
            if !list.contains(&type_url) {
                list.push(type_url);
            }
        }
        let has = |kind| types.whole.iter().any(|type_url| type_url.kind() == kind);
        for (named, base, text) in [
            (Kind::ClusterLoadAssignment, Kind::Cluster, "eds needs cds: clusters name the endpoints"),
            (Kind::RouteConfiguration, Kind::Listener, "rds needs lds: listeners name the routes"),
        ] {
            if types.named.iter().any(|type_url| type_url.kind() == named) && !has(base) {
                return Err(text.to_owned());
            }
        }
        Ok(types)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lrn_2_types_have_short_words_and_named_types_need_their_base() {
        let shown = |text: &str| -> Vec<String> {
            let types = AskedTypes::of_words(text.split(',')).unwrap();
            types.whole.iter().chain(&types.named).map(|type_url| type_url.short().to_owned()).collect()
        };
        assert_eq!(
            shown("cds,lds,eds,rds,CDS"),
            ["Cluster", "Listener", "ClusterLoadAssignment", "RouteConfiguration"]
        );
        assert_eq!(shown("a.b.Other"), ["Other"]);
        for text in ["eds", "rds,cds", "sds", "envoy.extensions.transport_sockets.tls.v3.Secret"] {
            assert!(AskedTypes::of_words(text.split(',')).is_err(), "{text}");
        }
    }
}
