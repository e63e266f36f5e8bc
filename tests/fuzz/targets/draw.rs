//! Choices from bytes: an input that is too short goes on with zeros.

pub struct Draw<'a> {
    rest: &'a [u8],
}

impl<'a> Draw<'a> {
    pub fn new(bytes: &'a [u8]) -> Draw<'a> {
        Draw { rest: bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub fn number(&mut self) -> u64 {
        (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }

    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// At most `max` bytes, after a byte with their number.
    pub fn bytes(&mut self, max: usize) -> &'a [u8] {
        let length = self.below(max + 1).min(self.rest.len());
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    pub fn rest(self) -> &'a [u8] {
        self.rest
    }
}

/// The input in pieces, cut at lines of the form `--`.
pub fn documents(data: &[u8]) -> Vec<&[u8]> {
    const CUT: &[u8] = b"\n--\n";
    let mut pieces = Vec::new();
    let mut rest = data;
    while let Some(at) = rest.windows(CUT.len()).position(|window| window == CUT) {
        pieces.push(&rest[..at]);
        rest = &rest[at + CUT.len()..];
    }
    pieces.push(rest);
    pieces
}
