//! Memory of the names that belong to a single session.

use crate::xds::ResourceName;

/// Approximate memory of a name in addition to the text: the entries in the set of the session and in the sets that
/// sources share. A name of a single client takes some 450 bytes more at the source (ADR 74). 200,000 names of
/// 60 bytes fit into the default of `limits.connection_bytes`, together with the request that brings the last names.
pub const NAME_BYTES: usize = 192;

/// Memory of one name, in bytes.
pub(super) fn weight(name: &ResourceName) -> usize {
    name.allocated() + NAME_BYTES
}
