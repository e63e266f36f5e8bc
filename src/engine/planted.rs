//! Bugs that can be planted in the machines. The simulator shows that it finds each bug (`tests/sim`).
//!
//! Without the feature `planted` the bugs do not exist: [`planted`] is a constant `false`, and the compiler
//! removes each site. No released binary has the feature. With the feature, a single bug is selected for the
//! whole process; at first, none.

/// The sites that test for a bug show its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Bug {
    // Requests to servers, and the meaning of responses.
    UpstreamNonceStale = 1,
    FaultsAcked,
    VoidApplied,
    AbsentThoughUnidentified,
    OmissionOfLateNames,
    HeartbeatIsWholeState,
    TimerOnSilentTransport,
    TimerOutlivesStream,
    BackoffForgotten,
    VersionsRestatedLater,
    NamesAskedTwice,
    NeverUnsubscribed,
    LeftAndEnteredTogether,
    WildcardWholeTooEarly,
    WholeWithoutRoundTrip,
    RejectedIsCurrent,
    SilentTypeRunsOut,
    OmittedMembersStay,
    UnconfirmedMembersStay,
    GatheredChangesForgotten,
    RemovesOnDisconnect,
    SettledWhileReceiving,
    ErrorIsNoAnswer,
    // The contents of sources.
    TtlNotRenewed,
    TtlNeverRunsOut,
    TtlOutlivesItsEnd,
    WakeMissesSession,
    WildcardWakeMissing,
    CoalescingLosesLast,
    LingersForever,
    LingersNever,
    LingerFollowsTheClock,
    ForgottenWildcardStays,
    SetIdsCollide,
    ViewIdsCollide,
    AbsenceNotTold,
    UnknownIsAbsent,
    JoinerMissed,
    SnapshotsLeak,
    SetsMixedUp,
    MassDeletionNotHeld,
    WithdrawnStillHeld,
    HeldForever,
    // Responses to clients.
    StaleNonceAcks,
    NonceReused,
    ResentAfterNack,
    EndpointsNotForced,
    RoutesDoNotWait,
    PartialCompleteSet,
    GreetedBeforeData,
    UnsubscribedStillServed,
    UnsubscribedStillHeld,
    GivenUpNotAnswered,
    HeldNotBrought,
    PresentedIgnored,
    PresentedVersionTrusted,
    RoundNeverEnds,
    AnswersLeak,
    ListsAddUp,
    WildcardStillServed,
    OldSnapshotServed,
    RolledBackAfterNack,
    LastBytesPreferred,
    PartsOfTwoMoments,
    NamesOfTwoMoments,
    MembersOfTwoMoments,
    NewcomersOfTwoMoments,
    SnapshotsKept,
    RejectedAfterAck,
    RejectedWithTheNext,
    EarlyClustersForgotten,
    RemovalsDoNotRest,
    RemovalsDoNotWait,
    // The choice of the server.
    LeavesServerThatIsHeard,
    LeavesThoughNothingLacks,
    NeverComesBack,
    LowerServerLingers,
    AnsweredStreamIsLost,
    StandInsForgotten,
    ReachNotTold,
    // The state that outlives the process.
    ConfirmedAtOnce,
    NeverConfirmed,
    NamesUnmarked,
    MarkOutlivesItsEnd,
    FormerVersionsMixed,
    FormerNamesUnheld,
    RestoredLingers,
    NeverGivenUp,
    TtlBeginsAnew,
    SecretsWritten,
    PartWrittenAsWhole,
}

impl Bug {
    pub const ALL: &[Bug] = &[
        Bug::UpstreamNonceStale,
        Bug::FaultsAcked,
        Bug::VoidApplied,
        Bug::AbsentThoughUnidentified,
        Bug::OmissionOfLateNames,
        Bug::HeartbeatIsWholeState,
        Bug::TimerOnSilentTransport,
        Bug::TimerOutlivesStream,
        Bug::BackoffForgotten,
        Bug::VersionsRestatedLater,
        Bug::NamesAskedTwice,
        Bug::NeverUnsubscribed,
        Bug::LeftAndEnteredTogether,
        Bug::WildcardWholeTooEarly,
        Bug::WholeWithoutRoundTrip,
        Bug::RejectedIsCurrent,
        Bug::SilentTypeRunsOut,
        Bug::OmittedMembersStay,
        Bug::UnconfirmedMembersStay,
        Bug::GatheredChangesForgotten,
        Bug::RemovesOnDisconnect,
        Bug::SettledWhileReceiving,
        Bug::ErrorIsNoAnswer,
        Bug::TtlNotRenewed,
        Bug::TtlNeverRunsOut,
        Bug::TtlOutlivesItsEnd,
        Bug::WakeMissesSession,
        Bug::WildcardWakeMissing,
        Bug::CoalescingLosesLast,
        Bug::LingersForever,
        Bug::LingersNever,
        Bug::LingerFollowsTheClock,
        Bug::ForgottenWildcardStays,
        Bug::SetIdsCollide,
        Bug::ViewIdsCollide,
        Bug::AbsenceNotTold,
        Bug::UnknownIsAbsent,
        Bug::JoinerMissed,
        Bug::SnapshotsLeak,
        Bug::SetsMixedUp,
        Bug::MassDeletionNotHeld,
        Bug::WithdrawnStillHeld,
        Bug::HeldForever,
        Bug::StaleNonceAcks,
        Bug::NonceReused,
        Bug::ResentAfterNack,
        Bug::EndpointsNotForced,
        Bug::RoutesDoNotWait,
        Bug::PartialCompleteSet,
        Bug::GreetedBeforeData,
        Bug::UnsubscribedStillServed,
        Bug::UnsubscribedStillHeld,
        Bug::GivenUpNotAnswered,
        Bug::HeldNotBrought,
        Bug::PresentedIgnored,
        Bug::PresentedVersionTrusted,
        Bug::RoundNeverEnds,
        Bug::AnswersLeak,
        Bug::ListsAddUp,
        Bug::WildcardStillServed,
        Bug::OldSnapshotServed,
        Bug::RolledBackAfterNack,
        Bug::LastBytesPreferred,
        Bug::PartsOfTwoMoments,
        Bug::NamesOfTwoMoments,
        Bug::MembersOfTwoMoments,
        Bug::NewcomersOfTwoMoments,
        Bug::SnapshotsKept,
        Bug::RejectedAfterAck,
        Bug::RejectedWithTheNext,
        Bug::EarlyClustersForgotten,
        Bug::RemovalsDoNotRest,
        Bug::RemovalsDoNotWait,
        Bug::LeavesServerThatIsHeard,
        Bug::LeavesThoughNothingLacks,
        Bug::NeverComesBack,
        Bug::LowerServerLingers,
        Bug::AnsweredStreamIsLost,
        Bug::StandInsForgotten,
        Bug::ReachNotTold,
        Bug::ConfirmedAtOnce,
        Bug::NeverConfirmed,
        Bug::NamesUnmarked,
        Bug::MarkOutlivesItsEnd,
        Bug::FormerVersionsMixed,
        Bug::FormerNamesUnheld,
        Bug::RestoredLingers,
        Bug::NeverGivenUp,
        Bug::TtlBeginsAnew,
        Bug::SecretsWritten,
        Bug::PartWrittenAsWhole,
    ];
}

#[cfg(not(feature = "planted"))]
pub const fn planted(_: Bug) -> bool {
    false
}

#[cfg(feature = "planted")]
mod selection {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::Bug;

    /// The planted bug; zero: none.
    static SELECTED: AtomicU32 = AtomicU32::new(0);

    pub fn planted(bug: Bug) -> bool {
        SELECTED.load(Ordering::Relaxed) == bug as u32
    }

    /// Plants a bug in the whole process, in place of the previous bug.
    pub fn plant(bug: Option<Bug>) {
        SELECTED.store(bug.map_or(0, |bug| bug as u32), Ordering::Relaxed);
    }
}

#[cfg(feature = "planted")]
pub use selection::{plant, planted};
