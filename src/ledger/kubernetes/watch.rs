//! The changes of a kind of objects, from a version on, as a task.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::objects::ApiObject;
use crate::kubernetes::{Collection, WATCH_SECONDS, WatchEvent};
use sluice_setting::seconds;

/// Beyond the time of a watch: nothing comes any more.
const SILENCE: Duration = seconds(WATCH_SECONDS as u64 + 10);

/// Watches in a row that end at once. Something in between may answer so.
const SHORT_MAX: u32 = 3;

/// Changes in the queue. A slow caller slows the server down.
const QUEUE_MAX: usize = 16;

pub(super) enum ObjectNews<T> {
    Found(T),
    Gone(T),
    /// The server has dropped changes that the watch has not seen.
    Expired,
    /// Nothing follows, for this reason.
    Ended(String),
}

/// Watches until the receiver is dropped. The last news is `Expired` or `Ended`.
pub(super) fn changes<T: ApiObject>(
    collection: &Collection,
    version: String,
) -> mpsc::Receiver<ObjectNews<T>> {
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    let collection = collection.clone();
    tokio::spawn(async move {
        tokio::select! {
            end = watch(&collection, version, &sender) => drop(sender.send(end).await),
            () = sender.closed() => {}
        }
    });
    receiver
}

async fn watch<T: ApiObject>(
    collection: &Collection,
    mut version: String,
    sender: &mpsc::Sender<ObjectNews<T>>,
) -> ObjectNews<T> {
    let mut short = 0;
    loop {
        let since = Instant::now();
        let mut watch = match collection.watch(&version).await {
            Ok(watch) => watch,
            Err(error) if error.status == Some(410) => return ObjectNews::Expired,
            // The next attempt waits as long as the server wants. Own writes show a wait that is too long.
            Err(error) if error.is_busy => continue,
            Err(error) => return ObjectNews::Ended(error.text),
        };
        loop {
            let event = match timeout(SILENCE, watch.next::<T>()).await {
                Err(_) => return ObjectNews::Ended(format!("{collection:?}: the watch is silent")),
                Ok(Err(reason)) => return ObjectNews::Ended(reason),
                Ok(Ok(None)) => break,
                Ok(Ok(Some(event))) => event,
            };
            let (next, news) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    (object.metadata().resource_version.clone(), ObjectNews::Found(object))
                }
                WatchEvent::Deleted(object) => {
                    (object.metadata().resource_version.clone(), ObjectNews::Gone(object))
                }
                WatchEvent::Error(status) if status.code == 410 => return ObjectNews::Expired,
                WatchEvent::Error(status) => {
                    return ObjectNews::Ended(format!("{collection:?}: {}", status.message));
                }
                WatchEvent::Bookmark(mark) => {
                    version = mark.metadata.resource_version;
                    continue;
                }
            };
            version = next;
            if sender.send(news).await.is_err() {
                return ObjectNews::Expired;
            }
        }
        short = if since.elapsed() < seconds(1) { short + 1 } else { 0 };
        if short > SHORT_MAX {
            return ObjectNews::Ended(format!("{collection:?}: each watch ends at once"));
        }
    }
}
