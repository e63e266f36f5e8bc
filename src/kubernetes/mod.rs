//! A Kubernetes cluster: the facts of Pods whose proxies are clients, and small objects of the relay.
//!
//! 1. `access`: the API server, and the credentials of the relay.
//! 2. `object`: the parts of Pods and Nodes for facts.
//! 3. `collection`: the small objects of one kind in one namespace, for callers that write (the ledger).
//! 4. `follow`: all objects of a kind, and then each change.
//! 5. `pods`: the table of facts. Without a clock or a task.
//! 6. `registry`: the facts, kept up to date.
//!
//! A client without an entry has a class for itself, and a client with a wrong entry would have another Pod's
//! configuration. So a Pod has an entry only while all facts of the Pod are known.

mod access;
mod object;
mod collection;
mod follow;
mod pods;
mod registry;

pub use access::ClusterAccess;
pub use collection::{
    ApiError, ApiPause, ApiServer, Collection, ObjectPage, ObjectVersion, ObjectWatch, WATCH_SECONDS,
    is_dns_label,
};
pub use kube::core::WatchEvent;
pub use registry::{Interest, PodRegistry, RegistryNews};
