//! Resolution of the server's name: FU31. The relay runs with a private hosts file, which the test changes,
//! and without another resolver.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::site::quick;
use crate::support::{Client, ControlPlane, EDS, Proxy, Relay, Setup, Variant, net};

const NAME: &str = "control-plane.sluice.test";

struct Names {
    directory: TempDir,
}

impl Names {
    /// `None` if the host does not allow private namespaces.
    #[allow(clippy::print_stderr, reason = "a skipped test prints the reason")]
    fn new() -> Option<Names> {
        let allowed =
            Command::new("unshare").args(["-rm", "true"]).status().is_ok_and(|status| status.success());
        if !allowed {
            eprintln!("skipped: this machine allows no mount namespace (unshare -rm)");
            return None;
        }
        let names = Names { directory: tempfile::tempdir().unwrap() };
        // The address has no resolver.
        std::fs::write(names.path("resolv.conf"), "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
            .unwrap();
        names.set(None);
        Some(names)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes the file in place, since the file is mounted.
    fn set(&self, address: Option<&str>) {
        let line = address.map(|address| format!("{address} {NAME}\n")).unwrap_or_default();
        std::fs::write(self.path("hosts"), line).unwrap();
    }

    fn wrap(&self, setup: Setup) -> Setup {
        let script = "mount --bind \"$0/hosts\" /etc/hosts && mount --bind \"$0/resolv.conf\" /etc/resolv.conf && exec \"$@\"";
        let directory = self.directory.path().display().to_string();
        let wrapper = ["unshare", "-rm", "sh", "-c", script, &directory].map(str::to_owned).to_vec();
        Setup { wrapper, ..setup }
    }
}

/// FU31: after a name resolves to another address, the next connection goes there; a name that no longer
/// resolves keeps the last good address.
#[tokio::test]
async fn fu_31_a_name_that_changes_and_vanishes() {
    let Some(names) = Names::new() else { return };
    let (first, second) = (ControlPlane::obedient().await, ControlPlane::obedient().await);
    first.set(EDS, "a", "first");
    // Versions belong to one control plane, whatever its address: a changed resource needs another version.
    second.set(EDS, "a", "before");
    second.set(EDS, "a", "second");
    let port = net::free_port();
    let at = |address: [u8; 4]| SocketAddr::from((address, port));
    let mut one = Proxy::at(at([127, 0, 0, 1]), first.address).await;
    let mut two = Proxy::at(at([127, 0, 0, 2]), second.address).await;
    names.set(Some("127.0.0.1"));
    let server = format!("{NAME}:{port}");
    let relay = Relay::start(names.wrap(quick(&server))).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(EDS, &["a"]);
    client.settle(EDS, &[("a", "first")]).await;

    names.set(Some("127.0.0.2"));
    one.refuse().await;
    client.settle(EDS, &[("a", "second")]).await;

    names.set(None);
    let before = two.accepted().len();
    two.refuse().await;
    relay.is_stale(&server).await;
    client.silence(std::time::Duration::from_millis(500)).await;
    second.change(|world| world.restart());
    two.listen().await;
    relay.is_fresh(&server).await;
    assert!(two.accepted().len() > before);
    client.quiet().await;
}

/// FU31: the relay retries a name that does not resolve yet, at the pace of the backoff.
#[tokio::test]
async fn fu_31_a_name_that_comes_late() {
    let Some(names) = Names::new() else { return };
    let origin = ControlPlane::obedient().await;
    origin.set(EDS, "a", "1");
    let server = format!("{NAME}:{}", origin.address.port());
    let relay = Relay::start(names.wrap(quick(&server))).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(EDS, &["a"]);
    relay.is_stale(&server).await;
    client.silence(std::time::Duration::from_secs(1)).await;
    let error = relay.sources(&server).await[0]["last_error"].to_string();
    assert!(error.contains("the name does not resolve"), "{error}");
    relay.warned(1).await;
    names.set(Some("127.0.0.1"));
    client.settle(EDS, &[("a", "1")]).await;
    relay.is_fresh(&server).await;
}
