//! Bugs that can be planted in the machines, so that the simulator can show that it finds them (`tests/sim`).
//!
//! Without the feature `planted` nothing of this is there: [`planted`] is a constant `false`, and each site where a bug could
//! be is compiled away. No binary that anybody runs is built with it. With the feature, one bug at a time is chosen for the
//! whole process, and none to begin with.

/// A bug: the site at which it is planted says what it spoils.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Bug {
    // What is said to servers, and what their answers mean.
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
    // What sources keep.
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
    // What is said to clients.
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
    // Which server serves.
    LeavesServerThatIsHeard,
    LeavesThoughNothingLacks,
    NeverComesBack,
    LowerServerLingers,
    AnsweredStreamIsLost,
    StandInsForgotten,
    ReachNotTold,
    // What outlives the process.
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

    /// The bug that is planted; zero for none.
    static SELECTED: AtomicU32 = AtomicU32::new(0);

    pub fn planted(bug: Bug) -> bool {
        SELECTED.load(Ordering::Relaxed) == bug as u32
    }

    /// Plants a bug in the whole process in the place of the one before.
    pub fn plant(bug: Option<Bug>) {
        SELECTED.store(bug.map_or(0, |bug| bug as u32), Ordering::Relaxed);
    }
}

#[cfg(feature = "planted")]
pub use selection::{plant, planted};
