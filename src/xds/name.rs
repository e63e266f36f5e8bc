//! Resource names.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The name of a resource, as the wire spells it. Cheap to clone; ordered by its bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName(Arc<str>);

impl ResourceName {
    pub fn new(name: &str) -> Self {
        ResourceName(Arc::from(name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `*` subscribes to the wildcard (SUB-8).
    pub fn is_wildcard(&self) -> bool {
        &*self.0 == "*"
    }

    /// Names with the `xdstp:` scheme belong to an authority; all others are opaque (NAM-3).
    pub fn is_xdstp(&self) -> bool {
        self.0.starts_with("xdstp:")
    }

    /// What stands between `xdstp://` and the next `/`; it may be empty (NAM-4). `None` for names of another form.
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
