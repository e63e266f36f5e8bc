//! The admin API, typed once: the relay writes these types, and the page and the commands read them (ADR 87).
//!
//! 1. A file for each subject, with the answers of its endpoints: [`clients`], [`names`] (one client or one
//!    resource, name by name), [`sources`], [`proofs`], [`learning`], [`loads`], [`resources`],
//!    [`changes`], [`rollouts`], [`events`], [`tail`], [`overview`], [`config`], [`acts`].
//! 2. [`lists`]: the frame of all lists.
//! 3. [`endpoints`]: the table of endpoints. [`parameters`]: a set for each.
//!
//! The order of fields is the order of keys in an answer. A key is added, never renamed or removed, within a
//! major version.
//!
//! A command meets relays of other versions. So a reader ignores unknown keys, and a missing key has a
//! default: a relay that does not know a feature means none, zero or false by its silence. Only the key that
//! identifies an item is required, because a command asks further questions with it. Words (states, kinds,
//! results) are texts, so that a new word is shown as it came.

pub mod lists;
pub mod clients;
pub mod names;
pub mod sources;
pub mod proofs;
pub mod learning;
pub mod loads;
pub mod resources;
pub mod changes;
pub mod rollouts;
pub mod events;
pub mod tail;
pub mod overview;
pub mod config;
pub mod acts;
pub mod parameters;
pub mod endpoints;

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};

/// A text of an answer. The relay borrows it from its status, since a list may have 10,000 items; a reader
/// owns it.
pub type Text<'a> = Cow<'a, str>;

/// Leaves a key out of an answer.
fn is_zero<T: Default + PartialEq>(count: &T) -> bool {
    *count == T::default()
}

/// Reads a key that may be null and must be there: its absence tells a reader that a whole group of keys is
/// absent.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}
