//! Clients whose certificate names nobody, through the built binary: all Envoys of Envoy Gateway share one (IDN-5).

use std::fs;
use std::sync::Arc;

use rustls::ClientConfig;
use sluice::trust::issue::{Authority, Leaf};
use tonic::Code;

use crate::isolation::{DAY, Trust, connect, relay};
use crate::support::client::node;
use crate::support::{CDS, Client, ControlPlane, Relay, SDS, Variant};

const SHARED: &str = "*.envoy-gateway-system";
const RULE: &str = "node_classes: [{ match: { types: [envoy.extensions.transport_sockets.tls.v3.Secret] }, split_by: { cluster: true }, share_secrets: identity }]\n";

struct Site {
    origin: ControlPlane,
    relay: Relay,
    directory: tempfile::TempDir,
    envoys: Arc<ClientConfig>,
    others: Arc<ClientConfig>,
}

impl Site {
    async fn new(rule: &str) -> Site {
        let (directory, now) = (tempfile::tempdir().unwrap(), sluice::telemetry::wall_now());
        let trust = Trust { authority: Authority::new("envoy-gateway", DAY, now).unwrap() };
        trust.write(directory.path(), now);
        let origin = ControlPlane::obedient().await;
        origin.set(CDS, "a", "1");
        origin.set(SDS, "key", "1");
        let template = format!(
            "xds_servers: [{{ server_uri: \"{}\", channel_creds: [{{ type: insecure }}] }}]\nlisteners:\n  - {{ name: main, \
             address: ADDRESS, tls: {{ certificates: [{{ certificate_file: tls.crt, private_key_file: tls.key }}], \
             ca_certificate_file: ca.crt, identity: trust_domain, trust_domain: gateway, clients: [{{ dns: \"{SHARED}\" \
             }}] }} }}\nadmin: {{ address: ADMIN }}\n{rule}",
            origin.address
        );
        fs::write(directory.path().join("template.yaml"), template).unwrap();
        let relay = relay(directory.path()).await;
        let issue = |host: &str| {
            trust.issue(&Leaf { hosts: &[host], is_server: true, is_client: true, ..Leaf::default() }, now)
        };
        Site { envoys: issue(SHARED), others: issue("envoy-rate-limit"), origin, relay, directory }
    }

    async fn envoy(&self, id: &str) -> Client {
        let channel = connect(&self.relay.address, self.envoys.clone()).await;
        Client::on(channel, Variant::Delta, Some(node(id)))
    }
}

#[tokio::test]
async fn idn_5_clients_of_one_certificate_share_configuration_and_no_secrets() {
    let site = Site::new("").await;
    for id in ["envoy-1", "envoy-2"] {
        let mut envoy = site.envoy(id).await;
        envoy.want(CDS, &["*"]);
        envoy.take(CDS).await;
        envoy.want(SDS, &["key"]);
        let status = envoy.ended().await;
        assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
        assert!(
            status.message().contains("the clients of trust domain gateway share their proof"),
            "{status:?}"
        );
    }
    assert_eq!(site.origin.opened(), 1, "one class");
    assert!(site.origin.requests(SDS).is_empty(), "nothing goes upstream");
    let (address, others) = (site.relay.address.clone(), site.others.clone());
    let _refused = tokio::spawn(async move { connect(&address, others).await });
    site.relay.logged("`clients` lists none of the certificate's DNS names").await;
}

#[tokio::test]
async fn idn_5_iso_2_shared_secrets_last_as_long_as_the_signature_of_the_operator() {
    let site = Site::new(RULE).await;
    let mut envoys = [site.envoy("envoy-1").await, site.envoy("envoy-2").await];
    for envoy in &mut envoys {
        envoy.want(SDS, &["key"]);
        envoy.settle(SDS, &[("key", "1")]).await;
    }
    assert_eq!(site.origin.opened(), 1, "one class for all");
    let file = site.directory.path().join("sluice.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace(RULE, "")).unwrap();
    let (status, body) = site.relay.post("/reload").await;
    assert_eq!(status, 200, "{body}");
    for mut envoy in envoys {
        assert_eq!(envoy.ended().await.code(), Code::PermissionDenied);
    }
}
