//! Several relays asked as one. Each replica knows only its own clients, so a silent relay is reported, and
//! never makes a list shorter without a word (CMD-1).

use std::fs;
use std::io::Write;

use futures_util::future::join_all;
use http::{HeaderValue, Method};
use serde::de::DeserializeOwned;

use super::address::{Target, relays_at};
use super::arguments::RelayArguments;
use super::connection::{RelayTls, TlsFiles};
use super::outcome::{Failure, Outcome};
use super::request::{Caller, Missing};
use super::text::safe;
use super::typed::Typed;
use crate::config;

/// The longest file with a token.
const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// The status of a relay that does not do something in its present state.
const CONFLICT: u16 = 409;

/// All relays of a command.
#[derive(Debug)]
pub(super) struct Relays {
    pub(super) relays: Vec<Target>,
    pub(super) caller: Caller,
}

/// The answers of all relays.
#[derive(Debug)]
pub(super) struct Answers<T> {
    /// The label of each relay with its answer.
    pub answered: Vec<(String, T)>,
    pub missing: Vec<(String, Missing)>,
}

impl Relays {
    pub(super) async fn new(reach: &RelayArguments) -> Result<Relays, Failure> {
        let tls = RelayTls::read(TlsFiles {
            authorities: reach.ca.clone(),
            pair: reach.cert.clone().zip(reach.key.clone()),
            server_name: reach.server_name.clone(),
        })?;
        let token = reach.token_file.as_deref().map(read_token).transpose()?;
        let default = [config::AdminListener::default().address.to_string()];
        let texts = if reach.relays.is_empty() { &default[..] } else { &reach.relays };
        let resolved = join_all(texts.iter().map(|text| relays_at(text))).await;
        let mut relays: Vec<Target> = Vec::new();
        for (text, resolved) in texts.iter().zip(resolved) {
            let resolved = resolved.map_err(|reason| Failure::Usage(format!("--relay {text}: {reason}")))?;
            for relay in resolved {
                if !relays.contains(&relay) {
                    relays.push(relay);
                }
            }
        }
        if token.is_some()
            && tls.is_none()
            && let Some(open) = relays.iter().find(|relay| !relay.is_local())
        {
            let text = format!("--token-file: {} is not on this host; pass --ca FILE for TLS", open.label);
            return Err(Failure::Usage(text));
        }
        Ok(Relays { relays, caller: Caller { tls, token, timeout: reach.timeout } })
    }

    pub(super) fn are_several(&self) -> bool {
        self.relays.len() > 1
    }

    /// Asks all relays at the same time.
    pub(super) async fn all<T>(
        &self,
        ask: impl AsyncFn(&Caller, &Target) -> Result<T, Missing>,
    ) -> Answers<T> {
        let asked = join_all(self.relays.iter().map(|relay| ask(&self.caller, relay))).await;
        let (mut answered, mut missing) = (Vec::new(), Vec::new());
        for (relay, answer) in self.relays.iter().zip(asked) {
            match answer {
                Ok(answer) => answered.push((relay.label.clone(), answer)),
                Err(reason) => missing.push((relay.label.clone(), reason)),
            }
        }
        Answers { answered, missing }
    }

    pub(super) async fn typed<T: DeserializeOwned>(&self, method: &Method, path: &str) -> Answers<Typed<T>> {
        self.all(async |caller: &Caller, relay: &Target| caller.typed(relay, method, path).await).await
    }
}

impl<T> Answers<T> {
    pub(super) fn values(self) -> impl Iterator<Item = T> {
        self.answered.into_iter().map(|(_, value)| value)
    }

    /// Reports the silent relays. Fails if none answered.
    pub(super) fn report(&self, err: &mut dyn Write) -> Result<Outcome, Failure> {
        if !self.answered.is_empty() {
            for line in self.lines() {
                writeln!(err, "sluice: {line}")?;
            }
            return Ok(if self.missing.is_empty() { Outcome::Good } else { Outcome::Partly });
        }
        let text = self.lines().join("\nsluice: ");
        let is_usage = self.missing.iter().any(|(_, missing)| missing.is_usage());
        Err(if is_usage { Failure::Usage(text) } else { Failure::Unavailable(text) })
    }

    /// As [`Answers::report`]. A refusal because of the relay's state has an exit code of its own.
    pub(super) fn report_state(&self, err: &mut dyn Write) -> Result<Outcome, Failure> {
        let is_conflict = |missing: &Missing| matches!(missing, Missing::Refused { status: CONFLICT, .. });
        match self.report(err) {
            Err(Failure::Usage(text)) if self.missing.iter().all(|(_, missing)| is_conflict(missing)) => {
                Err(Failure::Conflict(text))
            }
            other => other,
        }
    }

    fn lines(&self) -> Vec<String> {
        let lines = self.missing.iter().map(|(label, missing)| {
            let text = missing.text();
            let text: Vec<_> = text.lines().map(safe).collect();
            format!("relay {label}: {}", text.join("\n  "))
        });
        lines.collect()
    }
}

/// The header for the first token of a file.
fn read_token(file: &std::path::Path) -> Result<HeaderValue, Failure> {
    let usage =
        |reason: &dyn std::fmt::Display| Failure::Usage(format!("--token-file {}: {reason}", file.display()));
    let length = fs::metadata(file).map_err(|error| usage(&error))?.len();
    if length > TOKEN_BYTES_MAX {
        return Err(usage(&"too long for a token"));
    }
    let text = fs::read_to_string(file).map_err(|error| usage(&error))?;
    let token = text.lines().map(str::trim).find(|line| !line.is_empty());
    let token = token.ok_or_else(|| usage(&"the file has no token"))?;
    let mut header = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| usage(&"the token has odd characters"))?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(count: usize, missing: &[Missing]) -> Answers<()> {
        let label = |number: usize| format!("r{number}");
        Answers {
            answered: (0..count).map(|number| (label(number), ())).collect(),
            missing: missing
                .iter()
                .cloned()
                .enumerate()
                .map(|(n, missing)| (label(n + 5), missing))
                .collect(),
        }
    }

    #[test]
    fn cmd_1_a_silent_relay_is_a_line_and_exit_code_3() {
        let silent = || Missing::Silent("connection\nrefused\u{1b}".to_owned());
        let refused = Missing::Refused { status: 404, reason: "no such type".to_owned() };
        let mut err = Vec::new();
        assert_eq!(answers(2, &[silent()]).report(&mut err), Ok(Outcome::Partly));
        assert_eq!(err, b"sluice: relay r5: connection\n  refused\\u{1b}\n");
        assert_eq!(answers(2, &[]).report(&mut err), Ok(Outcome::Good));
        let none = answers(0, &[silent(), silent()]).report(&mut err).unwrap_err();
        assert_eq!(none.code(), 69);
        assert_eq!(answers(0, &[silent(), refused]).report(&mut err).unwrap_err().code(), 64);
    }

    #[test]
    fn cmd_2_only_a_refusal_because_of_the_state_is_65() {
        let end = |status: u16| {
            let refused = Missing::Refused { status, reason: "no".to_owned() };
            answers(0, &[refused]).report_state(&mut Vec::new()).unwrap_err().code()
        };
        assert_eq!([400, 404, 409, 503].map(end), [64, 64, 65, 69]);
    }
}
