//! Memory of the names that belong to a single session.

use crate::xds::ResourceName;

/// Approximate memory of a name in addition to the text: the allocation, and the entries in the set of the
/// session and in the sets of the source. 200,000 names of 60 bytes fit into the default of
/// `limits.connection_bytes`, together with the request that brings the last names.
pub const NAME_BYTES: usize = 192;

/// Memory of one name, in bytes.
pub(super) fn weight(name: &ResourceName) -> usize {
    name.as_str().len() + NAME_BYTES
}
