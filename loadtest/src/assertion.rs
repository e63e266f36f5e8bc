//! `--assert`: conditions on the figures for a run to succeed.

use std::fmt::{self, Write};

use crate::run::{Figures, Percentiles};

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    None,
    Milliseconds,
    Microseconds,
    Bytes,
    Percent,
}

type Get = fn(&Figures) -> Option<f64>;

/// A figure for assertions.
#[derive(Clone, Copy)]
struct Metric {
    name: &'static str,
    unit: Unit,
    get: Get,
    about: &'static str,
}

const fn metric(name: &'static str, unit: Unit, get: Get, about: &'static str) -> Metric {
    Metric { name, unit, get, about }
}

const METRICS: &[Metric] = &[
    metric(
        "p50",
        Unit::Milliseconds,
        |f| at(f.update_ms, |p| p.p50),
        "from a change to a client's having it",
    ),
    metric("p90", Unit::Milliseconds, |f| at(f.update_ms, |p| p.p90), ""),
    metric("p99", Unit::Milliseconds, |f| at(f.update_ms, |p| p.p99), ""),
    metric("p999", Unit::Milliseconds, |f| at(f.update_ms, |p| p.p999), ""),
    metric("max", Unit::Milliseconds, |f| at(f.update_ms, |p| p.max), ""),
    metric(
        "last_client_ms_p50",
        Unit::Milliseconds,
        |f| f.last_client_ms_p50,
        "from a change to the last client's",
    ),
    metric("last_client_ms_max", Unit::Milliseconds, |f| f.last_client_ms_max, ""),
    metric(
        "first_answer_p50",
        Unit::Milliseconds,
        |f| at(f.first_answer_ms, |p| p.p50),
        "from connect to answer",
    ),
    metric("first_answer_p99", Unit::Milliseconds, |f| at(f.first_answer_ms, |p| p.p99), ""),
    metric("first_answer_max", Unit::Milliseconds, |f| at(f.first_answer_ms, |p| p.max), ""),
    metric("reconnect_p50", Unit::Milliseconds, |f| at(f.reconnect_ms, |p| p.p50), "the same of a reconnect"),
    metric("reconnect_p99", Unit::Milliseconds, |f| at(f.reconnect_ms, |p| p.p99), ""),
    metric("reconnect_max", Unit::Milliseconds, |f| at(f.reconnect_ms, |p| p.max), ""),
    metric(
        "subscribe_p50",
        Unit::Milliseconds,
        |f| at(f.subscribe_ms, |p| p.p50),
        "churn: until names are there",
    ),
    metric("subscribe_p99", Unit::Milliseconds, |f| at(f.subscribe_ms, |p| p.p99), ""),
    metric("subscribe_max", Unit::Milliseconds, |f| at(f.subscribe_ms, |p| p.max), ""),
    metric(
        "rule_p50",
        Unit::Milliseconds,
        |f| at(f.rule_ms, |p| p.p50),
        "rule: until a client has its content",
    ),
    metric("rule_max", Unit::Milliseconds, |f| at(f.rule_ms, |p| p.max), ""),
    metric("recovery_ms", Unit::Milliseconds, |f| f.recovery_ms, "storm, outage: until all are served again"),
    metric(
        "connect_ms",
        Unit::Milliseconds,
        |f| Some(f.connect_ms),
        "until all were served at the beginning",
    ),
    metric("change_late_ms", Unit::Milliseconds, |f| Some(f.change_late_ms), "how late the tool itself was"),
    metric("p99_ratio", Unit::None, |f| f.p99_ratio, "p99 of the last phase by that of the first"),
    metric("server_cpu_us_per_update", Unit::Microseconds, |f| f.server_cpu_us_per_update, "needs --pid"),
    metric("server_cpu_us_per_connect", Unit::Microseconds, |f| f.server_cpu_us_per_connect, "needs --pid"),
    metric(
        "client_cpu_us_per_update",
        Unit::Microseconds,
        |f| f.client_cpu_us_per_update,
        "of the tool's clients",
    ),
    metric("rss_bytes_per_client", Unit::Bytes, |f| f.rss_bytes_per_client, "needs --pid"),
    metric(
        "rss_bytes_per_client_after_changes",
        Unit::Bytes,
        |f| f.rss_bytes_per_client_after_changes,
        "needs --pid",
    ),
    metric(
        "rss_bytes_per_departed_client",
        Unit::Bytes,
        |f| f.rss_bytes_per_departed_client,
        "needs --pid and --leave",
    ),
    metric("bytes_per_update", Unit::Bytes, |f| f.bytes_per_update, "received by a client"),
    metric("updates", Unit::None, |f| Some(f.updates as f64), "changes that clients got"),
    metric("updates_per_s", Unit::None, |f| f.updates_per_s, ""),
    metric("responses", Unit::None, |f| Some(f.responses as f64), "messages that clients got"),
    metric("connected", Unit::None, |f| Some(f.connected as f64), "clients at the end"),
    metric(
        "slow_connects",
        Unit::None,
        |f| Some(f.slow_connects as f64),
        "first answers after more than 1 s",
    ),
    metric("misplaced", Unit::None, |f| Some(f.misplaced as f64), "resources made for other clients"),
    metric("removals", Unit::None, |f| Some(f.removals as f64), "resources that answers took away"),
    metric("streams_ended", Unit::None, |f| Some(f.streams_ended as f64), "by the server"),
    metric("drained", Unit::None, |f| Some(f.drained as f64), "reconnects that the server asked for"),
    metric(
        "odd_disconnected",
        Unit::None,
        |f| Some(f.odd_disconnected as f64),
        "misbehaving clients thrown out",
    ),
    metric("busy", Unit::Percent, |f| Some(f.client_thread_busy * 100.0), "of the tool's clients' thread"),
    metric("errors", Unit::None, |f| Some(f.errors as f64), "kinds of errors"),
];

fn at(percentiles: Option<Percentiles>, of: fn(&Percentiles) -> f64) -> Option<f64> {
    percentiles.as_ref().map(of)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    Unequal,
}

/// Longer signs first: `<=` is not `<` and an equals sign.
const RELATIONS: &[(&str, Relation)] = &[
    ("<=", Relation::LessOrEqual),
    (">=", Relation::GreaterOrEqual),
    ("!=", Relation::Unequal),
    ("==", Relation::Equal),
    ("<", Relation::Less),
    (">", Relation::Greater),
    ("=", Relation::Equal),
];

impl Relation {
    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Relation::Less => left < right,
            Relation::LessOrEqual => left <= right,
            Relation::Greater => left > right,
            Relation::GreaterOrEqual => left >= right,
            Relation::Equal => left == right,
            Relation::Unequal => left != right,
        }
    }
}

/// A condition on a figure.
#[derive(Clone)]
pub struct Assertion {
    text: String,
    metric: Metric,
    relation: Relation,
    /// In the figure's unit.
    value: f64,
}

/// The result of an assertion.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Verdict {
    pub assertion: String,
    pub holds: bool,
    /// The value of the figure, in words.
    pub found: String,
}

impl Assertion {
    /// Parses `FIGURE<VALUE`; the error names the problem.
    pub fn parse(text: &str) -> Result<Assertion, String> {
        let split = |(sign, relation): &(&'static str, Relation)| {
            text.split_once(sign).map(|(name, value)| (name.trim(), *relation, value.trim()))
        };
        let (name, relation, value) =
            RELATIONS.iter().find_map(split).ok_or("there is none of < <= > >= = != in it")?;
        let metric = METRICS.iter().find(|metric| metric.name == name);
        let metric = *metric.ok_or_else(|| format!("there is no figure {name:?}; --help lists them"))?;
        let value = parse_value(value, metric.unit)?;
        Ok(Assertion { text: text.to_owned(), metric, relation, value })
    }

    pub fn judge(&self, figures: &Figures) -> Verdict {
        let found = (self.metric.get)(figures);
        let holds = found.is_some_and(|found| self.relation.holds(found, self.value));
        let found = match found {
            Some(found) => format!("{found:.3}{}", self.metric.unit),
            None => "not measured in this run".to_owned(),
        };
        Verdict { assertion: self.text.clone(), holds, found }
    }
}

/// A number and a unit, converted to the unit of the figure.
fn parse_value(text: &str, unit: Unit) -> Result<f64, String> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let number: f64 = number.parse().map_err(|_| format!("{text:?} does not begin with a number"))?;
    let factor = match (unit, suffix.trim()) {
        (_, "") => 1.0,
        (Unit::Milliseconds, "ms")
        | (Unit::Microseconds, "us")
        | (Unit::Bytes, "B")
        | (Unit::Percent, "%") => 1.0,
        (Unit::Milliseconds, "us") => 1e-3,
        (Unit::Milliseconds, "s") => 1e3,
        (Unit::Microseconds, "ms") => 1e3,
        (Unit::Microseconds, "s") => 1e6,
        (Unit::Bytes, "KB") => 1e3,
        (Unit::Bytes, "MB") => 1e6,
        (Unit::Bytes, "KiB") => 1024.0,
        (Unit::Bytes, "MiB") => 1024.0 * 1024.0,
        (_, suffix) => return Err(format!("{suffix:?} is no unit of this figure")),
    };
    Ok(number * factor)
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::None => "",
            Unit::Milliseconds => " ms",
            Unit::Microseconds => " us",
            Unit::Bytes => " B",
            Unit::Percent => " %",
        })
    }
}

/// The list of figures, for `--help`.
pub fn help() -> String {
    let mut out =
        "Figures for --assert, with < <= > >= = != and a number; ms, us, s, B, KB, KiB, MB, MiB or % may \
                   follow it:\n"
            .to_owned();
    for metric in METRICS {
        let line = format!("  {:<36}{:<5}{}", metric.name, metric.unit.to_string().trim(), metric.about);
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn value(text: &str) -> Result<(&'static str, Relation, f64), String> {
        Assertion::parse(text).map(|assertion| (assertion.metric.name, assertion.relation, assertion.value))
    }

    #[test]
    fn assertions_are_read_with_their_units() {
        assert_eq!(value("p99<200ms"), Ok(("p99", Relation::Less, 200.0)));
        assert_eq!(value("p99 >= 1.5 s"), Ok(("p99", Relation::GreaterOrEqual, 1500.0)));
        assert_eq!(value("errors=0"), Ok(("errors", Relation::Equal, 0.0)));
        assert_eq!(value("errors==0"), Ok(("errors", Relation::Equal, 0.0)));
        let bytes = Ok(("rss_bytes_per_client", Relation::LessOrEqual, 24.0 * 1024.0));
        assert_eq!(value("rss_bytes_per_client<=24KiB"), bytes);
        assert_eq!(value("server_cpu_us_per_update != 1ms").unwrap().2, 1000.0);
    }

    #[test]
    fn what_is_wrong_with_an_assertion_is_told() {
        for (text, words) in [
            ("p99", "none of"),
            ("p98<1", "no figure \"p98\""),
            ("p99<fast", "does not begin with a number"),
            ("p99<20KiB", "\"KiB\" is no unit"),
            ("errors=0ms", "\"ms\" is no unit"),
        ] {
            let error = value(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn relations_mean_what_they_say() {
        for (_, relation) in RELATIONS {
            let holds = [1.0, 2.0, 3.0].map(|left| relation.holds(left, 2.0));
            let expected = match relation {
                Relation::Less => [true, false, false],
                Relation::LessOrEqual => [true, true, false],
                Relation::Greater => [false, false, true],
                Relation::GreaterOrEqual => [false, true, true],
                Relation::Equal => [false, true, false],
                Relation::Unequal => [true, false, true],
            };
            assert_eq!(holds, expected, "{relation:?}");
        }
    }

    #[test]
    fn help_names_every_figure() {
        let help = help();
        assert!(METRICS.iter().all(|metric| help.contains(metric.name)));
    }
}
