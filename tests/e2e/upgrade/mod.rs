//! An upgrade of the process through the built binary (HND-1 to HND-8).

mod between;
mod connects;
mod moves;
mod rollouts;
mod site;
mod stand_in;
mod steps;
mod supervisor;
