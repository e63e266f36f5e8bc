//! States and commands, as words and shapes (PAG-7). A part is HTML already: a page shows it with `safe`.

use askama::Template;

use super::text::argument;
use crate::driver::api::clients::NameStatus;
use crate::driver::api::status::{
    ClientStatus, ConfigStatus, SessionStatus, SessionTypeStatus, SourceState, Why,
};
use sluice_proof::proof::ClassState;

/// A state: its word, and a shape that tells good from bad at a glance.
#[derive(Clone, Debug, Template)]
#[template(path = "mark.html")]
pub(super) struct Mark {
    pub look: Shape,
    pub word: &'static str,
    pub why: Option<&'static str>,
}

/// The shapes, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shape {
    /// A dot.
    Good,
    /// A ring.
    None,
    /// A triangle.
    Late,
    /// A diamond.
    Bad,
}

impl Shape {
    pub fn class(self) -> &'static str {
        match self {
            Shape::Good => "good",
            Shape::None => "none",
            Shape::Late => "late",
            Shape::Bad => "bad",
        }
    }
}

impl Mark {
    pub fn of_type(status: &SessionTypeStatus) -> Mark {
        Mark::new(status.state, status.why)
    }

    fn new(state: ConfigStatus, why: Option<Why>) -> Mark {
        let look = match state {
            ConfigStatus::Synced => Shape::Good,
            ConfigStatus::NotSent => Shape::None,
            ConfigStatus::Stale => Shape::Late,
            ConfigStatus::Error => Shape::Bad,
        };
        Mark { look, word: state.name(), why: why.map(Why::name) }
    }

    pub fn of_name(status: &NameStatus) -> Mark {
        Mark::new(status.state(), status.why)
    }

    pub fn of_source(state: SourceState) -> Mark {
        Mark::of_source_name(state.name())
    }

    /// `name` is one of [`SourceState::NAMES`].
    pub fn of_source_name(name: &str) -> Mark {
        let name = SourceState::NAMES.into_iter().find(|state| *state == name).unwrap_or_default();
        let look = match name {
            "connected" => Shape::Good,
            "connecting" => Shape::None,
            "unanswered" => Shape::Late,
            _ => Shape::Bad,
        };
        Mark { look, word: name, why: None }
    }

    /// `state`: the word about the proof of a class.
    pub fn of_proof(state: &str) -> Mark {
        let all = [
            (ClassState::Proved, Shape::Good),
            (ClassState::Unproved, Shape::None),
            (ClassState::Restless, Shape::Late),
            (ClassState::Impossible, Shape::Late),
            (ClassState::Differs, Shape::Bad),
            (ClassState::SplitWaits, Shape::Bad),
        ];
        let listed = all.into_iter().find(|(listed, _)| listed.name() == state);
        let (word, look) = listed.map_or(("", Shape::None), |(listed, look)| (listed.name(), look));
        Mark { look, word, why: None }
    }

    pub fn of_resource(state: ClientStatus) -> Mark {
        let look = match state {
            ClientStatus::Acked => Shape::Good,
            ClientStatus::Requested | ClientStatus::DoesNotExist => Shape::None,
            ClientStatus::Timeout => Shape::Late,
            ClientStatus::Nacked | ClientStatus::ReceivedError => Shape::Bad,
        };
        Mark { look, word: state.name(), why: None }
    }
}

/// The type of a stream with the worst state; of equal states, the oldest.
pub(super) fn worst<'a>(types: &[&'a SessionTypeStatus]) -> Option<&'a SessionTypeStatus> {
    let key = |status: &&SessionTypeStatus| (Mark::of_type(status).look, std::cmp::Reverse(status.since));
    types.iter().copied().max_by_key(key)
}

/// A command to copy (PAG-3).
#[derive(Clone, Debug, Template)]
#[template(path = "command.html")]
pub(super) struct ShellCommand(pub String);

/// The longest node id in a command. Nobody pastes 4 KiB.
const ARGUMENT_BYTES_MAX: usize = 256;

/// A client in a command: its node id if it can be typed, else the number of its stream.
pub(super) fn client_argument(session: &SessionStatus) -> String {
    let typed = argument(&session.node_id).filter(|text| text.len() <= ARGUMENT_BYTES_MAX);
    typed.unwrap_or_else(|| session.id.to_string())
}

/// Node classes, as links.
#[derive(Clone, Debug, Template)]
#[template(path = "class.html")]
pub(super) struct Classes(Vec<String>);

/// The digits of a class in a table.
const CLASS_DIGITS: usize = 8;

impl Classes {
    /// The classes of a text, separated by commas.
    pub fn of(text: &str) -> Classes {
        Classes(text.split(", ").filter(|class| !class.is_empty()).map(str::to_owned).collect())
    }

    fn short(class: &str) -> &str {
        class.get(..CLASS_DIGITS).unwrap_or(class)
    }
}
