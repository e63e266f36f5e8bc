//! The questions to the hook of a plan (WAV-20).

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use futures_util::FutureExt;
use http::Uri;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::task::AbortOnDropHandle;

use crate::client::Webhook;
use crate::driver::ground::context::DriverContext;
use crate::telemetry::rollouts::note_text;
use sluice_fleet::evidence::{PushSet, PushedName};
use sluice_fleet::rollout::hook::{Hook, HookAnswer, HookVerdict};
use sluice_fleet::rollout::{Plan, PushReport};
use sluice_text::is_hidden;
use sluice_xds::{TypeUrl, Version};

/// The changed names in a question.
const CHANGES_MAX: usize = 1_000;

/// The longest reason that is kept, in characters.
const REASON_CHARS_MAX: usize = 500;

/// A hook without an address is taken to be where the default route leads (RFC 5737).
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// The hook of a plan, and the question under way.
pub(super) struct HookClient {
    hook: Hook,
    /// The error: the URL cannot be asked.
    server: Result<Webhook, String>,
    question: Option<StepQuestion>,
}

/// A question to the hook, until it is answered or replaced.
struct StepQuestion {
    push: u64,
    step: u8,
    answer: AbortOnDropHandle<HookAnswer>,
}

/// The answer to a question about a push and a step.
pub(super) struct StepAnswer {
    pub push: u64,
    pub step: u8,
    pub answer: HookAnswer,
}

impl HookClient {
    /// The question of a previous client stays under way, as the machine waits for its answer. Must be called
    /// within a tokio runtime.
    pub(super) fn new(hook: &Hook, previous: Option<HookClient>) -> HookClient {
        let server = Webhook::new(&hook.url, hook.settings.timeout);
        HookClient { hook: hook.clone(), server, question: previous.and_then(|previous| previous.question) }
    }

    /// Whether questions go to this hook, with this time limit.
    pub(super) fn asks(&self, hook: &Hook) -> bool {
        self.hook == *hook
    }

    /// Asks in the background. A question under way is given up.
    pub(super) fn ask(&mut self, push: u64, step: u8, question: Map<String, Value>) {
        let server = self.server.clone();
        let ask = async move {
            let body = server?.post(Value::Object(question).to_string()).await?;
            read(&body)
        };
        let ask = ask.map(|answer| answer.unwrap_or_else(|reason| answer_of(HookVerdict::Failed, &reason)));
        self.question = Some(StepQuestion { push, step, answer: AbortOnDropHandle::new(tokio::spawn(ask)) });
    }

    /// Resolves with the answer to the question under way; never without one.
    pub(super) async fn answer(&mut self) -> StepAnswer {
        let Some(StepQuestion { push, step, answer }) = &mut self.question else {
            return std::future::pending().await;
        };
        let (push, step) = (*push, *step);
        let failed = |_| answer_of(HookVerdict::Failed, "the question failed");
        let answer = answer.await.unwrap_or_else(failed);
        self.question = None;
        StepAnswer { push, step, answer }
    }
}

/// The body of an answer. Other keys are allowed.
#[derive(Deserialize)]
struct AnswerBody {
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
    let body: AnswerBody = serde_json::from_slice(body).map_err(|error| format!("{LIKE}: {error}"))?;
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
    push: &PushReport,
    set: &PushSet,
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
    let body = json!({
        "plan": &*plan.name,
        "mode": plan.mode.name(),
        "relay": settings.node.id,
        "push": push.number,
        "step": step,
        "steps": push.step_count,
        "units": push.units.len(),
        "resources": push.resources(),
        "clients": push.admitted.affected(),
        "others": push.others,
        "changes": changes,
        "more": more,
        "notes": notes,
        "candidate": candidate,
    });
    let (Value::Object(mut body), Value::Object(mut admitted)) = (body, json!(push.admitted)) else {
        return Map::new();
    };
    body.append(&mut admitted);
    body
}

/// The changes by type and name, and the number of those without room.
fn changes_of(set: &PushSet) -> (Vec<Value>, usize) {
    let types = set.units().iter().flat_map(|unit| unit.types.iter());
    let mut all: Vec<(&TypeUrl, &PushedName)> =
        types.flat_map(|part| part.names().map(|change| (&part.type_url, change))).collect();
    let versions = |change: &PushedName| (change.version_before(), change.version());
    // Several units may have the same change.
    all.sort_by_key(|(type_url, change)| (*type_url, &change.name, versions(change)));
    all.dedup_by_key(|(type_url, change)| (*type_url, &change.name, versions(change)));
    let text = |version: Option<Version>| version.map(|version| version.to_string());
    let item = |(type_url, change): &(&TypeUrl, &PushedName)| {
        json!({
            "type": type_url.message(),
            "name": change.name.as_str(),
            "version": text(change.version()),
            "before": text(change.version_before()),
        })
    };
    (all.iter().take(CHANGES_MAX).map(item).collect(), all.len().saturating_sub(CHANGES_MAX))
}

/// The address of the admin listener as the hook may reach it. A listener on all addresses is reached at the
/// one from which the relay itself reaches the hook.
fn seen_by(hook: &Hook, admin: SocketAddr) -> SocketAddr {
    if !admin.ip().is_unspecified() {
        return admin;
    }
    let host = hook.url.parse::<Uri>().ok().and_then(|uri| Some(uri.host()?.to_owned()));
    let towards = host.and_then(|host| host.trim_matches(['[', ']']).parse::<IpAddr>().ok());
    let address = address_towards(towards.unwrap_or(ELSEWHERE));
    SocketAddr::new(address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), admin.port())
}

/// The address of this host in packets to another. Nothing is sent.
fn address_towards(towards: IpAddr) -> Option<IpAddr> {
    let any: SocketAddr = if towards.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().ok()?;
    let socket = UdpSocket::bind(any).ok()?;
    // A connected UDP socket only looks up the route.
    socket.connect((towards, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use sluice_fleet::rollout::hook::HookSettings;

    #[test]
    fn wav_20_a_verdict_is_one_of_three_words() {
        let answer =
            |body: &str| read(body.as_bytes()).map(|answer| (answer.verdict, answer.reason.to_string()));
        assert_eq!(answer(r#"{"verdict":"go"}"#), Ok((HookVerdict::Go, String::new())));
        assert_eq!(answer(r#"{"verdict":"wait","reason":null}"#), Ok((HookVerdict::Wait, String::new())));
        let halt = answer(r#"{"verdict":"halt","reason":" errors\u001b[2J rise ","since":3}"#);
        assert_eq!(halt, Ok((HookVerdict::Halt, "errors [2J rise".to_owned())));
        let long = answer(&format!(r#"{{"verdict":"halt","reason":"{}"}}"#, "ü".repeat(10_000))).unwrap();
        assert_eq!(long.1.chars().count(), REASON_CHARS_MAX);
        let other = answer(r#"{"verdict":"GO"}"#).unwrap_err();
        assert_eq!(other, r#"the answer has the verdict "GO"; expected go, wait or halt"#);
        for body in ["", "yes", "{}", "[]", r#"["go"]"#, r#"{"verdict":1}"#, r#"{"reason":"go"}"#] {
            let error = answer(body).unwrap_err();
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
