//! Type URLs, and the protocol's properties of each type (TYP-1, TYP-2).

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// The resource types with rules of their own. Every other type URL is `Other`, and relayed generically
/// (TYP-1).
///
/// The order of the variants is the order in which additions are sent on one stream (ORD-1, ORD-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Cluster,
    ClusterCollection,
    ClusterLoadAssignment,
    LbEndpoint,
    LbEndpointCollection,
    Listener,
    ListenerCollection,
    ScopedRouteConfiguration,
    RouteConfiguration,
    VirtualHost,
    Secret,
    Runtime,
    TypedExtensionConfig,
    Other,
}

const PREFIX: &str = "type.googleapis.com/";

const KINDS: &[(&str, Kind)] = &[
    ("envoy.config.cluster.v3.Cluster", Kind::Cluster),
    ("envoy.config.cluster.v3.ClusterCollection", Kind::ClusterCollection),
    ("envoy.config.endpoint.v3.ClusterLoadAssignment", Kind::ClusterLoadAssignment),
    ("envoy.config.endpoint.v3.LbEndpoint", Kind::LbEndpoint),
    ("envoy.config.endpoint.v3.LbEndpointCollection", Kind::LbEndpointCollection),
    ("envoy.config.listener.v3.Listener", Kind::Listener),
    ("envoy.config.listener.v3.ListenerCollection", Kind::ListenerCollection),
    ("envoy.config.route.v3.ScopedRouteConfiguration", Kind::ScopedRouteConfiguration),
    ("envoy.config.route.v3.RouteConfiguration", Kind::RouteConfiguration),
    ("envoy.config.route.v3.VirtualHost", Kind::VirtualHost),
    ("envoy.extensions.transport_sockets.tls.v3.Secret", Kind::Secret),
    ("envoy.service.runtime.v3.Runtime", Kind::Runtime),
    ("envoy.config.core.v3.TypedExtensionConfig", Kind::TypedExtensionConfig),
    // The same messages in the v2 API: separate types with the same rules (TYP-3, TYP-4).
    ("envoy.api.v2.Cluster", Kind::Cluster),
    ("envoy.api.v2.ClusterLoadAssignment", Kind::ClusterLoadAssignment),
    ("envoy.api.v2.Listener", Kind::Listener),
    ("envoy.api.v2.ScopedRouteConfiguration", Kind::ScopedRouteConfiguration),
    ("envoy.api.v2.RouteConfiguration", Kind::RouteConfiguration),
    ("envoy.api.v2.route.VirtualHost", Kind::VirtualHost),
    ("envoy.api.v2.auth.Secret", Kind::Secret),
    ("envoy.service.discovery.v2.Runtime", Kind::Runtime),
];

/// Types whose clients take resources that they did not name: an on-demand ztunnel is sent the workloads of
/// its node, and those behind an address (DEL-17).
const SENT_UNASKED: &[&str] = &["istio.workload.Address", "istio.workload.Workload"];

impl Kind {
    /// A SotW response of this type is the complete set, so absence means deletion (SST-1, SST-2).
    pub fn is_full_state(self) -> bool {
        matches!(self, Kind::Cluster | Kind::Listener | Kind::ScopedRouteConfiguration)
    }

    /// CDS, EDS and the types below EDS. Their additions precede those of the routing types (ORD-1).
    pub fn is_cluster_side(self) -> bool {
        self <= Kind::LbEndpointCollection
    }

    /// A resource of this type may refer to clusters, so its clusters must be sent first (ORD-4, RLY-50).
    /// Types unknown to sluice wait for nothing (STR-1).
    pub fn refers_to_clusters(self) -> bool {
        matches!(
            self,
            Kind::Listener
                | Kind::ListenerCollection
                | Kind::ScopedRouteConfiguration
                | Kind::RouteConfiguration
                | Kind::VirtualHost
                | Kind::TypedExtensionConfig
        )
    }

    /// Resources of this type may exclude each other: two listeners on one address, two scopes with one key,
    /// two virtual hosts of one domain. Nothing elsewhere refers to them by name, so one may go before
    /// another comes (DEL-26).
    pub fn may_exclude(self) -> bool {
        matches!(
            self,
            Kind::Listener | Kind::ListenerCollection | Kind::ScopedRouteConfiguration | Kind::VirtualHost
        )
    }

    /// The message has its name in field 1, so a SotW response may carry it without a wrapper (TYP-2, WIR-9).
    pub fn has_name_field(self) -> bool {
        !matches!(
            self,
            Kind::ClusterCollection
                | Kind::ListenerCollection
                | Kind::LbEndpoint
                | Kind::LbEndpointCollection
        )
    }
}

/// A type URL as sent: `type.googleapis.com/<full message name>`. Nearly every table is keyed by type URL
/// (TYP-1).
///
/// Ordered by send order on a stream (ORD-1), so that a map with this key iterates in send order. Cheap to
/// clone.
#[derive(Clone)]
pub struct TypeUrl(Text);

/// A known type has one text for all clients: each of them asks for a few types, and would have a copy of
/// each text. The text lives as long as the process, so that a clone counts nothing that threads share.
#[derive(Clone)]
enum Text {
    Known(&'static TypeText),
    Other(Arc<TypeText>),
}

struct TypeText {
    url: Arc<str>,
    kind: Kind,
    is_sent_unasked: bool,
}

static KNOWN: LazyLock<Vec<TypeText>> = LazyLock::new(|| {
    let urls = KINDS.iter().map(|(message, kind)| (format!("{PREFIX}{message}").into(), *kind));
    urls.map(|(url, kind)| TypeText { url, kind, is_sent_unasked: false }).collect()
});

impl TypeUrl {
    pub fn new(url: &str) -> Self {
        if let Some(text) = KNOWN.iter().find(|text| *text.url == *url) {
            return TypeUrl(Text::Known(text));
        }
        let message = url.strip_prefix(PREFIX);
        let is_sent_unasked = message.is_some_and(|message| SENT_UNASKED.contains(&message));
        TypeUrl(Text::Other(Arc::new(TypeText { url: Arc::from(url), kind: Kind::Other, is_sent_unasked })))
    }

    fn text(&self) -> &TypeText {
        match &self.0 {
            Text::Known(text) => text,
            Text::Other(text) => text,
        }
    }

    fn is_same_text(&self, other: &TypeUrl) -> bool {
        std::ptr::eq(self.text(), other.text())
    }

    /// All types with a [`Kind`] other than `Other`.
    pub fn known() -> impl Iterator<Item = TypeUrl> {
        KINDS.iter().map(|(message, _)| TypeUrl::of_message(message))
    }

    /// The type URL of a full message name, without the prefix.
    pub fn of_message(message: &str) -> Self {
        TypeUrl::new(&format!("{PREFIX}{message}"))
    }

    pub fn as_str(&self) -> &str {
        &self.text().url
    }

    /// The text of the URL, to be shared with the resources of the type.
    pub fn shared(&self) -> Arc<str> {
        self.text().url.clone()
    }

    pub fn kind(&self) -> Kind {
        self.text().kind
    }

    /// The full message name, without `type.googleapis.com/`.
    pub fn message(&self) -> &str {
        self.as_str().strip_prefix(PREFIX).unwrap_or(self.as_str())
    }

    /// The last segment of the message name, for display: `Cluster`, `RouteConfiguration`.
    pub fn short(&self) -> &str {
        self.as_str().rsplit(['.', '/']).next().unwrap_or(self.as_str())
    }

    pub fn is_full_state(&self) -> bool {
        self.kind().is_full_state()
    }

    /// A server sends a delta client further resources of this type beside those that the client named, and
    /// counts them as subscribed on the stream (DEL-17).
    pub fn is_sent_unasked(&self) -> bool {
        self.text().is_sent_unasked
    }

    /// Resources of this type may have an empty name, and clients may subscribe to the empty name (TYP-2).
    pub fn has_empty_names(&self) -> bool {
        self.message() == "envoy.extensions.filters.network.dubbo_proxy.v3.MultipleRouteConfiguration"
    }

    /// Whether resources of the type may be secret. A server may be less strict about the spelling of a URL
    /// than the relay, so every spelling counts.
    pub fn is_secret(&self) -> bool {
        match self.kind() {
            Kind::Secret => true,
            Kind::Other => {
                let message = self.as_str().rsplit('/').next().unwrap_or_default();
                let is_secret = |(listed, kind): &(&str, Kind)| {
                    *kind == Kind::Secret && listed.eq_ignore_ascii_case(message.trim())
                };
                KINDS.iter().any(is_secret)
            }
            _ => false,
        }
    }

    /// A client's words about the type, for people. Words about a Secret may quote the Secret (ADM-12).
    pub fn quote<'a>(&self, words: &'a str) -> Cow<'a, str> {
        match self.is_secret() {
            true => format!("[withheld {} B]", words.len()).into(),
            false => words.into(),
        }
    }
}

impl PartialEq for TypeUrl {
    fn eq(&self, other: &Self) -> bool {
        self.is_same_text(other) || self.as_str() == other.as_str()
    }
}

impl Eq for TypeUrl {}

impl PartialOrd for TypeUrl {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TypeUrl {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.is_same_text(other) {
            return Ordering::Equal;
        }
        self.kind().cmp(&other.kind()).then_with(|| self.as_str().cmp(other.as_str()))
    }
}

impl std::hash::Hash for TypeUrl {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Display for TypeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for TypeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.short())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typ_2_known_types_have_their_properties() {
        for (message, kind) in KINDS {
            let url = TypeUrl::of_message(message);
            assert_eq!(url.kind(), *kind);
            assert_eq!(url.message(), *message);
        }
        assert!(TypeUrl::of_message("envoy.config.cluster.v3.Cluster").is_full_state());
        assert!(!TypeUrl::of_message("envoy.config.endpoint.v3.ClusterLoadAssignment").is_full_state());
    }

    /// Each client has a few of them, and the tables of its sources, too.
    #[test]
    fn a_known_type_takes_no_memory_of_its_own() {
        let [one, other] = [(); 2].map(|()| TypeUrl::of_message("envoy.config.cluster.v3.Cluster"));
        assert!(one.is_same_text(&other));
        assert_eq!(size_of::<TypeUrl>(), 16);
    }

    #[test]
    fn typ_1_an_unknown_type_is_a_type_like_any_other() {
        let url = TypeUrl::new("type.googleapis.com/istio.workload.Address");
        assert_eq!(url.kind(), Kind::Other);
        assert_eq!(url.as_str(), "type.googleapis.com/istio.workload.Address");
        assert_eq!(url.short(), "Address");
        assert!(
            url.is_sent_unasked() && !TypeUrl::of_message("istio.security.Authorization").is_sent_unasked()
        );
    }

    #[test]
    fn ord_2_the_rest_is_placed_by_dependency() {
        let after = [
            (Kind::LbEndpoint, Kind::ClusterLoadAssignment),
            (Kind::Listener, Kind::LbEndpointCollection),
            (Kind::RouteConfiguration, Kind::ScopedRouteConfiguration),
            (Kind::VirtualHost, Kind::RouteConfiguration),
            (Kind::Secret, Kind::Cluster),
            (Kind::Secret, Kind::Listener),
            (Kind::TypedExtensionConfig, Kind::Listener),
            (Kind::TypedExtensionConfig, Kind::RouteConfiguration),
        ];
        for (later, earlier) in after {
            assert!(later > earlier, "{later:?} comes after {earlier:?}");
        }
    }

    #[test]
    fn ord_1_types_sort_by_rank() {
        let messages = [
            "envoy.config.cluster.v3.Cluster",
            "envoy.config.endpoint.v3.ClusterLoadAssignment",
            "envoy.config.listener.v3.Listener",
            "envoy.config.route.v3.RouteConfiguration",
            "envoy.config.route.v3.VirtualHost",
            "acme.Anything",
        ];
        let mut urls: Vec<_> = messages.iter().rev().map(|m| TypeUrl::of_message(m)).collect();
        urls.sort();
        let sorted: Vec<_> = urls.iter().map(TypeUrl::message).collect();
        assert_eq!(sorted, messages);
    }
}
