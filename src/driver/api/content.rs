//! The cached copies of one resource, with their bytes.

use std::sync::Arc;

use crate::driver::api::status::ResourceStatus;
use crate::xds::Resource;

/// Gives the bytes of resources. The admin room shows them only without secrets (ADM-12).
pub trait ContentView: Send + Sync + 'static {
    /// The copies of a resource: one for each source and kind of subscription with this name. The type may have any of
    /// the names that [`names_type`](crate::driver::api::status::names_type) takes.
    fn copies(&self, type_name: &str, name: &str) -> Vec<CachedCopy> {
        let _ = (type_name, name);
        Vec::new()
    }
}

/// One source's copy of a resource.
#[derive(Clone, Debug, PartialEq)]
pub struct CachedCopy {
    /// The number of the source, unique in this process.
    pub source: u64,
    /// The key of the server list in the configuration.
    pub list: Arc<str>,
    pub status: ResourceStatus,
    /// `None` if the source has only the name.
    pub resource: Option<Arc<Resource>>,
}
