//! One control plane, one relay before it, and clients of the relay.

use std::time::Duration;

use crate::support::control_plane::eventually;
use crate::support::{
    Attachment, CDS, Client, ControlPlane, Downstream, FOUR, Relay, SILENCE, Setup, Variant, is_full_state,
    judge,
};

pub struct Bench {
    pub origin: ControlPlane,
    /// `None` if the cases run straight against the control plane.
    relay: Option<Relay>,
    target: String,
    upstream: Attachment,
}

/// Whether the cases run without a relay: the server under judgement is the kit's own control plane, or a
/// foreign server.
fn straight() -> bool {
    std::env::var("SLUICE_CONFORMANCE_TARGET").is_ok_and(|target| !target.is_empty())
}

impl Bench {
    /// A bench for rules of every management server.
    pub async fn any() -> Bench {
        if let Some(settings) = judge::settings() {
            // The report counts only tests that reach this line.
            judge::say("JUDGED");
            let origin = ControlPlane::stands_for(&settings.adapter);
            let upstream = Variant::Delta.into();
            return Bench { origin, relay: None, target: settings.target.clone(), upstream };
        }
        let origin = ControlPlane::obedient().await;
        if straight() {
            let target = origin.address.to_string();
            return Bench { origin, relay: None, target, upstream: Variant::Delta.into() };
        }
        Bench::over(origin, |setup| setup).await
    }

    /// A bench for rules of a relay, over an obedient control plane reached through `upstream`; `None`
    /// without a relay.
    pub async fn relay(upstream: impl Into<Attachment>) -> Option<Bench> {
        let upstream = upstream.into();
        if straight() {
            return None;
        }
        let origin = match upstream {
            Attachment::Files => ControlPlane::with_files().await,
            _ => ControlPlane::obedient().await,
        };
        if upstream == Attachment::Files {
            // FIL-3: the directory has a first state.
            origin.change(|world| world.remove(CDS, ""));
        }
        let server = origin.server_uri(upstream);
        let setup = |setup: Setup| Setup { server, ..setup.upstream(upstream) };
        Some(Bench::over(origin, setup).await)
    }

    pub async fn with(change: impl FnOnce(Setup) -> Setup) -> Option<Bench> {
        if straight() {
            return None;
        }
        Some(Bench::over(ControlPlane::obedient().await, change).await)
    }

    /// A bench over a control plane whose answers come from the test.
    pub async fn scripted(change: impl FnOnce(Setup) -> Setup) -> Option<Bench> {
        if straight() {
            return None;
        }
        Some(Bench::over(ControlPlane::scripted().await, change).await)
    }

    /// A bench over a control plane that accepts only nodes that istiod accepts.
    pub async fn over_istiod(change: impl FnOnce(Setup) -> Setup) -> Option<Bench> {
        if straight() {
            return None;
        }
        Some(Bench::over(ControlPlane::istiod().await, change).await)
    }

    async fn over(origin: ControlPlane, change: impl FnOnce(Setup) -> Setup) -> Bench {
        let setup = change(Setup::of(origin.address));
        let upstream = setup.upstream;
        let relay = Relay::start(setup).await;
        let target = relay.address.clone();
        Bench { origin, relay: Some(relay), target, upstream }
    }

    pub fn process(&self) -> &Relay {
        self.relay.as_ref().expect("this case has a relay")
    }

    /// The WARN lines of the relay so far.
    pub fn warnings(&self) -> Vec<String> {
        self.relay.as_ref().map(|relay| relay.log_lines("WARN")).unwrap_or_default()
    }

    /// Waits for a WARN line with this text, and returns all WARN lines. A separate thread writes the log,
    /// with some delay.
    pub async fn warned_of(&self, text: &str) -> Vec<String> {
        eventually(text, || async { self.warnings().iter().any(|line| line.contains(text)) }).await;
        self.warnings()
    }

    pub fn target(&self) -> &str {
        &self.target
    }

    pub async fn client(&self, kind: impl Into<Downstream>, id: &str) -> Client {
        Client::open(&self.target, kind, id).await
    }

    /// Asserts that no other response reaches this client. Without one upstream stream for all types, no
    /// marker of another type can prove the silence; there the test waits for a period of silence.
    pub async fn quiet(&self, client: &mut Client) {
        match self.upstream {
            Attachment::Ads(_) => client.quiet().await,
            _ => client.silence(SILENCE).await,
        }
    }

    /// A client with `a` of each of the four types: by wildcard for full-state types, else by name.
    pub async fn holding_four(&self, variant: Variant) -> Client {
        for type_url in FOUR {
            self.origin.set(type_url, "a", "1");
        }
        let mut client = self.client(variant, "one").await;
        for type_url in FOUR {
            client.want(type_url, if is_full_state(type_url) { &["*"] } else { &["a"] });
            client.take(type_url).await;
        }
        client
    }

    pub async fn sotw(&self, id: &str) -> Client {
        self.client(Variant::Sotw, id).await
    }

    pub async fn delta(&self, id: &str) -> Client {
        self.client(Variant::Delta, id).await
    }
}

/// Waits a moment for an effect without a trace on the wire.
pub async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}
