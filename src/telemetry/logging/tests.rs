#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::mpsc::Sender;

use parking_lot::Mutex;
use tracing::subscriber::with_default;

use super::line::VALUE_BYTES_MAX;
use super::*;
use crate::telemetry::Metrics;

/// What was written, for all to see.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Says that a write has begun, then takes no byte until its sender is dropped.
struct Blocked {
    begun: Sender<()>,
    release: Receiver<()>,
}

impl Write for Blocked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.begun.send(());
        let _ = self.release.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn logged(format: LogFormat, directives: &str, events: impl FnOnce()) -> String {
    let metrics = Metrics::new();
    let written = Written::default();
    let (sink, guard) = LineSink::start(written.clone(), metrics.log.dropped.clone()).unwrap();
    let (subscriber, _) = subscriber(InForce::new(format), parse_directives(directives).unwrap(), sink);
    with_default(subscriber, events);
    drop(guard);
    assert_eq!(metrics.log.dropped.get(), 0);
    String::from_utf8(written.0.lock().clone()).unwrap()
}

#[test]
fn the_http2_library_logs_when_named() {
    let event = || tracing::warn!(target: "h2::proto", "locally-reset streams reached limit");
    for (directives, is_logged) in [("info", false), ("trace,sluice=info", false), ("info,h2=warn", true)] {
        assert_eq!(!logged(LogFormat::Text, directives, event).is_empty(), is_logged, "{directives}");
    }
}

#[test]
fn lines_are_text_or_json_with_their_fields() {
    let event = || tracing::warn!(server = "cp-1", failures = 3, "can't connect");
    let text = logged(LogFormat::Text, "info", event);
    assert!(text.ends_with("can't connect server=\"cp-1\" failures=3\n"), "{text}");
    assert!(!text.contains('\u{1b}'), "no colours: {text}");
    let json: serde_json::Value = serde_json::from_str(&logged(LogFormat::Json, "info", event)).unwrap();
    assert_eq!(json["level"], "WARN");
    assert_eq!(json["message"], "can't connect");
    assert_eq!(json["server"], "cp-1");
    assert_eq!(json["failures"], 3);
}

/// Whoever logs it, and however: `%`, `?`, as a string, as an error, in the message.
#[test]
fn what_peers_say_stays_within_its_line_and_its_length() {
    const FORGED: &str = "a\n2026-01-01 ERROR b\r\u{1b}[31mc\u{9b}1m\u{7f}\u{2028}\u{202e}\0d";
    let event = || {
        let error: Box<dyn std::error::Error + 'static> = FORGED.into();
        tracing::warn!(shown = %FORGED, debugged = ?FORGED, plain = FORGED, error = &*error, "message {FORGED}");
        tracing::warn!(long = %"\u{1b}".repeat(1 << 20), more = ?vec!["y"; 1 << 20], r#type = "t", "{}", "z".repeat(1 << 20));
    };
    for format in [LogFormat::Text, LogFormat::Json] {
        let log = logged(format, "info", event);
        assert!(log.lines().count() == 2 && log.ends_with('\n'), "{log}");
        let unprintable = |c: char| c != '\n' && (c.is_control() || matches!(c, '\u{2028}' | '\u{202e}'));
        assert!(!log.contains(unprintable), "{log}");
        assert!(log.len() < 10 * VALUE_BYTES_MAX, "{}", log.len());
        assert!(log.contains("type"), "{log}");
        for line in log.lines().filter(|_| format == LogFormat::Json) {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(["shown", "plain", "error"].iter().all(|key| line[key].is_null() || line[key] == FORGED));
        }
    }
    let text = logged(LogFormat::Text, "info", event);
    assert!(
        text.contains(r"shown=a\n2026-01-01 ERROR b\r\u{1b}[31mc\u{9b}1m\u{7f}\u{2028}\u{202e}\0d debugged="),
        "{text}"
    );
}

#[test]
fn a_value_is_never_taken_for_another_field() {
    let error = "gone server=other class=\"forged\"";
    let shown = logged(LogFormat::Text, "info", || tracing::warn!(error = %error, after = 1, "m"));
    assert!(shown.ends_with("m error=\"gone server=other class=\\\"forged\\\"\" after=1\n"), "{shown}");
    let quoted = logged(LogFormat::Text, "info", || tracing::warn!(error = error, after = 1, "m"));
    assert_eq!(quoted[quoted.find("m error").unwrap()..], shown[shown.find("m error").unwrap()..]);
    // What only looks like a literal is none, and a backslash before the quote ends nothing.
    for (said, expected) in [
        (r#""a" b=c"#, r#"e="\"a\" b=c" z=1"#),
        (r#"\" b=c"#, r#"e="\\\" b=c" z=1"#),
        (r#""a b=c\""#, r#"e="\"a b=c\\\"" z=1"#),
    ] {
        let line = logged(LogFormat::Text, "info", || tracing::warn!(e = %said, z = 1, "m"));
        assert!(line.trim_end().ends_with(expected), "{line}");
    }
    // What nobody can mistake stays as it is.
    let plain =
        logged(LogFormat::Text, "info", || tracing::warn!(error = %"UNAVAILABLE: no route", a = %"x=y", "m"));
    assert!(plain.ends_with("m error=UNAVAILABLE: no route a=x=y\n"), "{plain}");
    let long = logged(LogFormat::Text, "info", || {
        tracing::warn!(names = ?"x=y ".repeat(VALUE_BYTES_MAX), last = true, "m");
    });
    assert!(long.ends_with("…\" last=true\n"), "{}", &long[long.len() - 40..]);
}

#[test]
fn directives_choose_levels_by_target() {
    let text = logged(LogFormat::Text, "warn,chatty=trace", || {
        tracing::info!("not this");
        tracing::trace!(target: "chatty", "but this");
    });
    assert!(text.contains("but this") && !text.contains("not this"), "{text}");
    assert!(matches!(parse_directives("info,=="), Err(LogError::Directives { .. })));
    assert!(matches!(parse_directives("sluice=loud"), Err(LogError::Directives { .. })));
}

#[test]
fn rel_5_lines_follow_the_format_and_the_directives_in_force() {
    let (metrics, written, format) = (Metrics::new(), Written::default(), InForce::new(LogFormat::Text));
    let (sink, guard) = LineSink::start(written.clone(), metrics.log.dropped.clone()).unwrap();
    let (subscriber, filter) = subscriber(format.clone(), parse_directives("warn").unwrap(), sink);
    with_default(subscriber, || {
        let say = |text: &str| tracing::info!("{text}");
        say("too early");
        filter.publish("info").unwrap();
        say("as text");
        format.publish(LogFormat::Json);
        say("as JSON");
        assert!(filter.publish("info,==").is_err());
        filter.publish("warn").unwrap();
        say("too late");
    });
    drop(guard);
    let log = String::from_utf8(written.0.lock().clone()).unwrap();
    let lines: Vec<_> = log.lines().collect();
    assert!(lines.len() == 2 && lines[0].ends_with("as text"), "{log}");
    assert_eq!(serde_json::from_str::<serde_json::Value>(lines[1]).unwrap()["message"], "as JSON");
}

#[test]
fn fp_14_a_blocked_sink_drops_lines_and_never_blocks() {
    let metrics = Metrics::new();
    let (begun, has_begun) = channel();
    let (hold, release) = channel();
    let (sink, guard) = LineSink::start(Blocked { begun, release }, metrics.log.dropped.clone()).unwrap();
    sink.push(b"the writer is stuck with this one");
    has_begun.recv().unwrap();
    for _ in 0..LINES_MAX + 500 {
        sink.push(b"line");
    }
    assert_eq!(metrics.log.dropped.get(), 500);
    drop(guard);
    drop(hold);
}

#[test]
fn fp_14_a_blocked_sink_holds_the_end_no_longer_than_told() {
    let metrics = Metrics::new();
    let (begun, has_begun) = channel();
    let (hold, release) = channel();
    let (sink, mut guard) = LineSink::start(Blocked { begun, release }, metrics.log.dropped.clone()).unwrap();
    sink.push(b"the writer is stuck with this one");
    has_begun.recv().unwrap();
    guard.wait_at_most(Duration::from_millis(10));
    let (ended, has_ended) = channel();
    let end = std::thread::spawn(move || {
        drop(guard);
        ended.send(())
    });
    assert!(has_ended.recv_timeout(FLUSH_TIMEOUT / 2).is_ok());
    drop(hold);
    end.join().unwrap().unwrap();
}

#[test]
fn fp_14_what_waits_is_bounded_in_bytes() {
    let metrics = Metrics::new();
    let (begun, has_begun) = channel();
    let (hold, release) = channel();
    let (sink, guard) = LineSink::start(Blocked { begun, release }, metrics.log.dropped.clone()).unwrap();
    sink.push(b"the writer is stuck with this one");
    has_begun.recv().unwrap();
    let large = vec![b'x'; BYTES_MAX / 4];
    for _ in 0..5 {
        sink.push(&large);
    }
    assert_eq!(metrics.log.dropped.get(), 2, "the stuck line counts, so the fourth does not fit either");
    drop(hold);
    drop(guard);
}
