//! Plots as SVG, made here so that they need no script (PAG-1).

use std::time::Duration;

use askama::Template;

use super::text::count;
use crate::driver::api::changes::ChangeStatus;
use sluice_text::span;

/// The width of a bar in its own units.
const BAR_WIDTH: f64 = 200.0;

/// A bar of clients by state, and the same in words.
#[derive(Template)]
#[template(path = "bar.html")]
pub(super) struct StateBar {
    /// Per part: look, left end, width.
    parts: Vec<(&'static str, f64, f64)>,
    says: String,
}

impl StateBar {
    /// Parts with their look, their number and their word.
    pub fn new<const N: usize>(parts: [(&'static str, usize, &'static str); N]) -> StateBar {
        let total = parts.iter().map(|(_, number, _)| *number).sum::<usize>().max(1) as f64;
        let (mut left, mut drawn, mut words) = (0.0, Vec::new(), Vec::new());
        for (look, number, word) in parts.into_iter().filter(|(_, number, _)| *number > 0) {
            // Also the smallest part can be seen: three rejections among 10,000 clients are the news.
            let width = (number as f64 / total * BAR_WIDTH).max(4.0);
            drawn.push((look, left, width));
            left += width;
            words.push(format!("{} {word}", count(number)));
        }
        let squeeze = BAR_WIDTH / left.max(BAR_WIDTH);
        let parts = drawn.into_iter().map(|(look, left, width)| (look, left * squeeze, width * squeeze));
        let says = if words.is_empty() { "no client".to_owned() } else { words.join(", ") };
        StateBar { parts: parts.collect(), says }
    }
}

/// The plot of the latest changes: how long clients waited for each.
#[derive(Template)]
#[template(path = "delivery.html")]
pub(super) struct DeliveryPlot {
    /// The minutes from the left end to now.
    minutes: u32,
    marks: Vec<MarkedChange>,
    /// Lines of the grid: place and label.
    rows: Vec<(f64, String)>,
    columns: Vec<(f64, String)>,
}

struct MarkedChange {
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

/// The minutes that a plot can show. A busy relay remembers its changes for some minutes only.
const MINUTES: [u32; 3] = [5, 15, 60];

/// Waits from a millisecond to a minute, on a logarithmic scale.
const FASTEST: f64 = 0.001;
const SLOWEST: f64 = 60.0;

fn y_of(seconds: f64) -> f64 {
    let part = (seconds.clamp(FASTEST, SLOWEST) / FASTEST).ln() / (SLOWEST / FASTEST).ln();
    HEIGHT - 28.0 - part * (HEIGHT - 46.0)
}

/// `age`: as a part of the width, 1 at the left end.
fn x_of(age: f64) -> f64 {
    LEFT + (1.0 - age) * (WIDTH - LEFT - 12.0)
}

impl DeliveryPlot {
    /// The changes of which a client has answered, within the shortest time that holds all of the last hour.
    pub fn of(changes: &[ChangeStatus]) -> DeliveryPlot {
        let longest = Duration::from_secs(60 * 60);
        let answered = || changes.iter().filter(|change| change.p50.is_some() && change.age <= longest);
        let oldest = answered().map(|change| change.age).max().unwrap_or(longest).as_secs_f64() / 60.0;
        let minutes = MINUTES.into_iter().find(|minutes| oldest <= f64::from(*minutes)).unwrap_or(60);
        let rows = [0.001, 0.01, 0.1, 1.0, 10.0, 60.0];
        let columns = [1.0, 0.75, 0.5, 0.25, 0.0];
        let ago = |part: f64| match part * f64::from(minutes) {
            0.0 => "now".to_owned(),
            ago => format!("{} ago", span(Duration::from_secs_f64(ago * 60.0))),
        };
        DeliveryPlot {
            minutes,
            marks: answered().filter_map(|change| mark(change, minutes)).collect(),
            rows: rows.map(|seconds| (y_of(seconds), span(Duration::from_secs_f64(seconds)))).to_vec(),
            columns: columns.map(|part| (x_of(part), ago(part))).to_vec(),
        }
    }

    /// The time between both ends.
    pub fn span(&self) -> String {
        match self.minutes {
            60 => "hour".to_owned(),
            minutes => format!("{minutes} minutes"),
        }
    }
}

fn mark(change: &ChangeStatus, minutes: u32) -> Option<MarkedChange> {
    let (median, slowest) = (change.p50?, change.p99.or(change.last)?);
    let rejected = if change.counts.rejected > 0 {
        format!(", {} rejected", count(change.counts.rejected))
    } else {
        String::new()
    };
    let (name, short) = (change.place.name, change.type_url.short());
    Some(MarkedChange {
        id: name.to_string(),
        x: x_of(change.age.as_secs_f64() / 60.0 / f64::from(minutes)),
        median: y_of(median.as_secs_f64()),
        slowest: y_of(slowest.as_secs_f64()),
        rejected: change.counts.rejected > 0,
        says: format!(
            "{name} {short}: half of the clients after {}, 99 % after {}{rejected}",
            span(median),
            span(slowest)
        ),
    })
}
