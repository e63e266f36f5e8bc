//! `GET /versions`: the versions of a resource that clients hold, and the clients that rejected them (TRU-4).
//!
//! A walk over the streams answers each request; nothing is counted before (TRU-2). An ACK says that a client
//! accepted a version, not that the client uses the version (TRU-5).

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use axum::Json;
use axum::extract::State as Shared;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use sluice_admin_api::names::{HeldVersions, VersionRejection, VersionTally};
use sluice_admin_api::parameters::NameParameters;

use super::client::canonical;
use super::item::rfc_3339;
use super::list::{ITEMS_PER_TURN, WALKS};
use super::params::{Declined, bad_request, not_found, read};
use super::standings;
use super::state::Admin;
use super::types;
use super::who::unknown_name;
use crate::driver::api::clients::{HeldVersion, Holding};
use crate::driver::api::content::Release;
use crate::driver::api::status::Why;
use sluice_xds::{ResourceName, TypeUrl, Version};

/// Versions in an answer.
const VERSIONS_MAX: usize = 100;

/// Versions that a walk tells apart. Classes with contents of their own have a version each.
const VERSIONS_SEEN_MAX: usize = 10_000;

/// User agents that a walk tells apart for each version. Clients choose these texts.
const USER_AGENTS_MAX: usize = 50;

/// Clients in a version's list of rejections.
const REJECTIONS_MAX: usize = 100;

/// The name for user agents without room.
const OTHERS: &str = "others";

/// A rejection during a walk.
#[derive(Debug)]
struct Blame {
    rejection: VersionRejection,
    /// The message names other resources only.
    is_about_others: bool,
}

/// One version during a walk.
#[derive(Debug, Default)]
struct Tally {
    held_by: usize,
    pending: usize,
    unsent: usize,
    rejected: usize,
    user_agents: BTreeMap<String, usize>,
    rejected_by: Vec<Blame>,
}

#[derive(Debug, Default)]
struct Walk {
    asked_by: usize,
    without: usize,
    unknown: usize,
    versions: BTreeMap<Version, Tally>,
    more: usize,
}

/// The versions of a resource in the releases of plans.
#[derive(Debug, Default)]
struct Released {
    /// Each version, and a word about it.
    is: BTreeSet<(Version, &'static str)>,
    /// The first arrival of each version.
    since: BTreeMap<Version, SystemTime>,
}

/// A version that sources have now.
#[derive(Debug, Default)]
struct LiveVersions {
    servers: Vec<String>,
    since: Option<SystemTime>,
}

/// `GET /versions?type=&name=`; without a name, the clients of the type.
pub(super) async fn versions(Shared(admin): Shared<Admin>, uri: Uri) -> Result<Response, Declined> {
    let NameParameters { r#type, name } = read(&uri)?;
    let type_name =
        r#type.ok_or_else(|| bad_request("type is missing: the type of the resource".to_owned()))?;
    let type_url = types::resolve(&admin, &type_name).await.map_err(bad_request)?;
    if name.is_some() && type_url.is_secret() {
        let text = "type is Secret, whose versions are not shown; /who counts the clients";
        return Err(bad_request(text.to_owned()));
    }
    let Some(name) = name else {
        let _turn = WALKS.acquire().await;
        return Ok(Json(standings::answer(&admin, &type_url).await).into_response());
    };
    let name = canonical(&type_url, &name);
    if !admin.relay.knows(&type_url, &name) {
        return Err(not_found(unknown_name(&admin, &type_url, &name).await));
    }
    let _turn = WALKS.acquire().await;
    let live = live(&admin, &type_url, &name);
    let released = released(&admin, &type_url, &name);
    let walk = walk(&admin, &type_url, &name).await;
    let Walk { asked_by, without, unknown, versions, mut more } = walk;
    let versions = in_order(versions, &live);
    more += versions.len().saturating_sub(VERSIONS_MAX);
    let versions = versions.into_iter().take(VERSIONS_MAX);
    let versions =
        versions.map(|(version, tally)| item(version, tally, live.get(&version), &released)).collect();
    let (r#type, name) = (type_url.message().to_owned(), name.as_str().to_owned());
    Ok(Json(HeldVersions { r#type, name, asked_by, without, unknown, versions, more }).into_response())
}

/// The versions of sources first, then those of most clients.
fn in_order(
    versions: BTreeMap<Version, Tally>,
    live: &BTreeMap<Version, LiveVersions>,
) -> Vec<(Version, Tally)> {
    let mut versions: Vec<_> = versions.into_iter().collect();
    versions.sort_by_key(|(version, tally)| (!live.contains_key(version), usize::MAX - tally.held_by));
    versions
}

/// The versions that sources have.
fn live(admin: &Admin, type_url: &TypeUrl, name: &ResourceName) -> BTreeMap<Version, LiveVersions> {
    let mut live: BTreeMap<Version, LiveVersions> = BTreeMap::new();
    for copy in admin.relay.copies(type_url.as_str(), name.as_str()) {
        let status = copy.status;
        let Some(version) = status.version else { continue };
        let holders = live.entry(version).or_default();
        holders.since = [holders.since, status.received_at].into_iter().flatten().min();
        if !holders.servers.iter().any(|server| **server == *status.server) {
            holders.servers.push(status.server.to_string());
        }
    }
    live
}

/// The versions in the plans' releases, and the condemned versions.
fn released(admin: &Admin, type_url: &TypeUrl, name: &ResourceName) -> Released {
    let mut released = Released::default();
    for content in admin.relay.released(type_url, name) {
        let is = match content.release {
            Release::Candidate => "candidate",
            Release::Stable => "stable",
        };
        released.is.insert((content.version, is));
        let since = released.since.entry(content.version).or_insert(content.received_at);
        *since = content.received_at.min(*since);
    }
    // The plan's memory, not its pushes: a content may be condemned by command, before a restart, or by a
    // push of long ago.
    let rollouts = admin.relay.rollouts();
    let condemned = rollouts.iter().flat_map(|plan| plan.condemned.versions_of(type_url, name));
    released.is.extend(condemned.map(|version| (version, "condemned")));
    released
}

async fn walk(admin: &Admin, type_url: &TypeUrl, name: &ResourceName) -> Walk {
    let mut walk = Walk::default();
    for (number, holding) in admin.relay.holdings(type_url, name).enumerate() {
        walk.add(holding, name);
        if number % ITEMS_PER_TURN == ITEMS_PER_TURN - 1 {
            tokio::task::yield_now().await;
        }
    }
    walk
}

impl Walk {
    fn add(&mut self, holding: Holding, resource: &ResourceName) {
        let Some(name) = &holding.name else { return };
        self.asked_by += 1;
        match name.has {
            Some(HeldVersion::Known(version)) => {
                if let Some(tally) = self.tally(version) {
                    tally.held_by += 1;
                    tally.agent(&holding.user_agent);
                }
            }
            Some(HeldVersion::Unknown) => self.unknown += 1,
            None => self.without += 1,
        }
        let (Some(due), Some(why)) = (name.should, name.why) else { return };
        let Some(tally) = self.tally(due) else { return };
        match why {
            Why::Rejected => tally.reject(holding, resource),
            Why::Unacked => tally.pending += 1,
            _ => tally.unsent += 1,
        }
    }

    fn tally(&mut self, version: Version) -> Option<&mut Tally> {
        if self.versions.len() >= VERSIONS_SEEN_MAX && !self.versions.contains_key(&version) {
            self.more += 1;
            return None;
        }
        Some(self.versions.entry(version).or_default())
    }
}

impl Tally {
    fn agent(&mut self, user_agent: &str) {
        let is_full = self.user_agents.len() >= USER_AGENTS_MAX && !self.user_agents.contains_key(user_agent);
        let key = if is_full { OTHERS } else { user_agent };
        *self.user_agents.entry(key.to_owned()).or_default() += 1;
    }

    fn reject(&mut self, holding: Holding, resource: &ResourceName) {
        self.rejected += 1;
        if self.rejected_by.len() >= REJECTIONS_MAX {
            return;
        }
        let nack = holding.nack;
        let names_it = nack.as_ref().is_some_and(|nack| nack.names.contains(resource));
        let is_about_others = nack.as_ref().is_some_and(|nack| !nack.names.is_empty()) && !names_it;
        let rejection = VersionRejection {
            id: holding.id,
            node: holding.node_id.to_string(),
            user_agent: holding.user_agent,
            at: nack.as_ref().map(|nack| rfc_3339(nack.at)),
            message: nack.map(|nack| nack.detail.to_string()).unwrap_or_default(),
            names_it,
        };
        self.rejected_by.push(Blame { rejection, is_about_others });
    }

    /// A version is no suspect of a NACK whose text names other resources only, nor of clients whose like
    /// accepted the version.
    fn is_suspect(&self) -> bool {
        let counts = |blame: &Blame| {
            !blame.is_about_others && !self.user_agents.contains_key(&blame.rejection.user_agent)
        };
        self.rejected_by.iter().any(counts)
    }
}

fn item(version: Version, tally: Tally, live: Option<&LiveVersions>, released: &Released) -> VersionTally {
    let suspect = tally.is_suspect();
    let words = released.is.range((version, "")..).take_while(|(first, _)| *first == version);
    let of_releases = words.map(|(_, is)| *is);
    let of_release = released.since.get(&version).copied();
    let since = live.and_then(|live| live.since).into_iter().chain(of_release).min();
    let Tally { held_by, pending, unsent, rejected, user_agents, rejected_by } = tally;
    VersionTally {
        version: version.to_string(),
        is: live.map(|_| "live").into_iter().chain(of_releases).map(str::to_owned).collect(),
        servers: live.map(|live| live.servers.clone()).unwrap_or_default(),
        since: since.map(rfc_3339),
        held_by,
        pending,
        unsent,
        rejected,
        suspect,
        user_agents,
        rejected_by: rejected_by.into_iter().map(|blame| blame.rejection).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::api::clients::NameStatus;
    use crate::driver::api::status::NackStatus;

    /// A client with a version of `a`, and the reason for which it has no later one.
    fn holding(user_agent: &str, has: u128, why: Option<Why>) -> Holding {
        let name = NameStatus {
            name: ResourceName::new("a"),
            has: Some(HeldVersion::Known(Version(has))),
            should: Some(Version(2)),
            why,
            refused: None,
        };
        Holding {
            id: 7,
            node_id: "n".into(),
            user_agent: user_agent.to_owned(),
            name: Some(name),
            nack: None,
        }
    }

    /// With a NACK whose text names these resources.
    fn rejecting(user_agent: &str, names: &[&str]) -> Holding {
        let names = names.iter().copied().map(ResourceName::new).collect();
        let nack = NackStatus { version: None, detail: "bad".into(), at: SystemTime::UNIX_EPOCH, names };
        Holding { nack: Some(nack), ..holding(user_agent, 1, Some(Why::Rejected)) }
    }

    fn walk(holdings: impl IntoIterator<Item = Holding>) -> Walk {
        let mut walk = Walk::default();
        holdings.into_iter().for_each(|holding| walk.add(holding, &ResourceName::new("a")));
        walk
    }

    #[test]
    fn tru_6_a_version_is_a_suspect_until_its_text_or_a_like_client_clears_it() {
        let is_suspect = |names: &[&str], accepting: &str| {
            let walk = walk([holding(accepting, 2, None), rejecting("envoy 1", names)]);
            walk.versions[&Version(2)].is_suspect()
        };
        assert!(is_suspect(&[], "grpc 1"), "the text names no resource");
        assert!(is_suspect(&["b", "a"], "grpc 1"), "the text names this resource, too");
        assert!(!is_suspect(&["b"], "grpc 1"), "the text names another resource");
        assert!(!is_suspect(&[], "envoy 1"), "the same program accepted the version elsewhere");
        assert!(!walk([holding("envoy 1", 1, Some(Why::Unacked))]).versions[&Version(2)].is_suspect());
    }

    #[test]
    fn tru_4_pending_unsent_and_rejected_are_counted_apart() {
        let whys = [Some(Why::Unacked), Some(Why::Order), Some(Why::Order), None];
        let mut all: Vec<_> = whys.into_iter().map(|why| holding("envoy 1", 1, why)).collect();
        all.extend((0..3).map(|_| rejecting("envoy 1", &[])));
        let walk = walk(all);
        let (old, new) = (&walk.versions[&Version(1)], &walk.versions[&Version(2)]);
        assert_eq!((old.held_by, old.pending, old.unsent, old.rejected), (7, 0, 0, 0));
        assert_eq!((new.held_by, new.pending, new.unsent, new.rejected), (0, 1, 2, 3));
    }

    /// Clients choose their programs' names, and how often they reject; a class may have a version of its
    /// own.
    #[test]
    fn the_memory_of_a_walk_is_bounded() {
        let agents = USER_AGENTS_MAX + 10;
        let seen = walk((0..2 * agents).map(|n| holding(&format!("agent-{}", n % agents), 2, None)));
        let agents_seen = &seen.versions[&Version(2)].user_agents;
        assert_eq!(
            (agents_seen.len(), agents_seen[OTHERS], agents_seen["agent-0"]),
            (USER_AGENTS_MAX + 1, 20, 2)
        );

        let seen = walk((0..REJECTIONS_MAX + 5).map(|_| rejecting("envoy 1", &[])));
        let tally = &seen.versions[&Version(2)];
        assert_eq!((tally.rejected, tally.rejected_by.len()), (REJECTIONS_MAX + 5, REJECTIONS_MAX));

        let most = VERSIONS_SEEN_MAX as u128;
        let seen = walk((0..most + 3).chain([0]).map(|version| holding("envoy 1", version, None)));
        assert_eq!((seen.versions.len(), seen.more), (VERSIONS_SEEN_MAX, 3));
        assert_eq!(seen.versions[&Version(0)].held_by, 2, "a known version is counted on");
    }

    #[test]
    fn tru_4_live_versions_come_first_then_those_of_most_clients() {
        let walk = walk([1, 1, 1, 2, 3, 3].map(|version| holding("envoy 1", version, None)));
        let live = BTreeMap::from([(Version(2), LiveVersions::default())]);
        let order: Vec<_> =
            in_order(walk.versions, &live).into_iter().map(|(version, _)| version.0).collect();
        assert_eq!(order, [2, 1, 3]);
    }
}
