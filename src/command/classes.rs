//! `sluice classes`: the node classes, and their proof.

use clap::Subcommand;

use super::learn::Learn;

/// The commands about node classes.
#[derive(Debug, Subcommand)]
pub enum ClassCommand {
    /// Find the rules of `node_classes` for a control plane, before a relay is in the path.
    Learn(Box<Learn>),
}
