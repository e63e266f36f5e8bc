//! gRPC status codes, and the status of an ended stream or a NACK.

use std::fmt;

use super::TypeUrl;

/// gRPC status codes by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

const CODES: [(Code, &str); 17] = [
    (Code::Ok, "OK"),
    (Code::Cancelled, "CANCELLED"),
    (Code::Unknown, "UNKNOWN"),
    (Code::InvalidArgument, "INVALID_ARGUMENT"),
    (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"),
    (Code::NotFound, "NOT_FOUND"),
    (Code::AlreadyExists, "ALREADY_EXISTS"),
    (Code::PermissionDenied, "PERMISSION_DENIED"),
    (Code::ResourceExhausted, "RESOURCE_EXHAUSTED"),
    (Code::FailedPrecondition, "FAILED_PRECONDITION"),
    (Code::Aborted, "ABORTED"),
    (Code::OutOfRange, "OUT_OF_RANGE"),
    (Code::Unimplemented, "UNIMPLEMENTED"),
    (Code::Internal, "INTERNAL"),
    (Code::Unavailable, "UNAVAILABLE"),
    (Code::DataLoss, "DATA_LOSS"),
    (Code::Unauthenticated, "UNAUTHENTICATED"),
];

impl Code {
    /// Numbers unknown to gRPC mean UNKNOWN.
    pub fn from_number(number: i32) -> Code {
        CODES.iter().map(|(code, _)| *code).find(|code| *code as i32 == number).unwrap_or(Code::Unknown)
    }

    pub fn name(self) -> &'static str {
        CODES.iter().find(|(code, _)| *code == self).map_or("UNKNOWN", |(_, name)| name)
    }
}

/// A `google.rpc.Status`: the reason for the end of a stream or for a NACK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub code: Code,
    pub message: String,
}

impl Status {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Status { code, message: message.into() }
    }

    pub fn ok() -> Self {
        Status::new(Code::Ok, "")
    }

    /// The status of a NACK as it may be kept. The text about a Secret may quote the Secret, so only its size
    /// stays (ADM-12).
    #[must_use]
    pub fn of_nack(self, type_url: &TypeUrl) -> Self {
        if type_url.is_secret() && !self.message.is_empty() {
            return Status::new(self.code, format!("[withheld {} B]", self.message.len()));
        }
        self
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() {
            f.write_str(self.code.name())
        } else {
            write!(f, "{}: {}", self.code.name(), self.message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_read_back_from_their_numbers() {
        for (code, _) in CODES {
            assert_eq!(Code::from_number(code as i32), code);
        }
        assert_eq!(Code::from_number(99), Code::Unknown);
        assert_eq!(Status::new(Code::Unavailable, "gone").to_string(), "UNAVAILABLE: gone");
    }

    #[test]
    fn adm_12_the_nack_of_a_secret_is_a_size() {
        let nack = |message: &str| {
            let text = "the private key is bad: 0123456789abcdef!";
            Status::new(Code::InvalidArgument, text).of_nack(&TypeUrl::of_message(message)).to_string()
        };
        assert_eq!(nack("envoy.api.v2.auth.Secret"), "INVALID_ARGUMENT: [withheld 41 B]");
        assert!(nack("envoy.config.cluster.v3.Cluster").ends_with("0123456789abcdef!"));
    }
}
