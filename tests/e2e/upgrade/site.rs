//! A relay whose process is replaced, and its listeners.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use sluice::trust::issue::{Authority, Leaf};
use sluice::trust::provider::provider;

use crate::support::control_plane::eventually;
use crate::support::net::free_port;
use crate::support::{ControlPlane, Relay, Setup};

/// A relay with its successors, each a process that this test ends.
pub struct Site {
    pub origin: ControlPlane,
    pub relay: Relay,
    /// The processes in the order of their service.
    pub processes: Vec<u32>,
}

impl Site {
    pub async fn start(lines: &[&str]) -> Site {
        Site::of(|setup| lines.iter().fold(setup, |setup, line| setup.line(line))).await
    }

    pub async fn of(setup: impl FnOnce(Setup) -> Setup) -> Site {
        let origin = ControlPlane::obedient().await;
        let relay = Relay::start(setup(Setup::of(origin.address).resource_timeout(60))).await;
        let processes = vec![relay.pid()];
        Site { origin, relay, processes }
    }

    /// The new process serves after this.
    pub async fn upgrade(&mut self, query: &str) -> Value {
        let (status, body) = self.relay.post(&format!("/upgrade{query}")).await;
        assert_eq!(status, 200, "{body}");
        let upgraded: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(upgraded["predecessor"]["pid"].as_u64(), self.processes.last().map(|pid| u64::from(*pid)));
        self.processes.push(u32::try_from(upgraded["pid"].as_u64().unwrap()).unwrap());
        upgraded
    }

    /// The process before the last one still drains.
    pub async fn upgrade_is_refused_while_it_drains(&self) {
        let (status, text) = self.relay.post("/upgrade").await;
        assert_eq!((status, text.contains("still drains")), (409, true), "{text}");
    }

    /// Waits for the end of the first process.
    pub async fn first_is_gone(&mut self) {
        let status = self.relay.exit().await;
        assert_eq!(status.code(), Some(0), "{}", self.relay.log());
    }

    /// Waits until nothing drains, so that the next upgrade may begin.
    pub async fn settled(&self) {
        eventually("the end of the predecessor", || async {
            self.relay.get("/overview").await.1.contains("\"predecessor\":null")
        })
        .await;
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for pid in self.processes.iter().skip(1) {
            // Most have ended.
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).output();
        }
    }
}

/// A TCP listener, a unix socket, and one with TLS.
pub struct Doors {
    pub unix: PathBuf,
    pub tls: String,
    pub trust: Arc<ClientConfig>,
    _directory: tempfile::TempDir,
    keys: String,
}

pub const HOST: &str = "relay.example";

impl Doors {
    pub fn new() -> Doors {
        let directory = tempfile::tempdir().unwrap();
        let (now, day) = (SystemTime::now(), Duration::from_secs(86_400));
        let authority = Authority::new("test", day, now).unwrap();
        let leaf = Leaf { hosts: &[HOST], is_server: true, ..Leaf::default() };
        let own = authority.issue(&leaf, day, now).unwrap();
        let [certificate, key] = ["tls.crt", "tls.key"].map(|name| directory.path().join(name));
        std::fs::write(&certificate, own.certificate).unwrap();
        std::fs::write(&key, own.private_key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let mut trust = builder.unwrap().with_root_certificates(roots).with_no_client_auth();
        trust.alpn_protocols = vec![b"h2".to_vec()];
        let (unix, tls) = (directory.path().join("xds.sock"), format!("127.0.0.1:{}", free_port()));
        let keys = format!(
            "v2: true }}, {{ name: local, address: \"unix:{}\" }}, {{ name: tls, address: {tls:?}, tls: {{ certificates: \
             [{{ certificate_file: {certificate:?}, private_key_file: {key:?} }}] }}",
            unix.display()
        );
        Doors { unix, tls, trust: Arc::new(trust), _directory: directory, keys }
    }

    pub fn open(&self, setup: Setup) -> Setup {
        Setup { listener: self.keys.clone(), ..setup }
    }
}
