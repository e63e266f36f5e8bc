//! Servers that are reached type by type: RLY-25, RLY-40 (ADR 18).

use std::time::Duration;

use super::bench::{Bench, CDS, ClientId, EDS, RDS, streams_by_type, url};
use crate::collection::CollectionKind;
use crate::downstream::SourceId;
use crate::source::StreamIndex;
use crate::upstream::{Input, Transport};
use sluice_xds::{Code, DeltaResponse, Response, Status};

const CLUSTERS: StreamIndex = 0;
const ENDPOINTS: StreamIndex = 1;

/// Two servers in a list, and a client with all clusters and endpoint `a`. The client then asks for endpoint `b`.
fn bench() -> (Bench, ClientId) {
    let mut bench =
        Bench::new(vec![streams_by_type(Transport::PerType), streams_by_type(Transport::PerType)]);
    (bench.servers, bench.by_type) = (2, true);
    let client = bench.delta();
    bench.change(client, CDS, "");
    bench.change(client, EDS, "+a");
    bench.answers(0, CLUSTERS, CDS);
    bench.answers(0, ENDPOINTS, EDS);
    bench.changes(0, CDS, CollectionKind::Wildcard, "x=1", true);
    bench.changes(0, EDS, CollectionKind::Names, "a=1", false);
    assert_eq!(bench.moves(client), "Cluster x=1; ClusterLoadAssignment a=1");
    (bench, client)
}

impl Bench {
    fn on(&mut self, server: usize, stream: StreamIndex, input: Input) {
        self.sources[server].handle_upstream(stream, input, self.now);
        self.settle();
    }

    /// A stream opens, and the server answers.
    fn answers(&mut self, server: usize, stream: StreamIndex, message: &str) {
        self.on(server, stream, Input::Opened);
        let response = DeltaResponse {
            system_version_info: String::new(),
            type_url: url(message),
            nonce: "n".into(),
            resources: Vec::new(),
            removed: Vec::new(),
            errors: Vec::new(),
            control_plane: String::new(),
        };
        self.on(server, stream, Input::Received(Response::Delta(response)));
    }

    /// A stream ends after its answer, and the next stream ends before its answer.
    fn breaks(&mut self, server: usize, stream: StreamIndex) {
        let broken = |code| Status::new(code, "broken");
        self.on(server, stream, Input::Closed { status: broken(Code::Unavailable), jitter: 0.0 });
        self.advance(Duration::from_secs(1));
        self.on(server, stream, Input::Opened);
        self.on(server, stream, Input::Ended { status: broken(Code::Internal), jitter: 0.0 });
    }

    fn moves(&mut self, client: ClientId) -> String {
        self.shift(client);
        self.drain(client)
    }

    fn is_lost(&self, server: usize, message: &str) -> bool {
        self.snapshots[server].standing().reach_of(&url(message)).is_lost()
    }

    /// The servers of CDS and of EDS.
    fn served(&self, client: ClientId) -> [u64; 2] {
        let source_of = |message: &str| {
            let of_type = |s: &&crate::downstream::Subscription| s.type_url == url(message);
            let subscription = self.clients[client].session.subscriptions().iter().find(of_type);
            let SourceId(source) = subscription.unwrap().parts[0].source();
            source
        };
        [source_of(CDS), source_of(EDS)]
    }
}

#[test]
fn rly_40_a_type_that_is_lost_falls_back_alone() {
    let (mut bench, client) = bench();
    bench.breaks(0, ENDPOINTS);
    assert_eq!((bench.is_lost(0, EDS), bench.is_lost(0, CDS)), (true, false));
    assert!(bench.snapshots[0].standing().reach().is_heard(), "one type says nothing of the server");
    assert_eq!((bench.moves(client).as_str(), bench.served(client)), ("", [0, 0]), "FBK-1: all is cached");
    bench.change(client, CDS, "+y");
    bench.moves(client);
    assert!(
        !bench.clients[client].session.uses(SourceId(1)),
        "another type lacks something: that is no reason"
    );

    bench.change(client, EDS, "+b");
    bench.moves(client);
    assert!(bench.snapshots[1].of(&url(EDS)).is_some(), "FBK-4: all that is wanted of the type");
    assert!(bench.snapshots[1].of(&url(CDS)).is_none(), "and nothing of the others");
    bench.answers(1, 0, EDS);
    bench.changes(1, EDS, CollectionKind::Names, "a=2 b=2", false);
    assert_eq!(bench.moves(client), "ClusterLoadAssignment a=2 b=2");
    assert_eq!(bench.served(client), [0, 1]);
    bench.changes(0, CDS, CollectionKind::Wildcard, "x=3", true);
    assert_eq!(bench.moves(client), "Cluster x=3");

    bench.advance(Duration::from_secs(2));
    bench.answers(0, ENDPOINTS, EDS);
    bench.changes(0, EDS, CollectionKind::Names, "b=1", false);
    assert_eq!(bench.moves(client), "ClusterLoadAssignment a=1 b=1", "FBK-8");
    assert_eq!((bench.served(client), bench.clients[client].session.uses(SourceId(1))), ([0, 0], false));
}

#[test]
fn cli_1_rly_40_without_a_connection_all_types_are_lost() {
    let (mut bench, client) = bench();
    let down = || Status::new(Code::Unavailable, "down");
    bench.on(0, ENDPOINTS, Input::Closed { status: down(), jitter: 0.0 });
    assert!(!bench.is_lost(0, EDS), "CLI-2: it was answered");
    bench.advance(Duration::from_secs(1));
    bench.on(0, ENDPOINTS, Input::ConnectFailed { status: down() });
    assert_eq!((bench.is_lost(0, EDS), bench.is_lost(0, CDS)), (true, true));
    assert!(bench.snapshots[0].standing().reach().is_lost());
    bench.change(client, EDS, "+b");
    bench.moves(client);
    assert!(bench.snapshots[1].of(&url(CDS)).is_none(), "FBK-1: all clusters are cached");
    // The stream of clusters stayed open.
    bench.answers(0, ENDPOINTS, EDS);
    assert_eq!((bench.is_lost(0, EDS), bench.is_lost(0, CDS)), (false, false));
}

#[test]
fn rly_46_what_lingers_of_a_lost_type_is_kept_and_of_others_goes() {
    let (mut bench, client) = bench();
    bench.change(client, CDS, "+y");
    bench.changes(0, CDS, CollectionKind::Names, "y=1", false);
    bench.moves(client);
    bench.breaks(0, ENDPOINTS);
    bench.change(client, CDS, "-y");
    bench.change(client, EDS, "-a +c");
    bench.advance(Duration::from_secs(60));
    let knows = |bench: &Bench, message: &str, name: &str| {
        let types = bench.snapshots[0].of(&url(message));
        types.is_some_and(|types| types.names.entries.contains_key(&sluice_xds::ResourceName::from(name)))
    };
    assert_eq!((knows(&bench, EDS, "a"), knows(&bench, CDS, "y")), (true, false));
    bench.answers(0, ENDPOINTS, EDS);
    bench.advance(Duration::from_secs(60));
    assert!(!knows(&bench, EDS, "a"));
}

#[test]
fn rly_4_a_client_of_a_lost_type_alone_is_stranded() {
    let (mut bench, content) = bench();
    bench.breaks(0, ENDPOINTS);
    let lacking = bench.delta();
    bench.change(lacking, EDS, "+z");
    bench.moves(lacking);
    bench.breaks(1, 0);
    bench.on(1, 0, Input::ConnectFailed { status: Status::new(Code::Unavailable, "down") });
    bench.advance(Duration::from_secs(1));
    let stranded = |client: ClientId| {
        let latest = |id: SourceId| bench.snapshots.get(id.0 as usize).cloned();
        bench.clients[client].session.is_stranded(&latest, false)
    };
    assert_eq!((stranded(lacking), stranded(content)), (true, false));
}

/// RST-11: a refused poll concerns its type, a poll without a connection concerns all types.
#[test]
fn rly_40_polls_are_lost_type_by_type() {
    let transport = Transport::Rest { refresh_delay: Duration::from_secs(10) };
    let mut bench = Bench::new(vec![streams_by_type(transport), streams_by_type(transport)]);
    (bench.servers, bench.by_type) = (2, true);
    let client = bench.delta();
    bench.change(client, CDS, "+x");
    bench.change(client, EDS, "+a");
    bench.on(0, CLUSTERS, Input::Opened);
    bench.on(0, ENDPOINTS, Input::Opened);
    let status = |code| Status::new(code, "no");
    bench.on(0, CLUSTERS, Input::Ended { status: status(Code::Unimplemented), jitter: 0.0 });
    assert!(!bench.is_lost(0, CDS) && !bench.is_lost(0, EDS), "RLY-25: 404 is no loss");
    bench.on(0, ENDPOINTS, Input::Ended { status: status(Code::Internal), jitter: 0.0 });
    assert!(!bench.is_lost(0, CDS) && bench.is_lost(0, EDS));
    bench.moves(client);
    assert!(bench.snapshots[1].of(&url(EDS)).is_some() && bench.snapshots[1].of(&url(CDS)).is_none());
    bench.advance(Duration::from_secs(2));
    bench.on(0, CLUSTERS, Input::Opened);
    bench.on(0, CLUSTERS, Input::ConnectFailed { status: status(Code::Unavailable) });
    bench.on(0, CLUSTERS, Input::Closed { status: status(Code::Unavailable), jitter: 0.0 });
    assert!(
        bench.is_lost(0, CDS) && bench.is_lost(0, EDS) && bench.snapshots[0].standing().reach().is_lost()
    );
    bench.moves(client);
    assert!(bench.snapshots[1].of(&url(CDS)).is_some());
}

/// The first server serves clusters and routes throughout, so the round has its snapshot of those types.
#[test]
fn rly_42_a_round_is_told_what_a_server_of_other_types_supplies_by_now() {
    const SECOND: Duration = Duration::from_secs(1);
    let (mut bench, client) = bench();
    bench.change(client, RDS, "+r");
    bench.changes(0, RDS, CollectionKind::Names, "r=1", false);
    assert_eq!(bench.moves(client), "RouteConfiguration r=1");
    bench.breaks(0, ENDPOINTS);
    bench.change(client, EDS, "+b");
    bench.moves(client);
    bench.answers(1, 0, EDS);
    bench.changes(1, EDS, CollectionKind::Names, "a=1 b=1", false);
    assert_eq!(bench.moves(client), "ClusterLoadAssignment b=1");
    assert_eq!(bench.served(client), [0, 1]);

    bench.changes(1, EDS, CollectionKind::Names, "b=2", false);
    assert_eq!(bench.poll(client), "ClusterLoadAssignment b=2");
    bench.changes(1, EDS, CollectionKind::Names, "b=3", false);
    bench.changes(0, RDS, CollectionKind::Names, "r=2", false);
    assert_eq!(bench.poll(client), "");
    bench.advance(SECOND * 15);
    bench.changes(1, EDS, CollectionKind::Names, "b=4 -a", false);
    bench.changes(0, EDS, CollectionKind::Names, "-a", false);
    bench.changes(0, CDS, CollectionKind::Wildcard, "x=2", true);
    assert_eq!(bench.poll(client), "Cluster x=2", "the turn of the routing types has begun");
    bench.changes(0, EDS, CollectionKind::Names, "a=5", false);
    assert_eq!(bench.poll(client), "ClusterLoadAssignment a=5 b=4");
    assert_eq!(bench.poll(client), "RouteConfiguration r=2");
}
