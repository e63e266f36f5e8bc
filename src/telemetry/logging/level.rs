//! Other log directives for a time, and then those of the configuration again.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::{LogError, LogFilter, parse_directives};

/// The words for levels. A word that is none of them would be the name of a target, and silence all others.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The longest directives. The longest useful ones name some ten targets.
const DIRECTIVES_BYTES_MAX: usize = 1024;

/// The log directives in force.
pub struct LogLevel {
    filter: LogFilter,
    state: Mutex<Directives>,
}

struct Directives {
    configured: String,
    other: Option<TimedDirectives>,
}

/// Directives for a time.
struct TimedDirectives {
    directives: String,
    until: Instant,
    _end: AbortOnDropHandle<()>,
}

/// See [`LogLevel::status`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogStatus {
    pub directives: String,
    pub configured: String,
    /// The time until the configured directives are in force again; `None` if they are.
    pub left: Option<Duration>,
}

impl LogLevel {
    /// `configured`: the directives of the configuration, in force.
    pub fn new(filter: LogFilter, configured: String) -> Arc<LogLevel> {
        Arc::new(LogLevel { filter, state: Mutex::new(Directives { configured, other: None }) })
    }

    /// Takes the directives of another configuration over. Other directives for a time stay until their end.
    ///
    /// # Errors
    /// The directives are unreadable, or logging has ended; those in force stay.
    pub fn configure(&self, directives: &str) -> Result<(), LogError> {
        let mut state = self.state.lock();
        match &state.other {
            Some(_) => drop(parse_directives(directives)?),
            None => self.filter.publish(directives)?,
        }
        state.configured = directives.to_owned();
        Ok(())
    }

    /// Puts directives in force for a time. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The directives are unreadable; those in force stay.
    pub fn set(self: &Arc<Self>, directives: &str, duration: Duration) -> Result<(), LogError> {
        check(directives)?;
        let mut state = self.state.lock();
        self.filter.publish(directives)?;
        let (until, level) = (Instant::now() + duration, self.clone());
        let end = tokio::spawn(async move {
            sleep_until(until).await;
            // Configured directives were in force before, so they are readable.
            let _ = level.reset();
        });
        let end = AbortOnDropHandle::new(end);
        state.other = Some(TimedDirectives { directives: directives.to_owned(), until, _end: end });
        tracing::info!(directives, seconds = duration.as_secs(), "log directives for a time");
        Ok(())
    }

    /// Puts the configured directives in force.
    ///
    /// # Errors
    /// Logging has ended.
    pub fn reset(&self) -> Result<(), LogError> {
        let mut state = self.state.lock();
        self.filter.publish(&state.configured)?;
        if state.other.take().is_some() {
            tracing::info!(directives = state.configured, "the log directives of the configuration again");
        }
        Ok(())
    }

    pub fn status(&self) -> LogStatus {
        let state = self.state.lock();
        let (directives, left) = match &state.other {
            Some(other) => {
                (other.directives.clone(), Some(other.until.saturating_duration_since(Instant::now())))
            }
            None => (state.configured.clone(), None),
        };
        LogStatus { directives, configured: state.configured.clone(), left }
    }
}

fn check(directives: &str) -> Result<(), LogError> {
    let refuse = |reason: String| {
        let directives: String = directives.chars().take(DIRECTIVES_BYTES_MAX).collect();
        Err(LogError::Directives { directives, reason })
    };
    if directives.len() > DIRECTIVES_BYTES_MAX {
        return refuse(format!("longer than {DIRECTIVES_BYTES_MAX} bytes"));
    }
    let level =
        |part: &str| part.split_once('=').map_or(part, |(_, level)| level).trim().to_ascii_lowercase();
    match directives.split(',').find(|part| !LEVELS.contains(&level(part).as_str())) {
        Some(part) => refuse(format!("{part:?} is not LEVEL or TARGET=LEVEL; levels: {}", LEVELS.join(", "))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn directives_for_a_time_end_by_themselves() {
        let published = Arc::new(Mutex::new(Vec::new()));
        let seen = published.clone();
        let filter = LogFilter(Box::new(move |filter| {
            seen.lock().push(filter.to_string().replace("h2=off,", "").replace("kube_client=off,", ""));
            Ok(())
        }));
        let level = LogLevel::new(filter, "info".to_owned());
        let now = || published.lock().last().cloned();
        for wrong in ["debgu", "", "sluice=loud", "info,", &"info,".repeat(500)] {
            assert!(level.set(wrong, Duration::from_secs(5)).is_err(), "{wrong}");
        }
        assert_eq!((now(), level.status().left), (None, None));

        level.set("debug", Duration::from_secs(5)).unwrap();
        tokio::time::sleep(Duration::from_secs(4)).await;
        level.set("sluice::client=trace,warn", Duration::from_secs(5)).unwrap();
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(
            now().as_deref(),
            Some("sluice::client=trace,warn"),
            "the first time has no effect any more"
        );
        let status = level.status();
        assert_eq!(
            (status.directives.as_str(), status.configured.as_str()),
            ("sluice::client=trace,warn", "info")
        );
        assert_eq!(status.left, Some(Duration::from_secs(1)));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!((now().as_deref(), level.status().left), (Some("info"), None));

        level.set("trace", Duration::from_secs(5)).unwrap();
        assert!(level.configure("sluice=loud").is_err());
        level.configure("warn").unwrap();
        assert_eq!((now().as_deref(), level.status().configured.as_str()), (Some("trace"), "warn"));
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(now().as_deref(), Some("warn"), "REL-5: those of the new configuration");
        level.configure("info").unwrap();
        assert_eq!(now().as_deref(), Some("info"));

        level.set("off", Duration::from_secs(5)).unwrap();
        level.reset().unwrap();
        assert_eq!((now().as_deref(), level.status().directives.as_str()), (Some("info"), "info"));
    }
}
