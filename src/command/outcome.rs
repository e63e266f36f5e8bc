//! The end of a command, as its exit code (CMD-2).

use std::io;

/// A command that did its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done, and all is well.
    Good,
    /// There is a difference, or not everybody is in sync yet.
    Differs,
    /// Some of the relays did not answer.
    Partly,
    /// A wait ended before its condition held.
    TimedOut,
}

/// A command that could not do its work. The exit codes are those of `sysexits.h`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The arguments are wrong, or name something unknown to the relay.
    Usage(String),
    /// The relay does not do this in its present state.
    Conflict(String),
    /// No relay answered, or the host refuses.
    Unavailable(String),
    /// A fault of sluice.
    Internal(String),
    /// The reader of the output has left, so there is nobody to tell.
    Closed,
}

impl Outcome {
    pub fn code(self) -> u8 {
        match self {
            Outcome::Good => 0,
            Outcome::Differs => 1,
            Outcome::Partly => 3,
            Outcome::TimedOut => 75,
        }
    }
}

impl Failure {
    pub fn code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 64,
            Failure::Conflict(_) => 65,
            Failure::Unavailable(_) => 69,
            Failure::Internal(_) => 70,
            Failure::Closed => 0,
        }
    }

    /// The text for people; `None` if there is nobody to tell.
    pub fn text(&self) -> Option<&str> {
        match self {
            Failure::Usage(text)
            | Failure::Conflict(text)
            | Failure::Unavailable(text)
            | Failure::Internal(text) => Some(text),
            Failure::Closed => None,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::Internal(format!("cannot write the output: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cmd_2_every_end_has_its_exit_code() {
        let outcomes = [Outcome::Good, Outcome::Differs, Outcome::Partly, Outcome::TimedOut];
        assert_eq!(outcomes.map(Outcome::code), [0, 1, 3, 75]);
        let text = String::new;
        let failures = [
            Failure::Usage(text()),
            Failure::Conflict(text()),
            Failure::Unavailable(text()),
            Failure::Internal(text()),
        ];
        assert_eq!(failures.map(|failure| failure.code()), [64, 65, 69, 70]);
        let closed = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((closed.code(), closed.text()), (0, None));
    }
}
