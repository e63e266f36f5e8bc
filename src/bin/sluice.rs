//! The sluice binary.
fn main() {}
