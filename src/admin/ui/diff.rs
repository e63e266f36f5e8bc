//! The page of the difference between what a client has and what it should have, or what another client has: the
//! endpoint `/clients/{id}/diff`.

use askama::Template;
use axum::extract::{Path, State};
use serde::Deserialize;

use super::filter::Filter;
use super::frame::{Ask, Fault, Frame};
use super::told::told;
use crate::admin::client;

/// The names of each list on the page.
const NAMES_MAX: usize = 200;

#[derive(Template)]
#[template(path = "diff.html")]
struct Page {
    frame: Frame,
    id: u64,
    node: String,
    to: String,
    diff: Diff,
}

/// The endpoint's answer.
#[derive(Deserialize)]
struct Diff {
    reads: String,
    differs: bool,
    types: Vec<Type>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Type {
    r#type: String,
    added: Vec<String>,
    changed: Vec<Changed>,
    removed: Vec<String>,
    withheld: Vec<String>,
    added_count: usize,
    changed_count: usize,
    removed_count: usize,
    withheld_count: usize,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Changed {
    name: String,
    has: Option<String>,
    should: Option<String>,
    text: Option<String>,
    /// The reason for no text.
    no_content: Option<String>,
}

impl Type {
    fn short(&self) -> &str {
        self.r#type.rsplit('.').next().unwrap_or_default()
    }

    fn differs(&self) -> bool {
        self.added_count + self.changed_count + self.removed_count + self.withheld_count > 0
    }

    /// The lists of names: sign, look, label, names, and the number of further names.
    fn lists(&self) -> [(&'static str, &'static str, &'static str, &[String], usize); 3] {
        let of = |names: &'_ [String], count: usize| count.saturating_sub(names.len().min(NAMES_MAX));
        [
            ("+", "add", "to be added", &self.added, of(&self.added, self.added_count)),
            ("−", "del", "to be removed", &self.removed, of(&self.removed, self.removed_count)),
            (
                "=",
                "head",
                "kept for now, and to be removed",
                &self.withheld,
                of(&self.withheld, self.withheld_count),
            ),
        ]
    }

    fn changes(&self) -> impl Iterator<Item = &Changed> {
        self.changed.iter().take(NAMES_MAX)
    }
}

impl Changed {
    fn has(&self) -> &str {
        brief(self.has.as_ref())
    }

    fn should(&self) -> &str {
        brief(self.should.as_ref())
    }

    /// The lines of the difference, each with its look.
    fn lines(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let look = |line: &str| match line.as_bytes().first() {
            Some(b'+') => "add",
            Some(b'-') => "del",
            Some(b'@') => "head",
            _ => "same",
        };
        self.text.iter().flat_map(|text| text.lines()).map(move |line| (look(line), line))
    }
}

fn brief(version: Option<&String>) -> &str {
    version.and_then(|version| version.get(..8)).unwrap_or("not shown")
}

pub(super) async fn html(ask: &Ask<'_>, id: &str) -> Result<String, Fault> {
    let filter = Filter::new(ask, format!("/ui/clients/{id}/diff"))?.or("format", "text");
    let session = ask.session(id)?;
    let answer = client::diff(State(ask.admin.clone()), Path(id.to_owned()), filter.plain_uri()).await;
    let diff: Diff = told(answer).await?;
    let to = filter.value("to").unwrap_or("desired").to_owned();
    let page = Page {
        frame: Frame::new(ask, "clients", "Difference"),
        id: session.id,
        node: session.node_id.to_string(),
        to,
        diff,
    };
    Ok(page.render()?)
}
