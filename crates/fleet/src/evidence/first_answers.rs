//! Contents that a plan refuses, and clients are given all the same: first answers (QUA-5).

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::ordmap::DiffItem;

use super::remembered::{CondemnedContents, Content};
use crate::rollout::Refused;
use crate::rollout::plan::Gated;
use sluice_engine::cache::{CachedBodies, Known};
use sluice_engine::collection::CollectionKind;
use sluice_engine::lanes::Published;
use sluice_engine::snapshot::{Snapshot, TypeSnapshot};
use sluice_xds::{Resource, ResourceName};

/// The refused contents that a source has given as first answers, for all clients without other content.
#[derive(Debug, Default)]
pub struct GivenContents {
    refused: Arc<Refused>,
    given: Arc<Refused>,
}

impl GivenContents {
    /// The plan refuses these contents from now on. `stable`: the content for the clients outside of a push.
    /// Returns whether clients are told something else than before.
    pub fn refuse(&mut self, refused: &Arc<Refused>, stable: &Snapshot) -> bool {
        self.refused = refused.clone();
        let given = Refused::of(refused.iter().filter(|content| has(stable, content)).cloned());
        let is_other = *self.given != given;
        self.given = Arc::new(given);
        is_other
    }

    /// The source serves other content. Returns the contents of its first answers since `before`.
    pub fn follow(&mut self, before: &Snapshot, after: &Snapshot, gated: &Gated) -> BTreeSet<Content> {
        if self.refused.is_empty() {
            return BTreeSet::new();
        }
        let new = refused_first_answers(before, after, &self.refused, gated);
        let is_over = |content: &&Content| !has(after, content);
        if !new.is_empty() || self.given.iter().any(|content| is_over(&content)) {
            let given = self.given.iter().filter(|content| !is_over(content)).chain(&new);
            self.given = Arc::new(Refused::of(given.cloned()));
        }
        new
    }

    /// Marks the contents in all that a source serves, so that clients with other content keep the other
    /// content. `relays`: also relays do.
    pub fn mark(&self, published: &mut Published, relays: bool) {
        if self.given.is_empty() {
            return;
        }
        let given = if relays { Arc::new(self.given.of_relays()) } else { self.given.clone() };
        match &mut published.lanes {
            Some(lanes) => {
                let candidate = lanes.candidate.iter_mut().map(|(_, candidate)| candidate);
                let all = candidate.chain([&mut lanes.stable]);
                all.for_each(|snapshot| Arc::make_mut(snapshot).refuse(given.clone()));
            }
            None => Arc::make_mut(&mut published.live).refuse(given),
        }
    }
}

/// The refused contents that a source gives as first answers since `before`: nothing older is known of the
/// names, so they are not withheld (WAV-7). `before`, `after`: the content for the clients outside of a push.
fn refused_first_answers(
    before: &Snapshot,
    after: &Snapshot,
    refused: &Refused,
    gated: &Gated,
) -> BTreeSet<Content> {
    let mut given = BTreeSet::new();
    let nothing = TypeSnapshot::default();
    for (type_url, after) in after.gated_types(gated) {
        let before = before.of(type_url).unwrap_or(&nothing);
        let mut note = |name: &ResourceName, resource: &Resource| {
            let content = (type_url.clone(), name.clone(), resource.version);
            if refused.contains(&content) {
                given.insert(content);
            }
        };
        for item in before.names.entries.diff(&after.names.entries) {
            if let DiffItem::Add(name, new) | DiffItem::Update { old: (_, Known::Unknown), new: (name, new) } =
                item
                && let Some(resource) = new.resource()
            {
                note(name, resource);
            }
        }
        if !before.wildcard.is_whole() {
            new_members(&before.wildcard.members, &after.wildcard.members, &mut note);
        }
        new_members(&before.globs.members, &after.globs.members, &mut |name, resource| {
            if name.glob().is_none_or(|glob| !before.globs.complete.contains(&glob)) {
                note(name, resource);
            }
        });
    }
    given
}

/// The condemned contents of a snapshot. Takes time proportional to the number of condemned contents.
pub fn condemned_in(snapshot: &Snapshot, condemned: &CondemnedContents) -> Vec<Content> {
    let contents = condemned.latest_first().map(|(_, content)| content);
    contents.filter(|content| has(snapshot, content)).cloned().collect()
}

fn has(snapshot: &Snapshot, content: &Content) -> bool {
    let (type_url, name, version) = content;
    let types = snapshot.of(type_url).into_iter();
    let mut bodies = types.flat_map(|types| CollectionKind::ALL.map(|kind| types.body(kind, name))).flatten();
    bodies.any(|body| body.version == *version)
}

fn new_members(before: &CachedBodies, after: &CachedBodies, each: &mut dyn FnMut(&ResourceName, &Resource)) {
    for item in before.diff(after) {
        if let DiffItem::Add(name, new) = item {
            each(name, &new.resource);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use sluice_engine::cache::CachedResource;
    use sluice_engine::snapshot::LaneMark;
    use sluice_engine::time::{ReceivedAt, Time};
    use sluice_engine::upstream::Cause;
    use sluice_xds::{Any, TypeUrl, Version};

    fn type_url() -> TypeUrl {
        TypeUrl::of_message("envoy.config.cluster.v3.Cluster")
    }

    fn cached(name: &str, version: u128) -> CachedResource {
        let resource = Arc::new(Resource {
            name: name.into(),
            version: Version(version),
            body: Any { type_url: Arc::from("t"), value: Bytes::new() },
            aliases: Box::default(),
            ttl: None,
            do_not_cache: false,
            body_has_name: true,
            metadata: None,
            endpoints: None,
            constraints: None,
        });
        CachedResource { resource, received_at: ReceivedAt::default() }
    }

    fn snapshot(content: TypeSnapshot) -> Snapshot {
        Snapshot::default().with_types([(type_url(), content)].into(), LaneMark::default())
    }

    fn named(names: &[(&str, Option<Known>)]) -> Snapshot {
        let mut content = TypeSnapshot::default();
        for (name, state) in names {
            let state = state.clone().unwrap_or(Known::Unknown);
            content.names.entries.insert((*name).into(), state);
        }
        snapshot(content)
    }

    /// The names in the answer, for the condemned contents `a` 2 and `b` 2.
    fn found(before: &Snapshot, after: &Snapshot, is_gated: bool) -> Vec<String> {
        let refused = Refused::of(["a", "b"].map(|name| (type_url(), name.into(), Version(2))).into_iter());
        let gated = Gated::Types(if is_gated { vec![type_url()] } else { Vec::new() });
        let given = refused_first_answers(before, after, &refused, &gated);
        given.into_iter().map(|(_, name, _)| name.as_str().to_owned()).collect()
    }

    #[test]
    fn qua_5_a_condemned_content_counts_where_nothing_older_is_known() {
        let present = |name, version| Some(Known::Present(cached(name, version)));
        let asked = named(&[("a", None), ("c", None)]);
        let answered = named(&[("a", present("a", 2)), ("b", present("b", 2)), ("c", present("c", 2))]);
        assert_eq!(found(&Snapshot::default(), &answered, true), ["a", "b"], "the first content of a source");
        assert_eq!(found(&asked, &answered, true), ["a", "b"], "names that nobody asked for before");
        assert!(found(&asked, &answered, false).is_empty(), "a type that flows");
        let older = named(&[("a", present("a", 1)), ("b", Some(Known::Absent(Cause::Removed)))]);
        assert!(
            found(&older, &answered, true).is_empty(),
            "older content is known, also that there was none"
        );
        assert!(found(&answered, &answered, true).is_empty(), "given once");
    }

    #[test]
    fn qua_5_a_condemned_content_counts_as_long_as_a_snapshot_has_it() {
        let present = |name, version| Some(Known::Present(cached(name, version)));
        let mut condemned = CondemnedContents::default();
        for (name, version) in [("a", 2), ("a", 3), ("b", 2), ("gone", 2)] {
            condemned.put((type_url(), name.into(), Version(version)), Time::from_micros(9), ());
        }
        let mut types =
            named(&[("a", present("a", 2)), ("b", present("b", 1))]).of(&type_url()).unwrap().clone();
        types.wildcard.members.insert("a".into(), cached("a", 3));
        let contents = condemned_in(&snapshot(types), &condemned).into_iter();
        let contents: BTreeSet<_> = contents.map(|(_, name, version)| (name, version.0)).collect();
        assert_eq!(contents, BTreeSet::from([("a".into(), 2), ("a".into(), 3)]));
    }

    #[test]
    fn qua_5_a_condemned_member_counts_until_all_members_are_known() {
        let with_members = |members: &[(&str, u128)]| {
            let mut content = TypeSnapshot::default();
            for (name, version) in members {
                content.wildcard.members.insert((*name).into(), cached(name, *version));
            }
            snapshot(content)
        };
        assert_eq!(found(&with_members(&[("a", 1)]), &with_members(&[("a", 2), ("b", 2)]), true), ["b"]);
    }
}
