//! A control plane that follows the protocol to the letter, as a pure machine: its resources, and the
//! subscription and known versions of one type on one stream.

use std::collections::{BTreeMap, BTreeSet};

use super::adapter::Change;
use super::proto::Any;
use super::words::{self, Answer, Ask, Item, Variant};
use super::{MARKER, is_full_state};

/// One resource; `listed` is whether a wildcard selects the resource (a wildcard is the server's selection,
/// not all existing resources).
#[derive(Clone, Debug)]
struct Entry {
    version: String,
    body: Any,
    listed: bool,
}

/// The whole state of the control plane.
#[derive(Clone, Default)]
pub struct World {
    types: BTreeMap<String, BTreeMap<String, Entry>>,
    /// Makes every version new, unless `fixed_version` is set.
    clock: u64,
    /// The version of a control plane that changes bytes under an unchanged version (WIR-2).
    pub fixed_version: Option<String>,
    /// The name that the control plane gives itself, instead of `origin`.
    pub identifier: Option<String>,
    /// In the state of the world, a request for names is answered only if each of the names exists.
    pub demands_all: bool,
}

impl World {
    pub fn set(&mut self, type_url: &str, name: &str, body: Any, listed: bool) {
        self.clock += 1;
        let version = self.fixed_version.clone().unwrap_or_else(|| format!("origin-{}", self.clock));
        let entry = Entry { version, body, listed };
        self.types.entry(type_url.to_owned()).or_default().insert(name.to_owned(), entry);
    }

    /// A listed resource whose version is its text: the same each time that a function of a node makes it.
    pub fn put(&mut self, type_url: &str, name: &str, text: &str) {
        let (version, body) = (format!("text-{text}"), words::body(type_url, name, text));
        let entry = Entry { version, body, listed: true };
        self.types.entry(type_url.to_owned()).or_default().insert(name.to_owned(), entry);
    }

    pub fn remove(&mut self, type_url: &str, name: &str) {
        self.clock += 1;
        self.types.entry(type_url.to_owned()).or_default().remove(name);
    }

    /// Changes the version strings and not the content, like a restart of the control plane.
    pub fn restart(&mut self) {
        self.clock += 1000;
        for entry in self.types.values_mut().flat_map(BTreeMap::values_mut) {
            self.clock += 1;
            entry.version = format!("origin-{}", self.clock);
        }
    }

    /// The answer to a poll for these names, and its version; an empty list asks for all listed resources.
    pub fn poll(&self, type_url: &str, names: &[String]) -> (String, Vec<Any>) {
        let mut chosen: Vec<(String, Entry)> = match names {
            [] => self.listed(type_url).map(|(name, entry)| (name.clone(), entry.clone())).collect(),
            names => names.iter().filter_map(|n| Some((n.clone(), self.get(type_url, n)?))).collect(),
        };
        chosen.sort_by(|(a, _), (b, _)| a.cmp(b));
        let versions: Vec<String> =
            chosen.iter().map(|(name, entry)| format!("{name}={}", entry.version)).collect();
        let version = self.fixed_version.clone().unwrap_or_else(|| format!("of {}", versions.join(" ")));
        (version, chosen.into_iter().map(|(_, entry)| entry.body).collect())
    }

    /// Every type that has, or had, resources, with all its resources.
    pub fn all(&self) -> impl Iterator<Item = (&String, Vec<&Any>)> {
        self.types.iter().map(|(type_url, entries)| (type_url, entries.values().map(|e| &e.body).collect()))
    }

    /// Applies a change, and returns the difference for a server that has the resources instead. `None` if an
    /// adapter cannot express the change: a resource that no wildcard selects.
    pub fn compare(&mut self, change: impl FnOnce(&mut World)) -> Option<Vec<Change>> {
        let before = self.types.clone();
        change(self);
        let held = |types: &BTreeMap<String, BTreeMap<String, Entry>>, type_url: &str, name: &str| {
            types.get(type_url).and_then(|entries| entries.get(name)).map(|entry| entry.version.clone())
        };
        let mut changes = Vec::new();
        for (type_url, entries) in &before {
            let gone = entries.keys().filter(|name| held(&self.types, type_url, name).is_none());
            changes
                .extend(gone.map(|name| Change::Remove { type_url: type_url.clone(), name: name.clone() }));
        }
        for (type_url, entries) in &self.types {
            for (name, entry) in entries {
                if !entry.listed {
                    return None;
                }
                if held(&before, type_url, name).as_ref() != Some(&entry.version) {
                    let (version, body) = (entry.version.clone(), entry.body.clone());
                    changes.push(Change::Set { name: name.clone(), version, body });
                }
            }
        }
        Some(changes)
    }

    fn get(&self, type_url: &str, name: &str) -> Option<Entry> {
        if type_url == MARKER {
            let body = words::body(MARKER, name, "");
            return Some(Entry { version: "marker".to_owned(), body, listed: false });
        }
        self.types.get(type_url)?.get(name).cloned()
    }

    fn listed(&self, type_url: &str) -> impl Iterator<Item = (&String, &Entry)> {
        self.types.get(type_url).into_iter().flatten().filter(|(_, entry)| entry.listed)
    }
}

/// One type on one stream.
pub struct Sub {
    type_url: String,
    variant: Variant,
    names: BTreeSet<String>,
    /// The globs among the names.
    globs: BTreeSet<String>,
    wildcard: bool,
    ever_named: bool,
    first: bool,
    /// The versions that the client has.
    known: BTreeMap<String, String>,
    /// The globs that were reported to be empty.
    empty: BTreeSet<String>,
}

impl Sub {
    pub fn new(variant: Variant, type_url: &str) -> Sub {
        Sub {
            type_url: type_url.to_owned(),
            variant,
            names: BTreeSet::new(),
            globs: BTreeSet::new(),
            wildcard: false,
            ever_named: false,
            first: true,
            known: BTreeMap::new(),
            empty: BTreeSet::new(),
        }
    }

    pub fn request(&mut self, world: &World, ask: &Ask) -> Option<Answer> {
        let answer = match self.variant {
            Variant::Sotw => self.sotw_request(world, ask),
            Variant::Delta => self.delta_request(world, ask),
        };
        self.first = false;
        answer
    }

    /// The next response after a change of the world.
    pub fn changed(&mut self, world: &World) -> Option<Answer> {
        match self.variant {
            Variant::Sotw => self.sotw_answer(world, &BTreeSet::new(), false),
            Variant::Delta => self.delta_answer(world, &BTreeSet::new(), false),
        }
    }

    fn sotw_request(&mut self, world: &World, ask: &Ask) -> Option<Answer> {
        let had_wildcard = self.wildcard;
        self.ever_named |= !ask.names.is_empty();
        self.wildcard = !self.ever_named || ask.names.iter().any(|name| name == "*");
        let names: BTreeSet<String> = ask.names.iter().filter(|name| *name != "*").cloned().collect();
        let added: BTreeSet<String> = names.difference(&self.names).cloned().collect();
        self.names = names;
        let visible = self.visible(world);
        self.known.retain(|name, _| visible.contains_key(name));
        let must = !added.is_empty() || (self.wildcard && !had_wildcard);
        self.sotw_answer(world, &added, must)
    }

    fn sotw_answer(&mut self, world: &World, added: &BTreeSet<String>, must: bool) -> Option<Answer> {
        let visible = self.visible(world);
        let held = |name: &String, entry: &Entry| self.known.get(name) == Some(&entry.version);
        let full = self.wildcard || is_full_state(&self.type_url);
        let has_changes = visible.iter().any(|(name, entry)| !held(name, entry))
            || self.known.keys().any(|name| !visible.contains_key(name));
        let is_unsubscribed = self.names.is_empty() && !self.wildcard;
        if is_unsubscribed
            || world.demands_all && self.names.iter().any(|name| !visible.contains_key(name))
            || !(has_changes || must && (full || added.iter().any(|name| visible.contains_key(name))))
        {
            return None;
        }
        let chosen: Vec<(String, Entry)> = visible
            .into_iter()
            .filter(|(name, entry)| full || added.contains(name) || !held(name, entry))
            .collect();
        if chosen.is_empty() && !full {
            return None;
        }
        if full {
            self.known.clear();
        }
        Some(self.answer(world, chosen, Vec::new()))
    }

    fn delta_request(&mut self, world: &World, ask: &Ask) -> Option<Answer> {
        let had_wildcard = self.wildcard;
        if self.first {
            self.wildcard = ask.subscribe.is_empty() && ask.unsubscribe.is_empty();
            self.known = ask.initial.clone().into_iter().collect();
        }
        let mut forced = BTreeSet::new();
        for name in &ask.subscribe {
            if name == "*" {
                self.wildcard = true;
            } else {
                self.names.insert(name.clone());
                if is_glob(name) {
                    self.globs.insert(name.clone());
                }
                if !(self.first && ask.initial.contains_key(name)) {
                    forced.insert(name.clone());
                }
            }
        }
        for name in &ask.unsubscribe {
            if name == "*" {
                self.wildcard = false;
            } else if self.names.remove(name) {
                self.globs.remove(name);
                self.empty.remove(name);
                forced.remove(name);
                if self.wildcard {
                    forced.insert(name.clone());
                }
            }
        }
        if !self.wildcard {
            let names = &self.names;
            let is_member = |name: &String| glob_of(name).is_some_and(|glob| names.contains(&glob));
            self.known.retain(|name, _| names.contains(name) || is_member(name));
        }
        self.delta_answer(world, &forced, self.wildcard && !had_wildcard)
    }

    fn delta_answer(&mut self, world: &World, forced: &BTreeSet<String>, must: bool) -> Option<Answer> {
        let visible = self.visible(world);
        let empty = visible.is_empty();
        let members: BTreeSet<String> = match self.globs.is_empty() {
            true => BTreeSet::new(),
            false => visible.keys().filter_map(|member| glob_of(member)).collect(),
        };
        // An empty collection is reported under its own name (NAM-16), the members of a new collection under
        // theirs.
        let is_full = |name: &String| self.globs.contains(name) && members.contains(name);
        self.empty.retain(|glob| !members.contains(glob));
        let unreported = self.globs.difference(&members).filter(|glob| !self.empty.contains(*glob));
        let forced =
            &forced.iter().filter(|name| !is_full(name)).chain(unreported).cloned().collect::<BTreeSet<_>>();
        let is_gone = |name: &&String| !visible.contains_key(*name);
        let removed: BTreeSet<&String> = self.known.keys().chain(forced).filter(is_gone).collect();
        let removed: Vec<String> = removed.into_iter().cloned().collect();
        let chosen: Vec<(String, Entry)> = visible
            .into_iter()
            .filter(|(name, e)| forced.contains(name) || self.known.get(name) != Some(&e.version))
            .collect();
        if chosen.is_empty() && removed.is_empty() && !(must && empty) {
            return None;
        }
        Some(self.answer(world, chosen, removed))
    }

    fn answer(&mut self, world: &World, chosen: Vec<(String, Entry)>, removed: Vec<String>) -> Answer {
        for (name, entry) in &chosen {
            self.known.insert(name.clone(), entry.version.clone());
        }
        for name in &removed {
            self.known.remove(name);
            if self.globs.contains(name) {
                self.empty.insert(name.clone());
            }
        }
        let item = |(name, entry): (String, Entry)| Item {
            name,
            version: entry.version,
            body: Some(entry.body),
            ..Item::default()
        };
        Answer {
            type_url: self.type_url.clone(),
            version: world.fixed_version.clone().unwrap_or_else(|| format!("origin-{}", world.clock)),
            items: chosen.into_iter().map(item).collect(),
            removed,
            control_plane: world.identifier.clone().unwrap_or_else(|| "origin".to_owned()),
            ..Answer::default()
        }
    }

    fn visible(&self, world: &World) -> BTreeMap<String, Entry> {
        let mut visible = BTreeMap::new();
        if self.wildcard {
            visible.extend(world.listed(&self.type_url).map(|(name, entry)| (name.clone(), entry.clone())));
        }
        let all = world.types.get(&self.type_url);
        if !self.globs.is_empty() {
            let is_member = |name: &String| glob_of(name).is_some_and(|glob| self.globs.contains(&glob));
            let members = all.into_iter().flatten().filter(|(name, _)| is_member(name));
            visible.extend(members.map(|(name, entry)| (name.clone(), entry.clone())));
        }
        // By the shorter way: clients may ask for very many names that do not exist.
        match all.filter(|all| all.len() < self.names.len() && self.type_url != MARKER) {
            Some(all) => {
                let named = all.iter().filter(|(name, _)| self.names.contains(*name));
                visible.extend(named.map(|(name, entry)| (name.clone(), entry.clone())));
            }
            None => {
                let named =
                    self.names.iter().filter_map(|name| Some((name, world.get(&self.type_url, name)?)));
                visible.extend(named.map(|(name, entry)| (name.clone(), entry)));
            }
        }
        visible
    }
}

fn is_glob(name: &str) -> bool {
    name.starts_with("xdstp://") && name.split('?').next().unwrap_or_default().ends_with("/*")
}

/// The collection of a name: one level up, with the same context parameters (NAM-14).
fn glob_of(name: &str) -> Option<String> {
    let (path, context) = name.split_at(name.find('?').unwrap_or(name.len()));
    let (parent, last) = path.rsplit_once('/')?;
    (name.starts_with("xdstp://") && last != "*").then(|| format!("{parent}/*{context}"))
}
