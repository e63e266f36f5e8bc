//! The seat of a client: its place in the order of a plan (WAV-13).

use super::plan::{BUCKETS, BucketBy, Plan};
use sluice_xds::{Node, Value};

/// Names the use of the hash. Replicas of all builds must agree on the seats.
const CONTEXT: &str = "sluice 2026 wave bucket";

/// The last bucket. Clients without a text have the last bucket, and `at_least` never admits them.
pub const LAST_BUCKET: u16 = BUCKETS - 1;

/// The place of a client in a plan. Two streams of one node have one seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seat {
    pub bucket: u16,
    /// The number of the first step, from 1, whose labels name the node.
    pub labelled_step: Option<u8>,
}

impl Plan {
    /// The seat of a client. Identity, stream and process have no influence.
    pub fn seat(&self, node: &Node) -> Seat {
        let names = |step: &super::plan::Step| step.clients.as_ref().is_some_and(|c| c.matches(node));
        let labelled = self.steps.iter().position(names);
        Seat {
            bucket: self.bucket(&self.bucket_by.text(node)),
            labelled_step: labelled.and_then(|at| u8::try_from(at + 1).ok()),
        }
    }

    fn bucket(&self, text: &str) -> u16 {
        if text.is_empty() {
            return LAST_BUCKET;
        }
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        for part in [&*self.name, &*self.salt, text] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let mut head = [0; 8];
        hasher.finalize_xof().fill(&mut head);
        let scaled = (u128::from(u64::from_le_bytes(head)) * u128::from(BUCKETS)) >> 64;
        u16::try_from(scaled).unwrap_or(LAST_BUCKET)
    }
}

impl BucketBy {
    /// The text that decides; empty if the node has none.
    fn text(&self, node: &Node) -> String {
        match self {
            BucketBy::Id => node.id.clone(),
            BucketBy::Cluster => node.cluster.clone(),
            BucketBy::Zone => {
                node.locality.as_ref().map_or_else(String::new, |locality| locality.zone.clone())
            }
            BucketBy::Metadata(path) => match node.metadata_at(path) {
                Some(Value::String(text)) => text.clone(),
                _ => String::new(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rollout::plan::Step;
    use sluice_engine::class::{NodeMatch, TextMatch};
    use sluice_xds::Locality;

    /// By an independent computation.
    const VECTORS: [u16; 4] = [7_089, 4_123, 3_464, 7_059];
    const OTHERS: [u16; 2] = [2_815, 5_602];

    fn plan() -> Plan {
        Plan::new("edge")
    }

    fn node(id: &str) -> Node {
        Node { id: id.into(), ..Node::default() }
    }

    /// The buckets never change: replicas of different builds seat each client alike.
    #[test]
    fn wav_13_a_bucket_is_a_hash_of_plan_salt_and_text() {
        let bucket = |plan: &Plan, id: &str| plan.seat(&node(id)).bucket;
        let ids = ["a", "envoy-1", "envoy-2", "envoy-3"];
        assert_eq!(ids.map(|id| bucket(&plan(), id)), VECTORS);
        let salted = Plan { salt: "b".into(), ..plan() };
        let renamed = Plan { name: "batch".into(), ..plan() };
        assert_eq!([&salted, &renamed].map(|plan| bucket(plan, "a")), OTHERS);
        // Each part follows its length: no other split of the same letters has the same bucket.
        let shifted = Plan { name: "edg".into(), salt: "e".into(), ..plan() };
        assert_ne!(bucket(&shifted, "a"), bucket(&plan(), "a"));
    }

    #[test]
    fn wav_13_buckets_are_spread_evenly() {
        let plan = plan();
        let below = (0..20_000).filter(|number| plan.seat(&node(&format!("envoy-{number}"))).bucket < 100);
        let count = below.count();
        assert!((150..250).contains(&count), "{count} of 20000 clients in 1 %");
    }

    #[test]
    fn wav_13_a_client_without_a_text_is_seated_last() {
        assert_eq!(plan().seat(&node("")).bucket, LAST_BUCKET);
        let list = Value::List(Vec::new());
        let node = Node { metadata: [("list".to_owned(), list)].into(), ..node("a") };
        for by in [BucketBy::Cluster, BucketBy::Zone, BucketBy::Metadata(vec!["list".into()])] {
            assert_eq!(bucket_of(&plan(), by, &node), LAST_BUCKET);
        }
        assert_ne!(plan().seat(&node).bucket, LAST_BUCKET);
    }

    fn bucket_of(plan: &Plan, bucket_by: BucketBy, node: &Node) -> u16 {
        Plan { bucket_by, ..plan.clone() }.seat(node).bucket
    }

    #[test]
    fn wav_13_pods_with_new_ids_keep_a_seat_by_another_text() {
        let host = Value::Struct([("host".to_owned(), Value::String("h1".into()))].into());
        let pod = |id: &str| Node {
            cluster: "edge".into(),
            locality: Some(Locality { zone: "z1".into(), ..Locality::default() }),
            metadata: [("labels".to_owned(), host.clone())].into(),
            ..node(id)
        };
        let path = vec!["labels".to_owned(), "host".to_owned()];
        for by in [BucketBy::Cluster, BucketBy::Zone, BucketBy::Metadata(path)] {
            let bucket = |id| bucket_of(&plan(), by.clone(), &pod(id));
            assert_eq!(bucket("a"), bucket("b"), "{by:?}");
            assert_ne!(bucket("a"), LAST_BUCKET, "{by:?}");
        }
    }

    #[test]
    fn wav_13_the_first_step_whose_labels_name_a_client_seats_it() {
        let clients = |prefix: &str| {
            let id = Some(TextMatch::Prefix(prefix.into()));
            Some(NodeMatch { id, ..NodeMatch::default() })
        };
        let step = |clients| Step { clients, ..plan().steps[0].clone() };
        let plan = Plan { steps: vec![step(None), step(clients("env")), step(clients("e"))], ..plan() };
        let labelled = |id| plan.seat(&node(id)).labelled_step;
        assert_eq!([labelled("envoy"), labelled("edge"), labelled("x")], [Some(2), Some(3), None]);
    }
}
