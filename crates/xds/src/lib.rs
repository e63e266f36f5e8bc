//! The vocabulary of xDS: type URLs, names, versions, resources, nodes, requests and responses.
//!
//! Everything here is plain data: no protobuf, no clock, no socket. The other rooms exchange only these
//! types. `docs/rules` has the rules about the wire fields behind each struct.

pub mod type_url;
pub mod xdstp;
pub mod name;
pub mod dynamic;
pub mod version;
pub mod resource;
pub mod node;
pub mod status;
pub mod message;
pub mod mark;
pub mod last_word;
pub mod coding;
pub mod relay_path;
pub mod service;

pub use coding::Coding;
pub use dynamic::{Constraint, Constraints, Parameters};
pub use last_word::LastWord;
pub use mark::SetMark;
pub use message::{
    BadElement, DeltaRequest, DeltaResponse, Element, Received, Request, ResourceError, Response,
    SotwRequest, SotwResponse, Variant,
};
pub use name::ResourceName;
pub use node::{Locality, Node, UserAgentVersion, Value};
pub use relay_path::{RelayId, RelayPath};
pub use resource::{Any, Resource, ResourceCopies};
pub use service::{ApiVersion, Call, Method, Service, StreamKind};
pub use status::{Code, Status};
pub use type_url::{Kind, TypeUrl};
pub use version::Version;
