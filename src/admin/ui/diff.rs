//! The page of the difference between what a client has and what it should have, or what another client has:
//! the endpoint `/clients/{id}/diff`.

use askama::Template;
use sluice_admin_api::names::{ChangedName, ClientDifference, ContentDifference, TypeDifference};

use super::filter::Filter;
use super::frame::{Ask, Frame, PageFault};
use crate::admin::client;

/// The names of each list on the page.
const NAMES_MAX: usize = 200;

#[derive(Template)]
#[template(path = "diff.html")]
struct DiffPage {
    frame: Frame,
    id: u64,
    node: String,
    to: String,
    diff: ClientDifference,
}

impl DiffPage {
    fn types(&self) -> impl Iterator<Item = TypeView<'_>> {
        self.diff.types.iter().filter(has_difference).map(TypeView)
    }
}

/// A type with a difference.
struct TypeView<'a>(&'a TypeDifference);

/// The names of one kind of difference.
struct NameGroup<'a> {
    sign: &'static str,
    look: &'static str,
    label: &'static str,
    names: &'a [String],
    /// The number of names that the page does not list.
    more: usize,
}

impl<'a> NameGroup<'a> {
    fn new(
        sign: &'static str,
        look: &'static str,
        label: &'static str,
        names: &'a [String],
        count: usize,
    ) -> NameGroup<'a> {
        let more = count.saturating_sub(names.len().min(NAMES_MAX));
        NameGroup { sign, look, label, names, more }
    }
}

impl TypeView<'_> {
    fn short(&self) -> &str {
        self.0.r#type.rsplit('.').next().unwrap_or_default()
    }

    fn changed_count(&self) -> usize {
        self.0.changed_count
    }

    fn groups(&self) -> [NameGroup<'_>; 3] {
        let TypeDifference { added, removed, withheld, added_count, removed_count, withheld_count, .. } =
            self.0;
        [
            NameGroup::new("+", "add", "to be added", added, *added_count),
            NameGroup::new("−", "del", "to be removed", removed, *removed_count),
            NameGroup::new("=", "head", "kept for now, and to be removed", withheld, *withheld_count),
        ]
    }

    fn changes(&self) -> impl Iterator<Item = ChangeView<'_>> {
        self.0.changed.iter().take(NAMES_MAX).map(ChangeView)
    }
}

/// A resource with another content.
struct ChangeView<'a>(&'a ChangedName);

impl ChangeView<'_> {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn has(&self) -> &str {
        brief(self.0.has.as_ref())
    }

    fn should(&self) -> &str {
        brief(self.0.should.as_ref())
    }

    /// The lines of the difference, each with its look.
    fn lines(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let look = |line: &str| match line.as_bytes().first() {
            Some(b'+') => "add",
            Some(b'-') => "del",
            Some(b'@') => "head",
            _ => "same",
        };
        let text = match &self.0.content {
            Some(ContentDifference::Text(text)) => text.as_str(),
            _ => "",
        };
        text.lines().map(move |line| (look(line), line))
    }

    /// The reason for no text.
    fn reason(&self) -> Option<&str> {
        match &self.0.content {
            Some(ContentDifference::NoContent(reason)) => Some(reason),
            _ => None,
        }
    }
}

fn has_difference(of_type: &&TypeDifference) -> bool {
    let TypeDifference { added_count, changed_count, removed_count, withheld_count, .. } = of_type;
    added_count + changed_count + removed_count + withheld_count > 0
}

fn brief(version: Option<&String>) -> &str {
    version.and_then(|version| version.get(..8)).unwrap_or("not shown")
}

pub(super) async fn html(ask: &Ask<'_>, id: &str) -> Result<String, PageFault> {
    let filter = Filter::new(ask, format!("/ui/clients/{id}/diff"))?.or("format", "text");
    let session = ask.session(id)?;
    let diff = client::difference(ask.admin, id, &filter.plain_uri()).await?;
    let to = filter.value("to").unwrap_or("desired").to_owned();
    let page = DiffPage {
        frame: Frame::new(ask, "clients", "Difference"),
        id: session.id,
        node: session.node_id.to_string(),
        to,
        diff,
    };
    Ok(page.render()?)
}
