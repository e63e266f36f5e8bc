//! Resources that a real client accepts: valid messages of their types, padded to a size in a field that
//! takes any text. The same field has the stamp.

use crate::proto::{put_bytes, put_message, put_string_entry, put_uint};
use crate::xds::Kind;

/// A resource with the text of a stamp, of about this size or of the minimum size.
pub fn body(kind: Kind, name: &str, bytes: usize, stamp: &str) -> Vec<u8> {
    let bare = padded(kind, name, stamp, 0).len();
    padded(kind, name, stamp, bytes.saturating_sub(bare))
}

fn padded(kind: Kind, name: &str, stamp: &str, padding: usize) -> Vec<u8> {
    let padding = "p".repeat(padding);
    let mut out = Vec::new();
    put_bytes(&mut out, 1, name);
    match kind {
        Kind::Cluster => cluster(&mut out, stamp, &padding),
        Kind::Endpoints => endpoints(&mut out, stamp, &padding),
        Kind::Listener => listener(&mut out, name, stamp, &padding),
        Kind::Route => route(&mut out, name, stamp, &padding),
    }
    out
}

/// A config.cluster.v3.Cluster with endpoints from EDS over ADS.
fn cluster(out: &mut Vec<u8>, stamp: &str, padding: &str) {
    // type: EDS; eds_cluster_config.eds_config: ads, of API version V3; connect_timeout: 5 s.
    put_uint(out, 2, 3);
    put_message(out, 3, |out| {
        put_message(out, 1, |out| {
            put_bytes(out, 3, "");
            put_uint(out, 6, 2);
        });
    });
    put_message(out, 4, |out| put_uint(out, 1, 5));
    put_message(out, 25, |out| put_metadata(out, stamp, padding));
}

/// A config.endpoint.v3.ClusterLoadAssignment with one endpoint, 127.0.0.1:9.
fn endpoints(out: &mut Vec<u8>, stamp: &str, padding: &str) {
    put_message(out, 2, |out| {
        put_message(out, 2, |out| {
            put_message(out, 1, |out| put_message(out, 1, put_address));
            put_message(out, 3, |out| put_metadata(out, stamp, padding));
        });
    });
}

/// A config.listener.v3.Listener with an address and an API listener that takes the route of the same name by
/// RDS.
fn listener(out: &mut Vec<u8>, name: &str, stamp: &str, padding: &str) {
    put_message(out, 2, put_address);
    put_message(out, 6, |out| put_metadata(out, stamp, padding));
    put_message(out, 19, |out| {
        put_message(out, 1, |out| {
            put_bytes(
                out,
                1,
                concat!(
                    "type.googleapis.com/envoy.extensions.filters.network.",
                    "http_connection_manager.v3.HttpConnectionManager"
                ),
            );
            put_message(out, 2, |out| {
                put_bytes(out, 2, "load");
                put_message(out, 3, |out| {
                    put_message(out, 1, |out| {
                        put_bytes(out, 3, "");
                        put_uint(out, 6, 2);
                    });
                    put_bytes(out, 2, name);
                });
            });
        });
    });
}

/// A config.route.v3.RouteConfiguration that routes all requests to the cluster of the same name. The padding
/// is the name of the virtual host.
fn route(out: &mut Vec<u8>, name: &str, stamp: &str, padding: &str) {
    put_message(out, 2, |out| {
        put_bytes(out, 1, format!("{stamp}{padding}"));
        put_bytes(out, 2, "*");
        put_message(out, 3, |out| {
            put_message(out, 1, |out| put_bytes(out, 1, "/"));
            put_message(out, 2, |out| put_bytes(out, 1, name));
        });
    });
}

/// A core.v3.Address.
fn put_address(out: &mut Vec<u8>) {
    put_message(out, 1, |out| {
        put_bytes(out, 2, "127.0.0.1");
        put_uint(out, 3, 9);
    });
}

/// A core.v3.Metadata.
fn put_metadata(out: &mut Vec<u8>, stamp: &str, padding: &str) {
    put_message(out, 1, |out| {
        put_bytes(out, 1, "sluice.load");
        put_message(out, 2, |out| {
            put_string_entry(out, "stamp", stamp);
            put_string_entry(out, "padding", padding);
        });
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::proto::Fields;
    use crate::stamp::{self, Search, Sought};

    #[test]
    fn every_type_has_its_size_its_name_and_one_stamp() {
        for kind in Kind::ALL {
            let body = body(kind, "load-000007", 1000, &stamp::text(99, 7, 3));
            assert!((995..1012).contains(&body.len()), "{kind:?}: {}", body.len());
            assert_eq!(Fields(&body).next_bytes().unwrap(), Some((1, &b"load-000007"[..])));
            let mut search = Search::default();
            search.push(&body, false, Sought { unchanged: true, most: usize::MAX });
            let found: Vec<_> =
                search.found().iter().map(|stamp| (stamp.time, stamp.index, stamp.audience)).collect();
            assert_eq!(found, [(99, 7, 3)], "{kind:?}");
            assert!(super::body(kind, "load-000007", 0, &stamp::text(0, 7, 0)).len() < 320, "{kind:?}");
        }
    }
}
