//! The proof of a server: the choice of shadows, and the conclusions from the shadows' content (PRF).
//!
//! One [`Proof`] for each server of a list (a place) with `proof:` in force. The caller passes the time with
//! each input, carries out the outputs until [`Proof::poll_output`] gives none, and calls
//! [`Proof::handle_timeout`] at [`Proof::poll_timeout`].
//!
//! In order: the settings; the content of a source; the inputs, the reports and the outputs; the parts of a
//! judgement, which are the history of each side, the comparison, and the meaning of bodies; the members and
//! the values of fields, with the explanation of a divergence; an open shadow, and the trial of a sample; the
//! evidence of a class, the answers that differ, the members that leave together, the divergences, and the
//! class itself; the choice of samples, orders and splits; and the machine.

pub mod settings;
pub mod content;
pub mod input;
pub mod output;
pub mod report;
mod history;
mod comparison;
mod meaning;
mod population;
mod cover;
mod pace;
mod probe;
mod evidence;
mod trial;
mod answer;
mod departure;
mod divergence;
mod class;
mod picks;
mod orders;
mod breaker;
mod splits;
mod reports;
mod machine;
#[cfg(test)]
mod tests;

pub use content::{Content, TypeContent};
pub use input::{
    ClassFacts, ClassKey, Meaning, Member, MemberId, OrderId, ProveOrder, RestoredSplit, ShadowId,
    Surroundings, Wanted,
};
pub use machine::Proof;
pub use output::{Happening, Lagging, OpenShadow, Output, Question, QuestionId, ResourcePair, Split};
pub use report::{
    BreakerReport, ClassReport, ClassState, Divergence, DivergentName, ProofReport, ProveState, SampleReport,
    SampleResult, ShadowKind, ShadowReport, SplitReport,
};
pub use settings::{Policy, ProofPace, ProofSettings, Standing};
