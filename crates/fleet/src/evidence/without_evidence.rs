//! The resources of a push that no admitted client was sent (WAV-14).

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::push_set::{PushSet, PushType};
use sluice_engine::change::NameList;
use sluice_engine::downstream::{SentPart, SentPlace, Session, SourceId};
use sluice_xds::{ResourceName, TypeUrl};

/// The changed and added resources of a push that no admitted client was sent yet: no answer of a client is
/// about any of them. Removals are left out, since a client could not be sent a resource.
#[derive(Debug, Default)]
pub struct WithoutEvidence {
    /// Only types with such a resource.
    types: BTreeMap<(SourceId, TypeUrl), BTreeSet<ResourceName>>,
    /// The contents seen by the tally. Many clients have the same.
    seen: HashSet<SentPlace>,
}

impl WithoutEvidence {
    /// A push before its first client.
    pub fn of(push: &PushSet) -> WithoutEvidence {
        let types =
            push.units().iter().flat_map(|unit| unit.types.iter().map(|pushed| (unit.source, pushed)));
        let types = types.map(|(source, pushed)| {
            let names = pushed.names().filter(|name| name.after.is_some()).map(|name| name.name.clone());
            ((source, pushed.type_url.clone()), names.collect::<BTreeSet<_>>())
        });
        WithoutEvidence { types: types.filter(|(_, names)| !names.is_empty()).collect(), ..Self::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// Another tally begins.
    pub fn next_tally(&mut self) {
        self.seen.clear();
    }

    /// The resources by type. A resource counts for each source without evidence.
    pub fn lists(&self) -> Vec<(TypeUrl, NameList)> {
        let mut lists: BTreeMap<&TypeUrl, NameList> = BTreeMap::new();
        for ((_, type_url), names) in &self.types {
            let mut list = NameList::default();
            names.iter().for_each(|name| list.add(name));
            lists.entry(type_url).or_default().merge(&list);
        }
        lists.into_iter().map(|(type_url, names)| (type_url.clone(), names)).collect()
    }

    /// Takes away what a client was sent, ACKed or not. The client is admitted to the push.
    pub fn take_sent(&mut self, session: &Session, push: &PushSet) {
        for part in session.sent_parts() {
            if let Some((_, pushed)) = push.find(part.source(), part.type_url()) {
                self.take(part, pushed);
            }
        }
    }

    fn take(&mut self, part: SentPart<'_>, pushed: &PushType) {
        let key = (part.source(), part.type_url().clone());
        let Some(names) = self.types.get_mut(&key) else { return };
        if !self.seen.insert(part.place()) {
            return;
        }
        let content = part.content();
        pushed.names_of(&content.collection, |pushed| {
            if pushed.after.is_some() && content.held.version_of(&pushed.name) == pushed.version() {
                names.remove(&pushed.name);
            }
        });
        if names.is_empty() {
            self.types.remove(&key);
        }
    }
}
