//! Tails of single streams (ADM-15).

pub use crate::driver::ground::tails::{
    Answered, Asked, Fact, Followed, LINES_MAX, Sent, SomeNames, TAILS_MAX, Tail, TailLine, Tails, Taken,
};

pub trait TailView {
    /// Follows streams. `type_name`: see [`names_type`](crate::driver::api::status::names_type). `None` if
    /// too many tails are open.
    fn tail(&self, followed: Followed, type_name: Option<String>) -> Option<Tail> {
        let _ = (followed, type_name);
        None
    }
}
