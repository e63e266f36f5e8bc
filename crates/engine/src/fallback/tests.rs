use super::*;
use sluice_xds::{Code, Status};

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Time {
    Time::ZERO + SECOND * u32::try_from(seconds).unwrap_or(0)
}

/// One session, and its servers: reach, unknown names, and whether the answers are from the current stream.
struct World {
    fallback: Fallback,
    settings: FallbackSettings,
    sights: Vec<Sight>,
    now: u64,
}

impl World {
    fn new(servers: usize) -> World {
        let sight = Sight { reach: Reachability::Pending, unknown: 1, is_current: false, is_noted: true };
        World {
            fallback: Fallback::default(),
            settings: FallbackSettings::default(),
            sights: vec![sight; servers],
            now: 100,
        }
    }

    fn lose(&mut self, server: usize) -> &mut Self {
        let status = Status::new(Code::Unavailable, "refused");
        let now = at(self.now);
        self.sights[server].reach.lose(status, now);
        self.sights[server].is_current = false;
        self
    }

    fn hear(&mut self, server: usize) -> &mut Self {
        let now = at(self.now);
        self.sights[server].reach.hear(now);
        self
    }

    /// The server answers for everything.
    fn resolve(&mut self, server: usize) -> &mut Self {
        self.hear(server);
        self.sights[server].unknown = 0;
        self.sights[server].is_current = true;
        self
    }

    fn decide(&self) -> FallbackDecision {
        let servers = u16::try_from(self.sights.len()).unwrap_or(0);
        let seen = usize::from(self.fallback.active()) + 1;
        self.fallback.decide(&self.settings, servers, &self.sights[..seen], at(self.now))
    }

    /// Makes every due move. Returns the serving server and the lowest subscribed server.
    fn settle(&mut self) -> (u16, u16) {
        for _ in 0..10 {
            match self.decide().next {
                Some(next) => self.fallback.make(next, &self.settings, at(self.now)),
                None => return (self.fallback.serving(), self.fallback.active()),
            }
        }
        panic!("it never rests: {:?}", self.fallback);
    }

    fn pass(&mut self, seconds: u64) -> &mut Self {
        self.now += seconds;
        self
    }
}

#[test]
fn fbk_1_an_unreachable_server_is_left_only_for_what_is_lacking() {
    let mut world = World::new(2);
    assert_eq!(world.settle(), (0, 0), "the first attempt is under way");
    world.resolve(0);
    world.lose(0).pass(600);
    assert_eq!(world.settle(), (0, 0), "all is cached");
    // A new name (the row of a new watch): no new failure is needed.
    world.sights[0].unknown = 1;
    assert_eq!(world.settle(), (0, 1));
}

#[test]
fn i10_a_missing_name_alone_never_starts_it() {
    let mut world = World::new(2);
    world.hear(0).pass(3600);
    assert_eq!(world.settle(), (0, 0), "a silent server is no unreachable one (CLI-8, TMR-5)");
}

#[test]
fn rly_41_the_next_server_serves_once_it_has_all() {
    let mut world = World::new(2);
    world.lose(0);
    assert_eq!(world.settle(), (0, 1));
    world.hear(1).pass(1);
    assert_eq!(world.settle(), (0, 1));
    world.resolve(1);
    assert_eq!(world.settle(), (1, 1));
}

#[test]
fn rly_41_a_server_that_never_has_all_serves_after_a_time() {
    let mut world = World::new(2);
    world.lose(0);
    world.settle();
    world.hear(1).pass(14);
    assert_eq!(world.settle(), (0, 1));
    assert_eq!(world.decide().look_at, Some(at(115)));
    world.pass(1);
    assert_eq!(world.settle(), (1, 1));
}

#[test]
fn fbk_a_server_known_to_fail_is_passed_over_at_once() {
    let mut world = World::new(3);
    world.lose(0).lose(1);
    assert_eq!(world.settle(), (0, 2));
    world.resolve(2);
    assert_eq!(world.settle(), (2, 2));
}

#[test]
fn fbk_12_only_the_lowest_that_is_asked_moves_it_down() {
    let mut world = World::new(3);
    world.lose(0);
    world.settle();
    world.resolve(1);
    assert_eq!(world.settle(), (1, 1));
    for _ in 0..5 {
        world.pass(1).hear(0).pass(1).lose(0);
        assert_eq!(world.settle(), (1, 1));
    }
    world.lose(1);
    assert_eq!(world.settle(), (1, 1), "and then only for what is lacking");
    world.sights[1].unknown = 1;
    assert_eq!(world.settle(), (1, 2));
}

#[test]
fn rly_44_it_comes_back_when_the_higher_server_has_all_of_it() {
    let mut world = World::new(2);
    world.lose(0);
    world.settle();
    world.resolve(1);
    world.settle();
    world.pass(60).hear(0);
    assert_eq!(world.settle(), (1, 1), "half a view would delete");
    world.sights[0].unknown = 0;
    assert_eq!(world.settle(), (1, 1), "what it knows may be from before it was lost (I9)");
    world.sights[0].is_current = true;
    assert_eq!(world.settle(), (0, 0));
}

#[test]
fn rly_44_it_comes_back_after_a_time_in_any_case() {
    let mut world = World::new(2);
    world.lose(0);
    world.settle();
    world.resolve(1);
    world.settle();
    world.hear(0).pass(14);
    assert_eq!((world.settle(), world.decide().look_at), ((1, 1), Some(at(115))));
    world.pass(1);
    assert_eq!(world.settle(), (0, 0));
}

#[test]
fn fbk_8_a_server_that_is_heard_again_ends_the_search_for_another() {
    let mut world = World::new(2);
    world.lose(0);
    assert_eq!(world.settle(), (0, 1));
    world.resolve(0);
    assert_eq!(world.settle(), (0, 0), "the next one was not used");
}

#[test]
fn fbk_1_what_is_wanted_no_longer_ends_the_search() {
    let mut world = World::new(2);
    world.lose(0);
    assert_eq!(world.settle(), (0, 1));
    world.sights[0].unknown = 0;
    assert_eq!(world.settle(), (0, 0));
}

#[test]
fn g5_the_middle_one_takes_over_from_the_last() {
    let mut world = World::new(3);
    world.lose(0).lose(1);
    world.settle();
    world.resolve(2);
    assert_eq!(world.settle(), (2, 2));
    world.pass(5).resolve(1);
    assert_eq!(world.settle(), (1, 1));
    world.pass(5).resolve(0);
    assert_eq!(world.settle(), (0, 0));
}

#[test]
fn fbk_17_reachability_alone_may_be_enough() {
    let mut world = World::new(2);
    world.settings.on_reachability_only = true;
    world.resolve(0);
    assert_eq!(world.settle(), (0, 0));
    world.lose(0);
    assert_eq!(world.settle(), (0, 1));
    world.sights[1].unknown = 0;
    assert_eq!(world.settle(), (0, 1), "what it knows is no fresher while it cannot be heard either");
    world.resolve(1);
    assert_eq!(world.settle(), (1, 1));
    world.resolve(0);
    assert_eq!(world.settle(), (0, 0), "it comes back as usual (FBK-18)");
}

#[test]
fn rly_46_while_all_are_down_the_one_that_knows_most_serves() {
    let mut world = World::new(3);
    world.sights[0].unknown = 3;
    world.sights[1].unknown = 1;
    world.sights[2].unknown = 3;
    world.lose(0).lose(1).lose(2);
    assert_eq!(world.settle(), (1, 2));
    world.sights[2].unknown = 0;
    assert_eq!(world.settle(), (2, 2), "what is cached serves, whoever is down");
}

#[test]
fn fu_25_a_flapping_server_moves_a_session_once_in_a_hold_down() {
    let mut world = World::new(2);
    world.settings.on_reachability_only = true;
    world.resolve(0).resolve(1);
    let (mut changes, mut serving) = (0, 0);
    let before = world.now;
    while world.now < before + 300 {
        world.lose(0);
        for _ in 0..2 {
            if world.now.is_multiple_of(4) {
                world.resolve(0);
            }
            let next = world.settle().0;
            changes += u32::from(next != serving);
            serving = next;
            world.pass(1);
        }
    }
    assert!((3..=13).contains(&changes), "3, and one every 30 s for 300 s: {changes}");
}

#[test]
fn fu_25_a_quiet_time_clears_the_record() {
    let mut world = World::new(2);
    world.settings.on_reachability_only = true;
    world.resolve(0).resolve(1);
    for _ in 0..3 {
        world.lose(0);
        world.settle();
        world.resolve(0);
        world.settle();
    }
    assert_eq!(world.decide().look_at, Some(at(130)), "the fourth waits");
    world.pass(30);
    assert_eq!(world.settle(), (0, 0));
    world.pass(60).lose(0);
    assert_eq!(world.settle(), (1, 1));
    world.resolve(0);
    assert_eq!(world.settle(), (0, 0));
}
