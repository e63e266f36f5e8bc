//! The words about a server that refuses, or is away, before and after its first answer.

use tonic::Code;

use crate::support::operator::{ENDS_STREAM, UNREACHABLE};
use crate::support::relay::QUICK_BACKOFF;
use crate::support::{CDS, Client, ControlPlane, Relay, Setup, Variant};

const CACHED: &str = "; serving cached configuration; retrying";
const EMPTY: &str = "; nothing is cached; retrying";
const REMEDY: &str = "; nothing is cached; retrying. If it refuses the node of this class, set `upstream_node` in `node_classes`";

async fn client_of(relay: &Relay) -> Client {
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["*"]);
    client
}

fn setup(origin: &ControlPlane) -> Setup {
    Setup::of(origin.address).server_line(QUICK_BACKOFF)
}

/// istiod parses the id of the node.
#[tokio::test]
async fn a_server_that_refuses_the_node_of_a_class_leads_to_the_remedy() {
    let origin = ControlPlane::istiod().await;
    let relay = Relay::start(setup(&origin)).await;
    let _client = client_of(&relay).await;
    let lines = relay.warned(1).await;
    assert!(lines[0].contains(&format!("{ENDS_STREAM}{REMEDY}")), "{lines:#?}");
    assert!(lines[0].contains("node=sluice-test/"), "the refused node: {lines:#?}");
}

/// Another status, and a server that was never there: the words of the remedy would mislead.
#[tokio::test]
async fn a_server_that_never_answered_leaves_nothing_to_serve() {
    let origin = ControlPlane::obedient().await;
    origin.ends_on(Some(CDS));
    let relay = Relay::start(setup(&origin)).await;
    let _client = client_of(&relay).await;
    relay.logged(&format!("{ENDS_STREAM}{EMPTY}")).await;

    let mut origin = ControlPlane::obedient().await;
    origin.down().await;
    let other = Relay::start(setup(&origin)).await;
    let _client = client_of(&other).await;
    other.logged(&format!("{UNREACHABLE}{EMPTY}")).await;
    for relay in [relay, other] {
        assert!(!relay.log().contains("serving cached") && !relay.log().contains("upstream_node"));
    }
}

#[tokio::test]
async fn a_server_that_answered_leaves_its_resources() {
    let mut origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    let relay = Relay::start(setup(&origin)).await;
    client_of(&relay).await.take(CDS).await;
    let mut client = client_of(&relay).await;
    client.take(CDS).await;
    origin.refuse_delta(Code::InvalidArgument);
    origin.close_streams(Code::InvalidArgument);
    relay.logged(&format!("{ENDS_STREAM}{CACHED}")).await;
    origin.down().await;
    relay.logged(&format!("{UNREACHABLE}{CACHED}")).await;
    assert!(!relay.log().contains("nothing is cached") && !relay.log().contains("upstream_node"));
}
