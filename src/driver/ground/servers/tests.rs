//! Ids of lists and servers before and after a change of the configuration.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::client::RestServer;
use crate::engine::fallback::FallbackSettings;
use crate::engine::upstream::{Transport, UpstreamSettings};
use crate::telemetry::Metrics;

const CDS: &str = "envoy.config.cluster.v3.Cluster";

fn server(uri: &str, settings: UpstreamSettings) -> Arc<Server> {
    let metrics = Metrics::new().of_server(uri).client().clone();
    let server = RestServer::new("127.0.0.1", 1, "", crate::client::ClientSettings::default(), metrics);
    Arc::new(Server { uri: uri.into(), attach: Attach::Rest { server, settings } })
}

fn servers(uris: &[&str]) -> Vec<Arc<Server>> {
    uris.iter().map(|uri| server(uri, UpstreamSettings::default())).collect()
}

fn by(policy: Policy) -> FallbackSettings {
    FallbackSettings { policy, ..FallbackSettings::default() }
}

/// Lists of authorities, each with the same server as `xds_servers`.
fn lists(authorities: &[&str]) -> ServerLists {
    let mut lists = ServerLists::new(servers(&["a", "b"]), FallbackSettings::default());
    let authority = |name: &&str| (name.to_string(), servers(&["a"]), FallbackSettings::default());
    lists.set_authorities(authorities.iter().map(authority).collect());
    lists
}

fn of_authority<'a>(lists: &'a ServerLists, name: &str) -> &'a ServerList {
    lists.route(&TypeUrl::of_message(CDS), Authority::Configured(AuthorityId::of(name)))
}

fn default(lists: &ServerLists) -> &ServerList {
    lists.route(&TypeUrl::of_message(CDS), Authority::Any)
}

fn places(list: &ServerList) -> Vec<Place> {
    list.all().map(ListedServer::place).collect()
}

#[test]
fn rel_5_fed_6_lists_keep_their_ids_when_others_come_before() {
    let (before, mut after) = (lists(&["y", "z"]), lists(&["x", "y", "z"]));
    after.add_type(TypeUrl::of_message(CDS), servers(&["c"]), FallbackSettings::default());
    for (was, is) in [
        (of_authority(&before, "y"), of_authority(&after, "y")),
        (of_authority(&before, "z"), of_authority(&after, "z")),
        (default(&before), default(&after)),
    ] {
        assert_eq!((was.id, was.key(), places(was)), (is.id, is.key(), places(is)), "{}", was.label);
        assert_eq!(after.list(was.id).unwrap().label, was.label);
    }
    let (y, z) = (of_authority(&before, "y"), of_authority(&before, "z"));
    assert_ne!((y.id, y.key()), (z.id, z.key()), "lists with the same servers share nothing");
    assert_ne!(y.at(0).place(), default(&before).at(0).place());
}

#[test]
fn rel_5_servers_keep_their_places_when_others_join_their_list() {
    let of = |uris: &[&str]| ServerLists::new(servers(uris), FallbackSettings::default());
    let (before, after) = (of(&["a", "b"]), of(&["new", "b", "a"]));
    let (was, is) = (default(&before), default(&after));
    assert_ne!(was.id, is.id, "positions in the list have other servers now");
    assert_eq!(was.key(), is.key());
    assert_eq!(was.at(0).place(), is.at(2).place());
    assert_eq!(was.at(1).place(), is.at(1).place());
    assert!(!places(was).contains(&is.at(0).place()));
}

#[test]
fn rel_5_another_kind_of_stream_is_another_server_and_another_timeout_is_not() {
    let place = |settings| {
        let lists = ServerLists::new(vec![server("a", settings)], FallbackSettings::default());
        default(&lists).at(0).place()
    };
    let base = UpstreamSettings::default;
    let rest = |refresh| Transport::Rest { refresh_delay: Duration::from_secs(refresh) };
    assert_eq!(
        place(base()),
        place(UpstreamSettings { resource_timeout: Duration::from_secs(99), ..base() })
    );
    assert_eq!(
        place(UpstreamSettings { transport: rest(1), ..base() }),
        place(UpstreamSettings { transport: rest(2), ..base() })
    );
    for other in [
        UpstreamSettings { transport: Transport::PerType, ..base() },
        UpstreamSettings { variant: Variant::Sotw, ..base() },
        UpstreamSettings { fails_on_data_errors: true, ..base() },
    ] {
        assert_ne!(place(base()), place(other));
    }
}

#[test]
fn rel_5_a_repeated_server_and_a_pair_of_envoy_have_places_of_their_own() {
    let of = |uris: &[&str], policy| ServerLists::new(servers(uris), by(policy));
    let twice = of(&["a", "a"], Policy::Grpc);
    assert_ne!(default(&twice).at(0).place(), default(&twice).at(1).place());
    let (before, after) = (of(&["a", "b"], Policy::Envoy), of(&["a", "c"], Policy::Envoy));
    assert_ne!(default(&before).at(0).place(), default(&after).at(0).place(), "its source uses both servers");
}
