//! The query of a list, as a form and as links (PAG-4): an address is the whole state of a page, and can be
//! sent to a colleague.

use axum::extract::Query;
use axum::http::Uri;

use super::frame::{Ask, PageFault};
use sluice_text::encoded;

/// The rows of a page (PAG-5).
pub(super) const ROWS_MAX: usize = 200;

/// The key of the number of a page's first row. The endpoints do not know this key.
const ROW: &str = "row";

/// A field of a form.
pub(super) struct Field {
    pub key: &'static str,
    pub label: &'static str,
    /// Empty: a text. Else one of these words, or any.
    pub words: Vec<String>,
    pub value: String,
}

/// The query of a page.
pub(super) struct Filter {
    /// The path of the page.
    path: String,
    pub fields: Vec<Field>,
    pairs: Vec<(String, String)>,
    /// The key of the place behind which a page begins.
    cursor_key: &'static str,
    /// The number of the first row, from 1.
    pub first_row: usize,
}

impl Filter {
    pub fn new(ask: &Ask<'_>, path: impl Into<String>) -> Result<Filter, PageFault> {
        let parsed = Query::<Vec<(String, String)>>::try_from_uri(ask.uri);
        let Query(mut pairs) = parsed.map_err(|error| PageFault::from(error.to_string()))?;
        // A form sends its empty fields, too.
        pairs.retain(|(_, value)| !value.is_empty());
        let row = pairs.iter().position(|(key, _)| key == ROW).map(|at| pairs.remove(at).1);
        let first_row = row.and_then(|row| row.parse().ok()).unwrap_or(1);
        Ok(Filter { path: path.into(), fields: Vec::new(), pairs, cursor_key: "after", first_row })
    }

    /// Another key for the cursor than that of most lists.
    #[must_use]
    pub fn paged_by(mut self, key: &'static str) -> Filter {
        self.cursor_key = key;
        self
    }

    pub fn cursor(&self) -> Option<&str> {
        self.value(self.cursor_key)
    }

    /// The query for the endpoint with the data of the page.
    pub fn uri(&self) -> Uri {
        let mut pairs = self.pairs.clone();
        pairs.retain(|(key, _)| key == "after" || key != self.cursor_key);
        if !pairs.iter().any(|(key, _)| key == "limit") {
            pairs.push(("limit".to_owned(), ROWS_MAX.to_string()));
        }
        address("/", &pairs).parse().unwrap_or_default()
    }

    /// Adds a value, unless the query has one.
    #[must_use]
    pub fn or(mut self, key: &str, value: &str) -> Filter {
        if self.value(key).is_none() {
            self.pairs.push((key.to_owned(), value.to_owned()));
        }
        self
    }

    /// The query as it came.
    pub fn plain_uri(&self) -> Uri {
        address("/", &self.pairs).parse().unwrap_or_default()
    }

    #[must_use]
    pub fn field(mut self, key: &'static str, label: &'static str, words: Vec<String>) -> Filter {
        let value = self.value(key).unwrap_or_default().to_owned();
        self.fields.push(Field { key, label, words, value });
        self
    }

    pub fn value(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Pairs without a field: the form keeps them, and each has a link that takes it away.
    pub fn others(&self) -> impl Iterator<Item = (&str, &str, String)> {
        let is_other =
            |key: &str| key != self.cursor_key && !self.fields.iter().any(|field| field.key == key);
        let others = self.pairs.iter().filter(move |(key, _)| is_other(key));
        others.map(|(key, value)| (key.as_str(), value.as_str(), self.with(key, None)))
    }

    /// Whether the page shows a part of the list.
    pub fn is_narrow(&self) -> bool {
        self.pairs.iter().any(|(key, _)| ![self.cursor_key, "limit", "sort"].contains(&key.as_str()))
    }

    /// Whether the page is not the first.
    pub fn is_later(&self) -> bool {
        self.cursor().is_some()
    }

    /// The address of the first page, with another value for a key.
    pub fn with(&self, key: &str, value: Option<&str>) -> String {
        let mut pairs = self.pairs.clone();
        pairs.retain(|(name, _)| name != key && name != self.cursor_key);
        pairs.extend(value.map(|value| (key.to_owned(), value.to_owned())));
        address(&self.path, &pairs)
    }

    /// The address of the first page.
    pub fn first(&self) -> String {
        self.with(self.cursor_key, None)
    }

    /// The address of the page behind this one, with `rows` rows.
    pub fn next(&self, cursor: &str, rows: usize) -> String {
        let mut pairs = self.pairs.clone();
        pairs.retain(|(name, _)| name != self.cursor_key);
        pairs.push((self.cursor_key.to_owned(), cursor.to_owned()));
        pairs.push((ROW.to_owned(), (self.first_row + rows).to_string()));
        address(&self.path, &pairs)
    }
}

/// An address with a query.
pub(super) fn address(path: &str, pairs: &[(String, String)]) -> String {
    let query: Vec<String> =
        pairs.iter().map(|(key, value)| format!("{}={}", encoded(key), encoded(value))).collect();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
}
