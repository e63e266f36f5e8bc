//! The state of a client, and its reasons.

/// `config_status` in the words of the server side of CSDS (CSD-4, RLY-71).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigStatus {
    Synced = 1,
    NotSent = 2,
    Stale = 3,
    Error = 4,
}

impl ConfigStatus {
    pub const ALL: [ConfigStatus; 4] =
        [ConfigStatus::Synced, ConfigStatus::NotSent, ConfigStatus::Stale, ConfigStatus::Error];

    pub fn name(self) -> &'static str {
        match self {
            ConfigStatus::Synced => "SYNCED",
            ConfigStatus::NotSent => "NOT_SENT",
            ConfigStatus::Stale => "STALE",
            ConfigStatus::Error => "ERROR",
        }
    }
}

/// The reason why a client is not SYNCED, in the order of precedence (ADM-7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// The client rejected the last response.
    Rejected,
    /// Requests of the client wait in the relay for the rate of changes (ADR 66).
    Rate,
    /// The client has not answered the last response.
    Unacked,
    /// An earlier type waits for the client's ACK (RLY-50).
    Order,
    /// A removal waits, because routes may still refer to the resource (RLY-51).
    Withheld,
    /// The client does not read, or the news are about to go.
    Unread,
    /// The existence of a name is not known, and the client may have the resource (RLY-5).
    Name,
    /// A mass deletion waits for the operator (FU18).
    Deletion,
    /// The source has no content from before a push that is under way elsewhere (LDG-3).
    Join,
    /// Nothing is known about the request.
    Unknown,
}

impl Why {
    pub const ALL: [Why; 10] = [
        Why::Rejected,
        Why::Rate,
        Why::Unacked,
        Why::Order,
        Why::Withheld,
        Why::Unread,
        Why::Name,
        Why::Deletion,
        Why::Join,
        Why::Unknown,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Why::Rejected => "rejected",
            Why::Rate => "held:rate",
            Why::Unacked => "unacked",
            Why::Order => "held:order",
            Why::Withheld => "held:withheld",
            Why::Unread => "held:unread",
            Why::Name => "held:name",
            Why::Deletion => "held:deletion",
            Why::Join => "held:join",
            Why::Unknown => "unknown",
        }
    }

    /// The name without `held:`.
    pub fn short(self) -> &'static str {
        self.name().trim_start_matches("held:")
    }

    /// The state with this reason.
    pub fn state(self) -> ConfigStatus {
        match self {
            Why::Rejected => ConfigStatus::Error,
            Why::Join | Why::Unknown => ConfigStatus::NotSent,
            Why::Rate
            | Why::Unacked
            | Why::Order
            | Why::Withheld
            | Why::Unread
            | Why::Name
            | Why::Deletion => ConfigStatus::Stale,
        }
    }
}
