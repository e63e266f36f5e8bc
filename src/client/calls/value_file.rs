//! One value of call metadata in a file that an agent rotates (IDN-9, IDN-12).

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use http::HeaderValue;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tracing::{info, warn};

use super::token::{VALUE_BYTES_MAX, token_expiry};
use crate::client::settings::backoff;
use crate::telemetry::wall_now;
use crate::trust::contents::read_text;
use sluice_setting::Backoff;
use sluice_xds::{Code, Status};

/// A token is not sent in the last 30 s of its life: the clock of the server may be ahead (gRFC A97).
const UNUSABLE: Duration = Duration::from_secs(30);

/// A token is read anew in the last minute of its life (gRFC A97).
const RENEWAL: Duration = Duration::from_secs(60);

/// How long a value without an expiry is used before the file is read again. A storm of calls reads the file
/// once.
const CONSTANT_FOR: Duration = Duration::from_secs(1);

/// The kind of the value in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A JSON Web Token.
    Token,
    /// Any text.
    Constant,
}

#[derive(Debug)]
pub(super) struct ValueFile {
    path: PathBuf,
    content: Content,
    /// Locked while the file is read, so that all calls that wait share the result.
    state: Mutex<FileState>,
}

#[derive(Debug, Default)]
struct FileState {
    value: Option<ReadValue>,
    /// The last reading failed.
    failure: Option<ReadFailure>,
}

#[derive(Clone, Debug)]
struct ReadValue {
    header: HeaderValue,
    read_at: Instant,
    /// Tokens only.
    expires: Option<SystemTime>,
}

#[derive(Debug)]
struct ReadFailure {
    status: Status,
    in_a_row: u32,
    retry_at: Instant,
}

impl ValueFile {
    pub(super) fn new(path: PathBuf, content: Content) -> ValueFile {
        ValueFile { path, content, state: Mutex::default() }
    }

    /// The value of the header for a call that begins now.
    ///
    /// # Errors
    /// UNAVAILABLE if the file is unreadable, UNAUTHENTICATED if its content is no token that can be used.
    pub(super) async fn value(&self, settings: &Backoff) -> Result<HeaderValue, Status> {
        let mut state = self.state.lock().await;
        let is_due = state.value.as_ref().is_none_or(|value| value.is_due(wall_now()));
        let may_read = state.failure.as_ref().is_none_or(|failure| failure.retry_at <= Instant::now());
        if is_due && may_read {
            let (path, content) = (self.path.clone(), self.content);
            let read = spawn_blocking(move || read(&path, content, wall_now())).await;
            let read = read.unwrap_or_else(|error| Err((Code::Internal, error.to_string())));
            self.settle(&mut state, read, settings);
        }
        match (&state.value, &state.failure) {
            (Some(value), _) if value.is_usable(wall_now()) => Ok(value.header.clone()),
            (_, Some(failure)) => Err(failure.status.clone()),
            // The last good token has expired since the file was read, and is read again after the backoff.
            _ => Err(Status::new(Code::Unauthenticated, format!("{}: expired", self.path.display()))),
        }
    }

    fn settle(&self, state: &mut FileState, read: Result<ReadValue, (Code, String)>, settings: &Backoff) {
        match read {
            Ok(value) => {
                if state.failure.take().is_some() {
                    info!(file = %self.path.display(), "the file of call metadata is usable again");
                }
                state.value = Some(value);
            }
            Err((code, reason)) => {
                let in_a_row = state.failure.as_ref().map_or(0, |failure| failure.in_a_row + 1);
                let delay = backoff(settings, in_a_row, fastrand::f64());
                if in_a_row == 0 {
                    warn!(file = %self.path.display(), %reason, "the file of call metadata is unusable");
                }
                let status = Status::new(code, format!("{}: {reason}", self.path.display()));
                state.failure = Some(ReadFailure { status, in_a_row, retry_at: Instant::now() + delay });
            }
        }
    }
}

impl ReadValue {
    fn is_due(&self, now: SystemTime) -> bool {
        match self.expires {
            Some(expires) => expires <= now + RENEWAL,
            None => self.read_at.elapsed() >= CONSTANT_FOR,
        }
    }

    fn is_usable(&self, now: SystemTime) -> bool {
        self.expires.is_none_or(|expires| now + UNUSABLE < expires)
    }
}

/// Reads the file once. No reason names any part of the content (TLS-14).
fn read(path: &Path, content: Content, now: SystemTime) -> Result<ReadValue, (Code, String)> {
    let unavailable = |reason: String| (Code::Unavailable, reason);
    let text = read_text(path, VALUE_BYTES_MAX as u64).map_err(|error| unavailable(error.to_string()))?;
    let text = text.trim();
    if text.is_empty() {
        return Err(unavailable("empty".to_owned()));
    }
    let (header, expires) = match content {
        Content::Constant => (text.to_owned(), None),
        Content::Token => {
            let unauthenticated = |reason: String| (Code::Unauthenticated, reason);
            let expires = token_expiry(text).map_err(|error| unauthenticated(error.to_string()))?;
            if expires <= now + UNUSABLE {
                let left = expires.duration_since(now).map(|left| left.as_secs());
                return Err(unauthenticated(match left {
                    Ok(left) => format!("the token expires in {left} s, too soon to be sent"),
                    Err(past) => format!("the token expired {} s ago", past.duration().as_secs()),
                }));
            }
            (format!("Bearer {text}"), Some(expires))
        }
    };
    let mut header = HeaderValue::from_str(&header)
        .map_err(|_| unavailable("the content has characters that no header can have".to_owned()))?;
    header.set_sensitive(true);
    Ok(ReadValue { header, read_at: Instant::now(), expires })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use tempfile::TempDir;

    use super::*;

    struct Bench {
        directory: TempDir,
        file: ValueFile,
    }

    impl Bench {
        fn new(content: Content) -> Bench {
            let directory = tempfile::tempdir().unwrap();
            let file = ValueFile::new(directory.path().join("value"), content);
            Bench { directory, file }
        }

        fn write(&self, text: &str) {
            let new = self.directory.path().join("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(new, &self.file.path).unwrap();
        }

        async fn value(&self) -> Result<String, Code> {
            let value = self.file.value(&Backoff::default()).await.map_err(|status| status.code)?;
            assert!(value.is_sensitive());
            Ok(value.to_str().unwrap().to_owned())
        }
    }

    /// A token with this much of its life left.
    fn token(name: &str, seconds: i64) -> String {
        let now = wall_now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
        let claims = format!("{{\"exp\":{}}}", now + seconds);
        format!("{name}.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
    }

    #[tokio::test(start_paused = true)]
    async fn idn_9_a_token_is_used_until_its_last_minute() {
        let bench = Bench::new(Content::Token);
        let (long, last_minute) = (token("a", 3600), token("b", 50));
        bench.write(&format!("{long}\n"));
        assert_eq!(bench.value().await, Ok(format!("Bearer {long}")));
        std::fs::remove_file(&bench.file.path).unwrap();
        assert_eq!(bench.value().await, Ok(format!("Bearer {long}")), "not read before it is due");

        bench.file.state.lock().await.value = None;
        bench.write(&last_minute);
        assert_eq!(bench.value().await, Ok(format!("Bearer {last_minute}")));
        std::fs::remove_file(&bench.file.path).unwrap();
        assert_eq!(
            bench.value().await,
            Ok(format!("Bearer {last_minute}")),
            "usable until 30 s before its end"
        );
        bench.write(&long);
        assert_eq!(bench.value().await, Ok(format!("Bearer {last_minute}")), "within the backoff");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(bench.value().await, Ok(format!("Bearer {long}")));
    }

    #[tokio::test(start_paused = true)]
    async fn idn_9_an_unusable_token_fails_the_call_and_is_not_read_before_a_backoff() {
        let bench = Bench::new(Content::Token);
        assert_eq!(bench.value().await, Err(Code::Unavailable));
        bench.write(&token("a", 3600));
        assert_eq!(bench.value().await, Err(Code::Unavailable), "within the backoff");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(bench.value().await.is_ok());
        for (text, code) in [
            ("", Code::Unavailable),
            ("e30.e30.c2ln", Code::Unauthenticated),
            ("no token", Code::Unauthenticated),
            (&token("a", 20), Code::Unauthenticated),
            (&token("a", -20), Code::Unauthenticated),
            (&"a".repeat(VALUE_BYTES_MAX + 1), Code::Unavailable),
        ] {
            let bench = Bench::new(Content::Token);
            bench.write(text);
            let status = bench.file.value(&Backoff::default()).await.unwrap_err();
            assert_eq!(status.code, code, "{status}");
            assert!(text.is_empty() || !status.message.contains(text), "part of the token in {status}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn idn_12_a_constant_is_read_anew_and_the_last_good_one_stays() {
        let bench = Bench::new(Content::Constant);
        bench.write("first\n");
        assert_eq!(bench.value().await, Ok("first".to_owned()));
        bench.write("second");
        assert_eq!(bench.value().await, Ok("first".to_owned()), "a storm of calls reads once");
        tokio::time::advance(CONSTANT_FOR).await;
        assert_eq!(bench.value().await, Ok("second".to_owned()));
        bench.write("");
        tokio::time::advance(CONSTANT_FOR).await;
        assert_eq!(bench.value().await, Ok("second".to_owned()));
        bench.write("a\nb");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(bench.value().await, Ok("second".to_owned()), "no header has two lines");
    }
}
