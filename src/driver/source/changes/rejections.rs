//! The clients' rejections of a change, by text (ADM-10).

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use crate::driver::api::changes::ChangeRejection;
use crate::telemetry::traces::change::{Delivery, REJECTED_MAX};

/// The groups of a change. Further texts join the last group, which then has a text for all of them.
const GROUPS_MAX: usize = 16;

/// The clients that a group names.
const CLIENTS_MAX: usize = 5;

/// The kept length of a text, and of a node id. The clients choose both.
const TEXT_CHARS_MAX: usize = 512;
const NODE_CHARS_MAX: usize = 128;

const OTHERS: &str = "other texts";

#[derive(Debug)]
struct RejectionGroup {
    /// The text without digits and quoted names.
    mask: Box<str>,
    rejection: ChangeRejection,
}

#[derive(Debug, Default)]
pub struct RejectionGroups {
    groups: Vec<RejectionGroup>,
    first: Vec<Delivery>,
}

impl RejectionGroups {
    /// `stream`, `node`: the client. `after`: since the receipt of the change.
    pub fn add(&mut self, text: &str, stream: u64, node: &str, after: Duration) {
        let shown = first_chars(text, TEXT_CHARS_MAX);
        let mask = mask(&shown);
        let index = self.groups.iter().position(|group| *group.mask == *mask).unwrap_or_else(|| {
            let is_last = self.groups.len() + 1 >= GROUPS_MAX;
            let (mask, text) = if is_last { (OTHERS.to_owned(), OTHERS.into()) } else { (mask, shown) };
            if self.groups.len() < GROUPS_MAX {
                let rejection = ChangeRejection { text: text.into(), count: 0, clients: Vec::new() };
                self.groups.push(RejectionGroup { mask: mask.into(), rejection });
            }
            self.groups.len() - 1
        });
        let Some(RejectionGroup { rejection, .. }) = self.groups.get_mut(index) else { return };
        rejection.count += 1;
        if self.first.len() < REJECTED_MAX {
            let (rejection, skipped) = (Some(rejection.text.clone()), Vec::new());
            self.first.push(Delivery { stream, after, rejection, skipped });
        }
        if rejection.clients.len() < CLIENTS_MAX {
            rejection.clients.push((stream, Arc::from(first_chars(node, NODE_CHARS_MAX))));
        }
    }

    /// The first of all, with the text of their group.
    pub fn first(&self) -> &[Delivery] {
        &self.first
    }

    /// The groups, the most frequent first.
    pub fn all(&self) -> Vec<ChangeRejection> {
        let mut all: Vec<_> = self.groups.iter().map(|group| group.rejection.clone()).collect();
        all.sort_by_key(|group| Reverse(group.count));
        all
    }
}

fn first_chars(text: &str, count: usize) -> String {
    text.chars().take(count).collect()
}

/// Masks numbers and quoted names, in which the texts of many clients about one fault differ.
fn mask(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(next) = rest.next() {
        match next {
            '0'..='9' => {
                while rest.next_if(char::is_ascii_digit).is_some() {}
                masked.push('#');
            }
            '"' | '\'' | '`' => {
                let name: String = rest.clone().take_while(|end| *end != next).collect();
                // An apostrophe is no quote.
                let is_closed = rest.clone().count() > name.chars().count();
                if is_closed {
                    rest.nth(name.chars().count());
                    masked.push('*');
                } else {
                    masked.push(next);
                }
            }
            other => masked.push(other),
        }
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adm_10_texts_differ_by_more_than_numbers_and_quoted_names() {
        let mut rejections = RejectionGroups::default();
        for (stream, text) in
            ["port 80 of \"web\"", "port 8443 of \"cart\"", "port of \"web\"", "can't 1", "can't 22"]
                .into_iter()
                .enumerate()
        {
            rejections.add(text, stream as u64, "node", Duration::ZERO);
        }
        let all: Vec<_> = rejections.all().into_iter().map(|group| (group.text, group.count)).collect();
        assert_eq!(
            all,
            [("port 80 of \"web\"".into(), 2), ("can't 1".into(), 2), ("port of \"web\"".into(), 1)]
        );
    }

    #[test]
    fn adm_10_groups_clients_and_texts_are_bounded_and_all_are_counted() {
        let mut rejections = RejectionGroups::default();
        for stream in 0..1000_u64 {
            let text = "x".repeat(stream as usize % 40 + 1) + &"y".repeat(10_000);
            rejections.add(&text, stream, &"n".repeat(4096), Duration::ZERO);
        }
        let all = rejections.all();
        assert_eq!((all.len(), all.iter().map(|group| group.count).sum::<u32>()), (GROUPS_MAX, 1000));
        assert!(
            all.iter().all(|group| group.text.len() <= TEXT_CHARS_MAX && group.clients.len() <= CLIENTS_MAX)
        );
        assert_eq!(rejections.first().len(), REJECTED_MAX, "OBS-2");
        assert!(all.iter().flat_map(|group| &group.clients).all(|(_, node)| node.len() <= NODE_CHARS_MAX));
    }
}
