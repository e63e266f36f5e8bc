//! Contents that tell a client's fate and a route's cluster.

use crate::control_plane::Entry;
use crate::words::{self, CDS, Content, EDS, LDS, OLD, RDS, TYPES};

use super::world::Table;

/// Clients that cannot stand such content reject it, never answer it, or crash.
pub const REJECTED: u32 = 1 << 20;
pub const IGNORED: u32 = 1 << 21;
pub const FATAL: u32 = 1 << 22;
pub const FLAGS: u32 = REJECTED | IGNORED | FATAL;

/// The types whose changes make pushes, and the endpoints.
pub const GATED: [usize; 3] = [CDS, LDS, RDS];

pub fn is_gated(ty: usize) -> bool {
    GATED.contains(&ty)
}

/// `target`: the cluster of a route; of a cluster 1, if its endpoints come from EDS.
pub fn content(unit: usize, number: u32, target: usize, flags: u32) -> Content {
    words::content(unit, (number & 0x1_ffff) << 3 | target as u32 | flags)
}

/// The cluster that a route of this content names.
pub fn cluster_of(content: Content) -> usize {
    (content & 7) as usize % OLD
}

pub fn entry(content: Content) -> Option<Entry> {
    (content != 0).then_some(Entry { content, member: true, ttl: None })
}

/// The contents of a server.
pub fn table(truth: &crate::control_plane::Truth) -> Table {
    let mut table = [[0; OLD]; TYPES];
    for ty in [CDS, EDS, LDS, RDS] {
        for name in 0..OLD {
            table[ty][name] = truth[ty][name].map_or(0, |entry| entry.content);
        }
    }
    table
}
