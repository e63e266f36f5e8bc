//! The questions to the hook of a plan (WAV-20).

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use futures_util::FutureExt;
use http::Uri;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::client::Webhook;
use crate::driver::ground::context::DriverContext;
use crate::driver::rollout::task::PlanTask;
use crate::engine::downstream::{PushSet, PushedName};
use crate::engine::rollout::hook::{Hook, HookAnswer, HookVerdict};
use crate::engine::rollout::{Counts, Plan, PushReport};
use crate::telemetry::rollouts::note_text;
use crate::text::is_hidden;
use crate::xds::{TypeUrl, Version};

/// The changed names in a question.
const CHANGES_MAX: usize = 1_000;

/// The longest reason that is kept, in characters.
const REASON_CHARS_MAX: usize = 500;

/// A hook without an address is taken to be where the default route leads (RFC 5737).
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

impl PlanTask {
    /// The configuration may have another hook, or none.
    pub(super) fn follow_hook(&mut self) {
        let hook = self.plan.hook.as_ref();
        let is_asked = |asking: &Asking| hook.is_some_and(|hook| asking.is_of(hook));
        if !self.asking.as_ref().is_some_and(is_asked) {
            let former = self.asking.take();
            self.asking = hook.map(|hook| Asking::new(hook, former));
        }
        if self.asking.is_some() {
            self.metrics.expect_hook();
        }
    }

    pub(super) fn ask(&mut self, push: u64, step: u8) {
        let report = self.rollout.under_way().filter(|of| of.number == push);
        let clients = self.clients.as_ref().filter(|of| of.number == push);
        if let (Some(asking), Some(report), Some(clients)) = (&mut self.asking, report, clients) {
            let content = (report, &clients.watched.set);
            asking.ask((push, step), question(&self.plan, step, content, &self.shared));
        }
    }

    pub(super) fn hear(&mut self, said: Said) {
        let Said { push, step, answer } = said;
        self.metrics.hook_answers(answer.verdict).inc();
        self.rollout.hook_said(push, step, answer, self.shared.clock.now());
        // A push that may go on does so by the next tally.
        self.tally_due = Instant::now();
    }
}

/// The hook of a plan, and the question under way.
pub(super) struct Asking {
    hook: Hook,
    /// The error: the URL cannot be asked.
    server: Result<Webhook, String>,
    asked: Option<Asked>,
}

/// A question to the hook, until it is answered or replaced.
struct Asked {
    push: u64,
    step: u8,
    answer: AbortOnDropHandle<HookAnswer>,
}

/// The answer to a question about a push and a step.
pub(super) struct Said {
    pub push: u64,
    pub step: u8,
    pub answer: HookAnswer,
}

impl Asking {
    /// A question under way stays, as the machine waits for its answer. Must be called within a tokio runtime.
    pub(super) fn new(hook: &Hook, former: Option<Asking>) -> Asking {
        let server = Webhook::new(&hook.url, hook.settings.timeout);
        Asking { hook: hook.clone(), server, asked: former.and_then(|former| former.asked) }
    }

    /// Whether questions go to this hook, with this time limit.
    pub(super) fn is_of(&self, hook: &Hook) -> bool {
        self.hook == *hook
    }

    /// Asks in the background. A question under way is given up.
    pub(super) fn ask(&mut self, (push, step): (u64, u8), question: Map<String, Value>) {
        let server = self.server.clone();
        let ask = async move {
            let posted = server?.post(Value::Object(question).to_string()).await?;
            read(&posted)
        };
        let ask = ask.map(|said| said.unwrap_or_else(|reason| answer_of(HookVerdict::Failed, &reason)));
        self.asked = Some(Asked { push, step, answer: AbortOnDropHandle::new(tokio::spawn(ask)) });
    }

    /// Resolves with the answer to the question under way; never without one.
    pub(super) async fn answered(&mut self) -> Said {
        let Some(Asked { push, step, answer }) = &mut self.asked else { return std::future::pending().await };
        let (push, step) = (*push, *step);
        let failed = |_| answer_of(HookVerdict::Failed, "the question failed");
        let answer = answer.await.unwrap_or_else(failed);
        self.asked = None;
        Said { push, step, answer }
    }
}

/// The body of an answer. Other keys are allowed.
#[derive(Deserialize)]
struct Body {
    verdict: String,
    #[serde(default)]
    reason: Option<String>,
}

/// # Errors
/// The body has no verdict.
fn read(body: &[u8]) -> Result<HookAnswer, String> {
    const LIKE: &str = r#"the answer is not like {"verdict":"go","reason":"…"}"#;
    // A derived reader takes a list of values as well.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(format!("{LIKE}: no object"));
    }
    let body: Body = serde_json::from_slice(body).map_err(|error| format!("{LIKE}: {error}"))?;
    let verdict = match body.verdict.as_str() {
        "go" => HookVerdict::Go,
        "wait" => HookVerdict::Wait,
        "halt" => HookVerdict::Halt,
        other => return Err(format!("the answer has the verdict {other:?}; expected go, wait or halt")),
    };
    Ok(answer_of(verdict, &body.reason.unwrap_or_default()))
}

/// An answer with the begin of a foreign text, without letters that change the display.
fn answer_of(verdict: HookVerdict, reason: &str) -> HookAnswer {
    let letters = reason.trim().chars().map(|letter| if is_hidden(letter) { ' ' } else { letter });
    HookAnswer { verdict, reason: letters.take(REASON_CHARS_MAX).collect::<String>().into() }
}

/// The body of a question. The counts have the names that they have in `/rollouts`.
pub(super) fn question(
    plan: &Plan,
    step: u8,
    (push, set): (&PushReport, &PushSet),
    shared: &DriverContext,
) -> Map<String, Value> {
    let settings = shared.settings();
    let (changes, more) = changes_of(set);
    let notes: Vec<_> = push.notes.iter().map(note_text).collect();
    let base = shared.process.admin_address.get().and_then(|address| {
        let scheme = if settings.admin_has_tls { "https" } else { "http" };
        Some(format!("{scheme}://{}", seen_by(plan.hook.as_ref()?, *address)))
    });
    let candidate =
        base.map(|base| format!("{base}/rollouts/{}/pushes/{}/candidate", plan.name, push.number));
    let Value::Object(mut body) = json!({
        "plan": &*plan.name,
        "mode": plan.mode.name(),
        "relay": settings.node.id,
        "push": push.number,
        "step": step,
        "steps": push.step_count,
        "units": push.units.len(),
        "resources": push.resources(),
        "clients": push.admitted.affected(),
        "others": counts(&push.others),
        "changes": changes,
        "more": more,
        "notes": notes,
        "candidate": candidate,
    }) else {
        return Map::new();
    };
    body.append(&mut counts(&push.admitted));
    body
}

fn counts(of: &Counts) -> Map<String, Value> {
    of.named().into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect()
}

/// The changes by type and name, and the number of those without room.
fn changes_of(set: &PushSet) -> (Vec<Value>, usize) {
    let types = set.units().iter().flat_map(|unit| unit.types.iter());
    let mut all: Vec<(&TypeUrl, &PushedName)> =
        types.flat_map(|of| of.names().map(|name| (&of.type_url, name))).collect();
    let versions = |of: &PushedName| (of.version_before(), of.version());
    // Several units may have the same change.
    all.sort_by_key(|(type_url, of)| (*type_url, &of.name, versions(of)));
    all.dedup_by_key(|(type_url, of)| (*type_url, &of.name, versions(of)));
    let text = |version: Option<Version>| version.map(|version| version.to_string());
    let change = |(type_url, of): &(&TypeUrl, &PushedName)| {
        json!({
            "type": type_url.message(),
            "name": of.name.as_str(),
            "version": text(of.version()),
            "before": text(of.version_before()),
        })
    };
    (all.iter().take(CHANGES_MAX).map(change).collect(), all.len().saturating_sub(CHANGES_MAX))
}

/// The address of the admin listener as the hook may reach it. A listener on all addresses is reached at the one from which the relay
/// itself reaches the hook.
fn seen_by(hook: &Hook, admin: SocketAddr) -> SocketAddr {
    if !admin.ip().is_unspecified() {
        return admin;
    }
    let host = hook.url.parse::<Uri>().ok().and_then(|uri| Some(uri.host()?.to_owned()));
    let towards = host.and_then(|host| host.trim_matches(['[', ']']).parse::<IpAddr>().ok());
    let own = own_address(towards.unwrap_or(ELSEWHERE)).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    SocketAddr::new(own, admin.port())
}

/// The address of this host in packets to another. Nothing is sent.
fn own_address(towards: IpAddr) -> Option<IpAddr> {
    let any: SocketAddr = if towards.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().ok()?;
    let socket = UdpSocket::bind(any).ok()?;
    // A connected UDP socket only looks up the route.
    socket.connect((towards, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Resolves with the answer of a hook, if there is one.
pub(super) async fn answered(asking: &mut Option<Asking>) -> Said {
    match asking {
        Some(asking) => asking.answered().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::engine::rollout::hook::HookSettings;

    #[test]
    fn wav_20_a_verdict_is_one_of_three_words() {
        let said = |body: &str| read(body.as_bytes()).map(|said| (said.verdict, said.reason.to_string()));
        assert_eq!(said(r#"{"verdict":"go"}"#), Ok((HookVerdict::Go, String::new())));
        assert_eq!(said(r#"{"verdict":"wait","reason":null}"#), Ok((HookVerdict::Wait, String::new())));
        let halt = said(r#"{"verdict":"halt","reason":" errors\u001b[2J rise ","since":3}"#);
        assert_eq!(halt, Ok((HookVerdict::Halt, "errors [2J rise".to_owned())));
        let long = said(&format!(r#"{{"verdict":"halt","reason":"{}"}}"#, "ü".repeat(10_000))).unwrap();
        assert_eq!(long.1.chars().count(), REASON_CHARS_MAX);
        let other = said(r#"{"verdict":"GO"}"#).unwrap_err();
        assert_eq!(other, r#"the answer has the verdict "GO"; expected go, wait or halt"#);
        for body in ["", "yes", "{}", "[]", r#"["go"]"#, r#"{"verdict":1}"#, r#"{"reason":"go"}"#] {
            let error = said(body).unwrap_err();
            assert!(error.starts_with("the answer is not like {\"verdict\""), "{body}: {error}");
        }
    }

    #[test]
    fn wav_20_a_candidate_is_at_an_address_that_the_hook_can_reach() {
        let seen = |url: &str, admin: &str| {
            let hook = Hook { url: url.into(), settings: HookSettings::default() };
            seen_by(&hook, admin.parse().unwrap()).to_string()
        };
        assert_eq!(seen("http://10.0.0.1/", "10.2.3.4:19000"), "10.2.3.4:19000");
        assert_eq!(seen("http://127.0.0.1:9/gate", "0.0.0.0:19000"), "127.0.0.1:19000");
        assert_eq!(seen("http://[::1]:9/gate", "[::]:19000"), "[::1]:19000");
        assert!(!seen("http://gate.example/", "0.0.0.0:19000").starts_with("0.0.0.0"));
    }
}
