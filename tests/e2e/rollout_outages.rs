//! Plans over several control planes, of which one goes away.

use crate::enforced::{Fleet, plan};
use crate::support::{CDS, ControlPlane, Variant};

/// A cluster of the second control plane.
const FAR: &str = "xdstp://mesh.example/envoy.config.cluster.v3.Cluster/far";

fn authority(mesh: &ControlPlane) -> String {
    format!(
        "authorities: {{ mesh.example: {{ xds_servers: [ {{ server_uri: \"{}\", channel_creds: [ {{ type: insecure }} ], \
         api_type: DELTA_GRPC }} ] }} }}",
        mesh.address
    )
}

/// WAV-16, WAV-18: those who have a halted push keep it (`on_halt: stay`) while another server of the push is lost, whatever changes. The
/// next push begins when the server is back.
#[tokio::test]
async fn wav_16_a_lost_server_takes_no_halted_push_from_its_clients() {
    let mut mesh = ControlPlane::obedient().await;
    mesh.set(CDS, FAR, "1");
    let stays = plan("percent: 50").replace("final_bake", "on_halt: stay, final_bake");
    let stays = stays.replace("bake: 1s }", "bake: 60s }");
    let mut fleet = Fleet::with(|setup| setup.line(&authority(&mesh)), &stays, 20).await;
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
    let found = fleet.until_plan("wait for the server", |found| found["waits_for_server"] == true).await;
    assert_eq!(found["state"], "halted", "{found}");
    let why = found["why"].as_str().unwrap();
    assert!(
        why.starts_with("halted push 1") && why.ends_with("; begins no push: a server cannot be heard"),
        "{why}"
    );
    assert_eq!((fleet.had(CDS, "a", "3"), holding(&fleet)), (0, kept));

    mesh.up().await;
    mesh.set(CDS, FAR, "6");
    fleet.until("the next push", |fleet| fleet.had(CDS, "a", "3") == seated).await;
    let found = fleet.until_plan("push of both units", |found| found["push"] == 2).await;
    assert_eq!(
        (&found["units"], fleet.had(CDS, "a", "2"), holding(&fleet)),
        (&2.into(), seated, 0),
        "{found}"
    );
}

/// WAV-18: a push begins without a unit whose server is lost. The change of the unit goes with the next one.
#[tokio::test]
async fn wav_18_a_push_leaves_out_a_unit_whose_server_is_lost() {
    let mut mesh = ControlPlane::obedient().await;
    mesh.set(CDS, FAR, "1");
    let slow = plan("percent: 50").replace("quiet: 100ms, max: 1s", "quiet: 3s, max: 3s");
    let mut fleet = Fleet::with(|setup| setup.line(&authority(&mesh)), &slow, 20).await;
    fleet.clients.iter_mut().for_each(|client| client.want(CDS, &["*", FAR]));
    fleet.until("the far cluster", |fleet| fleet.had(CDS, FAR, "1") == 20).await;

    mesh.set(CDS, FAR, "2");
    fleet.until_plan("change of one server", |found| found["waiting"] == 1).await;
    mesh.down().await;
    fleet.origin.set(CDS, "a", "2");
    let found = fleet.until_plan("push", |found| found["push"] == 1).await;
    assert_eq!(found["why"], "goes on without 1 unit: its server cannot be heard", "{found}");
    assert_eq!((&found["waiting"], found["left_out"].as_array().unwrap().len()), (&1.into(), 1), "{found}");
    fleet.until("the push", |fleet| fleet.had(CDS, "a", "2") == 20).await;
    assert_eq!(fleet.had(CDS, FAR, "2"), 0);

    mesh.up().await;
    mesh.set(CDS, FAR, "3");
    fleet.until("the next push", |fleet| fleet.had(CDS, FAR, "3") == 20).await;
    assert_eq!(fleet.had(CDS, FAR, "2"), 0);
}
