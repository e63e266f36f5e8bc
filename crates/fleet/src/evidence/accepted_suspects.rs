//! Suspects of rejections that other clients of the same program accepted (TRU-6).

use std::collections::{BTreeMap, BTreeSet};

use super::remembered::Content;
use crate::rollout::tally::Rejection;
use sluice_xds::{Node, ResourceName, Version};

/// The programs with suspects. Clients choose the texts.
const PROGRAMS_MAX: usize = 64;

/// The bound for the suspects of one program: its other clients are asked about so many. The rest stays
/// suspected.
const CONTENTS_MAX: usize = 16;

/// The suspects of a push, by the program of the rejecting clients.
#[derive(Debug, Default)]
pub(super) struct AcceptedSuspects(BTreeMap<Box<str>, ProgramSuspects>);

#[derive(Debug, Default)]
struct ProgramSuspects {
    open: BTreeSet<Content>,
    accepted: BTreeSet<Content>,
}

impl AcceptedSuspects {
    /// A client of a program rejected the push.
    pub(super) fn suspect(&mut self, node: Option<&Node>, rejection: &Rejection) {
        let program = program(node);
        if self.0.len() >= PROGRAMS_MAX && !self.0.contains_key(&*program) {
            return;
        }
        let suspects = self.0.entry(program).or_default();
        for (name, version) in &rejection.suspects {
            let content = (rejection.type_url.clone(), name.clone(), *version);
            let is_room = suspects.open.len() + suspects.accepted.len() < CONTENTS_MAX;
            if is_room && !suspects.accepted.contains(&content) {
                suspects.open.insert(content);
            }
        }
    }

    /// The suspects which another client of this program may have accepted.
    pub(super) fn open(&self, node: Option<&Node>) -> Option<&BTreeSet<Content>> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&program(node)).map(|suspects| &suspects.open).filter(|open| !open.is_empty())
    }

    /// A client of the program accepted a suspect.
    pub(super) fn accept(&mut self, node: Option<&Node>, content: Content) {
        if let Some(suspects) = self.0.get_mut(&program(node))
            && suspects.open.remove(&content)
        {
            suspects.accepted.insert(content);
        }
    }

    /// Takes the accepted contents out of the suspects of a rejection.
    pub(super) fn clear(&self, program: &str, rejection: &mut Rejection) {
        let Some(suspects) = self.0.get(program).filter(|suspects| !suspects.accepted.is_empty()) else {
            return;
        };
        let type_url = rejection.type_url.clone();
        let is_suspect = |(name, version): &(ResourceName, Version)| {
            !suspects.accepted.contains(&(type_url.clone(), name.clone(), *version))
        };
        rejection.suspects.retain(is_suspect);
    }
}

/// The name and the version of a client's program.
pub(super) fn program(node: Option<&Node>) -> Box<str> {
    node.map(Node::user_agent).unwrap_or_default().into()
}
