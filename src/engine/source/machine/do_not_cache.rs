//! A source gives up resources that the server forbids to cache or share (CCH-1).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Source;
use crate::engine::cache::SessionId;
use crate::engine::collection::{Collection, CollectionKind};
use crate::engine::source::api::Output;
use crate::engine::source::type_cache::TypeCache;
use crate::engine::upstream::Changes;
use crate::xds::{Resource, ResourceName, TypeUrl};

impl TypeCache {
    /// Takes private resources out of a response. Returns the names, or `None` for the wildcard, and the
    /// waiting sessions. A session is told once for all names of a response.
    fn give_up(&mut self, changes: &mut Changes) -> (Vec<Option<ResourceName>>, Vec<SessionId>) {
        let (private, rest): (Vec<Arc<Resource>>, _) =
            std::mem::take(&mut changes.present).into_iter().partition(|resource| resource.do_not_cache);
        changes.present = rest;
        match changes.kind {
            CollectionKind::Wildcard => {
                self.private.wildcard |= !private.is_empty();
                // Without the private members the membership is never complete.
                changes.complete &= !self.private.wildcard;
                let Some(wildcard) = self.wildcard.as_ref().filter(|_| !private.is_empty()) else {
                    return Default::default();
                };
                if changes.replaces {
                    // A member that was held before it became private is no longer renewed here, but has not
                    // left the wildcard.
                    let held = private.iter().filter_map(|resource| wildcard.member(&resource.name));
                    changes.present.extend(held.cloned());
                }
                (vec![None], wildcard.sessions().collect())
            }
            CollectionKind::Globs => {
                let globs: BTreeSet<_> = private.iter().filter_map(|resource| resource.name.glob()).collect();
                self.private.names.extend(globs.iter().cloned());
                let sessions = self.globs.sessions_of(&globs);
                (globs.into_iter().map(Some).collect(), sessions)
            }
            CollectionKind::Names => {
                for resource in &changes.present {
                    self.private.names.remove(&resource.name);
                }
                changes.by_alias.retain(|(_, resource)| !resource.do_not_cache);
                let names = private.iter().flat_map(|r| std::iter::once(&r.name).chain(&r.aliases));
                let wanted: Vec<_> =
                    names.filter(|name| self.named.known().contains_key(*name)).cloned().collect();
                self.private.names.extend(wanted.iter().cloned());
                let sessions = self.named.sessions_of(&wanted);
                (wanted.into_iter().map(Some).collect(), sessions)
            }
        }
    }
}

impl Source {
    pub(super) fn give_up_private(&mut self, changes: &mut Changes) {
        let type_url = changes.type_url.clone();
        let Some(cache) = self.types.get_mut(&type_url).filter(|_| !self.settings.private) else { return };
        let (names, sessions) = cache.give_up(changes);
        if !names.is_empty() {
            self.outputs.push_back(Output::DoNotCache { type_url, names, sessions });
        }
    }

    /// A session asks for names that have turned out to be private earlier.
    pub(super) fn divert_late(&mut self, session: SessionId, type_url: &TypeUrl, collection: &Collection) {
        let Some(cache) = self.types.get(type_url) else { return };
        let private = &cache.private;
        let names: Vec<_> = match collection {
            Collection::Wildcard => private.wildcard.then_some(None).into_iter().collect(),
            Collection::Globs(names) | Collection::Names(names) => {
                let (known, wanted) = (&private.names, names);
                // Iterates over the smaller of the two.
                if known.len() < wanted.len() {
                    known.iter().filter(|name| wanted.contains(name)).cloned().map(Some).collect()
                } else {
                    wanted.iter().filter(|name| known.contains(*name)).cloned().map(Some).collect()
                }
            }
        };
        if !names.is_empty() {
            let (type_url, sessions) = (type_url.clone(), vec![session]);
            self.outputs.push_back(Output::DoNotCache { type_url, names, sessions });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use bytes::Bytes;

    use super::*;
    use crate::engine::Time;
    use crate::engine::collection::{HashSeed, NameSet};
    use crate::engine::source::{Attachment, SourceSettings, Streams};
    use crate::engine::upstream;
    use crate::xds::{Any, Version};

    const NOW: Time = Time::ZERO;

    fn clusters() -> TypeUrl {
        TypeUrl::of_message("envoy.config.cluster.v3.Cluster")
    }

    fn source(private: bool) -> Source {
        let streams = Attachment::Streams(Box::new(Streams::new(upstream::UpstreamSettings::default())));
        Source::new(1, SourceSettings { private, ..SourceSettings::default() }, streams)
    }

    fn names(list: &str) -> Collection {
        Collection::Names(Arc::new(NameSet::of(list.split_whitespace().map(ResourceName::new), HashSeed(7))))
    }

    fn resource(name: &str) -> Resource {
        Resource {
            name: name.into(),
            version: Version(1),
            body: Any { type_url: clusters().shared(), value: Bytes::new() },
            aliases: Box::default(),
            ttl: None,
            do_not_cache: name == "b",
            body_has_name: true,
            metadata: None,
            endpoints: None,
            constraints: None,
        }
    }

    fn changes(kind: CollectionKind, present: Vec<Resource>) -> Changes {
        Changes {
            present: present.into_iter().map(Arc::new).collect(),
            complete: true,
            ..Changes::new(&clusters(), kind)
        }
    }

    /// `a` and `b` arrive; the server forbids caching of `b`.
    fn arrive(source: &mut Source, kind: CollectionKind) {
        source.handle_changes(changes(kind, ["a", "b"].map(resource).to_vec()), NOW);
    }

    /// The names that were given up (`*` for the wildcard), and the sessions that were told.
    fn given_up(source: &mut Source) -> Vec<(String, Vec<u64>)> {
        let outputs = std::iter::from_fn(|| source.poll_output());
        let told = outputs.filter_map(|output| match output {
            Output::DoNotCache { names, sessions, .. } => {
                let name = |name: Option<ResourceName>| name.map_or("*".to_owned(), |name| name.to_string());
                let name = names.into_iter().map(name).collect::<Vec<_>>().join(" ");
                Some((name, sessions.into_iter().map(|session| session.0).collect()))
            }
            _ => None,
        });
        told.collect()
    }

    fn holds(source: &mut Source, name: &str) -> bool {
        let snapshot = source.snapshot();
        let types = snapshot.of(&clusters()).unwrap();
        let named = types.names.known.get(name).is_some_and(|known| known.resource().is_some());
        named || types.wildcard.members.contains_key(name)
    }

    #[test]
    fn cch_1_a_shared_source_keeps_no_copy_and_tells_who_waits() {
        let mut source = source(false);
        source.watch(SessionId(1), &clusters(), &names("a b"), NOW);
        source.watch(SessionId(2), &clusters(), &names("b"), NOW);
        source.watch(SessionId(3), &clusters(), &names("a"), NOW);
        arrive(&mut source, CollectionKind::Names);
        assert_eq!(given_up(&mut source), [("b".to_owned(), vec![1, 2])]);
        assert!(!holds(&mut source, "b"));
        // The server has answered: a late session would wait forever.
        source.watch(SessionId(4), &clusters(), &names("b a"), NOW);
        assert_eq!(given_up(&mut source), [("b".to_owned(), vec![4])]);
        assert!(holds(&mut source, "a"));
    }

    #[test]
    fn cch_1_who_comes_late_to_a_glob_with_such_a_member_is_told_too() {
        let mut source = source(false);
        let glob = ResourceName::new("xdstp://x/envoy.config.cluster.v3.Cluster/*");
        let globs = Collection::Globs(Arc::new(NameSet::of([glob.clone()], HashSeed(7))));
        source.watch(SessionId(1), &clusters(), &globs, NOW);
        let mut member = resource("xdstp://x/envoy.config.cluster.v3.Cluster/b");
        member.do_not_cache = true;
        source.handle_changes(changes(CollectionKind::Globs, vec![member]), NOW);
        assert_eq!(given_up(&mut source), [(glob.to_string(), vec![1])]);
        source.watch(SessionId(2), &clusters(), &globs, NOW);
        assert_eq!(given_up(&mut source), [(glob.to_string(), vec![2])]);
    }

    #[test]
    fn cch_1_a_wildcard_with_such_a_member_is_never_whole() {
        let mut source = source(false);
        source.watch(SessionId(1), &clusters(), &Collection::Wildcard, NOW);
        arrive(&mut source, CollectionKind::Wildcard);
        assert_eq!(given_up(&mut source), [("*".to_owned(), vec![1])]);
        let snapshot = source.take_snapshot().unwrap();
        let types = snapshot.of(&clusters()).unwrap();
        assert!(!types.wildcard.members.contains_key("b"));
        assert!(!types.wildcard.view.as_ref().unwrap().is_complete());
        source.watch(SessionId(2), &clusters(), &Collection::Wildcard, NOW);
        assert_eq!(given_up(&mut source), [("*".to_owned(), vec![2])]);
    }

    #[test]
    fn cch_1_a_stream_is_told_once_of_all_names_of_a_response() {
        let mut source = source(false);
        source.watch(SessionId(1), &clusters(), &names("b c d"), NOW);
        source.watch(SessionId(2), &clusters(), &names("c d e"), NOW);
        let private = ["b", "c", "d"].map(|name| Resource { do_not_cache: true, ..resource(name) });
        source.handle_changes(changes(CollectionKind::Names, private.to_vec()), NOW);
        assert_eq!(given_up(&mut source), [("b c d".to_owned(), vec![1, 2])]);
        source.watch(SessionId(3), &clusters(), &names("b d x y z"), NOW);
        assert_eq!(given_up(&mut source), [("b d".to_owned(), vec![3])]);
    }

    /// I4: a session polls between the response and the answer of the private source.
    #[test]
    fn cch_1_a_member_that_becomes_private_has_not_left_the_wildcard() {
        let mut source = source(false);
        source.watch(SessionId(1), &clusters(), &Collection::Wildcard, NOW);
        let full = |present| Changes { replaces: true, ..changes(CollectionKind::Wildcard, present) };
        let shared = |name| Resource { do_not_cache: false, ..resource(name) };
        source.handle_changes(full(vec![shared("a"), shared("b"), shared("c")]), NOW);
        source.handle_changes(full(vec![shared("a"), resource("b")]), NOW);
        assert_eq!(given_up(&mut source), [("*".to_owned(), vec![1])]);
        let held: Vec<_> = ["a", "b", "c"].into_iter().filter(|name| holds(&mut source, name)).collect();
        assert_eq!(held, ["a", "b"]);
    }

    #[test]
    fn rly_20_a_private_source_takes_it() {
        let mut source = source(true);
        source.watch(SessionId(1), &clusters(), &names("a b"), NOW);
        arrive(&mut source, CollectionKind::Names);
        assert_eq!(given_up(&mut source), []);
        assert!(holds(&mut source, "b"));
    }
}
