#![allow(clippy::unwrap_used)]

use std::thread;
use std::time::Duration;

use futures_util::task::waker;

use super::*;

#[derive(Default)]
struct Task(AtomicU32);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Task {
    fn wakes(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn a_future_is_polled_after_its_own_wakes_only() {
    let (own, mut polls) = (AtomicWaker::new(), 0);
    let wakes = Wakes::new();
    let mut seldom = Box::pin(Seldom::new(
        &wakes,
        std::future::poll_fn(|context| {
            own.register(context.waker());
            polls += 1;
            if polls < 3 { Poll::Pending } else { Poll::Ready(polls) }
        }),
    ));
    let (first, second) = (Arc::new(Task::default()), Arc::new(Task::default()));
    let mut poll =
        |task: &Arc<Task>| seldom.as_mut().poll(&mut Context::from_waker(&Waker::from(task.clone())));
    // Wakes of others cost no poll.
    assert!((0..5).all(|_| poll(&first).is_pending()));
    own.wake();
    assert_eq!(first.wakes(), 1);
    assert!((0..5).all(|_| poll(&first).is_pending()));
    // The latest task is woken.
    assert!(poll(&second).is_pending());
    own.wake();
    assert_eq!((first.wakes(), second.wakes()), (1, 1));
    assert_eq!(poll(&second), Poll::Ready(3));
}

/// With the two counters of its allocation, a line of memory: the allocator aligns this class.
#[test]
fn all_that_each_turn_looks_at_is_in_one_line() {
    assert!(size_of::<Wakes>() + 16 <= 64, "{}", size_of::<Wakes>());
}

#[test]
fn the_task_is_woken_once_and_only_while_it_waits() {
    let wakes = Wakes::new();
    wakes.begin_first();
    check_wakes(&wakes, &waker(wakes.clone()), || wakes.take_first());
    let wakes = Wakes::new();
    let call = CallWake::new(wakes.clone());
    check_wakes(&wakes, &waker(call.clone()), || call.take());
}

fn check_wakes(wakes: &Arc<Wakes>, call_waker: &Waker, take_call: impl Fn() -> bool) {
    let task = Arc::new(Task::default());
    let waker = Waker::from(task.clone());
    wakes.register(&waker);
    wakes.watch();
    assert!(wakes.take(Part::Io) && wakes.take(Part::Calls) && take_call());
    assert_eq!((wakes.take_calls(), wakes.take_calls()), (1, 0));
    assert!(!wakes.take(Part::Io) && !wakes.take(Part::Calls) && !take_call());

    // Within the task no wake is sent, but the part is marked.
    call_waker.wake_by_ref();
    assert!(!wakes.leave());
    wakes.watch();
    assert!(wakes.take(Part::Calls) && take_call());
    assert_eq!(wakes.take_calls(), 1);
    assert!(wakes.leave());
    assert_eq!(task.wakes(), 0);

    // While the task waits, the first wake is enough.
    call_waker.wake_by_ref();
    wakes.wake_by_ref();
    call_waker.wake_by_ref();
    assert_eq!(task.wakes(), 1);
    wakes.register(&waker);
    wakes.watch();
    assert!(wakes.take(Part::Io) && wakes.take(Part::Calls) && take_call());
    assert!(wakes.leave());
    wakes.wake_by_ref();
    assert_eq!(task.wakes(), 2);
}

/// All wakes reach the task by one place, which is empty after the first.
#[test]
fn no_wake_hides_another_one() {
    let (task, wakes) = (Arc::new(Task::default()), Wakes::new());
    let (waker, mut own) = (Waker::from(task.clone()), Waker::noop().clone());
    let mut turn = || {
        wakes.register(&waker);
        let polled = wakes.poll_rarity(Rarity::End, |context| {
            own.clone_from(context.waker());
            Poll::Ready(())
        });
        wakes.watch();
        let is_io = wakes.take(Part::Io);
        wakes.take(Part::Calls);
        assert!(wakes.leave());
        (polled.is_ready(), is_io, own.clone())
    };
    let (.., own) = turn();
    wakes.wake_by_ref();
    own.wake_by_ref();
    assert_eq!(task.wakes(), 1);
    let (is_polled, is_io, own) = turn();
    assert!(is_polled && is_io);
    own.wake_by_ref();
    wakes.wake_by_ref();
    assert_eq!(task.wakes(), 2);
    let (is_polled, is_io, own) = turn();
    assert!(is_polled && is_io);
    // The task has looked at its rare futures for this turn already.
    wakes.register(&waker);
    wakes.watch();
    own.wake_by_ref();
    assert!(wakes.leave());
    assert_eq!(task.wakes(), 3);
}

#[test]
fn a_wake_while_a_future_is_polled_means_another_poll() {
    let wakes = Wakes::new();
    let mut polls = 0;
    for _ in 0..4 {
        let _ = wakes.poll_rarity(Rarity::Keepalive, |context| {
            polls += 1;
            if polls < 3 {
                context.waker().wake_by_ref();
            }
            Poll::<()>::Pending
        });
    }
    assert_eq!(polls, 3);
}

/// HTTP/2 may keep the waker of a call that is over.
#[test]
fn a_first_call_is_polled_whatever_the_one_before_it_left() {
    let wakes = Wakes::new();
    let late = waker(wakes.clone());
    for is_late in [false, true] {
        if is_late {
            late.wake_by_ref();
            assert!(wakes.take(Part::Calls));
            assert_eq!(wakes.take_calls(), 1, "for nobody");
        }
        wakes.begin_first();
        assert!(wakes.take(Part::Calls), "late: {is_late}");
        assert!(wakes.take_calls() > 0 && wakes.take_first() && !wakes.take_first());
        late.wake_by_ref();
        assert!(wakes.take(Part::Calls) && wakes.take_calls() == 1 && wakes.take_first());
    }
}

/// Numbers that another thread asks for, and the task answers.
#[derive(Debug, Default)]
struct Asked {
    asked: AtomicU32,
    answered: AtomicU32,
    is_lost: AtomicBool,
}

impl Asked {
    fn answer(&self) {
        self.answered.store(self.asked.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Wakes the task by `waker` for each number, and waits for the answer: long enough for a machine with
    /// much else to do.
    fn ask(&self, rounds: u32, waker: &Waker, task: &Waker) {
        const SPINS: u32 = 64;
        for number in 1..=rounds {
            self.asked.store(number, Ordering::SeqCst);
            waker.wake_by_ref();
            let mut looks = 0;
            while self.answered.load(Ordering::SeqCst) < number {
                looks += 1;
                match looks % SPINS {
                    0 => thread::park_timeout(Duration::from_millis(1)),
                    _ => thread::yield_now(),
                }
                if looks == SPINS * 10_000 {
                    self.is_lost.store(true, Ordering::SeqCst);
                    return task.wake_by_ref();
                }
            }
        }
        task.wake_by_ref();
    }

    fn is_over(&self, rounds: u32) -> bool {
        self.answered.load(Ordering::SeqCst) == rounds || self.is_lost.load(Ordering::SeqCst)
    }
}

/// The task of a test, in a thread.
struct Thread(thread::Thread);

impl Wake for Thread {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn each_wake_from_another_thread_leads_to_a_turn() {
    const ROUNDS: u32 = 3_000;
    let wakes = Wakes::new();
    let other = CallWake::new(wakes.clone());
    let asked: [Asked; 4] = Default::default();
    let [of_end, of_io, of_first, of_other] = &asked;
    let task = Waker::from(Arc::new(Thread(thread::current())));
    let mut end = None;
    let _ = wakes.poll_rarity(Rarity::End, |context| {
        end = Some(context.waker().clone());
        Poll::<()>::Pending
    });
    let wakers = [end.unwrap(), Waker::from(wakes.clone()), waker(wakes.clone()), waker(other.clone())];
    let is_over = || asked.iter().all(|asked| asked.is_over(ROUNDS));
    thread::scope(|scope| {
        for (asked, waker) in asked.iter().zip(&wakers) {
            scope.spawn(|| asked.ask(ROUNDS, waker, &task));
        }
        while !is_over() {
            wakes.register(&task);
            let _ = wakes.poll_rarity(Rarity::End, |_| {
                of_end.answer();
                Poll::<()>::Pending
            });
            wakes.watch();
            let (mut was_called, mut was_io) = (true, true);
            while was_called || was_io {
                was_called = wakes.take(Part::Calls);
                let mut woken = if was_called { wakes.take_calls() } else { 0 };
                if woken > 0 && other.take() {
                    of_other.answer();
                    woken -= 1;
                }
                if woken > 0 && wakes.take_first() {
                    of_first.answer();
                }
                was_io = wakes.take(Part::Io);
                if was_io {
                    of_io.answer();
                }
            }
            if wakes.leave() && !is_over() {
                thread::park();
            }
        }
    });
    assert!(asked.iter().all(|asked| !asked.is_lost.load(Ordering::SeqCst)), "{asked:?}");
}
