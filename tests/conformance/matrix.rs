//! RLY-24: one story over every kind of upstream and every kind of downstream ends in the same state
//! everywhere.
//!
//! The table has one line for each kind of either side. [`is_reported`] knows the steps that a protocol cannot
//! express.

use tonic::Code;

use crate::bench::Bench;
use crate::support::{Attachment, CDS, Client, Downstream, EDS, FOUR, LDS, RDS, Variant, is_full_state};

/// A kind of downstream, against every kind of upstream.
macro_rules! downstream {
    ($name:ident, $downstream:expr) => {
        mod $name {
            use super::*;

            #[tokio::test]
            async fn rly_24_over_sotw_ads() {
                story(Attachment::Ads(Variant::Sotw), $downstream).await;
            }

            #[tokio::test]
            async fn rly_24_over_delta_ads() {
                story(Attachment::Ads(Variant::Delta), $downstream).await;
            }

            #[tokio::test]
            async fn rly_24_over_sotw_per_type() {
                story(Attachment::PerType(Variant::Sotw), $downstream).await;
            }

            #[tokio::test]
            async fn rly_24_over_delta_per_type() {
                story(Attachment::PerType(Variant::Delta), $downstream).await;
            }

            #[tokio::test]
            async fn rly_24_over_rest() {
                story(Attachment::Rest, $downstream).await;
            }

            #[tokio::test]
            async fn rly_24_over_files() {
                story(Attachment::Files, $downstream).await;
            }
        }
    };
}

downstream!(sotw_ads, Downstream::Ads(Variant::Sotw));
downstream!(delta_ads, Downstream::Ads(Variant::Delta));
downstream!(sotw_per_type, Downstream::PerType(Variant::Sotw));
downstream!(delta_per_type, Downstream::PerType(Variant::Delta));
downstream!(rest, Downstream::Rest);
downstream!(v2_ads, Downstream::V2(Variant::Sotw));

/// Whether a client learns of a removal. Removals of full-state types are always visible. For other types
/// SotW streams carry no absence: not downstream, except for members of a wildcard (SST-6, SST-3), and not
/// upstream, where an omission proves nothing, even in a wildcard (SST-4, SST-10, RLY-28). The answer to a
/// poll is complete (RST-12).
fn is_reported(type_url: &str, upstream: Attachment, downstream: Downstream, wild: bool) -> bool {
    is_full_state(type_url) || upstream.reports_removals() && (wild || downstream.reports_removals())
}

async fn story(upstream: Attachment, downstream: Downstream) {
    let Some(mut bench) = Bench::relay(upstream).await else { return };
    let mut wild = bench.client(downstream, "wild").await;
    let mut named = bench.client(downstream, "named").await;
    for type_url in FOUR {
        chapter(&bench, &mut wild, &mut named, type_url, upstream, downstream).await;
    }
    // Reconnects upstream, with and without changes. Files have no connection.
    bench.origin.close_streams(Code::Unavailable);
    bench.origin.set(RDS, "a", "after a reconnect");
    wild.settle(RDS, &[("a", "after a reconnect"), ("b", "3"), ("missing", "1")]).await;
    named.settle(RDS, &[("a", "after a reconnect"), ("b", "3"), ("missing", "1")]).await;
    bench.origin.down().await;
    bench.origin.set(CDS, "a", "after an outage");
    bench.origin.set(EDS, "a", "after an outage");
    bench.origin.up().await;
    for type_url in [CDS, EDS] {
        for client in [&mut wild, &mut named] {
            client.settle(type_url, &[("a", "after an outage"), ("b", "3"), ("missing", "1")]).await;
        }
    }
    // The last client ends with the same state.
    let mut last = bench.client(downstream, "last").await;
    last.want(LDS, &["*"]);
    last.settle(LDS, &[("a", "2"), ("b", "3"), ("missing", "1")]).await;
    for client in [&mut wild, &mut named, &mut last] {
        bench.quiet(client).await;
    }
}

/// Create, change, delete, create again, a name that is missing at first; by wildcard and by name.
async fn chapter(
    bench: &Bench,
    wild: &mut Client,
    named: &mut Client,
    type_url: &str,
    upstream: Attachment,
    downstream: Downstream,
) {
    bench.origin.set_many(type_url, &[("a", "1"), ("b", "1")]);
    wild.want(type_url, &["*"]);
    wild.settle(type_url, &[("a", "1"), ("b", "1")]).await;
    named.want(type_url, &["a", "b", "missing"]);
    named.settle(type_url, &[("a", "1"), ("b", "1")]).await;

    bench.origin.set(type_url, "a", "2");
    wild.settle(type_url, &[("a", "2"), ("b", "1")]).await;
    named.settle(type_url, &[("a", "2"), ("b", "1")]).await;

    bench.origin.remove(type_url, "b");
    if is_reported(type_url, upstream, downstream, true) {
        wild.settle(type_url, &[("a", "2")]).await;
    }
    if is_reported(type_url, upstream, downstream, false) {
        named.settle(type_url, &[("a", "2")]).await;
    }

    bench.origin.set(type_url, "b", "3");
    wild.settle(type_url, &[("a", "2"), ("b", "3")]).await;
    named.settle(type_url, &[("a", "2"), ("b", "3")]).await;

    bench.origin.set(type_url, "missing", "1");
    wild.settle(type_url, &[("a", "2"), ("b", "3"), ("missing", "1")]).await;
    named.settle(type_url, &[("a", "2"), ("b", "3"), ("missing", "1")]).await;
}
