//! The limits of one stream's requests.

/// The limits of one stream's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Names subscribed to, over all types (SUB-20).
    pub names_per_stream: usize,
    pub types_per_stream: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { names_per_stream: 200_000, types_per_stream: 64 }
    }
}

/// The limit that a request exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    Names,
    Types,
}
