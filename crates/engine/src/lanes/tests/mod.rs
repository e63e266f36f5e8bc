//! Lanes of a source with names and a wildcard.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod bench;
#[cfg(test)]
mod elder;
#[cfg(test)]
mod globs;
#[cfg(test)]
mod interest;
#[cfg(test)]
mod one_release;
#[cfg(test)]
mod pushes;
#[cfg(test)]
mod restated;
#[cfg(test)]
mod served;
