//! Load generator for xDS servers.
fn main() {}
