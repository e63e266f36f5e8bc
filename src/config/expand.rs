//! `${NAME}` and `${NAME:-DEFAULT}` in values. The file is parsed first, so no value of a variable can add
//! structure.

use std::ffi::OsString;

use super::error::Problem;
use super::tree::{Expansion, Format, Tree, TreeNode};

/// The environment: the value of a variable, if it is set.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// No variables: for a text that is not the host's own.
pub fn no_environment(_: &str) -> Option<OsString> {
    None
}

/// The variables of this process.
pub fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Expands the texts of a tree. Keys stay as they are.
pub(super) fn expand(node: &mut TreeNode, source: &str, format: Format, variables: Variables<'_>) {
    match &mut node.tree {
        Tree::Map(entries) => {
            entries.iter_mut().for_each(|entry| expand(&mut entry.node, source, format, variables));
        }
        Tree::List(items) => items.iter_mut().for_each(|item| expand(item, source, format, variables)),
        Tree::Text(text) if text.contains('$') => match expand_text(text, variables) {
            Ok((expanded, has_variable)) => {
                let is_quoted = format == Format::Json || !is_plain(source, node.offset);
                let (spelled, plain) = (text.as_str().into(), plain(&expanded));
                node.expansion = has_variable.then(|| Box::new(Expansion { spelled, plain, is_quoted }));
                node.tree = Tree::Text(expanded);
            }
            Err(problem) => node.tree = Tree::Unset(Box::new(problem)),
        },
        _ => {}
    }
}

/// Whether a scalar has neither quotes nor a tag such as `!!str`, and is no block.
fn is_plain(source: &str, offset: Option<usize>) -> bool {
    let Some((before, scalar)) = offset.and_then(|offset| source.split_at_checked(offset)) else {
        return false;
    };
    // The place of a block is its first line, after `|` or `>`.
    let mark = before.split_whitespace().next_back().unwrap_or_default();
    !scalar.starts_with(['"', '\'', '|', '>', '!']) && !mark.starts_with(['|', '>', '!'])
}

/// The number, true or false that a text looks like.
fn plain(text: &str) -> Option<Tree> {
    let is_number = |b: u8| b.is_ascii_digit() || b"+-.eE".contains(&b);
    match text {
        "true" => Some(Tree::Bool(true)),
        "false" => Some(Tree::Bool(false)),
        _ if text.bytes().any(|b| b.is_ascii_digit()) && text.bytes().all(is_number) => {
            let float = || text.parse().ok().map(Tree::Float);
            text.parse().ok().map(Tree::Integer).or_else(float)
        }
        _ => None,
    }
}

/// The expanded text, and whether it has a variable.
fn expand_text(text: &str, variables: Variables<'_>) -> Result<(String, bool), Problem> {
    let (mut expanded, mut rest, mut has_variable) = (String::new(), text, false);
    while let Some(dollar) = rest.find('$') {
        expanded.push_str(&rest[..dollar]);
        rest = &rest[dollar + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('{') {
            let (inside, after) = after.split_once('}').ok_or_else(no_variable)?;
            expanded.push_str(&value(inside, variables)?);
            has_variable = true;
            rest = after;
        } else {
            expanded.push('$');
        }
    }
    expanded.push_str(rest);
    Ok((expanded, has_variable))
}

/// The value of `NAME` or `NAME:-DEFAULT`. As in a shell, the default also replaces an empty value.
fn value(inside: &str, variables: Variables<'_>) -> Result<String, Problem> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let begins = name.bytes().next().is_some_and(|b| !b.is_ascii_digit());
    if !begins || !name.bytes().all(is_name) || default.is_some_and(|default| default.contains("${")) {
        return Err(no_variable());
    }
    match (variables(name), default) {
        (Some(value), Some(default)) if value.is_empty() => Ok(default.to_owned()),
        (Some(value), _) => value.into_string().map_err(|_| {
            let reason = format!("the environment variable {name} is not text in UTF-8");
            Problem::Contradiction { reason }
        }),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(Problem::Unset { variable: name.to_owned(), within: None }),
    }
}

fn no_variable() -> Problem {
    let reason =
        "`${` without a variable; expected ${NAME}, ${NAME:-DEFAULT}, or $${ for a plain ${".to_owned();
    Problem::Contradiction { reason }
}
