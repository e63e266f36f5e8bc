//! One run from its first connection to its figures: [`spec`] says what is to happen, [`scenarios`] lets it happen,
//! [`driver`] turns the wheel, [`tracker`] and [`series`] look on, [`figures`] sums up.

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
#[path = "run_tests.rs"]
mod tests;
