//! Whether clients have the content that the control plane's function has for them, and when those that the rule
//! selects got theirs.

use anyhow::Result;

use super::super::histogram::Histogram;
use crate::function::{Function, RULED, SELECTED, Who};
use crate::stamp::Stamp;
use crate::xds::Kind;

pub struct Audiences {
    clients: Vec<Who>,
    has_labels: bool,
    /// The type whose first resource the rule changes.
    kind: Kind,
    /// The moment from which on the rule is in force.
    rule_at: Option<u64>,
    /// The selected clients that have the content of the rule.
    is_ruled: Vec<bool>,
    /// The number of selected clients that wait for it.
    due: usize,
    /// From the moment of the rule to its content at each selected client.
    pub rule: Histogram,
    /// Resources that were made for other clients.
    pub misplaced: usize,
}

impl Audiences {
    pub fn new(function: &Function, clients: usize, kind: Kind) -> Result<Audiences> {
        Ok(Audiences {
            clients: (0..clients).map(|client| function.who(client)).collect(),
            has_labels: function.has_labels(),
            kind,
            rule_at: None,
            is_ruled: vec![false; clients],
            due: 0,
            rule: Histogram::new()?,
            misplaced: 0,
        })
    }

    pub fn rule_at(&self) -> Option<u64> {
        self.rule_at
    }

    pub fn due(&self) -> usize {
        self.due
    }

    /// The rule is in force from now on, and the selected clients that are connected wait for its content.
    pub fn put_rule_in_force(&mut self, at: u64, is_alive: impl Fn(usize) -> bool) {
        self.rule_at = Some(at);
        self.due = (0..self.clients.len()).filter(|client| self.awaits(*client) && is_alive(*client)).count();
    }

    fn awaits(&self, client: usize) -> bool {
        self.rule_at.is_some() && self.clients[client].is_selected && !self.is_ruled[client]
    }

    /// A resource has arrived at a client.
    pub fn arrived(&mut self, client: usize, kind: Kind, stamp: Stamp, now: u64) {
        if !self.has_labels {
            return;
        }
        let who = self.clients[client];
        let is_in_force = self.rule_at.is_some() && kind == self.kind;
        let expected = who.audience_of(stamp.index, is_in_force);
        // Until the content of the rule is there, the content from before is late, and no other client's.
        let is_late =
            is_in_force && stamp.index == RULED && self.awaits(client) && stamp.audience == who.audience;
        if stamp.audience != expected && !is_late {
            self.misplaced += 1;
        }
        if stamp.audience == expected && expected == SELECTED && self.awaits(client) {
            self.has_rule(client, now);
        }
    }

    fn has_rule(&mut self, client: usize, now: u64) {
        self.is_ruled[client] = true;
        self.due = self.due.saturating_sub(1);
        self.rule.record(now.saturating_sub(self.rule_at.unwrap_or(now)));
    }

    /// A client will not come back.
    pub fn lost(&mut self, client: usize) {
        if self.awaits(client) {
            self.is_ruled[client] = true;
            self.due = self.due.saturating_sub(1);
        }
    }

    /// Ends the run: the content of the rule has taken at least until now for those that still wait. Returns their
    /// number.
    pub fn give_up(&mut self, now: u64) -> usize {
        let late: Vec<usize> = (0..self.clients.len()).filter(|client| self.awaits(*client)).collect();
        late.iter().for_each(|client| self.has_rule(*client, now));
        late.len()
    }
}
