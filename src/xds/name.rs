//! Resource names.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use super::xdstp::{self, NameError};

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
        self.0.starts_with(xdstp::SCHEME)
    }

    /// The name as a server wrote it, in the canonical spelling under which it is kept (NAM-6, NAM-7). One that is
    /// malformed stays as it is: nobody can have asked for it, and it equals no other.
    pub fn received(name: &str) -> Self {
        ResourceName::new(&xdstp::canonical(name).unwrap_or(name.into()))
    }

    /// The key of a name that a client wrote in a request for resources of this message type; `None` if it is spelled so
    /// already (NAM-5 to NAM-7).
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

    /// Of a canonical name: whether it is that of a glob collection (NAM-14).
    pub fn is_glob(&self) -> bool {
        xdstp::is_glob(&self.0) && !self.is_located()
    }

    /// Of a canonical name: the glob collection of which it is a member (NAM-14, NAM-15). Collections have no parameters, so
    /// that a name with such is in none.
    pub fn glob(&self) -> Option<ResourceName> {
        if self.is_located() {
            return None;
        }
        xdstp::glob_of(&self.0).map(ResourceName::from)
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
