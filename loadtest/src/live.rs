//! The live view of a run: a bar for the time, lines for the figures. A separate thread draws, so that a slow
//! terminal does not delay the clients.

use std::io::{IsTerminal, stdout};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::run::{Percentiles, Sample};

/// The maximum number of redraws per second.
const HERTZ: u8 = 8;

/// The content of one redraw.
struct Frame {
    sample: Sample,
    phase: String,
    total: Option<Percentiles>,
}

pub struct Live {
    frames: Option<Sender<Frame>>,
    thread: Option<JoinHandle<()>>,
}

impl Live {
    /// `None` if the standard output is no terminal: a reader of a pipe or file wants only the figures.
    /// `expected` is the approximate duration of the run.
    pub fn start(name: &str, clients: usize, expected: Duration) -> Option<Live> {
        if !stdout().is_terminal() {
            return None;
        }
        let (frames, receiver) = channel();
        let name = name.to_owned();
        let draw = move || draw(&name, clients, expected, &receiver);
        let thread = std::thread::Builder::new().name("live-view".to_owned()).spawn(draw).ok()?;
        Some(Live { frames: Some(frames), thread: Some(thread) })
    }

    pub fn show(&self, sample: &Sample, phase: &str, total: Option<Percentiles>) {
        if let Some(frames) = &self.frames {
            // A failed view must not fail the run.
            let _ = frames.send(Frame { sample: sample.clone(), phase: phase.to_owned(), total });
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        drop(self.frames.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn draw(name: &str, clients: usize, expected: Duration, frames: &Receiver<Frame>) {
    let view = MultiProgress::with_draw_target(ProgressDrawTarget::stdout_with_hz(HERTZ));
    let style = |template: &str| {
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
    };
    let time = view.add(ProgressBar::new(u64::try_from(expected.as_millis()).unwrap_or(u64::MAX)));
    time.set_style(style("{prefix:>10.bold} [{wide_bar:.cyan/blue}] {msg}").progress_chars("=> "));
    time.set_prefix(name.to_owned());
    let people = view.add(ProgressBar::new(clients as u64));
    people.set_style(style(" connected [{wide_bar:.green}] {pos}/{len}").progress_chars("=> "));
    let lines: Vec<ProgressBar> = (0..3).map(|_| view.add(ProgressBar::new(0))).collect();
    lines.iter().for_each(|line| line.set_style(style("{wide_msg}")));
    for frame in frames {
        time.set_position((frame.sample.at_s * 1000.0) as u64);
        time.set_message(format!("{} {:.0} s", frame.phase, frame.sample.at_s));
        people.set_position(frame.sample.connected as u64);
        for (line, text) in lines.iter().zip(texts(&frame)) {
            line.set_message(text);
        }
    }
    // The following table has all figures.
    let _ = view.clear();
}

fn texts(frame: &Frame) -> [String; 3] {
    let Frame { sample, total, .. } = frame;
    let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
    let total = |of: fn(&Percentiles) -> f64| ms(total.as_ref().map(of));
    let mut rates = format!(
        "   updates {:>9.0} /s   {:>7.1} MB/s   due {:>7}   errors {}",
        sample.updates_per_s, sample.megabytes_per_s, sample.due, sample.errors
    );
    if let (Some(rss), Some(cpu)) = (sample.server_rss_bytes, sample.server_cpu_percent) {
        rates.push_str(&format!("   server {:.0} MB {cpu:.0} %", rss as f64 / 1e6));
    }
    let now = [sample.p50_ms, sample.p99_ms, sample.max_ms].map(ms);
    let [p50, p99, max] = now;
    [
        rates,
        format!("    ms now p50 {p50:>9}   p99 {p99:>9}   max {max:>9}"),
        format!(
            "  ms total p50 {:>9}   p99 {:>9}   max {:>9}",
            total(|all| all.p50),
            total(|all| all.p99),
            total(|all| all.max)
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_say_what_there_is() {
        let sample = Sample {
            updates_per_s: 1234.0,
            p99_ms: Some(7.25),
            errors: 3,
            server_rss_bytes: Some(12_000_000),
            server_cpu_percent: Some(42.0),
            ..Sample::default()
        };
        let [rates, now, total] = texts(&Frame { sample, phase: "steady".to_owned(), total: None });
        assert!(
            rates.contains("1234 /s") && rates.contains("errors 3") && rates.contains("12 MB 42 %"),
            "{rates}"
        );
        assert!(now.contains("p99       7.2") && now.contains("p50         -"), "{now}");
        assert!(total.contains("max         -"), "{total}");
    }
}
