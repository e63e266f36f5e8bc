//! The comparison of the lists of two configurations.

use crate::driver::ground::servers::{DEFAULT, ServerLists};

impl ServerLists {
    /// Whether all names have the same servers in the same order.
    pub(crate) fn routes_as(&self, other: &ServerLists) -> bool {
        let id = |of: &ServerLists, index: usize| of.lists.get(index).map(|list| list.id);
        let types = self.by_type.iter().map(|(key, index)| (key, id(self, *index)));
        let authorities = self.by_authority.iter().map(|(key, index)| (key, id(self, *index)));
        id(self, DEFAULT) == id(other, DEFAULT)
            && self.authorities == other.authorities
            && types.eq(other.by_type.iter().map(|(key, index)| (key, id(other, *index))))
            && authorities.eq(other.by_authority.iter().map(|(key, index)| (key, id(other, *index))))
    }
}
