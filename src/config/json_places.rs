//! The places of a JSON text's keys and values, which its parser does not report.

use super::error::Place;
use super::tree::{Tree, TreeNode};

/// Fills in the places of a tree that was parsed from this text.
pub(super) fn find_places(node: &mut TreeNode, text: &str) {
    Scanner { rest: text.as_bytes(), place: Place::START }.visit(node);
}

struct Scanner<'a> {
    rest: &'a [u8],
    place: Place,
}

impl Scanner<'_> {
    fn visit(&mut self, node: &mut TreeNode) {
        self.skip_to_token();
        node.place = self.place;
        match &mut node.tree {
            Tree::Map(entries) => {
                self.advance();
                for entry in entries {
                    self.skip_to_token();
                    entry.place = self.place;
                    self.skip_scalar();
                    self.visit(&mut entry.node);
                }
                self.skip_to_end();
            }
            Tree::List(items) => {
                self.advance();
                for item in items {
                    self.visit(item);
                }
                self.skip_to_end();
            }
            _ => self.skip_scalar(),
        }
    }

    /// Skips one byte.
    fn advance(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        match byte {
            b'\n' => self.place = Place { line: self.place.line.saturating_add(1), column: 1 },
            // The bytes of a character after its first.
            0x80..0xC0 => {}
            _ => self.place.column = self.place.column.saturating_add(1),
        }
        Some(*byte)
    }

    fn skip_while(&mut self, is_skipped: impl Fn(u8) -> bool) {
        while self.rest.first().is_some_and(|byte| is_skipped(*byte)) {
            self.advance();
        }
    }

    fn skip_to_token(&mut self) {
        self.skip_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b':'));
    }

    /// Skips the bracket at the end of a collection.
    fn skip_to_end(&mut self) {
        self.skip_to_token();
        self.advance();
    }

    fn skip_scalar(&mut self) {
        if self.rest.first() != Some(&b'"') {
            self.skip_while(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
            return;
        }
        self.advance();
        while let Some(byte) = self.advance() {
            match byte {
                b'"' => return,
                b'\\' => {
                    self.advance();
                }
                _ => {}
            }
        }
    }
}
