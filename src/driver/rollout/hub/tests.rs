//! The hub, by a session whose events the test sends.
#![allow(clippy::unwrap_used, clippy::panic)]

use futures_util::FutureExt as _;

use super::*;
use crate::driver::stream::state::tests::relay_with;
use crate::ledger::WriteResult as StoreResult;
use sluice_fleet::rollout::ledger::JoinPolicy;

/// A ledger whose events the test sends. All writes get the same answer.
#[derive(Debug)]
struct Scripted {
    events: Mutex<Option<mpsc::Receiver<StoreEvent>>>,
    answer: StoreResult,
}

impl Ledger for Scripted {
    fn open(&self) -> (Box<dyn LedgerSession>, mpsc::Receiver<StoreEvent>) {
        (Box::new(Answering(self.answer.clone())), self.events.lock().take().unwrap())
    }

    fn place(&self) -> &'static str {
        "scripted"
    }
}

#[derive(Debug)]
struct Answering(StoreResult);

impl LedgerSession for Answering {
    fn put(&self, _: Put) -> BoxFuture<'static, StoreResult> {
        std::future::ready(self.0.clone()).boxed()
    }

    fn delete(&self, _: String, _: Precondition) -> BoxFuture<'static, StoreResult> {
        std::future::ready(self.0.clone()).boxed()
    }

    fn lease_left(&self) -> Option<Duration> {
        None
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }
}

fn hub(answer: StoreResult) -> (Arc<LedgerHub>, mpsc::Sender<StoreEvent>) {
    let (sender, events) = mpsc::channel(10);
    let ledger = Arc::new(Scripted { events: Mutex::new(Some(events)), answer });
    let replica =
        Replica { name: "one".into(), process: 1, lease: Duration::from_secs(15), join: JoinPolicy::Wait };
    let hub = LedgerHub::new(&LedgerParts { ledger, replica });
    hub.start(&relay_with(|settings| settings).shared);
    (hub, sender)
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
    hub.status().fault.unwrap_or_default().into()
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
    hub.init();
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
    hub.init();
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
    hub.init();
    assert_eq!(fault(&hub).await, "");
    events.send(StoreEvent::Lost("gone".into())).await.unwrap();
    hub.init();
    assert_eq!(fault(&hub).await, "gone");
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
async fn ldg_6_an_epoch_that_cannot_be_written_is_told() {
    let (hub, events) = hub(Err(WriteError::Refused("permission denied".into())));
    events.send(loaded(Vec::new())).await.unwrap();
    assert_eq!(fault(&hub).await, "the epoch cannot be written: permission denied");
    // Another replica's epoch is as good.
    events.send(StoreEvent::Changed(epoch("a", 6))).await.unwrap();
    assert_eq!(fault(&hub).await, "");
}
