//! The shared part and the private part of one stream at one source.
//!
//! Names that may not be shared form the private part of a subscription. A control plane has a separate
//! source for the private part. A directory gives all clients the same answers, and has a single source.
//! There, the two parts are two sessions, because a session has one subscription per type.

use sluice_engine::cache::SessionId;
use sluice_engine::downstream::SourceId;

/// The numbers of sources and streams count from 0, and never reach this bit.
const PRIVATE_BIT: u64 = 1 << 63;

/// The source's id in the private part of a stream.
pub(crate) fn private_source(id: SourceId) -> SourceId {
    SourceId(id.0 | PRIVATE_BIT)
}

/// The source behind an id.
pub(crate) fn shared_source(id: SourceId) -> SourceId {
    SourceId(id.0 & !PRIVATE_BIT)
}

/// The session of a stream at the source with this id.
pub(crate) fn session_at(stream: SessionId, source: SourceId) -> SessionId {
    SessionId(stream.0 | (source.0 & PRIVATE_BIT))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;
    use std::time::Duration;

    use crate::driver::api::downstream::{OpenStreams, RelayStream};
    use crate::driver::ground::tails::{Fact, Followed};
    use crate::driver::stream::state::tests::{peer, relay_before_clusters};
    use sluice_engine::authority::Authority;
    use sluice_xds::{DeltaRequest, Node, Request, SotwRequest, StreamKind, TypeUrl, Variant};

    /// A list of a control plane, which nobody can reach, and of a directory: names that may not be shared,
    /// and others of the same type, are two parts with one source there. The directory answers both.
    #[tokio::test]
    async fn cch_1_rly_40_no_part_of_a_type_is_stranded_at_a_directory() {
        let (relay, _directory) = relay_before_clusters(&["plain", "own"]).await;
        let clusters = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
        let list = relay.shared.settings().lists.route(&clusters, Authority::None).key();
        relay.shared.content.do_not_cache.add(list, &clusters, Some(&"own".into()));
        for variant in [Variant::Delta, Variant::Sotw] {
            let stream = relay.open(StreamKind::from(variant), peer([127, 0, 0, 1])).unwrap();
            let tail = relay.shared.tails.open(Followed::Stream(stream.state().number()), None).unwrap();
            stream.request(asks_for(&clusters, variant, &["plain", "own"])).await.unwrap();
            let mut names = BTreeSet::new();
            let all = async {
                while names.len() < 2 {
                    std::future::poll_fn(|context| stream.poll_message(context)).await.unwrap().unwrap();
                    for line in tail.take().lines {
                        let Fact::Response(sent) = &line.fact else { continue };
                        names.extend(sent.names.first.iter().map(ToString::to_string));
                    }
                }
            };
            let all = tokio::time::timeout(Duration::from_secs(20), all).await;
            assert!(all.is_ok(), "{variant:?}: only {names:?}");
            assert_eq!(stream.state().look(|_, _, sources| sources.len()), 4, "two parts at two servers");
        }
    }

    fn asks_for(type_url: &TypeUrl, variant: Variant, names: &[&str]) -> Request {
        let names = names.iter().map(|name| (*name).into()).collect();
        let (node, type_url) = (Some(Box::<Node>::default()), type_url.as_str().to_owned());
        match variant {
            Variant::Delta => {
                Request::Delta(DeltaRequest { node, type_url, subscribe: names, ..DeltaRequest::default() })
            }
            Variant::Sotw => {
                Request::Sotw(SotwRequest { node, type_url, resource_names: names, ..SotwRequest::default() })
            }
        }
    }
}
