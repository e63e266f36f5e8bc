//! Client status by gRPC and REST (ADM-20 to ADM-25), on connections in memory.

use hyper_util::rt::TokioIo;
use sluice_admin_api::endpoints::Endpoint as AdminEndpoint;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic_prost::ProstCodec;

use super::super::access::{Access, ListenerReach};
use super::*;
use crate::admin::ContentMode;
use crate::driver::api::status::LostStatus;
use sluice_json::redact::redact_bytes;
use sluice_proto::csds::matcher::{NodeMatcher, StringMatcher, string_matcher::MatchPattern};
use sluice_proto::csds::{ClientStatusRequest, ClientStatusResponse, GenericXdsConfig};

/// A client that has ACKed a version of each type.
pub(super) const ACKED: usize = SESSIONS - 2;

const REST: &str = AdminEndpoint::ClientStatus.path();
const FETCH: &str = AdminEndpoint::FetchClientStatus.path();
const STREAM: &str = AdminEndpoint::StreamClientStatus.path();

fn channel(admin: &Fixture, host: &str) -> Channel {
    let io = parking_lot::Mutex::new(Some(admin.connect()));
    let connect = tower::service_fn(move |_: Uri| {
        let io = io.lock().take();
        async { io.map(TokioIo::new).ok_or(std::io::Error::from(std::io::ErrorKind::NotConnected)) }
    });
    Endpoint::try_from(format!("http://{host}")).unwrap().connect_with_connector_lazy(connect)
}

async fn ask(channel: Channel, request: ClientStatusRequest) -> Result<ClientStatusResponse, tonic::Status> {
    let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(1 << 30);
    grpc.ready().await.unwrap();
    let codec: ProstCodec<ClientStatusRequest, ClientStatusResponse> = ProstCodec::default();
    let path = FETCH.parse().unwrap();
    grpc.unary(tonic::Request::new(request), path, codec).await.map(tonic::Response::into_inner)
}

fn matching(pattern: MatchPattern) -> ClientStatusRequest {
    let node_id = Some(StringMatcher { match_pattern: Some(pattern), ignore_case: false });
    let node_matchers = vec![NodeMatcher { node_id, node_metadatas: vec![] }];
    ClientStatusRequest { node_matchers, ..ClientStatusRequest::default() }
}

fn fixture() -> Fixture {
    Fixture::start(vec![source("cp-1", SourceState::Connected, false)], false)
}

#[tokio::test]
async fn adm_21_the_relay_is_one_client_for_each_source() {
    let answer = ask(channel(&fixture(), "localhost"), ClientStatusRequest::default()).await.unwrap();
    let [config] = answer.config.as_slice() else { panic!("{answer:?}") };
    assert_eq!(config.client_scope, "xds_servers/c0ffee via cp-1");
    assert_eq!(config.node.as_ref().unwrap().id, "relay/c0ffee");
    let rows = &config.generic_xds_configs;
    let found: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.client_status)).collect();
    assert_eq!(
        found,
        [
            ("r0", ClientStatus::Acked as i32),
            ("lost", ClientStatus::DoesNotExist as i32),
            ("key", ClientStatus::Acked as i32)
        ]
    );
    assert_eq!(rows[0].version_info, "upstream-7", "the version of the server");
    let content = rows[0].xds_config.as_ref().unwrap();
    assert!(content.type_url.ends_with(CLUSTER));
    let text = String::from_utf8_lossy(&content.value);
    assert!(text.contains("r0") && !text.contains("CANARY"), "{text}");
    assert!(rows[0].last_updated.is_some() && rows[0].error_state.is_none());
    assert_eq!(rows[1].error_state.as_ref().unwrap().details, "NOT_FOUND: gone");
    // Nothing of a Secret but its name and its state.
    let secret = &rows[2];
    assert_eq!((&*secret.version_info, &secret.xds_config, &secret.last_updated), ("", &None, &None));
}

#[tokio::test]
async fn adm_21_a_stale_source_says_so_beside_its_resources() {
    let admin = Fixture::start(vec![source("cp-1", SourceState::Connected, true)], false);
    let answer = ask(channel(&admin, "localhost"), ClientStatusRequest::default()).await.unwrap();
    let row = &answer.config[0].generic_xds_configs[0];
    assert_eq!(row.client_status, ClientStatus::Acked as i32);
    let details = &row.error_state.as_ref().unwrap().details;
    assert_eq!(details, "stale: cp-1 is unreachable: UNAVAILABLE: gone");
}

/// A server that is there may have lost a single type, or not have confirmed the content of before a restart.
#[tokio::test]
async fn adm_21_a_lost_type_and_restored_content_say_so_beside_their_resources() {
    fn lose(of: &mut SourceStatus) {
        let error = Status::new(Code::Unimplemented, "no such service");
        of.types[0].lost = Some(LostStatus { since: now(), error });
    }
    for (change, expected) in [
        (
            lose as fn(&mut SourceStatus),
            "stale: cp-1 is unreachable for the type: UNIMPLEMENTED: no such service",
        ),
        (|of| of.restored = true, "restored from a checkpoint; cp-1 has not confirmed it yet"),
    ] {
        let mut of = source("cp-1", SourceState::Connected, false);
        change(Arc::make_mut(&mut of));
        let admin = Fixture::start(vec![of], false);
        let answer = ask(channel(&admin, "localhost"), ClientStatusRequest::default()).await.unwrap();
        let rows = &answer.config[0].generic_xds_configs;
        assert_eq!(rows[0].error_state.as_ref().unwrap().details, expected);
        assert_eq!(rows[2].error_state, None, "nothing of a Secret but its name and its state");
    }
}

#[tokio::test]
async fn adm_24_contents_can_be_left_out_or_off() {
    let exclude = ClientStatusRequest { exclude_resource_contents: true, ..ClientStatusRequest::default() };
    let without = ask(channel(&fixture(), "localhost"), exclude).await.unwrap();
    assert_eq!(without.config[0].generic_xds_configs[0].xds_config, None);
    let settings = AdminSettings { content: ContentMode::Off, ..AdminSettings::default() };
    let admin = Fixture::with(vec![source("cp-1", SourceState::Connected, false)], settings, None);
    let off = ask(channel(&admin, "localhost"), ClientStatusRequest::default()).await.unwrap();
    assert_eq!(off.config[0].generic_xds_configs[0].xds_config, None);
}

#[tokio::test]
async fn adm_22_the_relay_is_the_server_of_matching_streams() {
    let request = matching(MatchPattern::SafeRegex(sluice_proto::csds::matcher::RegexMatcher {
        regex: "node-(100|7)".to_owned(),
    }));
    let answer = ask(channel(&fixture(), "localhost"), request).await.unwrap();
    let scopes: Vec<_> = answer.config.iter().map(|config| config.client_scope.as_str()).collect();
    assert_eq!(scopes, ["main/7", "main/100"]);
    let rows = &answer.config[1].generic_xds_configs;
    let found: Vec<_> = rows.iter().take(5).map(|row| (row.name.as_str(), row.config_status)).collect();
    let state = |state: ConfigStatus| state as i32;
    assert_eq!(found[0], ("a", state(ConfigStatus::Synced)));
    assert_eq!(found[1], ("b", state(ConfigStatus::Error)));
    assert_eq!(found[2], ("c", state(ConfigStatus::Stale)));
    assert_eq!((&*rows[0].version_info, &*rows[2].version_info), (&*Version(2).to_string(), ""));
    assert_eq!(rows[1].error_state.as_ref().unwrap().details, "sniffed-detail");
    assert_eq!(rows[0].error_state, None);
    let held = content::copy(&TypeUrl::of_message(CLUSTER), 2, "cp-2", "a", "2s").resource.unwrap();
    let held = redact_bytes(&TypeUrl::of_message(CLUSTER), &held.body.value).unwrap();
    assert_eq!(
        rows[0].xds_config.as_ref().unwrap().value,
        held,
        "of the source whose version the client has"
    );
    // Nothing of a Secret but names and states.
    assert!(rows[5..].iter().all(|row| row.version_info.is_empty() && row.xds_config.is_none()));
    let rejected = |row: &GenericXdsConfig| row.error_state.as_ref().map(|of| of.version_info.clone());
    let secret = rows[5..].iter().find_map(rejected);
    assert_eq!((rejected(&rows[1]), secret), (Some(Version(0xbad).to_string()), Some(String::new())));
    let none = ask(channel(&fixture(), "localhost"), matching(MatchPattern::Exact("nobody".into()))).await;
    assert!(none.unwrap().config.is_empty());
    // An empty matcher finds all.
    let all =
        ClientStatusRequest { node_matchers: vec![NodeMatcher::default()], ..ClientStatusRequest::default() };
    let all = ask(channel(&fixture(), "localhost"), all).await.unwrap();
    assert_eq!(all.config.len(), SESSIONS);
    assert!(all.config[0].generic_xds_configs.iter().all(|row| row.name == "*"));
    let acked: Vec<_> = all.config[ACKED].generic_xds_configs.iter().map(|row| &*row.version_info).collect();
    assert_eq!(acked, [&*Version(0xabc).to_string(), ""], "no version of a Secret");
}

#[tokio::test]
async fn adm_22_a_matcher_that_is_not_supported_is_refused_by_name() {
    let refused = ask(channel(&fixture(), "localhost"), matching(MatchPattern::Custom("x".into()))).await;
    let status = refused.unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    assert_eq!(status.message(), "node_matchers[0].node_id.custom: not supported");
}

/// CSD-1: one answer for each request of a stream.
#[tokio::test]
async fn csd_1_a_stream_answers_each_request() {
    let mut grpc = tonic::client::Grpc::new(channel(&fixture(), "localhost"));
    grpc.ready().await.unwrap();
    let codec: ProstCodec<ClientStatusRequest, ClientStatusResponse> = ProstCodec::default();
    let requests = [
        ClientStatusRequest::default(),
        matching(MatchPattern::Exact("node-5".into())),
        matching(MatchPattern::Custom("x".into())),
        ClientStatusRequest::default(),
    ];
    let requests = tonic::Request::new(tokio_stream::iter(requests));
    let mut answers = grpc.streaming(requests, STREAM.parse().unwrap(), codec).await.unwrap().into_inner();
    assert_eq!(
        answers.message().await.unwrap().unwrap().config[0].client_scope,
        "xds_servers/c0ffee via cp-1"
    );
    assert_eq!(answers.message().await.unwrap().unwrap().config[0].client_scope, "main/5");
    assert_eq!(answers.message().await.unwrap_err().code(), tonic::Code::InvalidArgument);
}

/// HTTP/2 passes the same checks as HTTP/1.1: host, role, body.
#[tokio::test]
async fn adm_2_http_2_has_the_guards_of_http_1() {
    let foreign = ask(channel(&fixture(), "evil.example"), ClientStatusRequest::default()).await;
    assert!(foreign.unwrap_err().message().contains("421"));
    let access = Access { reach: ListenerReach::Network { has_tls: true }, auth: None };
    let admin = Fixture::with(vec![], AdminSettings { access, ..AdminSettings::default() }, None);
    let refused = ask(channel(&admin, "localhost"), ClientStatusRequest::default()).await.unwrap_err();
    assert!(refused.message().contains("403"), "{refused:?}");
    // A list takes no body in HTTP/2 either.
    let (mut send, connection) = h2::client::handshake(fixture().connect()).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get("http://localhost/clients").body(()).unwrap();
    let (answer, mut body) = send.send_request(request, false).unwrap();
    body.send_data("x".into(), true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 413);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_begins_no_protocol_is_closed() {
    let admin = fixture();
    for first in ["", "PRI * HTTP/2.0\r\n\r\nSM"] {
        let mut io = admin.connect();
        io.write_all(first.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        tokio::time::timeout(Duration::from_secs(6), io.read_to_end(&mut rest))
            .await
            .expect("closed")
            .unwrap();
    }
}

#[tokio::test]
async fn adm_25_the_rest_form_speaks_json() {
    let admin = fixture();
    let post = |body: &str| {
        format!(
            "POST {REST} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let answer = admin.send(&post("{}")).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(!answer.body.contains("CANARY"));
    let row = &answer.json()["config"][0]["generic_xds_configs"][0];
    assert_eq!((&row["client_status"], &row["version_info"]), (&"ACKED".into(), &"upstream-7".into()));
    assert_eq!(row["xds_config"]["@type"], format!("type.googleapis.com/{CLUSTER}"));
    let by_name = r#"{"nodeMatchers": [{"nodeId": {"exact": "node-100"}}]}"#;
    let found = admin.send(&post(by_name)).await.json();
    assert_eq!(found["config"][0]["generic_xds_configs"][1]["config_status"], "ERROR");
    for (body, text) in [("{", "EOF"), (r#"{"nodeMatcher": []}"#, "nodeMatcher")] {
        let refused = admin.send(&post(body)).await;
        assert_eq!((refused.status, refused.body.contains(text)), (400, true), "{}", refused.body);
    }
}
