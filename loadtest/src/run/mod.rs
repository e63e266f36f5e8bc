//! One run from its first connection to its figures: [`spec`] describes the run, [`scenarios`] executes the
//! description, [`driver`] has the main loop, [`tracker`] and [`series`] observe, [`figures`] sums up.

mod histogram;
mod spec;
mod tracker;
mod series;
mod driver;
mod scenarios;
mod figures;

pub use figures::Figures;
pub use histogram::Percentiles;
pub use scenarios::run;
pub use series::Sample;
pub use spec::{Churn, Pace, Scenario, Source, Spec, resolve};

#[cfg(test)]
mod tests;
