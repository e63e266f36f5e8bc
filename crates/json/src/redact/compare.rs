//! Differences of two shown contents. Both have the canonical order of fields, so order makes no difference.

use std::time::Duration;

use serde_json::Value;
use similar::TextDiff;

/// The time for the shortest difference. After that, the difference may be longer than necessary.
const EFFORT: Duration = Duration::from_millis(200);

/// Equal lines around a change.
const CONTEXT_LINES: usize = 3;

/// The changes that lead from `old` to `new`, as a JSON patch (RFC 6902).
pub fn patch(old: &Value, new: &Value) -> Value {
    serde_json::to_value(json_patch::diff(old, new)).unwrap_or_default()
}

/// The changes that lead from `old` to `new`, as a unified diff of lines. Empty for equal texts.
pub fn diff_text(old: &str, new: &str) -> String {
    let diff = TextDiff::configure().timeout(EFFORT).diff_lines(old, new);
    diff.unified_diff().context_radius(CONTEXT_LINES).missing_newline_hint(false).to_string()
}
