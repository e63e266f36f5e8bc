//! The clusters of one client: those it may see, those of its classes, and their lists of servers.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;

use crate::driver::ground::context::DriverSettings;
use crate::driver::ground::source_key::SourceKey;
use crate::driver::source::handle::SourceHandle;
use crate::driver::source::table::Sources;
use sluice_engine::authority::Authority;
use sluice_engine::authorization::Grant;
use sluice_engine::class::NameStyle;
use sluice_engine::downstream::SourceId;
use sluice_load_reports::Client;
use sluice_xds::{Node, ResourceName, TypeUrl};

/// The type of clusters.
pub static CLUSTER: LazyLock<TypeUrl> =
    LazyLock::new(|| TypeUrl::of_message("envoy.config.cluster.v3.Cluster"));

/// The names of all authorities begin so.
const XDSTP: &str = "xdstp:";

/// The client of a stream, as the wish of servers looks at it.
pub struct ClusterRights<'a> {
    pub grant: &'a Grant,
    pub sources: &'a Sources,
    pub lists: &'a ClusterLists,
    /// The sources of the client's classes.
    pub classes: Vec<&'a SourceKey>,
}

/// Whether a client may see a cluster (AUT-8).
pub fn may_see(grant: &Grant, cluster: &str) -> bool {
    grant.allows_all() || grant.of_type(&CLUSTER).is_ok_and(|grant| grant.allows(&ResourceName::new(cluster)))
}

/// Whether a client may see all clusters.
pub fn may_see_all(grant: &Grant) -> bool {
    grant.allows_all() || grant.of_type(&CLUSTER).is_ok_and(|grant| grant.has_every_name())
}

impl Client for ClusterRights<'_> {
    fn may_have(&self, cluster: &str) -> bool {
        may_see(self.grant, cluster)
    }

    fn may_have_all(&self) -> bool {
        may_see_all(self.grant)
    }

    fn clusters(&self) -> Arc<ClusterNames> {
        let sources: Vec<_> = self.classes.iter().filter_map(|key| self.sources.find(key)).collect();
        self.lists.of(&sources)
    }
}

type ClusterNames = BTreeSet<Arc<str>>;

/// The contents of sources, by the number of the latest change.
type ContentNumbers = Vec<(SourceId, u64)>;

/// The clusters of classes, shared by the clients that are asked for them by name: 10,000 copies would be
/// the largest part of the memory for reports.
#[derive(Default)]
pub struct ClusterLists(Mutex<HashMap<ContentNumbers, Weak<ClusterNames>>>);

impl ClusterLists {
    fn of(&self, sources: &[Arc<SourceHandle>]) -> Arc<ClusterNames> {
        let key: ContentNumbers = sources.iter().map(|source| (source.id(), source.shown_change())).collect();
        if let Some(names) = self.0.lock().get(&key).and_then(Weak::upgrade) {
            return names;
        }
        let mut names = ClusterNames::new();
        for source in sources {
            let published = source.published();
            let resources = published.snapshots().filter_map(|snapshot| snapshot.of(&CLUSTER));
            names.extend(
                resources.flat_map(|types| types.resources().map(|resource| resource.name.as_str().into())),
            );
        }
        let (names, mut lists) = (Arc::new(names), self.0.lock());
        lists.retain(|_, names| names.strong_count() > 0);
        lists.insert(key, Arc::downgrade(&names));
        names
    }
}

/// The authority of a cluster, as for its Cluster resource (LRS-22). Most names are looked at only at their
/// begin.
pub fn authority_of(settings: &DriverSettings, node: &Node, cluster: &str) -> Authority {
    if !is_xdstp(cluster) && !settings.classes.list_names() {
        return Authority::None;
    }
    settings.authority_of(Some(node), &CLUSTER, &ResourceName::new(cluster))
}

/// Whether a cluster's name belongs to an authority.
pub fn is_xdstp(cluster: &str) -> bool {
    cluster.starts_with(XDSTP)
}

/// All authorities that clusters of a client may have. `has_xdstp`: the client has reported a cluster with an
/// authority. Without configured authorities, few clients have one, and their class costs a stream.
pub fn authorities(settings: &DriverSettings, node: &Node, has_xdstp: bool) -> Vec<Authority> {
    let mut authorities = Vec::new();
    for kind in settings.classes.kinds(node, &CLUSTER) {
        match (kind.style, kind.listed) {
            (NameStyle::Old, None) => authorities.push(Authority::None),
            (NameStyle::Old, Some(listed)) => authorities.push(Authority::Listed(listed)),
            (NameStyle::Xdstp, _) => {
                let configured = settings.lists.authorities().ids();
                let before = authorities.len();
                authorities.extend(configured.map(Authority::Configured));
                if authorities.len() == before && has_xdstp {
                    authorities.push(Authority::Any);
                }
            }
        }
    }
    authorities
}
