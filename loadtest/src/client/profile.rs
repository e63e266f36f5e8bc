//! The kind of clients to simulate.

use std::sync::Arc;

use clap::ValueEnum;

use crate::function::Function;
use crate::load::Load;
use crate::stamp::Sought;
use crate::xds::{Kind, Service, Variant, resource_name};

/// The approximate size of an Envoy 1.40's node in bytes, mostly the list of its extensions.
pub const ENVOY_NODE_BYTES: usize = 61_000;

/// The kind of client whose node and first requests to imitate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Like {
    /// A node with only an id and a cluster; all types are requested at once
    Plain,
    /// A node of 61 KB; clusters and listeners by wildcard, endpoints and routes by name, each type requested
    /// after the answer to the previous type
    Envoy,
    /// A small node; all types by name, each requested after the answer to the previous type
    Grpc,
}

/// The subscription of a client to a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Wildcard,
    /// This number of names. The index of the first is the client's number times `step`, all modulo the size
    /// of the set.
    Names {
        count: usize,
        step: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscription {
    pub kind: Kind,
    pub wanted: Wanted,
}

/// The node of a client.
#[derive(Clone, Debug)]
pub struct Node {
    pub like: Like,
    /// `{}` is replaced by the client's number.
    pub id: String,
    pub cluster: String,
    pub metadata: Vec<(String, String)>,
    /// The approximate size of the node; below the size of its other parts there is no padding.
    pub bytes: usize,
    /// Repeat the node in every request, ACKs included, as Envoy does by default.
    pub every_request: bool,
}

impl Node {
    pub fn plain() -> Node {
        Node {
            like: Like::Plain,
            id: "sluice-load-{}".to_owned(),
            cluster: "sluice-load".to_owned(),
            metadata: Vec::new(),
            bytes: 0,
            every_request: false,
        }
    }
}

/// The common settings of a run's clients.
#[derive(Clone, Debug)]
pub struct Profile {
    pub variant: Variant,
    /// A stream per type instead of one for all types.
    pub per_type: bool,
    pub subscriptions: Vec<Subscription>,
    /// Request each type after the answer to the previous type in the list, instead of all at once.
    pub chained: bool,
    pub node: Node,
    /// The labels of the clients, and what they decide at our control plane.
    pub function: Function,
    /// The size of the set that names are taken from.
    pub resources: usize,
    /// The names themselves, if not those of our control plane.
    pub names: Option<Arc<[String]>>,
    pub clients_per_connection: usize,
    pub sought: Sought,
    /// The load that clients report, on a stream of their own.
    pub load: Option<Load>,
}

impl Profile {
    /// A wildcard for clusters on one aggregated stream.
    pub fn plain(variant: Variant, resources: usize) -> Profile {
        Profile {
            variant,
            per_type: false,
            subscriptions: vec![Subscription { kind: Kind::Cluster, wanted: Wanted::Wildcard }],
            chained: false,
            node: Node::plain(),
            function: Function::default(),
            resources,
            names: None,
            clients_per_connection: 1,
            sought: Sought { unchanged: false, most: 1 },
            load: None,
        }
    }

    /// The streams of a client: the service, and the indices of its subscriptions.
    pub fn streams(&self) -> Vec<(Service, Vec<usize>)> {
        let mut streams: Vec<_> = if self.per_type {
            let each = self.subscriptions.iter().enumerate();
            each.map(|(index, subscription)| (Service::Of(subscription.kind), vec![index])).collect()
        } else {
            vec![(Service::Aggregated, (0..self.subscriptions.len()).collect())]
        };
        streams.extend(self.load.map(|_| (Service::LoadStats, Vec::new())));
        streams
    }

    /// The subscriptions of a client, in words.
    pub fn describe(&self) -> Vec<String> {
        let words = |subscription: &Subscription| match subscription.wanted {
            Wanted::Wildcard => format!("{} wildcard", subscription.kind.short()),
            Wanted::Names { count, .. } => format!("{} by {count} names", subscription.kind.short()),
        };
        self.subscriptions.iter().map(words).collect()
    }

    /// The name at an index; indices beyond the end of the set wrap around.
    pub fn name(&self, index: usize) -> String {
        match &self.names {
            Some(names) => names.get(index % names.len().max(1)).cloned().unwrap_or_default(),
            None => resource_name(index % self.resources.max(1)),
        }
    }

    /// The number of resources with `index % stride == residue` in a client's subscription to a type after a
    /// move by `offset` names.
    pub fn wanted_of(
        &self,
        kind: Kind,
        client: usize,
        offset: usize,
        residue: usize,
        stride: usize,
    ) -> usize {
        let Some(subscription) = self.subscriptions.iter().find(|subscription| subscription.kind == kind)
        else {
            return 0;
        };
        match subscription.wanted {
            Wanted::Wildcard => count_in(0, self.resources, residue, stride),
            Wanted::Names { count, step } => {
                let start = (client * step + offset) % self.resources.max(1);
                let before_end = count.min(self.resources - start);
                count_in(start, start + before_end, residue, stride)
                    + count_in(0, count - before_end, residue, stride)
            }
        }
    }
}

/// The number of integers in `from..to` that leave `residue` when divided by `stride`.
fn count_in(from: usize, to: usize, residue: usize, stride: usize) -> usize {
    let below = |end: usize| (end + stride - 1 - residue) / stride;
    below(to) - below(from)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_a_change_means_to_a_client_is_counted_without_walking_names() {
        let mut profile = Profile::plain(Variant::Delta, 11);
        for (count, step) in [(1, 1), (3, 1), (11, 0), (5, 7)] {
            profile.subscriptions =
                vec![Subscription { kind: Kind::Endpoints, wanted: Wanted::Names { count, step } }];
            for client in 0..13 {
                for stride in 1..=11 {
                    for residue in 0..stride {
                        let names = (0..count).map(|name| (client * step + 2 + name) % 11);
                        let expected = names.filter(|index| index % stride == residue).count();
                        let counted = profile.wanted_of(Kind::Endpoints, client, 2, residue, stride);
                        assert_eq!(counted, expected, "{count} {step} {client} {residue} {stride}");
                    }
                }
            }
        }
        assert_eq!(profile.wanted_of(Kind::Cluster, 0, 0, 0, 1), 0);
    }

    #[test]
    fn names_begin_anew_at_the_end() {
        let mut profile = Profile::plain(Variant::Sotw, 3);
        assert_eq!(profile.name(4), "load-000001");
        profile.names = Some(["a".to_owned(), "b".to_owned()].into());
        assert_eq!(profile.name(3), "b");
    }
}
