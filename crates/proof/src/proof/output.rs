//! The outputs of the machine.

use std::sync::Arc;
use std::time::Duration;

use super::input::{ClassKey, MemberId, ShadowId, Wanted};
use super::report::{Divergence, SampleResult, ShadowKind};
use sluice_xds::{Node, Resource, ResourceName, Status, TypeUrl};

/// A shadow to open.
#[derive(Clone, Debug)]
pub struct OpenShadow {
    pub id: ShadowId,
    pub class: ClassKey,
    pub kind: ShadowKind,
    /// `None`: the class's own node.
    pub member: Option<MemberId>,
    pub node: Arc<Node>,
    /// Everything to ask, in one go (PRF-2).
    pub wants: Arc<[Wanted]>,
    /// On another connection than the class's stream, where there is another address (PRF-18); otherwise on
    /// the connection of the class, where possible (PRF-3).
    pub on_another_connection: bool,
}

/// A question about the meaning of bodies. The caller answers with [`Proof::meant`](super::Proof::meant).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuestionId(pub u64);

/// Two bodies under one name, with unequal versions.
#[derive(Clone, Debug)]
pub struct ResourcePair {
    pub class: Arc<Resource>,
    pub shadow: Arc<Resource>,
}

/// Bodies to compare decoded, beside the workers (PRF-14). At most 100 pairs; never Secrets.
#[derive(Clone, Debug)]
pub struct Question {
    pub id: QuestionId,
    pub type_url: TypeUrl,
    pub pairs: Vec<ResourcePair>,
}

#[derive(Clone, Debug)]
pub enum Output {
    Open(OpenShadow),
    Close(ShadowId),
    /// The sample is a witness from now on, and stays open.
    Keep(ShadowId),
    Ask(Question),
    Tell(Happening),
    /// Members leave their class for classes of their own (PRF-27).
    Split(Split),
    /// The members of a class that was split off return to the class that they came from (PRF-31).
    Join {
        class: ClassKey,
    },
    /// New streams of the class are refused the type, until [`Output::Admit`] (PRF-28).
    Refuse {
        class: ClassKey,
        type_url: TypeUrl,
    },
    Admit {
        class: ClassKey,
        type_url: TypeUrl,
    },
}

/// The members of a class that leave the class: those with one of these tuples of values, for a class of
/// their own for each tuple (PRF-27). Told again after ten minutes if some of them are still there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    pub class: ClassKey,
    /// The sample that did it: the type, and the id of the node (PRF-32).
    pub type_url: TypeUrl,
    pub member_id: Arc<str>,
    /// Paths of plain fields, or `id` alone.
    pub fields: Vec<Arc<str>>,
    /// A value for each field, as in [`NodeFields`](crate::node_fields::NodeFields); `None`: the node lacks
    /// the field.
    pub values: Vec<Vec<Option<Arc<str>>>>,
    /// The least time for which the split holds (PRF-31).
    pub holds: Duration,
}

/// Something to log, to count and to list among the events.
#[derive(Clone, Debug)]
pub enum Happening {
    /// A sample ended with this result, for the metric `sluice_proof_samples_total`.
    Sampled { class: ClassKey, result: SampleResult },
    /// A confirmed divergence began, or has more names or members (PRF-26: at most once per class, type and
    /// hour).
    Diverged(Arc<Divergence>),
    /// All differing members are equal again, or have left.
    DivergenceEnded(Arc<Divergence>),
    /// The control plane answers the same question in two ways; the names leave the proof (PRF-16).
    Restless { class: ClassKey, type_url: TypeUrl, names: Vec<ResourceName> },
    /// The control plane encodes equal content in unequal bytes. Told once per type (PRF-14).
    Encoding { class: ClassKey, type_url: TypeUrl, name: ResourceName },
    /// A stream of the server stays behind for longer than the window (PRF-13).
    Lagging { class: ClassKey, who: Lagging, type_url: TypeUrl, name: ResourceName, behind: Duration },
    /// The server refuses shadows: proof is impossible, and is tried again in an hour (PRF-9). `class`:
    /// `None` for all classes of the server.
    Impossible { class: Option<ClassKey>, status: Status },
    /// Two connections to the server give the same node unequal answers (PRF-18). The shadow is still open,
    /// so that the caller can name both addresses and identifiers.
    ReplicasDisagree { class: ClassKey, shadow: ShadowId, type_url: TypeUrl, names: Vec<ResourceName> },
    /// Two connections to the server give the same node equal answers. The shadow is still open.
    ReplicasAgree { class: ClassKey, shadow: ShadowId, ends_disagreement: bool },
    /// A type has secrets within its resources, and is compared by version only (PRF-8).
    SecretBearing { class: ClassKey, type_url: TypeUrl },
    /// The first differing member of a split has left the class (PRF-27). In the place of
    /// [`Happening::DivergenceEnded`]: the member is not equal to its former class.
    SplitOff { split: Arc<Split> },
    /// A divergence calls for a split or a refusal, which waits. Told once for each class and reason.
    SplitWaits { class: ClassKey, type_url: TypeUrl, reason: Arc<str> },
    /// The contents of both classes were equal for long enough, and the members return (PRF-31).
    Joined { class: ClassKey, parent: ClassKey },
    /// Divergences of so many classes at once are no matter of grouping: the control plane is in motion, or
    /// its replicas are at odds. Nothing splits or refuses for `pause` (PRF-29). For the log: an error.
    Breaker { reason: Arc<str>, pause: Duration },
}

/// The stream that is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lagging {
    Shadow(ShadowId),
    Class,
}
