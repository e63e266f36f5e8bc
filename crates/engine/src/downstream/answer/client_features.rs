//! The extensions of the protocol that a client understands.

use crate::collection::Collection;
use crate::view::View;
use sluice_xds::{Kind, Node, ResourceName, TypeUrl, Variant};

/// The feature of clients that take `Resource` messages as elements of a SotW response. Both spellings are in
/// use, and so are the spellings from before `xds.` (TTL-2).
const WRAPPER: &[&str] =
    &["xds.config.resource-in-sotw", "xds.config.supports-resource-in-sotw", "envoy.config.resource-in-sotw"];

/// The feature of clients that honour `Resource.ttl` (TTL-1).
const TTL: &[&str] = &["xds.config.supports-resource-ttl", "envoy.config.supports-resource-ttl"];

/// The feature of clients that know the list form of LEDS (LED-4).
const ENDPOINT_LISTS: &[&str] = &["xds.endpoint.supports_lb_endpoint_collection"];

/// The extensions that one client understands for one type. Clients with equal features share their answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientFeatures {
    /// The client takes `Resource.ttl` and heartbeats (TTL-1).
    pub ttl: bool,
    /// The client takes `Resource` around elements of SotW responses (WIR-8). Meaningless in delta.
    pub wrapper: bool,
    /// A full-state answer may leave out names with errors, and a SotW answer may hold errors alone (ERR-8,
    /// SST-7).
    pub errors_alone: bool,
}

impl ClientFeatures {
    /// `errors_alone`: the operator's statement about this client.
    pub fn of(node: &Node, variant: Variant, type_url: &TypeUrl, errors_alone: bool) -> ClientFeatures {
        let has = |features: &[&str]| features.iter().any(|feature| node.has_feature(feature));
        let wraps = variant == Variant::Delta || has(WRAPPER);
        let takes_lists = type_url.kind() != Kind::LbEndpointCollection || has(ENDPOINT_LISTS);
        // gRPC ignores TTLs and rejects heartbeats, whatever features it is configured to state (TTL-7).
        let ttl = wraps && has(TTL) && !node.user_agent_name.starts_with("gRPC");
        let sotw = variant == Variant::Sotw;
        ClientFeatures { ttl, wrapper: sotw && wraps && takes_lists, errors_alone: sotw && errors_alone }
    }

    /// Whether each unknown name has an error, and the client takes errors for answers (ERR-4, ERR-8).
    pub(super) fn excuses(self, collection: &Collection, view: &View) -> bool {
        let Some(asked) = collection.names().filter(|_| self.errors_alone) else { return false };
        let is_unknown = |name: &&ResourceName| {
            asked.contains(name) && !(view.has(name) || view.knows_absent(name) || view.knows_glob(name))
        };
        let errors = view.annotations().errors().map(|(name, _)| name);
        errors.filter(is_unknown).count() >= view.unknown_len()
    }
}

/// The features that a class shows upstream: the features of its clients (RLY-12), and the wrapper, which the
/// relay removes for clients without support (RLY-22). TTLs are requested only if clients understand TTLs, by
/// the listed name (TTL-2).
pub fn upstream_features(of_class: &[String]) -> Vec<String> {
    let mut features = of_class.to_vec();
    features.push(WRAPPER[0].to_owned());
    if tells_ttl(of_class) {
        features.push(TTL[0].to_owned());
    }
    features.sort();
    features.dedup();
    features
}

/// Whether clients with these features understand a TTL.
pub fn tells_ttl(features: &[String]) -> bool {
    features.iter().any(|feature| TTL.contains(&feature.as_str()))
}
