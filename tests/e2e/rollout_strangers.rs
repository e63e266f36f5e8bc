//! Plans that enforce, and strangers: clients that need more node classes than there is room for (RLY-14, WAV-8).

use std::time::Duration;

use crate::enforced::{Fleet, plan};
use crate::rollout_restarts::BEFORE;
use crate::support::client::{connect, node};
use crate::support::proto::{ContextParams, Node};
use crate::support::words::Ask;
use crate::support::{CDS, Client, Variant};

const ROOM: usize = 6;

/// Streams of a single connection change their dynamic parameters without end, each to a node class of its own.
async fn overrun(fleet: &Fleet, changes: usize) -> Client {
    let mut stranger =
        Client::on(connect(&fleet.relay.address).await, Variant::Delta, Some(node("stranger")));
    stranger.want(CDS, &["*"]);
    stranger.take(CDS).await;
    for number in 0..changes {
        let params = [("round".to_owned(), number.to_string())].into();
        let params = [("any".to_owned(), ContextParams { params })].into();
        let node = Node { dynamic_parameters: params, ..node("stranger") };
        stranger.send(Ask { node: Some(node), ..Ask::of(CDS) });
    }
    stranger
}

/// WAV-8, FD4: a class sleeps under a halt, and a stranger looks for room. The class wakes with the stable content, and the plan is halted.
#[tokio::test]
async fn wav_8_no_stranger_lets_halted_content_out() {
    let limits = format!("limits: {{ node_classes: {ROOM}, changes_per_second: 20, changes_burst: 50 }}");
    let lines = format!("linger: 1s\n{limits}");
    let mut fleet = Fleet::with(|setup| setup.line(&lines), &plan("percent: 10"), 40).await;
    fleet.bad.insert("bad");
    fleet.origin.set(CDS, "a", "bad");
    fleet.until_plan("halt", |found| found["state"] == "halted").await;
    fleet.until("the way back", |fleet| fleet.all_hold(CDS, &BEFORE)).await;
    fleet.sleep().await;
    let opened = fleet.origin.opened();
    let stranger = overrun(&fleet, 500).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    // The burst, and 20 a second.
    let by_stranger = fleet.origin.opened() - opened;
    assert!(by_stranger <= 50 + 20 * 8, "{by_stranger} streams to the control plane");
    let found = fleet.relay.json("/rollouts/edge").await;
    assert_eq!(found["state"], "halted", "{found}");
    fleet.join(20).await;
    let found = fleet.relay.json("/rollouts/edge").await;
    assert!(fleet.all_hold(CDS, &BEFORE), "{found}");
    assert_eq!((fleet.had(CDS, "a", "bad"), &found["state"]), (0, &"halted".into()), "{found}");
    drop(stranger);
}
