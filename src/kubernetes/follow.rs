//! All objects of a kind, and then each change.
//!
//! The age of the facts is the time since the last word of the API server. So each word counts here:
//! bookmarks, and the ends of whole watches. The library's own watcher keeps both to itself (ADR 81).

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::vec;

use futures_util::stream::{self, Stream, StreamExt};
use kube::Client;
use kube::core::params::{ListParams, WatchParams};
use kube::core::{ObjectList, Request, WatchEvent};
use tokio::time::{Instant, sleep, timeout};

use super::access::{ClusterAccess, reason};
use super::object::Object;

/// The objects of an answer. An object has at most 1.5 MB, and the text of an answer is in memory at once.
const PAGE: u32 = 200;
/// A watch ends after this time, in seconds, and begins anew. So the server is heard at least as often.
const WATCH: u32 = 60;
/// Beyond the time of a watch: nothing comes any more.
const SILENCE: Duration = Duration::from_secs(WATCH as u64 + 10);
/// For an answer whose length is bounded.
const ANSWER: Duration = Duration::from_secs(30);
/// A watch that ends sooner counts as a fault.
const SHORT: Duration = Duration::from_secs(1);
/// The server ends each watch after [`WATCH`]. A watch that ends much sooner is no word of the server.
const WHOLE: Duration = Duration::from_secs(WATCH as u64 - 5);
/// The faults before are over once a watch has lasted as long.
const SOUND: Duration = Duration::from_secs(10);
/// Faults in a row without a message: lists and watches that the server forgets at once, and watches that end
/// at once.
const SILENT_FAULTS_MAX: u32 = 2;
/// The first delay after a fault, doubled by each further fault in a row.
const DELAY: Duration = Duration::from_millis(500);
const DELAY_MAX: Duration = Duration::from_secs(30);
/// The letters of a reason.
const LETTERS_MAX: usize = 400;

/// A word of the API server.
#[derive(Debug)]
pub(super) enum WatchNews<K> {
    /// A list begins. All known objects stay.
    Begins,
    /// The present state of an object.
    Found(K),
    Gone(K),
    /// The list is complete: objects without a `Found` since `Begins` are gone.
    Complete,
    /// A word without a change.
    Alive,
}

/// The news of a kind, for ever. A fault is told each time, and followed by a list after a delay.
/// `lists_again`: set by the caller for another list at the end of the present watch.
pub(super) fn follow<K: Object>(
    access: ClusterAccess,
    lists_again: Arc<AtomicBool>,
) -> impl Stream<Item = Result<WatchNews<K>, String>> + Send {
    let follower = Follower { access, lists_again, client: None, state: WatchState::Begin, faults: 0 };
    stream::unfold(follower, |mut follower| async move {
        let news = follower.next().await;
        Some((news, follower))
    })
}

struct Follower<K> {
    access: ClusterAccess,
    lists_again: Arc<AtomicBool>,
    /// `None` after a fault: the credentials may have changed.
    client: Option<Client>,
    state: WatchState<K>,
    /// The faults in a row.
    faults: u32,
}

enum WatchState<K> {
    Begin,
    /// Objects of the last page, and the place of the next one.
    List {
        page: vec::IntoIter<K>,
        next: NextRequest,
    },
    /// The version from which a watch has to begin.
    Listed(String),
    Watch {
        version: String,
        events: Events<K>,
        since: Instant,
    },
}

enum NextRequest {
    First,
    Page(String),
    /// No page: the list has this version.
    End(String),
}

type Events<K> = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<K>>> + Send>>;

impl<K: Object> Follower<K> {
    async fn next(&mut self) -> Result<WatchNews<K>, String> {
        loop {
            match mem::replace(&mut self.state, WatchState::Begin) {
                WatchState::Begin => {
                    self.rest().await;
                    self.state = WatchState::List { page: Vec::new().into_iter(), next: NextRequest::First };
                    return Ok(WatchNews::Begins);
                }
                WatchState::List { mut page, next } => match (page.next(), next) {
                    (Some(object), next) => {
                        self.state = WatchState::List { page, next };
                        return Ok(WatchNews::Found(object));
                    }
                    (None, NextRequest::End(version)) => {
                        self.state = WatchState::Listed(version);
                        return Ok(WatchNews::Complete);
                    }
                    (None, next) => self.list(next).await?,
                },
                WatchState::Listed(version) => {
                    self.rest().await;
                    self.watch(version).await?;
                }
                WatchState::Watch { version, events, since } => {
                    if let Some(news) = self.event(version, events, since).await? {
                        return Ok(news);
                    }
                }
            }
        }
    }

    /// Waits after a fault.
    async fn rest(&mut self) {
        if self.faults > 0 {
            let delay = DELAY.saturating_mul(1 << (self.faults - 1).min(16)).min(DELAY_MAX);
            sleep(delay.mul_f64(0.8 + 0.4 * fastrand::f64())).await;
        }
    }

    async fn client(&mut self) -> Result<Client, String> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let client = match timeout(ANSWER, self.access.client()).await {
            Err(_) => return Err(self.fault("no credentials")),
            Ok(client) => client.map_err(|reason| self.fault(&reason))?,
        };
        Ok(self.client.insert(client).clone())
    }

    async fn list(&mut self, next: NextRequest) -> Result<(), String> {
        let token = match next {
            NextRequest::Page(token) => Some(token),
            NextRequest::First | NextRequest::End(_) => None,
        };
        let client = self.client().await?;
        let params = ListParams { limit: Some(PAGE), continue_token: token, ..ListParams::default() };
        let request = Request::new(K::PATH).list(&params).map_err(|error| self.fault(&error.to_string()))?;
        let listed = match timeout(ANSWER, client.request::<ObjectList<K>>(request)).await {
            Err(_) => return Err(self.fault("no answer")),
            // The server has forgotten the next page.
            Ok(Err(error)) if is_expired(&error) => return self.begin_again(),
            Ok(Err(error)) => return Err(self.fault(&reason(&error))),
            Ok(Ok(listed)) => listed,
        };
        let (token, version) = (listed.metadata.continue_, listed.metadata.resource_version);
        let is_there = |text: &String| !text.is_empty();
        let next = match (token.filter(is_there), version.filter(is_there)) {
            (Some(token), _) => NextRequest::Page(token),
            (None, Some(version)) => NextRequest::End(version),
            (None, None) => return Err(self.fault("the list has no resourceVersion")),
        };
        self.state = WatchState::List { page: listed.items.into_iter(), next };
        Ok(())
    }

    async fn watch(&mut self, version: String) -> Result<(), String> {
        let client = self.client().await?;
        let params = WatchParams { timeout: Some(WATCH), bookmarks: true, ..WatchParams::default() };
        let request = Request::new(K::PATH).watch(&params, &version);
        let request = request.map_err(|error| self.fault(&error.to_string()))?;
        match timeout(ANSWER, client.request_events::<K>(request)).await {
            Err(_) => Err(self.fault("no answer")),
            Ok(Err(error)) if is_expired(&error) => self.begin_again(),
            Ok(Err(error)) => Err(self.fault(&reason(&error))),
            Ok(Ok(events)) => {
                self.state = WatchState::Watch { version, events: Box::pin(events), since: Instant::now() };
                Ok(())
            }
        }
    }

    /// The next word of a watch. `None`: the watch has ended too soon for a word.
    async fn event(
        &mut self,
        version: String,
        mut events: Events<K>,
        since: Instant,
    ) -> Result<Option<WatchNews<K>>, String> {
        let heard = timeout(SILENCE, events.next()).await;
        if since.elapsed() > SOUND {
            self.faults = 0;
        }
        let news = match heard {
            Err(_) => return Err(self.fault("the watch is silent")),
            Ok(None) => return self.ended(version, since.elapsed()),
            Ok(Some(Err(error))) => return Err(self.fault(&reason(&error))),
            Ok(Some(Ok(WatchEvent::Error(status)))) => {
                let error = kube::Error::Api(status);
                if is_expired(&error) {
                    return self.begin_again().map(|()| None);
                }
                return Err(self.fault(&reason(&error)));
            }
            Ok(Some(Ok(WatchEvent::Bookmark(mark)))) => (mark.metadata.resource_version, WatchNews::Alive),
            Ok(Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)))) => {
                (object.metadata().resource_version.clone(), WatchNews::Found(object))
            }
            Ok(Some(Ok(WatchEvent::Deleted(object)))) => {
                (object.metadata().resource_version.clone(), WatchNews::Gone(object))
            }
        };
        let (next, news) = news;
        let version = if next.is_empty() { version } else { next };
        self.state = WatchState::Watch { version, events, since };
        Ok(Some(news))
    }

    /// Goes on after the end of a watch.
    fn ended(&mut self, version: String, lasted: Duration) -> Result<Option<WatchNews<K>>, String> {
        if lasted < SHORT {
            self.faults += 1;
            if self.faults > SILENT_FAULTS_MAX {
                return Err(self.fault("each watch ends at once"));
            }
        }
        if !self.lists_again.swap(false, Ordering::Relaxed) {
            self.state = WatchState::Listed(version);
        }
        Ok((lasted > WHOLE).then_some(WatchNews::Alive))
    }

    /// Lists everything anew, after a delay.
    fn begin_again(&mut self) -> Result<(), String> {
        self.state = WatchState::Begin;
        self.faults += 1;
        if self.faults > SILENT_FAULTS_MAX {
            return Err(self.fault("the server has forgotten its own version (410)"));
        }
        Ok(())
    }

    /// After a fault, everything is listed anew: behind the address, or with the credentials, there may be
    /// another server by now, whose versions mean something else.
    fn fault(&mut self, reason: &str) -> String {
        (self.client, self.state) = (None, WatchState::Begin);
        self.faults = self.faults.saturating_add(1);
        let reason: String = reason.chars().take(LETTERS_MAX).collect();
        format!("{}: {reason}", K::PLURAL)
    }
}

/// Whether the server has forgotten the version or the page (410).
fn is_expired(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 410)
}
