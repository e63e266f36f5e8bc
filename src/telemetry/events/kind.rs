//! The kinds of events, and their severities.

/// Declares the kinds, each with its name in answers.
macro_rules! kinds {
    ($($(#[$attribute:meta])* $kind:ident = $name:literal,)+) => {
        /// The kind of an event. The list is closed, so that filters and alerts can name a kind.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $($(#[$attribute])* $kind,)+
        }

        impl Kind {
            pub const ALL: [Kind; [$($name),+].len()] = [$(Kind::$kind),+];

            pub fn name(self) -> &'static str {
                match self {
                    $(Kind::$kind => $name,)+
                }
            }
        }
    };
}

kinds! {
    /// A server cannot be reached, or does not answer, or does not serve a type.
    UpstreamLost = "upstream.lost",
    /// The server answers again.
    UpstreamBack = "upstream.back",
    /// A source published other content.
    Change = "change",
    /// A plan of `rollouts` judged a push.
    Push = "push",
    /// A client rejected an update of the relay, or the relay a response of a server.
    Nack = "nack",
    /// Clients or sources use another server of their list.
    Fallback = "fallback",
    /// Node classes: no room for another one, or too many.
    Class = "class",
    /// The proof of the grouping: a class that is too coarse, or that cannot be proved.
    Proof = "proof",
    Limit = "limit",
    /// Files other than certificates: rules of authorization, resources.
    Reload = "reload",
    /// Many resources are deleted at once, or are not refreshed in time.
    Deletion = "deletion",
    Checkpoint = "checkpoint",
    Drain = "drain",
    /// An upgrade: a process takes over from another.
    Handover = "handover",
    /// Streams of clients: opened, ended, denied.
    Client = "client",
    /// Certificates, keys and tokens in files.
    Tls = "tls",
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Info,
    Warn,
    Error,
}

impl Severity {
    pub const ALL: [Severity; 3] = [Severity::Info, Severity::Warn, Severity::Error];

    pub fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warn => "warn",
            Severity::Error => "error",
        }
    }
}
