//! The page: one self-contained file. The figures are embedded as JSON; an embedded script draws the plots.

use std::path::Path;

use anyhow::{Context, Result};

use super::{Circumstances, One};
use crate::assertion::Verdict;
use crate::run::Figures;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Writes the page of one run.
pub fn write_page(path: &Path, figures: &Figures, assertions: &[Verdict]) -> Result<()> {
    let one = One { figures, assertions, circumstances: Circumstances::here() };
    let page = page(&serde_json::to_string(&one)?);
    std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))
}

/// Assembles the page. Text from a server or an operator must not end the script element.
fn page(json: &str) -> String {
    let json = json.replace('<', "\\u003c");
    let (head, rest) = PAGE.split_once("/*STYLE*/").unwrap_or((PAGE, ""));
    let (middle, rest) = rest.split_once("/*DATA*/").unwrap_or((rest, ""));
    let (before, after) = rest.split_once("/*SCRIPT*/").unwrap_or((rest, ""));
    [head, STYLE, middle, &json, before, SCRIPT, after].concat()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_page_has_all_parts_and_reaches_for_nothing() {
        let page = page(r#"{"name":"</script><script>alert(1)</script>"}"#);
        for part in [STYLE, SCRIPT, "</html>", r#"{"name":"\u003c/script>"#] {
            assert!(page.contains(part), "{part}");
        }
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(!page.contains("/*DATA*/"));
        for elsewhere in ["src=", "@import", "url(", "fetch(", "<link", "//cdn"] {
            assert!(!page.contains(elsewhere), "the page reaches for {elsewhere}");
        }
    }
}
