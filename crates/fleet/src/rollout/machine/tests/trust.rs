//! Contents that go to all at once, because all had them before.

use super::*;
use crate::rollout::command::{Command, PinFor, Promotion};

/// A plan that enforces, with the contents of unit 1 as numbers; all accept each push. The content at the
/// begin is 0.
struct Past {
    world: World,
    live: u128,
    stable: u128,
    /// The release that the next cut returns to, by another digest.
    returns_to: Option<u64>,
}

impl Past {
    fn new() -> Past {
        Past { world: World::of(enforcing()), live: 0, stable: 0, returns_to: None }
    }

    /// The server states a content, which is cut.
    fn states(&mut self, content: u128) {
        let ms = self.world.now + 1_000;
        (self.live, self.world.cuts) = (content, vec![]);
        self.world.live(ms, 1, content != self.stable, true);
        self.cut();
    }

    fn cut(&mut self) {
        let due = self.world.rollout.poll_timeout().expect("something is gathered");
        let ms = u64::try_from(due.since(Time::ZERO).as_millis()).unwrap();
        self.world.run(ms.max(self.world.now), Rollout::handle_timeout);
        let push = self.push(1, self.live);
        self.world.ready(self.world.now, vec![push]);
        let is_under_way = self.world.push_number().is_some();
        self.world.live(self.world.now, 1, is_under_way, false);
    }

    fn push(&self, number: u64, candidate: u128) -> UnitPush {
        let (stable, candidate) = (ReleaseDigest(self.stable), ReleaseDigest(candidate));
        UnitPush { stable, candidate, returns_to: self.returns_to, ..unit_push(number) }
    }

    /// Whether a content goes to all at once. Else all accept each step.
    fn is_at_once(&mut self, content: u128) -> bool {
        self.states(content);
        self.finish()
    }

    fn finish(&mut self) -> bool {
        let was_at_once = self.world.push_number().is_none();
        let from = self.world.now;
        (1..=200).for_each(|second| self.world.tally(from + second * 1_000, admitted(accepted(10))));
        let expected = if was_at_once { Outcome::Restored } else { Outcome::Finished };
        assert_eq!(self.world.past()[0].1, expected);
        self.stable = self.live;
        self.world.live(self.world.now, 1, false, false);
        was_at_once
    }

    fn halt(&mut self) {
        let tally = Tally { blamed: vec![unit(1)], ..admitted(Counts { rejected: 1, ..accepted(9) }) };
        self.world.tally(self.world.now + 500, tally);
        assert_eq!(self.world.state(), RolloutState::Halted);
    }
}

/// A bad push that no client rejects is taken back, and pushed again.
#[test]
fn wav_17_a_content_that_was_taken_back_goes_by_steps() {
    let mut past = Past::new();
    assert!(!past.is_at_once(1));
    assert!(past.is_at_once(0), "the servers take it back");
    assert!(!past.is_at_once(1), "the same content again");
    assert!(past.is_at_once(0), "and back at once, also the second time");
    assert!(!past.is_at_once(2) && !past.is_at_once(1));
}

/// The earlier content has another digest since clients asked for more names, so it goes by steps, and is a
/// return nevertheless.
#[test]
fn wav_17_a_return_to_a_grown_content_takes_back_as_well() {
    let mut past = Past::new();
    assert!(!past.is_at_once(1));
    past.returns_to = Some(0);
    assert!(!past.is_at_once(10));
    past.returns_to = None;
    assert!(!past.is_at_once(1));
    assert!(past.is_at_once(10));
}

#[test]
fn wav_17_all_contents_since_the_one_that_comes_back_were_taken_back() {
    let mut past = Past::new();
    for content in [1, 2, 3] {
        assert!(!past.is_at_once(content));
    }
    assert!(past.is_at_once(1), "two releases back");
    assert!(!past.is_at_once(3) && !past.is_at_once(2));
    assert!(past.is_at_once(3), "it has settled by steps meanwhile, and was not taken back");
    assert!(past.is_at_once(0));
}

#[test]
fn wav_17_an_operator_takes_contents_back_for_later_pushes_too() {
    for command in [Command::Rollback { push: 2 }, Command::Pin { release: 1, until: PinFor::Unpin }] {
        let mut past = Past::new();
        assert!(!past.is_at_once(1) && !past.is_at_once(2));
        past.world.command(past.world.now, command).unwrap();
        past.stable = 1;
        past.world.live(past.world.now, 1, true, false);
        past.world.command(past.world.now, Command::Unpin).unwrap();
        past.cut();
        assert_eq!(past.world.state(), RolloutState::Waving, "what waited goes by steps");
        past.finish();
        assert!(past.is_at_once(1), "the pinned content stays trusted");
    }
}

/// All had the content before as well, and it was not taken back then.
#[test]
fn wav_17_what_an_operator_takes_back_goes_by_steps_however_old_it_is() {
    let mut past = Past::new();
    assert!(!past.is_at_once(1) && past.is_at_once(0));
    past.world.command(past.world.now, Command::Rollback { push: 2 }).unwrap();
    past.stable = 1;
    past.world.live(past.world.now, 1, true, false);
    past.world.command(past.world.now, Command::Unpin).unwrap();
    past.cut();
    assert!(!past.finish(), "what waited goes by steps");
    assert!(past.is_at_once(1), "which the operator gave to all");
}

/// Nobody asked for the unit for a while: it began anew with another content than its latest release has. A
/// rollback takes that content back as well.
#[test]
fn wav_17_a_rollback_trusts_no_content_that_the_release_does_not_have() {
    let mut past = Past::new();
    assert!(!past.is_at_once(1));
    past.stable = 10;
    past.states(2);
    past.world.command(past.world.now, Command::Rollback { push: 2 }).unwrap();
    past.stable = 1;
    past.world.live(past.world.now, 1, true, false);
    assert!(!past.is_at_once(10));
}

/// The unit had another content than that of its latest push, in a release of other units. Which one the
/// release serves is not sure.
#[test]
fn wav_17_a_rollback_to_a_release_of_other_units_trusts_no_content_since() {
    for serves in [1, 10] {
        let mut past = Past::new();
        assert!(!past.is_at_once(1));
        let ms = past.world.now + 1_000;
        past.world.live(ms, 2, true, true);
        past.world.timer(ms + 1_000);
        let second = UnitPush { stable: ReleaseDigest(20), candidate: ReleaseDigest(21), ..unit_push(2) };
        past.world.ready(ms + 1_000, vec![second]);
        (2..=200).for_each(|second| past.world.tally(ms + second * 1_000, admitted(accepted(10))));
        past.world.live(past.world.now, 2, false, false);
        past.stable = 10;
        // The server may go back to the content of the latest push, or on.
        let taken_back = if serves == 10 { 1 } else { 2 };
        assert_eq!(past.is_at_once(taken_back), taken_back == 1);
        past.world.command(past.world.now, Command::Rollback { push: 3 }).unwrap();
        past.stable = serves;
        past.world.live(past.world.now, 1, true, false);
        past.world.command(past.world.now, Command::Unpin).unwrap();
        past.cut();
        assert!(!past.finish(), "what the operator took back goes by steps");
        if serves == 1 {
            assert!(!past.is_at_once(10), "as does what the unit had before");
        }
    }
}

/// A pin of a release from before the first push of a unit takes the unit's content back as well.
#[test]
fn wav_17_a_pin_takes_units_back_whose_first_push_came_later() {
    let mut past = Past::new();
    assert!(!past.is_at_once(1));
    let mut world = past.world;
    let push = |stable, candidate| {
        let (stable, candidate) = (ReleaseDigest(stable), ReleaseDigest(candidate));
        vec![UnitPush { stable, candidate, ..unit_push(2) }]
    };
    world.live(500_000, 2, true, true);
    world.timer(501_000);
    world.ready(501_000, push(20, 21));
    (502..=700).for_each(|second| world.tally(second * 1_000, admitted(accepted(10))));
    world.live(700_000, 2, false, false);
    world.command(701_000, Command::Pin { release: 0, until: PinFor::Unpin }).unwrap();
    world.live(701_000, 2, true, false);
    world.command(702_000, Command::Unpin).unwrap();
    world.timer(703_000);
    world.ready(703_000, push(20, 21));
    assert_eq!(world.state(), RolloutState::Waving);
}

/// A return to an earlier content comes with a change of another unit, and is halted.
#[test]
fn wav_17_a_content_that_was_halted_goes_by_steps() {
    let mut past = Past::new();
    assert!(!past.is_at_once(1));
    let ms = past.world.now + 1_000;
    (1..=2).for_each(|number| past.world.live(ms, number, true, true));
    past.world.timer(ms + 1_000);
    let second = UnitPush { stable: ReleaseDigest(20), candidate: ReleaseDigest(21), ..unit_push(2) };
    past.world.ready(ms + 1_000, vec![past.push(1, 0), second]);
    past.halt();
    past.world.live(past.world.now, 2, false, true);
    assert!(!past.is_at_once(7), "the next content of the blamed unit");
    assert!(!past.is_at_once(0));
}

/// A halted content is no release, and an operator's promotion makes it one.
#[test]
fn wav_17_a_promoted_content_is_trusted_once_it_has_settled() {
    let mut past = Past::new();
    past.states(1);
    past.halt();
    past.world.live(past.world.now, 1, true, false);
    past.world.command(past.world.now, Command::Promote { push: 1, to: Promotion::All }).unwrap();
    past.world.ready(past.world.now, vec![past.push(1, 1)]);
    past.finish();
    assert!(!past.is_at_once(2));
    assert!(past.is_at_once(1));
}

#[test]
fn wav_8_contents_that_were_taken_back_are_not_trusted_after_a_restart() {
    let mut past = Past::new();
    assert!(!past.is_at_once(1) && past.is_at_once(0));
    let record = past.world.rollout.record(at(past.world.now));
    past.world.rollout = Rollout::restore(Arc::new(enforcing()), record, Duration::ZERO, at(past.world.now));
    assert!(!past.is_at_once(1));
    assert!(past.is_at_once(0));
}
