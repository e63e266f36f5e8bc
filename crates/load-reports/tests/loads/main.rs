//! The machines of load reports, as their caller drives them.

#![allow(clippy::unwrap_used, clippy::panic)]

mod class_load;
mod cost;
mod room;
mod world;

use proptest::prelude::*;
use world::{Event, play};

fn events() -> impl Strategy<Value = Vec<Event>> {
    let gap = prop_oneof![0u64..200_000, 0u64..5_000_000, 0u64..70_000_000];
    let event = (gap, 0u8..100, any::<u64>()).prop_map(|(gap, what, choice)| Event { gap, what, choice });
    prop::collection::vec(event, 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn i29_each_request_is_delivered_once_or_has_an_account(seed in any::<u64>(), events in events()) {
        let (one, other) = (play(seed, &events, 0), play(seed, &events, seed >> 20));
        prop_assert_eq!(&one.failure, &None);
        prop_assert_eq!((one.hash, one.lasted), (other.hash, other.lasted), "the origin of the time shows");
    }
}
