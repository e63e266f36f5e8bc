//! The content of a push, as the driver sums it up from the snapshots before and after.

use serde::{Deserialize, Serialize};

use super::hex;
use super::shared::UnitChanges;
pub use sluice_admin_api::rollouts::Growth;
use sluice_engine::change::NameList;
use sluice_xds::{ResourceName, TypeUrl, Version};

/// A unit of a plan: a shared source, by the source's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnitId(pub u64);

/// The part of one unit in a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitPush {
    pub unit: UnitId,
    /// The gated types that differ, in the order of sending.
    pub types: Vec<TypePush>,
    /// A condemned part of the push, by earlier rejections (QUA-2).
    pub condemned: Option<Content>,
    /// The findings in the contents: at most one of each kind.
    pub findings: Vec<Finding>,
    /// The unit's server can be heard, and has answered for all gated types.
    pub is_current: bool,
    /// The content is that of the unit's latest candidate.
    pub is_former: bool,
    /// The latest release that the content returns to, as far as the unit still has releases.
    pub returns_to: Option<u64>,
    /// The content that all clients may have. Zero under `mode: observe`, as is the candidate.
    pub stable: ReleaseDigest,
    /// The content of the push.
    pub candidate: ReleaseDigest,
    /// The changes, for other replicas. `None`: the plan has no ledger.
    pub shared: Option<UnitChanges>,
}

/// The identity of the gated content of a unit: equal contents have equal digests, in each process. Written
/// as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReleaseDigest(#[serde(with = "hex")] pub u128);

/// The newest gated content of a unit, compared with the contents that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differs {
    /// The content differs from the stable content.
    pub from_stable: bool,
    /// The content differs from the unit's latest candidate. The unit keeps the candidate for this question:
    /// until another cut, or until the stable content equals the newest. After [`Output::Serve`], the newest
    /// content at that moment takes the place of the candidate. Without any, as `from_stable`.
    ///
    /// [`Output::Serve`]: super::Output::Serve
    pub from_candidate: bool,
}

impl UnitPush {
    pub fn is_empty(&self) -> bool {
        self.types.iter().all(|part| part.added.count + part.changed.count + part.removed.count == 0)
    }
}

/// The differences of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypePush {
    pub type_url: TypeUrl,
    pub added: NameList,
    pub changed: NameList,
    pub removed: NameList,
    /// The number of resources.
    pub resources: Growth,
    /// The bytes of all resources.
    pub bytes: Growth,
    /// The changed resource that grew by most bytes. A resource beyond the bounds of the guard comes before
    /// all others.
    pub largest: Option<(ResourceName, Growth)>,
}

/// A finding in the contents of a push (GRD-5 to GRD-7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: FindingKind,
    pub type_url: TypeUrl,
    /// The resource with the fault; of a removed cluster, the resource that names it.
    pub name: ResourceName,
    /// The type that cannot be read, or the cluster.
    pub what: Box<str>,
    /// Further findings of the kind in the unit.
    pub more: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// A changed resource, or an `Any` in it, does not decode as its type.
    Unreadable,
    /// A changed route or TCP filter names a cluster that the unit has neither before nor with the push.
    Dangling,
    /// A removed cluster is named by a route or TCP filter of the unit.
    GoneWhileUsed,
}

impl FindingKind {
    pub const ALL: [FindingKind; 3] =
        [FindingKind::Unreadable, FindingKind::Dangling, FindingKind::GoneWhileUsed];
}

/// A resource with its version: a content that clients rejected, that is condemned, or that a unit gave.
pub type Content = (TypeUrl, ResourceName, Version);

impl TypePush {
    /// Adds the differences of another unit.
    pub(super) fn merge(&mut self, other: &TypePush) {
        let lists = [
            (&mut self.added, &other.added),
            (&mut self.changed, &other.changed),
            (&mut self.removed, &other.removed),
        ];
        for (list, other) in lists {
            list.merge(other);
        }
        for (sum, other) in [(&mut self.resources, other.resources), (&mut self.bytes, other.bytes)] {
            sum.before += other.before;
            sum.after += other.after;
        }
        if let Some((name, growth)) = &other.largest {
            self.note_largest(name, *growth);
        }
    }

    /// Notes the growth of a changed resource.
    pub(crate) fn note_largest(&mut self, name: &ResourceName, growth: Growth) {
        // A doubled small resource may have grown by fewer bytes than a large resource (GRD-4).
        let rank = |growth: Growth| (is_doubled(growth), growth_by(growth));
        if self.largest.as_ref().is_none_or(|(_, largest)| rank(growth) > rank(*largest)) {
            self.largest = Some((name.clone(), growth));
        }
    }
}

/// Growth by less is never suspicious (GRD-4).
const BYTES_FLOOR: u64 = 1 << 20;
const COUNT_FLOOR: u64 = 20;

/// 0 for something that shrank.
fn growth_by(growth: Growth) -> u64 {
    growth.after.saturating_sub(growth.before)
}

/// Bytes more than doubled, by more than 1 MiB (GRD-4).
pub(super) fn is_doubled(bytes: Growth) -> bool {
    is_beyond(bytes, 2, BYTES_FLOOR)
}

/// A number of resources more than tripled, by more than 20 (GRD-4).
pub(super) fn is_tripled(resources: Growth) -> bool {
    is_beyond(resources, 3, COUNT_FLOOR)
}

/// Growth from nothing is a beginning, not a fault.
fn is_beyond(growth: Growth, times: u64, floor: u64) -> bool {
    let Growth { before, after } = growth;
    before > 0 && after > before.saturating_mul(times) && growth_by(growth) > floor
}
