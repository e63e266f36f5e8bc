//! The compression of messages, as gRPC negotiates it by the headers of a call.

/// The header with the compression of the sender's messages.
pub const HEADER: &str = "grpc-encoding";

/// The header with the compressions that the sender of the header reads.
pub const ACCEPT_HEADER: &str = "grpc-accept-encoding";

/// The value of [`ACCEPT_HEADER`] for calls of the relay: the best first.
pub const ACCEPTED: &str = "zstd,gzip";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    Zstd,
    Gzip,
}

impl Coding {
    /// All, the best first.
    pub const ALL: [Coding; 2] = [Coding::Zstd, Coding::Gzip];

    pub fn name(self) -> &'static str {
        match self {
            Coding::Zstd => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    pub fn of_name(name: &str) -> Option<Coding> {
        Coding::ALL.into_iter().find(|coding| coding.name() == name)
    }

    /// The best coding of a list with commas.
    pub fn best_of(list: &str) -> Option<Coding> {
        Coding::ALL.into_iter().find(|coding| list.split(',').any(|name| name.trim() == coding.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_coding_of_a_list_is_chosen_by_whole_names() {
        for (list, best) in [
            (ACCEPTED, Some(Coding::Zstd)),
            ("identity, deflate, gzip", Some(Coding::Gzip)),
            ("gzip ,zstd", Some(Coding::Zstd)),
            ("zstd2,xgzip,identity,", None),
            ("", None),
        ] {
            assert_eq!(Coding::best_of(list), best, "{list:?}");
        }
    }
}
