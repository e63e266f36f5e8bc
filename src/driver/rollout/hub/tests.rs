//! The hub, by a session whose events the test sends.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use futures_util::FutureExt as _;

use prometheus_client::metrics::gauge::Gauge;

use super::*;
use crate::driver::stream::state::tests::relay_with;
use crate::ledger::{Ledger, WriteResult as StoreResult};
use sluice_fleet::rollout::ledger::JoinPolicy;

/// A ledger whose events and answers the test sends.
#[derive(Debug)]
struct Scripted {
    events: Mutex<Option<mpsc::Receiver<StoreEvent>>>,
    script: Arc<Script>,
}

/// The answer to all writes from now on, and the keys of all writes so far.
#[derive(Debug)]
struct Script {
    answer: Mutex<StoreResult>,
    keys: Mutex<Vec<String>>,
    /// Writes have no answer.
    is_mute: AtomicBool,
}

impl Script {
    fn write(&self, key: String) -> BoxFuture<'static, StoreResult> {
        self.keys.lock().push(key);
        if self.is_mute.load(Relaxed) {
            return std::future::pending().boxed();
        }
        std::future::ready(self.answer.lock().clone()).boxed()
    }

    fn writes(&self) -> usize {
        self.keys.lock().len()
    }
}

impl Ledger for Scripted {
    fn open(&self) -> (Box<dyn LedgerSession>, mpsc::Receiver<StoreEvent>) {
        (Box::new(Answering(self.script.clone())), self.events.lock().take().unwrap())
    }

    fn place(&self) -> &'static str {
        "scripted"
    }
}

#[derive(Debug)]
struct Answering(Arc<Script>);

impl LedgerSession for Answering {
    fn put(&self, put: Put) -> BoxFuture<'static, StoreResult> {
        self.0.write(put.key)
    }

    fn delete(&self, key: String, _: Precondition) -> BoxFuture<'static, StoreResult> {
        self.0.write(key)
    }

    fn lease_left(&self) -> Option<Duration> {
        None
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }
}

fn hub(answer: StoreResult) -> (Arc<LedgerHub>, mpsc::Sender<StoreEvent>) {
    let (hub, events, _) = scripted(answer);
    (hub, events)
}

fn scripted(answer: StoreResult) -> (Arc<LedgerHub>, mpsc::Sender<StoreEvent>, Arc<Script>) {
    let (sender, events) = mpsc::channel(10);
    let script = Arc::new(Script {
        answer: Mutex::new(answer),
        keys: Mutex::default(),
        is_mute: AtomicBool::new(false),
    });
    let ledger = Arc::new(Scripted { events: Mutex::new(Some(events)), script: script.clone() });
    let replica =
        Replica { name: "one".into(), process: 1, lease: Duration::from_secs(15), join: JoinPolicy::Wait };
    let hub = LedgerHub::new(&LedgerParts { ledger, replica, believed: Gauge::default() });
    hub.start(&relay_with(|settings| settings).shared);
    (hub, sender, script)
}

fn epoch(value: &'static str, revision: u64) -> LedgerEntry {
    LedgerEntry { key: EPOCH_KEY.into(), value: value.into(), revision }
}

fn loaded(entries: Vec<LedgerEntry>) -> StoreEvent {
    StoreEvent::Loaded { identity: "store".into(), revision: 5, entries }
}

/// Why the ledger is not acted on, after all that is under way.
async fn fault(hub: &LedgerHub) -> String {
    tokio::time::sleep(Duration::from_millis(1)).await;
    let fault = hub.status().fault;
    assert_eq!(hub.parts.believed.get(), i64::from(fault.is_none()));
    fault.unwrap_or_default().into()
}

#[tokio::test(start_paused = true)]
async fn ldg_6_a_wipe_in_a_live_session_is_not_believed_until_an_operator_says_so() {
    let (hub, events) = hub(Ok(6));
    events.send(loaded(vec![epoch("a", 5)])).await.unwrap();
    assert_eq!(fault(&hub).await, "");
    events.send(StoreEvent::Gone { key: EPOCH_KEY.into(), revision: 6 }).await.unwrap();
    assert!(fault(&hub).await.contains("its epoch is gone"));
    events.send(StoreEvent::Changed(epoch("b", 7))).await.unwrap();
    assert!(fault(&hub).await.contains("it has another epoch"));
    assert_eq!(hub.init().await, Ok(()));
    assert_eq!(fault(&hub).await, "");
    assert_eq!(hub.status().entries, 1);
}

#[tokio::test(start_paused = true)]
async fn ldg_6_a_record_that_somebody_deleted_is_a_loss_until_an_operator_says_so() {
    let (hub, events) = hub(Ok(6));
    let record = || LedgerEntry { key: "plan/edge".into(), value: "{}".into(), revision: 5 };
    events.send(loaded(vec![epoch("a", 5)])).await.unwrap();
    events.send(StoreEvent::Changed(record())).await.unwrap();
    assert_eq!(fault(&hub).await, "");
    events.send(StoreEvent::Gone { key: "plan/edge".into(), revision: 6 }).await.unwrap();
    let is_gone = "the ledger has lost its data: its entry \"plan/edge\" is gone; see `sluice ledger init`";
    assert_eq!(fault(&hub).await, is_gone);
    events.send(loaded(vec![epoch("a", 5)])).await.unwrap();
    assert_eq!(fault(&hub).await, is_gone);
    assert_eq!(hub.init().await, Ok(()));
    assert_eq!(fault(&hub).await, "");
    events.send(StoreEvent::Changed(record())).await.unwrap();
    // A load shows the same, also after a loss.
    events.send(StoreEvent::Lost("gone".into())).await.unwrap();
    events.send(loaded(vec![epoch("a", 5)])).await.unwrap();
    assert_eq!(fault(&hub).await, is_gone);
}

#[tokio::test(start_paused = true)]
async fn ldg_6_a_word_for_a_believed_ledger_is_none_for_a_later_one() {
    let (hub, events) = hub(Ok(6));
    events.send(loaded(vec![epoch("a", 5)])).await.unwrap();
    assert_eq!(fault(&hub).await, "");
    assert_eq!(hub.init().await, Ok(()));
    events.send(StoreEvent::Lost("gone".into())).await.unwrap();
    assert_eq!(fault(&hub).await, "gone");
    assert_eq!(hub.init().await, Err("gone".into()));
    events.send(loaded(vec![epoch("b", 5)])).await.unwrap();
    assert!(fault(&hub).await.contains("it has another epoch"));
}

#[tokio::test(start_paused = true)]
async fn ldg_5_a_store_that_takes_no_writes_is_here_and_says_why_it_takes_none() {
    let (hub, events) = hub(Err(WriteError::Refused("no space".into())));
    events.send(loaded(vec![epoch("a", 5)])).await.unwrap();
    assert_eq!(fault(&hub).await, "");
    let plan = hub.plan("edge");
    plan.take();
    let key = "plan/edge".to_owned();
    plan.write(Write { ticket: 7, key, value: None, expected: Expected::Any, is_leased: false });
    assert_eq!(fault(&hub).await, "");
    assert_eq!(hub.status().unwritten.as_deref(), Some("no space"));
    assert!(matches!(plan.take()[..], [LedgerNews::Wrote(7, WriteResult::Failed)]));
    // Another loss has its own words.
    events.send(StoreEvent::Lost("gone".into())).await.unwrap();
    assert_eq!((fault(&hub).await.as_str(), hub.status().unwritten), ("gone", None));
}

#[tokio::test(start_paused = true)]
async fn ldg_5_a_plan_hears_of_a_loss_although_the_ledger_is_back() {
    let (hub, events) = hub(Ok(6));
    events.send(loaded(vec![epoch("a", 5)])).await.unwrap();
    assert_eq!(fault(&hub).await, "");
    let plan = hub.plan("edge");
    plan.take();
    for _ in 0..2 {
        events.send(StoreEvent::Lost("gone".into())).await.unwrap();
        events.send(loaded(vec![epoch("a", 5)])).await.unwrap();
    }
    assert_eq!(fault(&hub).await, "");
    let [LedgerNews::Event(LedgerEvent::Lost(_)), LedgerNews::Event(LedgerEvent::Loaded(_))] =
        &plan.take()[..]
    else {
        panic!("a loss and a return");
    };
}

#[tokio::test(start_paused = true)]
async fn ldg_6_an_epoch_that_cannot_be_written_is_told_and_tried_again() {
    let refusals = [WriteError::Refused("permission denied".into()), WriteError::Failed("503".into())];
    for refusal in refusals {
        let (hub, events, script) = scripted(Err(refusal.clone()));
        events.send(loaded(Vec::new())).await.unwrap();
        let told = format!("the epoch cannot be written: {refusal}");
        assert_eq!((fault(&hub).await, script.writes()), (told.clone(), 1));
        tokio::time::sleep(3 * EPOCH_AGAIN).await;
        assert_eq!((fault(&hub).await, script.writes()), (told, 4));
        *script.answer.lock() = Ok(6);
        tokio::time::sleep(EPOCH_AGAIN).await;
        assert_eq!(script.writes(), 5);
        events.send(StoreEvent::Changed(epoch("a", 6))).await.unwrap();
        assert_eq!(fault(&hub).await, "");
        tokio::time::sleep(3 * EPOCH_AGAIN).await;
        assert_eq!((fault(&hub).await.as_str(), script.writes()), ("", 5), "a written epoch stays");
    }
}

#[tokio::test(start_paused = true)]
async fn ldg_6_the_epoch_of_another_replica_is_as_good() {
    // The own write may end before the word of the other one, or after.
    for answer in [Err(WriteError::Failed("503".into())), Err(WriteError::Conflict { revision: Some(6) })] {
        let (hub, events, script) = scripted(answer);
        events.send(loaded(Vec::new())).await.unwrap();
        events.send(StoreEvent::Changed(epoch("a", 6))).await.unwrap();
        assert_eq!(fault(&hub).await, "");
        tokio::time::sleep(3 * EPOCH_AGAIN).await;
        assert_eq!((fault(&hub).await.as_str(), script.writes()), ("", 1));
    }
}

#[tokio::test(start_paused = true)]
async fn ldg_6_no_epoch_is_written_to_a_ledger_that_went() {
    let (hub, events, script) = scripted(Err(WriteError::Failed("503".into())));
    events.send(loaded(Vec::new())).await.unwrap();
    assert!(fault(&hub).await.ends_with("503"));
    events.send(StoreEvent::Lost("gone".into())).await.unwrap();
    tokio::time::sleep(3 * EPOCH_AGAIN).await;
    assert_eq!((fault(&hub).await.as_str(), script.writes()), ("gone", 1));
}

#[tokio::test(start_paused = true)]
async fn ldg_6_a_word_without_a_ledger_to_believe_does_nothing_and_says_so() {
    let (hub, events) = hub(Ok(6));
    assert_eq!(hub.init().await, Err("no answer yet".into()));
    events.send(loaded(vec![epoch("a", 5)])).await.unwrap();
    assert_eq!(fault(&hub).await, "");
    assert_eq!(hub.init().await, Ok(()), "it is believed already");
    events.send(StoreEvent::Lost("gone".into())).await.unwrap();
    assert_eq!(fault(&hub).await, "gone");
    assert_eq!(hub.init().await, Err("gone".into()));
    events.send(loaded(vec![epoch("b", 5)])).await.unwrap();
    assert!(fault(&hub).await.contains("it has another epoch"));
    assert_eq!(hub.init().await, Ok(()));
    assert_eq!(hub.status().fault, None, "the answer comes after the belief");
}

#[tokio::test(start_paused = true)]
async fn ldg_6_a_word_for_an_empty_ledger_waits_for_the_epoch() {
    let (hub, events) = hub(Ok(6));
    events.send(loaded(vec![epoch("a", 5)])).await.unwrap();
    events.send(loaded(Vec::new())).await.unwrap();
    assert!(fault(&hub).await.contains("its epoch is gone"));
    let answer = tokio::spawn({
        let hub = hub.clone();
        async move { hub.init().await }
    });
    assert_eq!(fault(&hub).await, NO_EPOCH);
    assert!(!answer.is_finished());
    events.send(StoreEvent::Changed(epoch("b", 6))).await.unwrap();
    assert_eq!(answer.await.unwrap(), Ok(()));
    assert_eq!(hub.status().fault, None);
}

#[tokio::test(start_paused = true)]
async fn ldg_5_an_order_waits_for_its_write_and_hears_why_it_failed() {
    let (hub, events, script) = scripted(Err(WriteError::Refused("no space".into())));
    events.send(loaded(vec![epoch("a", 5)])).await.unwrap();
    assert_eq!(fault(&hub).await, "");
    let plan = hub.plan("edge");
    let write = |ticket, is_leased| {
        let key = "plan/edge".to_owned();
        plan.write(Write { ticket, key, value: None, expected: Expected::Any, is_leased });
    };
    assert_eq!(hub.written("edge").await, None, "nothing was to be written");
    write(1, false);
    assert_eq!(hub.written("edge").await.as_deref(), Some("no space"));
    assert_eq!(hub.unwritten().as_deref(), Some("no space"));
    // Nobody tries again, so nothing waits to be written.
    tokio::time::sleep(UNWRITTEN_FOR).await;
    assert_eq!((hub.unwritten(), hub.status().unwritten.as_deref()), (None, Some("no space")));
    *script.answer.lock() = Ok(6);
    write(2, false);
    assert_eq!((hub.written("edge").await, hub.status().unwritten), (None, None));
    script.is_mute.store(true, Relaxed);
    write(3, true);
    assert_eq!(hub.written("edge").await, None, "a tally is no order");
    write(4, false);
    assert_eq!(hub.written("edge").await.as_deref(), Some("no answer within 2s"));
    events.send(StoreEvent::Lost("gone".into())).await.unwrap();
    assert_eq!(fault(&hub).await, "gone");
    assert_eq!(hub.written("edge").await.as_deref(), Some("gone"));
}
