//! Memory of the names that belong to a single session.

use sluice_xds::ResourceName;

/// Approximate memory of a name that a session keeps beside its subscriptions, in addition to the text: an
/// unsubscribed name that still needs an answer, a further spelling, a version that the client presented.
const NAME_BYTES: usize = 192;

/// Approximate memory of a subscribed name, in addition to the text: the entries in the set of the session,
/// and in all tables of the source if no other client asks for the name (ADR 80).
pub const SUBSCRIBED_NAME_BYTES: usize = 448;

/// Memory of a name beside the subscriptions, in bytes.
pub(super) fn weight(name: &ResourceName) -> usize {
    name.allocated() + NAME_BYTES
}

#[cfg(test)]
mod tests {
    use super::super::{Part, Session, Subscription};

    /// Size classes of the allocator: each idle client has a session, and both others for each type.
    #[test]
    fn an_idle_client_costs_little() {
        let [session, subscription, part] =
            [size_of::<Session>(), size_of::<Subscription>(), size_of::<Part>()];
        assert!(
            session <= 208 && subscription <= 208 && part <= 128,
            "session {session}, subscription {subscription}, part {part}"
        );
    }
}
