//! Work that is done once for several callers. The other callers are woken at the end; none of them blocks a
//! thread.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::task::Waker;

use parking_lot::Mutex;

/// The work under way by key, with the waiting callers.
#[derive(Debug)]
pub struct SingleFlight<K>(Mutex<HashMap<K, Vec<FlightCaller>>>);

/// A caller that waits.
#[derive(Debug)]
struct FlightCaller {
    waker: Waker,
    /// Gone together with the caller; `None` for a caller that does not say.
    caller: Option<Weak<()>>,
}

impl<K> Default for SingleFlight<K> {
    fn default() -> Self {
        SingleFlight(Mutex::default())
    }
}

impl<K: Eq + Hash> SingleFlight<K> {
    /// Returns true if the caller is to do the work. Other callers are woken when the work has ended, with or
    /// without a result.
    pub fn begin(&self, key: K, waker: &Waker) -> bool {
        self.enter(key, waker, None)
    }

    /// As [`SingleFlight::begin`], for a caller that may leave.
    pub fn begin_for(&self, key: K, waker: &Waker, caller: &Arc<()>) -> bool {
        self.enter(key, waker, Some(caller))
    }

    /// Whether one of the waiting callers is still there.
    pub fn is_wanted(&self, key: &K) -> bool {
        let is_there =
            |waiting: &FlightCaller| waiting.caller.as_ref().is_none_or(|caller| caller.strong_count() > 0);
        self.0.lock().get(key).is_some_and(|waiting| waiting.iter().any(is_there))
    }

    fn enter(&self, key: K, waker: &Waker, caller: Option<&Arc<()>>) -> bool {
        let mut flights = self.0.lock();
        let Some(waiting) = flights.get_mut(&key) else {
            flights.insert(key, Vec::new());
            return true;
        };
        let caller = caller.map(Arc::downgrade);
        match waiting.iter_mut().find(|other| other.waker.will_wake(waker)) {
            // Another caller of the same task.
            Some(other) => other.caller = caller,
            None => waiting.push(FlightCaller { waker: waker.clone(), caller }),
        }
        false
    }

    pub fn end(&self, key: &K) {
        let waiting = self.0.lock().remove(key);
        waiting.into_iter().flatten().for_each(|waiting| waiting.waker.wake());
    }
}

/// Ends the work on drop, also in a panic.
pub struct FlightGuard<'a, K: Eq + Hash> {
    pub flights: &'a SingleFlight<K>,
    pub key: K,
}

impl<K: Eq + Hash> Drop for FlightGuard<'_, K> {
    fn drop(&mut self) {
        self.flights.end(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn work_is_wanted_while_a_caller_is_there() {
        let (flights, waker) = (SingleFlight::default(), Waker::from(Arc::<Wakes>::default()));
        let [first, second] = [(); 2].map(Arc::new);
        assert!(flights.begin_for("a", &waker, &first));
        assert!(!flights.is_wanted(&"a"), "nobody waits");
        assert!(!flights.begin_for("a", &waker, &first));
        assert!(flights.is_wanted(&"a"));
        let other = Waker::from(Arc::<Wakes>::default());
        assert!(!flights.begin_for("a", &other, &second));
        drop(first);
        assert!(flights.is_wanted(&"a"));
        drop(second);
        assert!(!flights.is_wanted(&"a") && !flights.is_wanted(&"b"));
        assert!(!flights.begin("a", &other));
        assert!(flights.is_wanted(&"a"), "a stream does not say when it leaves");
    }

    #[test]
    fn one_caller_works_and_wakes_the_others_even_after_a_panic() {
        let (flights, wakes) = (SingleFlight::default(), Arc::new(Wakes::default()));
        let waker = Waker::from(wakes.clone());
        for round in 1..=2 {
            assert!(flights.begin("a", &waker));
            assert!(flights.begin("b", &waker), "other work runs concurrently");
            flights.end(&"b");
            assert!(!flights.begin("a", &waker));
            assert!(!flights.begin("a", &waker), "a waker is registered once");
            let made = catch_unwind(AssertUnwindSafe(|| {
                let _flight = FlightGuard { flights: &flights, key: "a" };
                assert!(round < 2, "a bug in the work");
            }));
            assert_eq!(made.is_ok(), round < 2);
            assert_eq!(wakes.0.load(Ordering::Relaxed), round);
        }
    }
}
