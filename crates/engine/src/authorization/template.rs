//! Texts with captures: `kubernetes://{ns}/`.

use std::fmt;

/// The values of the captures of one identity, in the order of the pattern.
pub type Captures = Box<[Box<str>]>;

/// A text in which `{name}` stands for a part of the client's identity (AUT-3). A capture is literal text:
/// nothing in it has a meaning of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Box<[TextPiece]>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum TextPiece {
    Literal(Box<str>),
    /// The index of the capture in the pattern.
    Capture(usize),
}

/// The reason why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// `{name}` is not among the captures.
    Unknown(String),
    /// A brace without its partner. `{{` and `}}` stand for braces.
    Brace,
}

/// The part of a text that a template describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    Exact,
    Prefix,
    Suffix,
}

impl Template {
    /// Parses a text. `captures` are the names in the identity's pattern.
    ///
    /// # Errors
    /// The first fault of the text.
    pub fn parse(text: &str, captures: &[String]) -> Result<Template, TemplateError> {
        let (mut pieces, mut literal, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            literal.push_str(before);
            if let Some(after) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
                literal.push_str(&from[..1]);
                rest = after;
                continue;
            }
            let inside = from.strip_prefix('{').and_then(|from| from.split_once('}'));
            let (name, after) = inside.ok_or(TemplateError::Brace)?;
            let index = captures.iter().position(|capture| capture == name);
            let index = index.ok_or_else(|| TemplateError::Unknown(name.to_owned()))?;
            if !literal.is_empty() {
                pieces.push(TextPiece::Literal(std::mem::take(&mut literal).into()));
            }
            pieces.push(TextPiece::Capture(index));
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(TextPiece::Literal(literal.into()));
        }
        Ok(Template(pieces.into()))
    }

    /// A text without captures.
    pub fn literal(text: &str) -> Template {
        Template(Box::new([TextPiece::Literal(text.into())]))
    }

    /// Whether a capture stands at the open end of a prefix or suffix. The capture `shop` would then also fit
    /// `shopping`.
    pub fn is_open(&self, how: Match) -> bool {
        let end = match how {
            Match::Exact => None,
            Match::Prefix => self.0.last(),
            Match::Suffix => self.0.first(),
        };
        matches!(end, Some(TextPiece::Capture(_)))
    }

    /// Whether a text matches. Allocates nothing.
    pub fn matches(&self, how: Match, text: &str, captures: &Captures) -> bool {
        match how {
            Match::Exact => self.strip_prefix(text, captures) == Some(""),
            Match::Prefix => self.strip_prefix(text, captures).is_some(),
            Match::Suffix => {
                let mut pieces = self.0.iter().rev();
                pieces.try_fold(text, |rest, piece| rest.strip_suffix(piece.text(captures)?)).is_some()
            }
        }
    }

    fn strip_prefix<'a>(&self, text: &'a str, captures: &Captures) -> Option<&'a str> {
        self.0.iter().try_fold(text, |rest, piece| rest.strip_prefix(piece.text(captures)?))
    }

    /// The text with the captures filled in.
    pub fn fill(&self, captures: &Captures) -> String {
        self.0.iter().filter_map(|piece| piece.text(captures)).collect()
    }
}

impl TextPiece {
    /// `None` never happens for captures of the rule's own pattern, and matches nothing.
    fn text<'a>(&'a self, captures: &'a Captures) -> Option<&'a str> {
        match self {
            TextPiece::Literal(text) => Some(text),
            TextPiece::Capture(index) => captures.get(*index).map(|capture| &**capture),
        }
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Match::Exact => "exact",
            Match::Prefix => "prefix",
            Match::Suffix => "suffix",
        })
    }
}
