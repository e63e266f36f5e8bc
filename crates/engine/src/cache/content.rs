//! The content of one cache, and its changes since the last settling: names, members of globs, or of the
//! wildcard.

use std::sync::Arc;

use super::departed::Departed;
use super::news::{News, Stamp};
use crate::change::Altered;
use crate::view::ViewId;
use sluice_xds::{Resource, ResourceName, Version};

#[derive(Debug, Default)]
pub struct Content {
    /// The sum of the versions of the present resources.
    digest: Version,
    /// The content that changed since the last settling.
    altered: Option<Box<Altered>>,
    /// The last bytes of absent names, or of former members, and the mark of the last departure.
    pub departed: Departed,
}

impl Content {
    pub fn of_members() -> Content {
        Content { departed: Departed::of_members(), ..Content::default() }
    }

    /// A name has another resource than before.
    pub fn put(&mut self, name: &ResourceName, old: Option<&Resource>, new: &Arc<Resource>) {
        self.departed.back(name);
        self.altered.get_or_insert_default().put(name, old, new);
    }

    /// A name has no resource any more.
    pub fn take(&mut self, name: &ResourceName) {
        self.altered.get_or_insert_default().take(name);
    }

    /// A resource joins the present resources, or leaves.
    pub fn count(&mut self, resource: &Resource, joins: bool) {
        self.digest = match joins {
            true => self.digest.plus(resource.version),
            false => self.digest.minus(resource.version),
        };
    }

    /// The sum of the versions of the present resources.
    pub fn digest(&self) -> Version {
        self.digest
    }

    /// The mark of the last departure for views, and the number of the change, if the content has changed.
    pub fn settle(&mut self, stamp: &mut Stamp) -> (ViewId, Option<u64>) {
        let lost = self.departed.settle(stamp);
        (lost, stamp.number(self.altered.as_deref()))
    }

    /// Reports the change with this number, for the sessions that watch the content.
    pub fn report(&mut self, number: Option<u64>, sessions: usize, stamp: &Stamp, news: &mut News) {
        news.note_change(number, self.altered.take(), self.digest, sessions, stamp.now);
    }
}
