//! Resource names.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use super::xdstp::{self, NameError};

/// The name of a resource, in the spelling of the wire. Ordered by bytes. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName(Arc<str>);

impl ResourceName {
    pub fn new(name: &str) -> Self {
        ResourceName(Arc::from(name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The bytes that the text takes from the allocator, with the two counters of its `Arc`. Allocations come
    /// in multiples of 16 bytes, and from 128 bytes on in four sizes for each power of two.
    pub fn allocated(&self) -> usize {
        let bytes = self.0.len() + 2 * size_of::<usize>();
        let step = if bytes <= 128 { 16 } else { bytes.next_power_of_two() / 8 };
        bytes.next_multiple_of(step)
    }

    /// Whether both names share one allocation, as the tests of shared sets want.
    pub fn is_same_text(&self, other: &ResourceName) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// `*` subscribes to the wildcard (SUB-8).
    pub fn is_wildcard(&self) -> bool {
        &*self.0 == "*"
    }

    /// Names with the `xdstp:` scheme belong to an authority; other names are opaque (NAM-3).
    pub fn is_xdstp(&self) -> bool {
        self.0.starts_with(xdstp::SCHEME)
    }

    /// A name from a server, converted to the canonical spelling (NAM-6, NAM-7). A malformed name stays as
    /// sent: no client can have asked for it, and it equals no other name.
    pub fn received(name: &str) -> Self {
        ResourceName::new(&xdstp::canonical(name).unwrap_or(name.into()))
    }

    /// The canonical spelling of a name in a request for resources of this message type (NAM-5 to NAM-7).
    /// `Ok(None)`: the name is canonical already.
    pub fn canonical(&self, message: &str) -> Result<Option<ResourceName>, NameError> {
        if !self.is_xdstp() {
            return Ok(None);
        }
        if let Some((name, parameters)) = self.parameters() {
            let key = xdstp::canonical_of_type(name, message)?;
            return Ok((*key != *name).then(|| ResourceName::located(&key, &parameters)));
        }
        let key = xdstp::canonical_of_type(&self.0, message)?;
        Ok(if *key == *self.0 { None } else { Some(ResourceName::new(&key)) })
    }

    /// Whether a canonical name is the name of a glob collection (NAM-14).
    pub fn is_glob(&self) -> bool {
        xdstp::is_glob(&self.0) && !self.is_located()
    }

    /// The glob collection that contains a canonical name (NAM-14, NAM-15). `None` for names with parameters:
    /// collections have no parameters.
    pub fn glob(&self) -> Option<ResourceName> {
        if self.is_located() {
            return None;
        }
        xdstp::glob_of(&self.0).map(ResourceName::from)
    }

    /// The text between `xdstp://` and the next `/`, possibly empty (NAM-4). `None` for names of another
    /// form.
    pub fn authority(&self) -> Option<&str> {
        let (authority, _) = self.0.strip_prefix("xdstp://")?.split_once('/')?;
        Some(authority)
    }
}

impl From<&str> for ResourceName {
    fn from(name: &str) -> Self {
        ResourceName::new(name)
    }
}

impl From<String> for ResourceName {
    fn from(name: String) -> Self {
        ResourceName(Arc::from(name))
    }
}

impl Borrow<str> for ResourceName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_take_what_allocators_give() {
        let sizes =
            [(0, 16), (60, 80), (112, 128), (113, 160), (2_033, 2_560), (4_000, 4_096), (4_081, 5_120)];
        for (length, bytes) in sizes {
            assert_eq!(ResourceName::new(&"x".repeat(length)).allocated(), bytes, "{length}");
        }
    }
}
