//! TLS towards servers: proofs in both directions, failures in words, and our own certificate over time.

use std::time::Duration;

use sluice::client::{ClientSettings, Pool, StreamEvent};
use sluice::telemetry::wall_now;
use sluice::trust::anchors::AnchorFiles;
use sluice::trust::client::{ClientTls, KeyExchange, SanMatch, ServerAuthorities};
use sluice::trust::identity::TextMatch;
use sluice::trust::issue::{Authority, Issued, Leaf};
use sluice::trust::server::MinVersion;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::peer::{Client, raw_server, response, settings, soon};
use crate::tls_peer::*;

/// The text of the first failure to connect.
async fn failure(pool: &Pool) -> String {
    let mut client = Client::open(pool);
    match client.event().await {
        Some(StreamEvent::ConnectFailed(status)) => status.message,
        other => panic!("no failure: {other:?}"),
    }
}

async fn assert_failure(pool: &Pool, reason: &'static str, text: &str) {
    let found = failure(pool).await;
    assert!(found.contains(text) && !found.contains("http"), "{found}\nexpected {text}");
    assert!(pool.metrics().tls_failures(reason).get() > 0, "{reason}");
    assert_eq!(pool.metrics().connects.get(), 0, "TLS-7: not connected before SETTINGS have come");
}

#[tokio::test]
async fn tls_9_idn_7_a_proved_server_serves_streams_over_https() {
    let site = Site::new();
    let mut peer = TlsPeer::start(site.config(&site.server(), &["h2"], false)).await;
    for (tls, authority) in [
        (site.tls(), format!("127.0.0.1:{}", peer.port)),
        (ClientTls { server_name: Some("localhost".into()), ..site.tls() }, "localhost".to_owned()),
        (ClientTls { min_version: MinVersion::Tls13, ..site.tls() }, format!("127.0.0.1:{}", peer.port)),
    ] {
        let pool = pool(peer.port, tls);
        let mut client = Client::open(&pool);
        client.opened().await;
        let mut stream = peer.stream().await;
        assert_eq!(stream.request.uri().scheme_str(), Some("https"));
        assert_eq!(stream.request.uri().authority().unwrap().as_str(), authority);
        stream.headers().send_data(response("1"), false).unwrap();
        assert_eq!(client.event_text().await, "Response 1");
        assert_eq!(soon(peer.clients.recv()).await, Some(None), "no certificate was configured");
    }
}

#[tokio::test]
async fn idn_7_idn_8_another_name_or_authority_is_refused_in_words() {
    let site = Site::new();
    let peer = TlsPeer::start(site.config(&site.server(), &["h2"], false)).await;
    let other = ClientTls { server_name: Some("cp.example".into()), ..site.tls() };
    let text = "the server's certificate is not valid for cp.example; it has ";
    assert_failure(&pool(peer.port, other), "identity", text).await;

    let strange = Site::new();
    let text = format!("the server's certificate is not signed by {}", strange.path("ca.crt").display());
    assert_failure(&pool(peer.port, strange.tls()), "unknown_issuer", &text).await;
}

/// A control plane whose certificate signed itself, and stands in `ca_certificate_file`: the holder of its key can be this
/// server, and no other.
#[tokio::test]
async fn sec_12_a_server_that_signed_itself_is_proved_by_itself_alone() {
    let site = Site::new();
    let hosts = ["127.0.0.1", "localhost"].map(str::to_owned);
    let mut params = rcgen::CertificateParams::new(hosts).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, "cp");
    let alone = Authority::with(params, DAY, wall_now()).unwrap();
    std::fs::write(site.path("ca.crt"), alone.pem()).unwrap();
    let (certificate, private_key) = (alone.pem().to_owned(), alone.private_key());
    let own = Issued { certificate, private_key, serial: 1.into() };
    let peer = TlsPeer::start(site.config(&own, &["h2"], false)).await;
    Client::open(&pool(peer.port, site.tls())).opened().await;

    let leaf = Leaf { hosts: &["127.0.0.1"], is_server: true, ..Leaf::default() };
    let forged = alone.issue(&leaf, DAY, wall_now()).unwrap();
    let forger = TlsPeer::start(site.config(&forged, &["h2"], false)).await;
    assert_failure(&pool(forger.port, site.tls()), "unknown_issuer", "is not signed by").await;
}

/// Kuma's own certificate, and the default of `openssl req -x509`: signed by itself, and an authority.
#[tokio::test]
async fn sec_12_a_server_may_show_the_authority_that_is_its_trust_anchor() {
    let site = Site::new();
    let by_itself = |now, purpose| {
        let hosts = ["127.0.0.1", "localhost"].map(str::to_owned);
        let mut params = rcgen::CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "cp");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.extended_key_usages = vec![purpose];
        let authority = Authority::with(params, DAY, now).unwrap();
        let certificate = authority.pem().to_owned();
        Issued { certificate, private_key: authority.private_key(), serial: 1.into() }
    };
    use rcgen::ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
    let kuma = by_itself(wall_now(), ServerAuth);
    std::fs::write(site.path("ca.crt"), &kuma.certificate).unwrap();
    let peer = TlsPeer::start(site.config(&kuma, &["h2"], false)).await;
    Client::open(&pool(peer.port, site.tls())).opened().await;
    let san = |name: &str| {
        let match_sans = vec![SanMatch::Dns(TextMatch::Exact(name.to_owned()))];
        ClientTls { match_sans, ..site.tls() }
    };
    Client::open(&pool(peer.port, san("localhost"))).opened().await;

    let text = "match_sans accepts no name of the server's certificate: localhost";
    assert_failure(&pool(peer.port, san("cp.example")), "identity", text).await;
    let other = ClientTls { server_name: Some("cp.example".into()), ..site.tls() };
    assert_failure(&pool(peer.port, other), "identity", "is not valid for cp.example").await;

    let same_name = by_itself(wall_now(), ServerAuth);
    let stranger = TlsPeer::start(site.config(&same_name, &["h2"], false)).await;
    let text = "the server's certificate is one of an authority (basic constraints with CA), which is accepted for a server \
                only if exactly this certificate, signed by itself, stands in ca_certificate_file";
    assert_failure(&pool(stranger.port, site.tls()), "purpose", text).await;

    let early = by_itself(wall_now() + DAY, ServerAuth);
    let for_clients = by_itself(wall_now(), ClientAuth);
    let begins = "the server's certificate, or one above it, begins at ";
    for (issued, reason, text) in [
        (early, "not_yet_valid", begins),
        (for_clients, "purpose", "its extended key usage lacks serverAuth"),
    ] {
        std::fs::write(site.path("ca.crt"), &issued.certificate).unwrap();
        let peer = TlsPeer::start(site.config(&issued, &["h2"], false)).await;
        assert_failure(&pool(peer.port, site.tls()), reason, text).await;
    }
}

#[tokio::test]
async fn idn_6_tls_7_an_expired_certificate_and_one_for_clients_are_refused_in_words() {
    let site = Site::new();
    let hour = Duration::from_secs(3600);
    let leaf = Leaf { hosts: &["127.0.0.1"], is_server: true, ..Leaf::default() };
    let issue = |leaf: &Leaf<'_>, now| site.authority.issue(leaf, hour, now).unwrap();
    let client = Leaf { is_server: false, is_client: true, ..leaf.clone() };
    for (issued, reason, text) in [
        (
            issue(&leaf, wall_now() - 2 * hour),
            "expired",
            "the server's certificate, or one above it, ended at ",
        ),
        (
            issue(&leaf, wall_now() + hour),
            "not_yet_valid",
            "the server's certificate, or one above it, begins at ",
        ),
        (issue(&client, wall_now()), "purpose", "its extended key usage lacks serverAuth"),
    ] {
        let peer = TlsPeer::start(site.config(&issued, &["h2"], false)).await;
        assert_failure(&pool(peer.port, site.tls()), reason, text).await;
    }
}

#[tokio::test]
async fn idn_4_idn_7_match_sans_are_checked_instead_of_the_name() {
    let site = Site::new();
    let uris = ["spiffe://d/ns/istio-system/sa/istiod"];
    let leaf = Leaf { uris: &uris, hosts: &["cp.example"], is_server: true, ..Leaf::default() };
    let issued = site.authority.issue(&leaf, DAY, wall_now()).unwrap();
    let peer = TlsPeer::start(site.config(&issued, &["h2"], false)).await;
    let sans = |san| ClientTls { match_sans: vec![san], ..site.tls() };
    let exact = |text: &str| TextMatch::Exact(text.to_owned());
    Client::open(&pool(peer.port, sans(SanMatch::Spiffe(exact(uris[0]))))).opened().await;
    Client::open(&pool(peer.port, sans(SanMatch::Dns(exact("cp.example"))))).opened().await;
    for san in [SanMatch::Spiffe(exact("spiffe://d/other")), SanMatch::Dns(exact(uris[0]))] {
        let text = "match_sans accepts no name of the server's certificate: cp.example, spiffe://d/ns/";
        assert_failure(&pool(peer.port, sans(san)), "identity", text).await;
    }
    assert_failure(&pool(peer.port, site.tls()), "identity", "is not valid for 127.0.0.1").await;
}

#[tokio::test]
async fn idn_3_a_bundle_proves_its_own_trust_domain_only() {
    use base64::Engine as _;
    let (site, other) = (Site::new(), Site::new());
    let key = |name: &str| {
        let x5c = base64::engine::general_purpose::STANDARD.encode(der(&site_of(name, &site, &other)));
        format!(r#""{name}":{{"keys":[{{"use":"x509-svid","kty":"EC","x5c":["{x5c}"]}}]}}"#)
    };
    let map = site.path("bundles.json");
    std::fs::write(&map, format!(r#"{{"trust_domains":{{{},{}}}}}"#, key("d"), key("e"))).unwrap();
    let tls = ClientTls {
        authorities: ServerAuthorities::Files(AnchorFiles::BundleMap(map)),
        match_sans: vec![SanMatch::Spiffe(TextMatch::Suffix("/istiod".to_owned()))],
        ..ClientTls::default()
    };
    for (uri, is_good) in
        [("spiffe://d/istiod", true), ("spiffe://e/istiod", false), ("spiffe://f/istiod", false)]
    {
        let leaf = Leaf { uris: &[uri], is_server: true, ..Leaf::default() };
        let issued = site.authority.issue(&leaf, DAY, wall_now()).unwrap();
        let peer = TlsPeer::start(site.config(&issued, &["h2"], false)).await;
        let pool = pool(peer.port, tls.clone());
        match is_good {
            true => Client::open(&pool).opened().await,
            false => assert_failure(&pool, "unknown_issuer", "is not signed by").await,
        }
    }
}

/// The file with the authority of a trust domain.
fn site_of(domain: &str, site: &Site, other: &Site) -> std::path::PathBuf {
    if domain == "d" { site.path("ca.crt") } else { other.path("ca.crt") }
}

#[tokio::test]
async fn tls_7_a_refusal_of_our_certificate_is_told_with_its_alert() {
    let site = Site::new();
    for versions in [MinVersion::Tls12, MinVersion::Tls13] {
        let base = || ClientTls { min_version: versions, ..site.tls() };
        let mut peer = TlsPeer::start(site.config(&site.server(), &["h2"], true)).await;
        let text = "the server refused our certificate (alert certificate_required): none was sent";
        assert_failure(&pool(peer.port, base()), "no_certificate", text).await;

        let strange = Authority::new("strange", DAY, wall_now()).unwrap();
        let tls = ClientTls { pair: Some(site.write_client(&strange, DAY)), ..base() };
        let text = format!(
            "the server refused our certificate (alert unknown_ca): {}",
            site.path("tls.crt").display()
        );
        assert_failure(&pool(peer.port, tls), "unknown_issuer", &text).await;

        let tls = ClientTls { pair: Some(site.write_client(&site.authority, DAY)), ..base() };
        let good = pool(peer.port, tls);
        Client::open(&good).opened().await;
        assert_eq!(soon(peer.clients.recv()).await.unwrap(), Some(der(&site.path("tls.crt"))));
    }
}

/// Servers of gRPC C-core refuse a client without a certificate so.
#[tokio::test]
async fn tls_7_an_end_without_an_alert_is_told_with_its_likely_reason() {
    let site = Site::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = site.config(&site.server(), &["h2"], false);
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            drop(acceptor.accept(socket).await);
        }
    });
    let text = "the server closed the connection after the TLS handshake without an alert; it may want a certificate";
    assert_failure(&pool(port, site.tls()), "eof", text).await;
}

#[tokio::test]
async fn tls_8_tls_7_a_server_without_tls_is_named_and_never_spoken_to_in_plaintext() {
    let site = Site::new();
    let mut peer = plaintext().await;
    let text = "the server does not speak TLS: its first bytes are an HTTP/2 SETTINGS frame";
    assert_failure(&pool(peer.port, site.tls()), "not_tls", text).await;
    assert!(peer.streams.try_recv().is_err());
    let port = raw_server(b"HTTP/1.1 400 Bad Request\r\n\r\n", vec![]).await;
    let text = "the server does not speak TLS: its first bytes are an HTTP/1 response";
    assert_failure(&pool(port, site.tls()), "not_tls", text).await;
}

#[tokio::test]
async fn tls_3_grpc_needs_h2_by_alpn() {
    let site = Site::new();
    let peer = TlsPeer::start(site.config(&site.server(), &[], false)).await;
    assert_failure(&pool(peer.port, site.tls()), "alpn", "the server did not select HTTP/2 by ALPN").await;
    let peer = TlsPeer::start(site.config(&site.server(), &["http/1.1"], false)).await;
    let text = "the server does not offer the application protocol (alert no_application_protocol)";
    assert_failure(&pool(peer.port, site.tls()), "alpn", text).await;
}

#[tokio::test]
async fn tls_7_the_handshake_has_a_deadline_of_its_own() {
    let site = Site::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let brief = ClientSettings { handshake_timeout: Duration::from_millis(50), ..settings() };
    let silent = pool_with(port, site.tls(), brief);
    assert_failure(&silent, "timeout", "the TLS handshake did not end within 50ms").await;
    drop(listener);
}

/// The first bytes of a ClientHello tell the groups: 0x11ec is X25519MLKEM768.
#[tokio::test]
async fn tls_13_classic_leaves_the_hybrid_key_exchange_out() {
    let site = Site::new();
    for (key_exchange, is_hybrid) in [(KeyExchange::Hybrid, true), (KeyExchange::Classic, false)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let pool = pool(port, ClientTls { key_exchange, ..site.tls() });
        let _client = Client::open(&pool);
        let (mut socket, _) = soon(listener.accept()).await.unwrap();
        let mut head = [0; 5];
        soon(socket.read_exact(&mut head)).await.unwrap();
        let mut hello = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
        soon(socket.read_exact(&mut hello)).await.unwrap();
        assert_eq!(hello.windows(2).any(|pair| pair == [0x11, 0xec]), is_hybrid);
        assert_eq!(hello.len() > 1000, is_hybrid);
    }
}

/// TLS-13: each segment of the handshake may end anywhere.
#[tokio::test]
async fn tls_13_a_handshake_in_single_bytes_succeeds() {
    let site = Site::new();
    let peer = TlsPeer::start(site.config(&site.server(), &["h2"], false)).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = peer.port;
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let server = tokio::net::TcpStream::connect(("127.0.0.1", server)).await.unwrap();
        for socket in [&client, &server] {
            socket.set_nodelay(true).unwrap();
        }
        let ((mut a, mut b), (mut c, mut d)) = (client.into_split(), server.into_split());
        let slow = async move {
            while let Ok(byte) = a.read_u8().await {
                d.write_u8(byte).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(slow, tokio::io::copy(&mut c, &mut b)).1.unwrap();
    });
    Client::open(&pool(port, site.tls())).opened().await;
}

#[tokio::test]
async fn crt_10_a_connection_is_replaced_before_our_certificate_ends() {
    let site = Site::new();
    let mut peer = TlsPeer::start(site.config(&site.server(), &["h2"], true)).await;
    // Valid for five minutes before now and 20 s from now on: more than 90 % are over.
    let files = site.write_client(&site.authority, Duration::from_secs(20));
    let first = der(&files.certificate);
    let pool = pool(peer.port, ClientTls { pair: Some(files), ..site.tls() });
    let mut client = Client::open(&pool);
    client.opened().await;
    let mut old = peer.stream().await;
    let mut reply = old.headers();
    reply.send_data(response("1"), false).unwrap();
    assert_eq!(client.event_text().await, "Response 1");
    assert_eq!(soon(peer.clients.recv()).await.unwrap(), Some(first.clone()));

    let files = site.write_client(&site.authority, DAY);
    assert_eq!(client.event_text().await, "GoingAway");
    client.closed().await;
    let used = soon(peer.clients.recv()).await.unwrap();
    assert_eq!(used, Some(der(&files.certificate)), "the new connection was made before the old was left");
    Client::open(&pool).opened().await;
    assert_eq!(peer.stream().await.connection, 1);
    assert_eq!(pool.metrics().goaways.get(), 0);
}
