//! Plans over several control planes, of which one goes away.

use crate::enforced::{Fleet, plan};
use crate::support::{CDS, ControlPlane, Variant};

/// A cluster of the second control plane.
const FAR: &str = "xdstp://mesh.example/envoy.config.cluster.v3.Cluster/far";

/// WAV-16, WAV-18: those who have a halted push keep it (`on_halt: stay`) while another server of the push is lost. A change begins the
/// next push after `gather.max`: its first step is given the push, and its clocks stand until the server is back.
#[tokio::test]
async fn wav_16_a_lost_server_takes_no_halted_push_from_its_clients() {
    let mut mesh = ControlPlane::obedient().await;
    mesh.set(CDS, FAR, "1");
    let authorities = format!(
        "authorities: {{ mesh.example: {{ xds_servers: [ {{ server_uri: \"{}\", channel_creds: [ {{ type: insecure }} ], \
         api_type: DELTA_GRPC }} ] }} }}",
        mesh.address
    );
    let stays = plan("percent: 50").replace("final_bake", "on_halt: stay, final_bake");
    let stays = stays.replace("bake: 1s }", "bake: 60s }");
    let mut fleet = Fleet::with(|setup| setup.line(&authorities), &stays, 20).await;
    let seated = fleet.seated_below(50.0).await;
    fleet.clients.iter_mut().for_each(|client| client.want(CDS, &["*", FAR]));
    fleet.until("the far cluster", |fleet| fleet.had(CDS, FAR, "1") == 20).await;

    // Clients of the state of the world reject, clients of delta accept.
    (fleet.accepting, _) = (Some(Variant::Delta), fleet.bad.insert("2"));
    fleet.origin.set(CDS, "a", "2");
    mesh.set(CDS, FAR, "5");
    fleet.until_plan("halt", |found| found["state"] == "halted" && found["units"] == 2).await;
    fleet.until("the first step", |fleet| fleet.had(CDS, "a", "2") == seated).await;
    let holding = |fleet: &Fleet| fleet.clients.iter().filter(|client| client.holds(CDS)["a"] == "2").count();
    let kept = holding(&fleet);
    assert!(kept > 0 && kept < seated, "{kept} of {seated} accepted the push and keep it");

    mesh.down().await;
    fleet.relay.logged("the upstream is unreachable").await;
    let found = fleet.until_plan("look at the plan", |_| true).await;
    assert_eq!((&found["state"], holding(&fleet)), (&"halted".into(), kept), "{found}");

    fleet.origin.set(CDS, "a", "3");
    let found = fleet.until_plan("pause", |found| found["state"] == "paused").await;
    let why = found["why"].as_str().unwrap();
    assert!(why.ends_with("the server of one of its units is lost"), "{why}");
    fleet.until("the next push", |fleet| fleet.had(CDS, "a", "3") == seated).await;
    assert_eq!((fleet.had(CDS, "a", "2"), holding(&fleet)), (seated, 0));

    mesh.up().await;
    fleet.until_plan("end of the pause", |found| found["state"] == "waving").await;
    assert_eq!(fleet.had(CDS, "a", "3"), seated, "the bake goes on, and nobody else was given the push");
}
