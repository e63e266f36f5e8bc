//! The limits of one stream's requests.

use sluice_setting::{SOME, count, settings};

settings! {
    /// The limits of one stream's requests.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Names subscribed to, over all types (SUB-20): the sum of two full requests.
        names_per_stream: usize = 200_000, SOME;
        /// Types subscribed to. Envoy has a dozen; each costs a subscription.
        types_per_stream: usize = 64, count(1..=10_000);
    }
}

/// The limit that a request exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    Names,
    Types,
}
