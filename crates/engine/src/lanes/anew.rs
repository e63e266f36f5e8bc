//! A hold from the begin, for a source that begins anew with content of before: from the checkpoint, or of a task that failed (WAV-8).

use super::lane::Lane;
use super::overlay::Lanes;
use crate::snapshot::LaneMark;

impl Lanes {
    /// Holds the source's present content, which its server has not confirmed yet, until [`Lanes::confirm`] or [`Lanes::rest`]. Otherwise
    /// nothing would be held if the source forgets it before its server answers.
    pub fn hold(&mut self) {
        if self.stable.is_none() {
            let mark = LaneMark { release: self.release, push: None };
            self.stable = Some(Lane::freeze(&self.live, &self.gated, mark));
            self.has_held = true;
            self.renew_all();
        }
        (self.is_kept, self.is_unconfirmed) = (true, true);
    }

    /// The server has confirmed or replaced all that it stated before: from now on, equal content is held no longer.
    pub fn confirm(&mut self) {
        if std::mem::take(&mut self.is_unconfirmed) {
            self.end_if_equal();
        }
    }
}
