//! FED-3 to FED-7, NAM-3, NAM-4, RLY-10, RLY-53, RLY-76: one downstream stream, several control planes.

use crate::bench::Bench;
use crate::support::{Ask, CDS, Client, ControlPlane, EDS, LDS, RDS, Setup, Variant};

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
const ASSIGNMENT: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";

/// A list of this one server.
fn list(origin: &ControlPlane, upstream: Variant) -> String {
    let (address, api_type) = (origin.address, upstream.api_type());
    format!(
        "{{ xds_servers: [ {{ server_uri: \"{address}\", channel_creds: [ {{ type: insecure }} ], \
         api_type: {api_type}, resource_timeout: 1s }} ] }}"
    )
}

fn name(authority: &str, message: &str, id: &str) -> String {
    format!("xdstp://{authority}/{message}/{id}")
}

/// The default list, and another control plane for the names that the `entry` of `key` selects.
async fn two(key: &str, entry: &str, upstream: Variant) -> Option<(Bench, ControlPlane)> {
    let other = ControlPlane::obedient().await;
    let line = format!("{key}: {{ \"{entry}\": {} }}", list(&other, upstream));
    let bench = Bench::with(|setup: Setup| setup.upstream(upstream).line(&line)).await?;
    Some((bench, other))
}

async fn types_of(origin: &ControlPlane) -> Vec<String> {
    let mut types: Vec<String> = origin.log().into_iter().map(|recorded| recorded.ask.type_url).collect();
    types.sort_unstable();
    types.dedup();
    types
}

#[tokio::test]
async fn rly_53_one_stream_carries_clusters_of_one_control_plane_and_endpoints_of_another() {
    for upstream in Variant::BOTH {
        for variant in Variant::BOTH {
            let Some((bench, endpoints)) = two("types", ASSIGNMENT, upstream).await else { return };
            bench.origin.set(CDS, "c", "1");
            bench.origin.set(LDS, "l", "1");
            bench.origin.set(RDS, "r", "1");
            // The first control plane has the resource too, but must not be asked.
            bench.origin.set(EDS, "c", "wrong");
            endpoints.set(EDS, "c", "1");
            let mut client = bench.client(variant, "one").await;
            client.want(CDS, &["*"]);
            client.want(EDS, &["c"]);
            client.want(LDS, &["*"]);
            client.want(RDS, &["r"]);
            for type_url in [CDS, EDS, LDS, RDS] {
                client
                    .settle(
                        type_url,
                        &[(
                            if type_url == LDS {
                                "l"
                            } else if type_url == RDS {
                                "r"
                            } else {
                                "c"
                            },
                            "1",
                        )],
                    )
                    .await;
            }
            endpoints.set(EDS, "c", "2");
            client.settle(EDS, &[("c", "2")]).await;
            bench.origin.set(CDS, "c", "2");
            client.settle(CDS, &[("c", "2")]).await;
            client.quiet().await;
            assert_eq!(types_of(&endpoints).await, [EDS], "{upstream:?} {variant:?}");
            assert!(bench.origin.requests(EDS).is_empty(), "{upstream:?} {variant:?}");
        }
    }
}

/// ORD-5 holds across two control planes: endpoints follow a changed cluster, although the endpoints are
/// unchanged.
#[tokio::test]
async fn ord_5_rly_53_endpoints_of_another_control_plane_follow_a_changed_cluster() {
    for variant in Variant::BOTH {
        let Some((bench, endpoints)) = two("types", ASSIGNMENT, Variant::Delta).await else { return };
        let cluster = |text: &str| crate::support::words::eds_cluster("c", "e", text);
        bench.origin.change(|world| world.set(CDS, "c", cluster("1"), true));
        endpoints.set(EDS, "e", "1");
        let mut client = bench.client(variant, "one").await;
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        client.want(EDS, &["e"]);
        client.take(EDS).await;
        bench.origin.change(|world| world.set(CDS, "c", cluster("2"), true));
        assert_eq!(client.take(CDS).await.get("c").text(), "2");
        assert_eq!(client.take(EDS).await.names(), ["e"]);
    }
}

/// The loss of one control plane changes nothing in the types of the other.
#[tokio::test]
async fn rly_53_the_loss_of_one_control_plane_is_not_felt_in_the_types_of_the_other() {
    for variant in Variant::BOTH {
        let Some((bench, mut endpoints)) = two("types", ASSIGNMENT, Variant::Delta).await else { return };
        bench.origin.set(CDS, "c", "1");
        endpoints.set(EDS, "e", "1");
        endpoints.down().await;
        let mut client = bench.client(variant, "one").await;
        client.want(EDS, &["e"]);
        client.want(CDS, &["*"]);
        client.settle(CDS, &[("c", "1")]).await;
        bench.origin.set(CDS, "c", "2");
        client.settle(CDS, &[("c", "2")]).await;
        endpoints.up().await;
        client.settle(EDS, &[("e", "1")]).await;
        endpoints.down().await;
        bench.origin.set(CDS, "c", "3");
        client.settle(CDS, &[("c", "3")]).await;
        client.quiet().await;
    }
}

#[tokio::test]
async fn fed_3_fed_7_names_go_to_the_servers_of_their_authority() {
    for upstream in Variant::BOTH {
        for variant in Variant::BOTH {
            let Some((bench, other)) = two("authorities", "b.example", upstream).await else { return };
            let theirs = name("b.example", CLUSTER, "x");
            bench.origin.set(CDS, "x", "1");
            bench.origin.set(CDS, &theirs, "wrong");
            other.set(CDS, &theirs, "1");
            other.set(CDS, "x", "wrong");
            let mut client = bench.client(variant, "one").await;
            client.want(CDS, &["x", &theirs]);
            client.settle(CDS, &[("x", "1"), (&theirs, "1")]).await;
            other.set(CDS, &theirs, "2");
            client.settle(CDS, &[("x", "1"), (&theirs, "2")]).await;
            bench.origin.set(CDS, "x", "2");
            client.settle(CDS, &[("x", "2"), (&theirs, "2")]).await;
            let asked = |origin: &ControlPlane| -> Vec<String> {
                let asks = origin.requests(CDS).into_iter().map(|recorded| recorded.ask);
                let mut names: Vec<_> =
                    asks.flat_map(|ask| ask.names.into_iter().chain(ask.subscribe)).collect();
                names.sort_unstable();
                names.dedup();
                names
            };
            assert_eq!(asked(&bench.origin), ["x"]);
            assert_eq!(asked(&other), [theirs]);
        }
    }
}

/// An error for this name only, without any upstream contact.
#[tokio::test]
async fn fed_3_a_name_of_an_unknown_authority_does_not_exist() {
    for variant in Variant::BOTH {
        let Some((bench, other)) = two("authorities", "b.example", Variant::Delta).await else { return };
        let (unknown, theirs) = (name("c.example", CLUSTER, "x"), name("b.example", CLUSTER, "x"));
        let mut client = bench.client(variant, "one").await;
        client.want(CDS, &[&unknown]);
        let answer = client.take(CDS).await;
        assert!(answer.items.is_empty());
        if variant == Variant::Delta {
            assert_eq!(answer.removed, [unknown.as_str()]);
        } else {
            let error = &answer.errors[&unknown];
            assert_eq!(error.code, 5, "NOT_FOUND");
            assert!(error.message.contains("c.example"), "{error:?}");
        }
        assert_eq!((bench.origin.opened(), other.opened()), (0, 0), "no control plane was asked");
        // Neighbours of the name on the same stream are served.
        other.set(CDS, &theirs, "1");
        bench.origin.set(CDS, "x", "1");
        client.want(CDS, &["x", &unknown, &theirs]);
        client.settle(CDS, &[("x", "1"), (&theirs, "1")]).await;
        for origin in [&bench.origin, &other] {
            let named = |ask: &crate::support::Ask| ask.subscribe.contains(&unknown);
            assert!(!origin.log().iter().any(|recorded| named(&recorded.ask)));
        }
        bench.warned_of("authorit").await;
    }
}

/// `xdstp:///` is looked up under "", apart from old-style names.
#[tokio::test]
async fn nam_4_the_empty_authority_is_one_like_any_other() {
    for variant in Variant::BOTH {
        let Some((bench, other)) = two("authorities", "", Variant::Delta).await else { return };
        let theirs = name("", ASSIGNMENT, "x");
        bench.origin.set(EDS, "x", "1");
        bench.origin.set(EDS, &theirs, "wrong");
        other.set(EDS, &theirs, "1");
        let mut client = bench.client(variant, "one").await;
        client.want(EDS, &["x", &theirs]);
        client.settle(EDS, &[("x", "1"), (&theirs, "1")]).await;
        assert_eq!(other.expect(EDS).await.ask.subscribe, [theirs]);
    }
}

/// Without any `authorities`, the default list answers for all names.
#[tokio::test]
async fn nam_21_without_authorities_the_default_servers_are_asked() {
    for variant in Variant::BOTH {
        let Some(bench) = Bench::relay(Variant::Delta).await else { return };
        let theirs = name("b.example", ASSIGNMENT, "x");
        bench.origin.set(EDS, &theirs, "1");
        let mut client = bench.client(variant, "one").await;
        client.want(EDS, &[&theirs]);
        client.settle(EDS, &[(&theirs, "1")]).await;
    }
}

/// An authority without a list inherits the default list: shared connections, separate caches.
#[tokio::test]
async fn fed_3_fed_6_an_authority_may_inherit_the_default_servers() {
    let authorities = "authorities: { a.example: {}, b.example: {} }";
    let Some(bench) = Bench::with(|setup| setup.line(authorities)).await else { return };
    let names = ["a.example", "b.example"].map(|authority| name(authority, ASSIGNMENT, "x"));
    for name in names.iter().map(String::as_str).chain(["x"]) {
        bench.origin.set(EDS, name, "1");
    }
    let mut client = bench.delta("one").await;
    client.want(EDS, &["x", &names[0], &names[1]]);
    client.settle(EDS, &[("x", "1"), (&names[0], "1"), (&names[1], "1")]).await;
    assert_eq!(bench.origin.live_streams(), 3);
    let (_, metrics) = bench.process().get("/metrics").await;
    let connections = format!("sluice_upstream_connections{{server=\"{}\"}} 1", bench.origin.address);
    assert!(metrics.contains(&connections), "{metrics}");
}

/// RLY-76: each response names the server behind it; `/sources` lists the subscriptions at each server.
#[tokio::test]
async fn rly_76_who_answered_is_said() {
    let Some((bench, other)) = two("types", ASSIGNMENT, Variant::Delta).await else { return };
    bench.origin.set(CDS, "c", "1");
    other.set(EDS, "e", "1");
    let mut client = bench.delta("one").await;
    client.want(CDS, &["*"]);
    let via = |origin: &ControlPlane| format!("sluice-test via {}", origin.address);
    assert_eq!(client.take(CDS).await.control_plane, via(&bench.origin));
    client.want(EDS, &["e"]);
    assert_eq!(client.take(EDS).await.control_plane, via(&other));
    let (_, sources) = bench.process().get("/sources").await;
    for (origin, list) in
        [(&bench.origin, "xds_servers".to_owned()), (&other, format!("types[{ASSIGNMENT}]"))]
    {
        let pair = format!("\"server\":\"{}\",\"list\":\"{list}\"", origin.address);
        assert!(sources.contains(&pair), "{sources}");
    }
    let (_, clients) = bench.process().get("/clients").await;
    for origin in [&bench.origin, &other] {
        assert!(clients.contains(&origin.address.to_string()), "{clients}");
    }
    let (_, metrics) = bench.process().get("/metrics").await;
    let labels =
        format!("{{server=\"{}\",list=\"types[{ASSIGNMENT}]\",state=\"connected\"}} 1", other.address);
    assert!(metrics.contains(&labels), "{metrics}");
    let (_, ready) = bench.process().get("/ready").await;
    assert!(ready.contains(&format!("\"lists\":[\"types[{ASSIGNMENT}]\"]")), "{ready}");
}

/// A stream releases a source after its last subscription there; a source without streams ends.
#[tokio::test]
async fn rly_60_a_source_that_a_stream_left_is_not_kept_by_it() {
    let other = ControlPlane::obedient().await;
    let line = format!("authorities: {{ b.example: {} }}", list(&other, Variant::Delta));
    let Some(bench) = Bench::with(|setup| setup.line(&line).line("linger: 0s")).await else { return };
    let theirs = name("b.example", ASSIGNMENT, "x");
    other.set(EDS, &theirs, "1");
    bench.origin.set(EDS, "x", "1");
    let mut client = bench.sotw("one").await;
    client.want(EDS, &[&theirs]);
    client.take(EDS).await;
    client.want(EDS, &["x"]);
    client.take(EDS).await;
    other.wait_for("its stream ends", |other| other.live_streams() == 0).await;
    crate::support::control_plane::eventually("its source ends", || async {
        !bench.process().get("/sources").await.1.contains(&other.address.to_string())
    })
    .await;
    // The source starts again with the next subscription.
    client.want(EDS, &["x", &theirs]);
    client.settle(EDS, &[("x", "1"), (&theirs, "1")]).await;
}

/// One client's list of names goes from one authority to another and back.
#[tokio::test]
async fn fed_7_names_change_from_one_authority_to_another() {
    for variant in Variant::BOTH {
        let Some((bench, other)) = two("authorities", "b.example", Variant::Delta).await else { return };
        let theirs = name("b.example", ASSIGNMENT, "x");
        bench.origin.set(EDS, "x", "1");
        other.set(EDS, &theirs, "1");
        let mut client: Client = bench.client(variant, "one").await;
        for round in 0..3 {
            let (wanted, gone) = if round % 2 == 0 { ("x", theirs.as_str()) } else { (theirs.as_str(), "x") };
            match variant {
                Variant::Sotw => client.want(EDS, &[wanted]),
                Variant::Delta => {
                    client.send(crate::support::Ask::of(EDS).subscribe(&[wanted]).unsubscribe(&[gone]));
                }
            }
            assert_eq!(client.take(EDS).await.names(), [wanted]);
        }
        client.quiet().await;
    }
}

/// RLY-5: an authority that is down delays no client that may not have its names; nor does the outage of both
/// authorities. A client that may have the names waits, and metrics show the wait.
#[tokio::test]
async fn rly_5_a_dead_authority_withholds_no_cluster_of_another() {
    let Some((mut bench, mut other)) = two("authorities", "dead", Variant::Delta).await else { return };
    other.down().await;
    bench.origin.set(CDS, "c", "1");
    let dead = name("dead", CLUSTER, "x");
    let mut keeper = bench.sotw("keeper").await;
    keeper.want(CDS, &["c"]);
    keeper.settle(CDS, &[("c", "1")]).await;
    let mut newcomer = bench.sotw("newcomer").await;
    newcomer.want(CDS, &["c", &dead]);
    let mut returning = bench.sotw("returning").await;
    returning.send(Ask::of(CDS).names(&["c", &dead]).version("7"));
    // A client that asks for more names keeps the names that it has.
    keeper.want(CDS, &["c", &dead]);
    bench.origin.set(CDS, "c", "2");
    keeper.settle(CDS, &[("c", "2")]).await;
    let warnings = bench.warned_of("a client gets no update of a type").await;
    let held: Vec<_> = warnings.iter().filter(|line| line.contains("gets no update")).collect();
    assert!(held.len() == 1 && held[0].contains("returning") && held[0].contains(&dead), "{held:?}");
    assert!(held[0].contains(&other.address.to_string()), "{held:?}");
    let clients = bench.process().json("/clients?node=returning").await;
    let of_type = &clients["clients"][0]["types"][0];
    assert_eq!(
        (of_type["waits"]["name"].as_str(), of_type["why"].as_str()),
        (Some(dead.as_str()), Some("held:name"))
    );
    bench.process().metric_reaches("sluice_downstream_streams_behind", &[], 1.0).await;
    bench.origin.down().await;
    let mut late = bench.sotw("late").await;
    late.want(CDS, &["c", "uncached"]);
    for client in [&mut newcomer, &mut late] {
        client.settle(CDS, &[("c", "2")]).await;
    }
    returning.silence(std::time::Duration::from_millis(100)).await;
}
