//! Builds everything.
