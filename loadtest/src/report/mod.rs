//! Figures of runs: as JSON for machines, as a table and as a page for people.

mod page;
mod table;

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

pub use page::write_page;
pub use table::print;

use crate::assertion::Verdict;
use crate::measure;
use crate::run::Figures;

/// The circumstances of the measurement; figures are meaningless without them.
#[derive(Serialize)]
struct Circumstances {
    tool: String,
    machine: String,
    command: String,
}

impl Circumstances {
    fn here() -> Circumstances {
        Circumstances {
            tool: concat!("sluice-load ", env!("CARGO_PKG_VERSION")).to_owned(),
            machine: measure::machine(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
        }
    }
}

#[derive(Serialize)]
struct One<'a> {
    #[serde(flatten)]
    figures: &'a Figures,
    assertions: &'a [Verdict],
    circumstances: Circumstances,
}

#[derive(Serialize)]
struct Many<'a> {
    circumstances: Circumstances,
    runs: &'a [Figures],
}

/// Writes one run as an object with the figures at its top.
pub fn write_one(path: &Path, figures: &Figures, assertions: &[Verdict]) -> Result<()> {
    write(path, &One { figures, assertions, circumstances: Circumstances::here() })
}

/// Writes several runs as the list `runs`.
pub fn write_many(path: &Path, runs: &[Figures]) -> Result<()> {
    write(path, &Many { circumstances: Circumstances::here(), runs })
}

fn write(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
