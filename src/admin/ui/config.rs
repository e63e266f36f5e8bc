//! The page of the configuration: the endpoint `/config`, with the way to another generation as commands.

use askama::Template;
use sluice_admin_api::config::{ConfigStatus, Generation, KeyChange};

use super::filter::Filter;
use super::frame::{Ask, Frame, PageFault};
use super::parts::ShellCommand;
use super::text::age;
use crate::admin::config;
use crate::admin::reloading::ConfigHistory;

#[derive(Template)]
#[template(path = "config.html")]
struct ConfigPage {
    frame: Frame,
    config: ConfigStatus,
    text: String,
    /// The time since the shown generation began.
    age: String,
    /// The generation in force.
    current: u64,
    /// The latest first.
    generations: Vec<GenerationRow>,
    last: Option<LastRow>,
    has_failed: bool,
    commands: Vec<ShellCommand>,
    upgrade: ShellCommand,
}

impl ConfigPage {
    fn is_for_a_process(&self, change: &KeyChange) -> bool {
        change.effect == "new process"
    }
}

/// A generation of the list.
struct GenerationRow {
    generation: Generation,
    age: String,
    is_shown: bool,
    /// The shown generation is compared with this one.
    is_against: bool,
    /// The difference from the generation before; `None` for the first of the kept ones.
    difference: Option<(u64, String)>,
    /// The command for the way back; `None` for the generation in force.
    back: Option<ShellCommand>,
}

/// The last reload.
struct LastRow {
    result: String,
    trigger: String,
    at: String,
    age: String,
    faults: Vec<String>,
    say: Option<ShellCommand>,
}

pub(super) async fn html(ask: &Ask<'_>) -> Result<String, PageFault> {
    let filter = Filter::new(ask, "/ui/config")?;
    let history = ask.admin.process.reloading.status();
    let mut config = config::status(ask.admin, &filter.plain_uri())?;
    let current = history.current().map_or(0, |current| current.number);
    let last = config.last_reload.take();
    let mut commands = vec![ShellCommand("sluice reload --dry-run".to_owned())];
    if !config.in_force {
        commands.push(rollback(config.generation));
    }
    let page = ConfigPage {
        frame: Frame::new(ask, "config", "Configuration"),
        text: serde_json::to_string_pretty(&config.config).unwrap_or_default(),
        age: since(&history, config.generation, ask),
        current,
        generations: rows(&mut config, &history, current, ask),
        has_failed: history.last_reload.as_ref().is_some_and(|last| !last.result.is_success()),
        last: last.zip(history.last_reload.as_ref()).map(|(last, reload)| LastRow {
            age: age(reload.at, ask.now),
            result: last.result,
            trigger: last.trigger,
            at: last.at,
            faults: last.faults,
            say: last.say.map(ShellCommand),
        }),
        commands,
        upgrade: ShellCommand("sluice upgrade --dry-run".to_owned()),
        config,
    };
    Ok(page.render()?)
}

fn rollback(generation: u64) -> ShellCommand {
    ShellCommand(format!("sluice rollback --to {generation} --dry-run"))
}

/// The time since a generation began.
fn since(history: &ConfigHistory, generation: u64, ask: &Ask<'_>) -> String {
    history.find(generation).map(|status| age(status.since, ask.now)).unwrap_or_default()
}

fn rows(
    config: &mut ConfigStatus,
    history: &ConfigHistory,
    current: u64,
    ask: &Ask<'_>,
) -> Vec<GenerationRow> {
    let mut before = None;
    let mut rows = Vec::new();
    for generation in std::mem::take(&mut config.generations) {
        let number = generation.generation;
        let link = |before| (before, format!("/ui/config?generation={number}&against={before}"));
        rows.push(GenerationRow {
            age: since(history, number, ask),
            is_shown: number == config.generation,
            is_against: config.against == Some(number),
            difference: before.map(link),
            back: (number != current).then(|| rollback(number)),
            generation,
        });
        before = Some(number);
    }
    rows.reverse();
    rows
}
