//! The frame of all lists.

use serde::{Deserialize, Serialize};

/// An item of a list.
pub trait Listed {
    /// The key of the list in the answer.
    const KEY: &'static str;
}

/// The end of a page, beside the list.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PageEnd {
    /// There may be more items.
    pub truncated: bool,
    /// The value of `after` for the next page.
    pub next: Option<Cursor>,
}

/// A place in a list. Its form is no part of the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cursor {
    Text(String),
    Number(u64),
}

impl Cursor {
    /// The value of the parameter `after`.
    pub fn into_parameter(self) -> String {
        match self {
            Cursor::Text(text) => text,
            Cursor::Number(number) => number.to_string(),
        }
    }
}
