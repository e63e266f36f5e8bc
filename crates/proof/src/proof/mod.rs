//! The proof of one server: whose shadows are opened, and what their content says about the classes (PRF).
//!
//! One machine for each server of a list (a place) with `proof:` in force. The caller passes the time with
//! each input, carries out the outputs until there are none, and calls
//! [`Proof::handle_timeout`] at [`Proof::poll_timeout`].
//!
//! In order: the settings; the content of a source; the inputs; the outputs; the reports.

pub mod settings;
pub mod content;
pub mod input;
pub mod output;
pub mod report;

pub use content::Content;
pub use input::{
    ClassFacts, ClassKey, Meaning, Member, MemberId, OrderId, ProveOrder, ShadowId, Surroundings, Wanted,
};
pub use output::{Happening, OpenShadow, Output, Question, QuestionId, ResourcePair, ShadowKind};
pub use report::{ClassReport, ClassState, Divergence, DivergentName, ProofReport, ProveState};
pub use settings::{Policy, ProofSettings, Standing};
