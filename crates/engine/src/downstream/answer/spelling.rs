//! The spellings in which one client asks for the names of one type, if they are not canonical (NAM-8).
//!
//! Names are stored, requested upstream and compared in their canonical spelling. A client looks up an answer
//! by the requested name, so the relay answers in the client's spelling. A client with canonical names has no
//! entries here; clients with equal spellings still share their answers.
//!
//! The spelling applies to the wrapper and to the delta `Resource`. A bare message in a SotW response
//! contains its name, and the relay does not alter the message (TYP-7): there the client reads the control
//! plane's spelling.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::authorization::TypeGrant;
use crate::collection::HashSeed;
use crate::downstream::memory::weight;
use sluice_xds::xdstp::{NameError, member_as};
use sluice_xds::{Code, ResourceName, Status, TypeUrl};

/// The maximum number of spellings of one name per client. The client is sent the resource once in each
/// spelling, and a name has an unlimited number of spellings.
pub const SPELLINGS_MAX: usize = 8;

/// Names that are requested in another spelling than the canonical spelling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spellings {
    /// All requested spellings, by canonical name; never the canonical spelling alone.
    by_name: BTreeMap<ResourceName, BTreeSet<ResourceName>>,
    id: u128,
    /// The number of spellings beyond one per name.
    extra: usize,
    crowded: Option<ResourceName>,
}

impl Spellings {
    /// Equal ids mean equal spellings, inside this process.
    pub fn id(&self) -> u128 {
        self.id
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Records a request for a name as `spelled`. `was_requested`: the name was requested before.
    pub fn insert(
        &mut self,
        name: &ResourceName,
        spelled: &ResourceName,
        was_requested: bool,
        seed: HashSeed,
    ) {
        if name == spelled && !self.by_name.contains_key(name) {
            return;
        }
        let is_new = !self.by_name.contains_key(name);
        let entry = self.by_name.entry(name.clone()).or_default();
        let before = entry.len();
        if is_new && was_requested && entry.insert(name.clone()) {
            self.id = self.id.wrapping_add(pair(name, name, seed));
        }
        if entry.insert(spelled.clone()) {
            self.id = self.id.wrapping_add(pair(name, spelled, seed));
        }
        self.extra += entry.len().saturating_sub(1) - before.saturating_sub(1);
        if entry.len() > SPELLINGS_MAX {
            self.crowded = Some(name.clone());
        }
    }

    /// The approximate memory of the names, in bytes.
    pub fn bytes(&self) -> usize {
        let spelled =
            |(name, spelled): (_, &BTreeSet<_>)| weight(name) + spelled.iter().map(weight).sum::<usize>();
        self.by_name.iter().map(spelled).sum()
    }

    /// The number of spellings beyond one per name.
    pub fn extra(&self) -> usize {
        self.extra
    }

    /// A name that was requested in more than [`SPELLINGS_MAX`] spellings: the stream must end.
    pub fn crowded(&self) -> Option<&ResourceName> {
        self.crowded.as_ref()
    }

    /// Gives up the spelling `spelled` of a name, if the name was requested so (DEL-20). Returns whether the
    /// name is still requested in another spelling.
    pub fn remove(&mut self, name: &ResourceName, spelled: &ResourceName, seed: HashSeed) -> bool {
        let Some(entry) = self.by_name.get_mut(name) else { return name != spelled };
        let before = entry.len();
        if entry.remove(spelled) {
            self.id = self.id.wrapping_sub(pair(name, spelled, seed));
        }
        self.extra -= before.saturating_sub(1) - entry.len().saturating_sub(1);
        let still_wanted = !entry.is_empty();
        if entry.len() == 1 && entry.contains(name) {
            self.id = self.id.wrapping_sub(pair(name, name, seed));
            self.by_name.remove(name);
        } else if !still_wanted {
            self.by_name.remove(name);
        }
        still_wanted
    }

    /// The spellings in which to tell a name; `None` means the canonical spelling, which is the usual case.
    /// `by_itself`: the name is requested, and not only a glob collection with the name as a member.
    pub fn of(&self, name: &ResourceName, by_itself: bool) -> Option<BTreeSet<ResourceName>> {
        let by_name = self.by_name.get(name);
        let globs = name.glob().and_then(|glob| self.by_name.get(&glob));
        if by_name.is_none() && globs.is_none() {
            return None;
        }
        let mut all = by_name.cloned().unwrap_or_default();
        if by_name.is_none() && by_itself {
            all.insert(name.clone());
        }
        let members = globs.into_iter().flatten().filter_map(|glob| member_as(glob.as_str(), name.as_str()));
        all.extend(members.map(ResourceName::from));
        Some(all)
    }
}

fn pair(name: &ResourceName, spelled: &ResourceName, seed: HashSeed) -> u128 {
    // The pair need not be symmetric: no name is both canonical and another name's spelling.
    seed.hash(name).rotate_left(1) ^ seed.hash(spelled)
}

/// The reason why a name is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// Malformed, or of another type than the request (NAM-5).
    Malformed(NameError),
    /// The client may not ask for the name (AUT-8).
    Denied(Arc<Status>),
}

impl RefusalReason {
    fn to_error(&self) -> Arc<Status> {
        match self {
            RefusalReason::Malformed(error) => {
                Arc::new(Status::new(Code::InvalidArgument, error.to_string()))
            }
            RefusalReason::Denied(status) => status.clone(),
        }
    }
}

/// Refused names. They are requested from no server, and known to be absent.
#[derive(Clone, Debug, Default)]
pub struct Refusals {
    names: BTreeMap<ResourceName, RefusalReason>,
    /// Names whose refusal the client has not been told.
    untold: BTreeSet<ResourceName>,
}

impl Refusals {
    pub fn insert(&mut self, name: &ResourceName, reason: RefusalReason) {
        self.names.insert(name.clone(), reason);
        self.untold.insert(name.clone());
    }

    pub fn remove(&mut self, name: &ResourceName) {
        self.names.remove(name);
        self.untold.remove(name);
    }

    pub fn untold(&self) -> impl Iterator<Item = &ResourceName> {
        self.untold.iter()
    }

    /// The refusals that the client has not been told, with reasons.
    fn news(&self) -> impl Iterator<Item = (&ResourceName, &RefusalReason)> {
        self.untold.iter().filter_map(|name| Some((name, self.names.get(name)?)))
    }

    /// The malformed names among the news.
    pub fn malformed_news(&self) -> impl Iterator<Item = (&ResourceName, &NameError)> {
        self.news().filter_map(|(name, reason)| match reason {
            RefusalReason::Malformed(error) => Some((name, error)),
            RefusalReason::Denied(_) => None,
        })
    }

    /// The denied names among the news.
    pub fn denied_news(&self) -> impl Iterator<Item = &ResourceName> {
        self.news().filter(|(_, reason)| matches!(reason, RefusalReason::Denied(_))).map(|(name, _)| name)
    }

    /// All denied names.
    pub fn denied(&self) -> impl Iterator<Item = &ResourceName> {
        self.names
            .iter()
            .filter(|(_, reason)| matches!(reason, RefusalReason::Denied(_)))
            .map(|(name, _)| name)
    }

    /// The news as errors for the client.
    pub fn errors(&self) -> Vec<(ResourceName, Arc<Status>)> {
        self.news().map(|(name, reason)| (name.clone(), reason.to_error())).collect()
    }

    /// The reason for which a name was refused, as an error for the client.
    pub fn reason(&self, name: &ResourceName) -> Option<Arc<Status>> {
        self.names.get(name).map(RefusalReason::to_error)
    }

    /// The first refused name behind `after`.
    pub fn next_name(&self, after: Option<&ResourceName>) -> Option<&ResourceName> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.names.range::<ResourceName, _>((from, Bound::Unbounded)).next().map(|(name, _)| name)
    }

    pub fn note_told(&mut self) {
        self.untold.clear();
    }

    /// The approximate memory of the names, in bytes.
    pub fn bytes(&self) -> usize {
        self.names.keys().map(weight).sum()
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// The spellings and refusals of a client's names of one type. Nearly no client has any.
#[derive(Clone, Debug, Default)]
pub struct NonCanonicalNames {
    pub spellings: Arc<Spellings>,
    pub refusals: Refusals,
}

impl NonCanonicalNames {
    pub fn is_empty(&self) -> bool {
        self.spellings.is_empty() && self.refusals.is_empty()
    }

    /// The keys of a complete list of names, with its spellings and refusals. Refusals in `before` were told.
    pub fn of_list<'a>(
        names: &'a [ResourceName],
        of_type: OfType<'_>,
        before: Option<&NonCanonicalNames>,
        seed: HashSeed,
    ) -> (Cow<'a, [ResourceName]>, Option<Box<NonCanonicalNames>>) {
        let is_plain =
            |name: &ResourceName| !name.is_xdstp() && (name.is_wildcard() || is_allowed(name, of_type));
        if names.iter().all(is_plain) {
            return (Cow::Borrowed(names), None);
        }
        let mut spellings = Spellings::default();
        let mut refusals = Refusals::default();
        let mut keys = BTreeSet::new();
        for name in names {
            match key_of(name, of_type) {
                Ok(key) => {
                    let key = key.unwrap_or_else(|| name.clone());
                    spellings.insert(&key, name, keys.contains(&key), seed);
                    keys.insert(key);
                }
                Err(reason) => refusals.insert(name, reason),
            }
        }
        if let Some(before) = before {
            refusals.untold.retain(|name| !before.refusals.names.contains_key(name));
        }
        let non_canonical = NonCanonicalNames { spellings: Arc::new(spellings), refusals };
        let non_canonical =
            Some(non_canonical).filter(|non_canonical| !non_canonical.is_empty()).map(Box::new);
        (Cow::Owned(keys.into_iter().collect()), non_canonical)
    }

    /// The names that are requested in a new spelling since `before`.
    pub fn respelled(
        after: Option<&NonCanonicalNames>,
        before: Option<&NonCanonicalNames>,
    ) -> Vec<ResourceName> {
        let spellings = |names: Option<&'_ NonCanonicalNames>| {
            names.map(|non_canonical| non_canonical.spellings.clone()).unwrap_or_default()
        };
        let (after, before) = (spellings(after), spellings(before));
        if after.id == before.id {
            return Vec::new();
        }
        let names: BTreeSet<_> = after.by_name.keys().chain(before.by_name.keys()).collect();
        let spelled = |spellings: &Spellings, name: &ResourceName| {
            spellings.by_name.get(name).cloned().unwrap_or_else(|| BTreeSet::from([name.clone()]))
        };
        names
            .into_iter()
            .filter(|name| !spelled(&after, name).is_subset(&spelled(&before, name)))
            .cloned()
            .collect()
    }
}

/// A type, and the client's grant for the type; without a grant every name is denied.
pub type OfType<'a> = (&'a TypeUrl, Option<&'a TypeGrant<'a>>);

/// The key of a requested name; `None` if the name is canonical. The error is the reason for the refusal. A
/// name is judged in its canonical spelling, before any look into a cache (AUT-8).
pub fn key_of(name: &ResourceName, of_type: OfType<'_>) -> Result<Option<ResourceName>, RefusalReason> {
    let key = canonical(name, of_type.0).map_err(RefusalReason::Malformed)?;
    if name.is_wildcard() || is_allowed(key.as_ref().unwrap_or(name), of_type) {
        return Ok(key);
    }
    let denied = of_type.1.map(|grant| grant.denied_name().clone());
    Err(RefusalReason::Denied(
        denied.unwrap_or_else(|| Arc::new(Status::new(Code::PermissionDenied, "denied"))),
    ))
}

/// The canonical spelling of a requested name; `None` if the name is canonical.
pub fn canonical(name: &ResourceName, type_url: &TypeUrl) -> Result<Option<ResourceName>, NameError> {
    name.canonical(type_url.message())
}

fn is_allowed(name: &ResourceName, of_type: OfType<'_>) -> bool {
    of_type.1.is_some_and(|grant| grant.allows(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: HashSeed = HashSeed(3);

    fn name(text: &str) -> ResourceName {
        ResourceName::new(text)
    }

    fn all(list: &[&str]) -> Option<BTreeSet<ResourceName>> {
        Some(list.iter().map(|text| name(text)).collect())
    }

    #[test]
    fn nam_8_a_name_is_told_in_every_spelling_in_which_it_is_asked_for() {
        let (key, other) = (name("xdstp://a/T/x?a=1&b=2"), name("xdstp://a/T/x?b=2&a=1"));
        let mut spellings = Spellings::default();
        spellings.insert(&key, &key, false, SEED);
        assert!(spellings.is_empty() && spellings.id() == 0);
        spellings.insert(&key, &other, true, SEED);
        assert_eq!(spellings.of(&key, true), all(&[key.as_str(), other.as_str()]));
        assert!(spellings.remove(&key, &other, SEED));
        assert_eq!((spellings.is_empty(), spellings.id()), (true, 0));
        spellings.insert(&key, &other, false, SEED);
        assert_eq!(spellings.of(&key, true), all(&[other.as_str()]));
        // Never asked for in this spelling: nothing is given up (DEL-20).
        assert!(spellings.remove(&key, &key, SEED));
        assert!(!spellings.remove(&key, &other, SEED));
        assert_eq!((spellings.of(&key, true), spellings.id()), (None, 0));
        assert!(!spellings.remove(&key, &key, SEED));
    }

    #[test]
    fn nam_8_members_of_a_glob_are_told_as_the_glob_was_spelled() {
        let (glob, spelled) = (name("xdstp://a/T/foo/*?a=1&b=2"), name("xdstp://a/T/foo/*?b=2&a=1"));
        let member = name("xdstp://a/T/foo/x?a=1&b=2");
        let mut spellings = Spellings::default();
        spellings.insert(&glob, &spelled, false, SEED);
        assert_eq!(spellings.of(&member, false), all(&["xdstp://a/T/foo/x?b=2&a=1"]));
        assert_eq!(spellings.of(&member, true), all(&["xdstp://a/T/foo/x?b=2&a=1", member.as_str()]));
        assert_eq!(spellings.of(&glob, true), all(&[spelled.as_str()]));
        assert_eq!(spellings.of(&name("xdstp://a/T/foo/x"), false), None);
    }
}
