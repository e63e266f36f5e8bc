//! The collections of a session.

use crate::engine::cache::slots::SlotId;
use crate::engine::class::NameStyle;
use crate::xds::TypeUrl;

/// The collections of a session in one type.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) type_url: TypeUrl,
    pub(super) wildcard: bool,
    pub(super) globs: Option<SlotId>,
    pub(super) old: Option<SlotId>,
    pub(super) xdstp: Option<SlotId>,
}

impl Watched {
    pub(super) fn has_names(&self) -> bool {
        self.old.is_some() || self.xdstp.is_some()
    }

    pub(super) fn slot(&mut self, style: NameStyle) -> &mut Option<SlotId> {
        match style {
            NameStyle::Old => &mut self.old,
            NameStyle::Xdstp => &mut self.xdstp,
        }
    }
}
