//! Plots as SVG, made here so that they need no script (PAG-1).

use std::time::Duration;

use askama::Template;

use super::text::count;
use crate::driver::api::changes::ChangeStatus;
use crate::text::span;

/// The width of a bar in its own units.
const BAR_WIDTH: f64 = 200.0;

/// A bar of clients by state, and the same in words.
#[derive(Template)]
#[template(path = "bar.html")]
pub(super) struct Bar {
    /// Per part: look, left end, width.
    parts: Vec<(&'static str, f64, f64)>,
    says: String,
}

impl Bar {
    /// Parts with their look, their number and their word.
    pub fn of<const N: usize>(parts: [(&'static str, usize, &'static str); N]) -> Bar {
        let total = parts.iter().map(|(_, number, _)| *number).sum::<usize>().max(1) as f64;
        let (mut left, mut drawn, mut said) = (0.0, Vec::new(), Vec::new());
        for (look, number, word) in parts.into_iter().filter(|(_, number, _)| *number > 0) {
            // Also the smallest part can be seen: three rejections among 10,000 clients are the news.
            let width = (number as f64 / total * BAR_WIDTH).max(4.0);
            drawn.push((look, left, width));
            left += width;
            said.push(format!("{} {word}", count(number)));
        }
        let squeeze = BAR_WIDTH / left.max(BAR_WIDTH);
        let parts = drawn.into_iter().map(|(look, left, width)| (look, left * squeeze, width * squeeze));
        let says = if said.is_empty() { "no client".to_owned() } else { said.join(", ") };
        Bar { parts: parts.collect(), says }
    }
}

/// The plot of the changes of the last hour: how long clients waited for each.
#[derive(Template)]
#[template(path = "delivery.html")]
pub(super) struct Delivery {
    marks: Vec<Mark>,
    /// Lines of the grid: place and label.
    rows: Vec<(f64, String)>,
    columns: Vec<(f64, String)>,
}

struct Mark {
    id: String,
    x: f64,
    median: f64,
    slowest: f64,
    rejected: bool,
    says: String,
}

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 170.0;
/// Room for labels, also for the large ones of a narrow window.
const LEFT: f64 = 92.0;
const HOUR: f64 = 3_600.0;

/// Waits from a millisecond to a minute, on a logarithmic scale.
const FASTEST: f64 = 0.001;
const SLOWEST: f64 = 60.0;

fn y_of(seconds: f64) -> f64 {
    let part = (seconds.clamp(FASTEST, SLOWEST) / FASTEST).ln() / (SLOWEST / FASTEST).ln();
    HEIGHT - 28.0 - part * (HEIGHT - 46.0)
}

fn x_of(age: f64) -> f64 {
    LEFT + (1.0 - age / HOUR) * (WIDTH - LEFT - 12.0)
}

impl Delivery {
    /// The changes of which a client has answered, within the last hour.
    pub fn of(changes: &[ChangeStatus]) -> Delivery {
        let marks = changes.iter().filter(|of| of.age.as_secs_f64() <= HOUR).filter_map(mark);
        let rows = [0.001, 0.01, 0.1, 1.0, 10.0, 60.0];
        let columns = [60.0, 45.0, 30.0, 15.0, 0.0];
        let ago =
            |minutes: f64| if minutes == 0.0 { "now".to_owned() } else { format!("{minutes:.0} min ago") };
        Delivery {
            marks: marks.collect(),
            rows: rows.map(|seconds| (y_of(seconds), span(Duration::from_secs_f64(seconds)))).to_vec(),
            columns: columns.map(|minutes: f64| (x_of(minutes * 60.0), ago(minutes))).to_vec(),
        }
    }
}

fn mark(of: &ChangeStatus) -> Option<Mark> {
    let (median, slowest) = (of.p50?, of.p99.or(of.last)?);
    let rejected = if of.counts.rejected > 0 {
        format!(", {} rejected", count(of.counts.rejected))
    } else {
        String::new()
    };
    let (name, short) = (of.place.name, of.type_url.short());
    Some(Mark {
        id: name.to_string(),
        x: x_of(of.age.as_secs_f64()),
        median: y_of(median.as_secs_f64()),
        slowest: y_of(slowest.as_secs_f64()),
        rejected: of.counts.rejected > 0,
        says: format!(
            "{name} {short}: half of the clients after {}, 99 % after {}{rejected}",
            span(median),
            span(slowest)
        ),
    })
}
