//! The registry of a Kubernetes cluster: the facts of Pods whose proxies are clients.
//!
//! 1. `access`: the API server, and the credentials of the relay.
//! 2. `object`: the parts of Pods and Nodes for facts.
//! 3. `follow`: all objects of a kind, and then each change.
//! 4. `pods`: the table of facts. Without a clock or a task.
//! 5. `registry`: the facts, kept up to date.
//!
//! A client without an entry has a class for itself, and a client with a wrong entry would have another Pod's
//! configuration. So a Pod has an entry only while all facts of the Pod are known.

mod access;
mod object;
mod follow;
mod pods;
mod registry;

pub use access::ClusterAccess;
pub use registry::{Interest, PodRegistry, RegistryNews};
