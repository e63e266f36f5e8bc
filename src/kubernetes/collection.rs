//! The objects of one kind in one namespace with one label, for callers that write: answers and watches have
//! bounds, and a server that asks for patience gets it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::Client;
use kube::client::Body;
use kube::core::params::{
    DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchParams,
};
use kube::core::{Request, WatchEvent};
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout};

use super::access::{ClusterAccess, reason};

/// The objects of an answer. An object has at most 1.5 MB.
const PAGE: u32 = 50;

/// The longest answer.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// The longest line of a watch: an object as large as servers store, with room to spare.
const LINE_BYTES_MAX: usize = 4 << 20;

/// The longest text of a refusal.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// The letters of a refusal that are told.
const LETTERS_MAX: usize = 400;

/// The time for one answer.
const DEADLINE: Duration = Duration::from_secs(5);

/// A watch ends after this time, in seconds, and the caller begins the next one.
pub const WATCH_SECONDS: u32 = 60;

/// A server that wants to be left alone names a time. The relay waits at least and at most for these.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(5);

/// The time before which an API server wants no request. Outlives a connection.
#[derive(Debug, Default)]
pub struct ApiPause(Mutex<Option<Instant>>);

impl ApiPause {
    async fn over(&self) {
        while let Some(until) = self.until() {
            sleep_until(until).await;
        }
    }

    fn until(&self) -> Option<Instant> {
        self.0.lock().filter(|until| *until > Instant::now())
    }

    fn extend(&self, wish: Duration) {
        let until = Instant::now() + wish.clamp(PAUSE_MIN, PAUSE_MAX);
        let mut present = self.0.lock();
        *present = Some(present.map_or(until, |present| present.max(until)));
    }
}

/// The API server of a cluster, with the credentials of the moment.
#[derive(Clone)]
pub struct ApiServer {
    client: Client,
    pause: Arc<ApiPause>,
}

impl ApiServer {
    /// Reads the credentials.
    ///
    /// # Errors
    /// The credentials cannot be read, in words.
    pub async fn open(access: &ClusterAccess, pause: Arc<ApiPause>) -> Result<ApiServer, String> {
        let client = timeout(DEADLINE, access.client()).await;
        let client = client.map_err(|_| format!("no credentials within {DEADLINE:?}"))??;
        Ok(ApiServer { client, pause })
    }

    /// The namespace of the relay's own Pod, or of the kubeconfig.
    pub fn namespace(&self) -> &str {
        self.client.default_namespace().trim()
    }

    /// The objects of a kind. `group`: the begin of the path, with the version. `label`:
    /// as `key=value`.
    ///
    /// # Errors
    /// The namespace is none: a kubeconfig may have any text.
    pub fn collection(
        &self,
        group: &str,
        plural: &'static str,
        namespace: &str,
        label: &str,
    ) -> Result<Collection, String> {
        if !is_dns_label(namespace) {
            return Err(format!("{namespace:?} is no namespace"));
        }
        let path = format!("/{group}/namespaces/{namespace}/{plural}");
        let (namespace, label) = (namespace.to_owned(), label.to_owned());
        Ok(Collection { server: self.clone(), path, plural, namespace, label })
    }
}

/// Whether a text is a name for a namespace, and a begin of names of other objects.
pub fn is_dns_label(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(is_letter)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// The objects of one kind in one namespace with one label.
#[derive(Clone)]
pub struct Collection {
    server: ApiServer,
    path: String,
    plural: &'static str,
    namespace: String,
    label: String,
}

impl fmt::Debug for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

/// A failed request.
#[derive(Debug)]
pub struct ApiError {
    /// The status of a refusal. `None`: the request may have had its effect.
    pub status: Option<u16>,
    /// The server wants another attempt later, and the next request waits until then.
    pub is_busy: bool,
    /// A sentence with the verb, the kind of objects and the namespace.
    pub text: String,
}

/// A part of a list.
#[derive(Debug)]
pub struct ObjectPage<T> {
    pub items: Vec<T>,
    /// The begin of the next part.
    pub next: Option<String>,
    /// The version of the whole list.
    pub version: String,
}

/// The object that a deletion is for.
#[derive(Clone, Debug, Default)]
pub struct ObjectVersion {
    pub uid: Option<String>,
    pub version: Option<String>,
}

#[derive(Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
struct ListAnswer<T> {
    metadata: ListMetadata,
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: String,
}

/// The words of a refusal.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ApiRefusal {
    message: String,
    details: ApiRefusalDetails,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ApiRefusalDetails {
    retry_after_seconds: u64,
}

type BuiltRequest = Result<http::Request<Vec<u8>>, kube::core::request::Error>;

impl Collection {
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// # Errors
    /// The request failed.
    pub async fn page<T: DeserializeOwned>(&self, next: Option<String>) -> Result<ObjectPage<T>, ApiError> {
        let label_selector = Some(self.label.clone());
        let params = ListParams { label_selector, limit: Some(PAGE), ..ListParams::default() };
        let params = ListParams { continue_token: next, ..params };
        let answer: ListAnswer<T> = self.ask("list", self.request().list(&params)).await?;
        let ListMetadata { resource_version: version, next } = answer.metadata;
        Ok(ObjectPage { items: answer.items, next: Some(next).filter(|next| !next.is_empty()), version })
    }

    /// # Errors
    /// The request failed.
    pub async fn get<T: DeserializeOwned>(&self, name: &str) -> Result<T, ApiError> {
        self.ask("get", self.request().get(name, &GetParams::default())).await
    }

    /// # Errors
    /// The request failed: 409, if there is such an object.
    pub async fn create<T: DeserializeOwned>(&self, object: &Value) -> Result<T, ApiError> {
        let body = object.to_string().into_bytes();
        self.ask("create", self.request().create(&PostParams::default(), body)).await
    }

    /// Replaces an object, at the version that the new one names, or at any.
    ///
    /// # Errors
    /// The request failed: 409, if the object has another version.
    pub async fn update<T: DeserializeOwned>(&self, name: &str, object: &Value) -> Result<T, ApiError> {
        let body = object.to_string().into_bytes();
        self.ask("update", self.request().replace(name, &PostParams::default(), body)).await
    }

    /// Changes fields of an object. A `uid` among the fields must be the object's.
    ///
    /// # Errors
    /// The request failed.
    pub async fn patch<T: DeserializeOwned>(&self, name: &str, fields: &Value) -> Result<T, ApiError> {
        let request = self.request().patch(name, &PatchParams::default(), &Patch::Merge(fields));
        self.ask("patch", request).await
    }

    /// # Errors
    /// The request failed: 409, if the object is another one or has another version.
    pub async fn delete(&self, name: &str, expected: ObjectVersion) -> Result<(), ApiError> {
        let preconditions = Preconditions { uid: expected.uid, resource_version: expected.version };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        self.ask::<Value>("delete", self.request().delete(name, &params)).await.map(drop)
    }

    /// The changes after a version.
    ///
    /// # Errors
    /// The request failed: 410, if the server does not know the changes any more.
    pub async fn watch(&self, version: &str) -> Result<ObjectWatch, ApiError> {
        let label_selector = Some(self.label.clone());
        let params = WatchParams { label_selector, timeout: Some(WATCH_SECONDS), ..WatchParams::default() };
        let params = WatchParams { bookmarks: true, ..params };
        // The server's wish is no silence.
        self.server.pause.over().await;
        let response = timeout(DEADLINE, self.send("watch", self.request().watch(&params, version))).await;
        let response = response.map_err(|_| self.failed("watch", None, &late()))??;
        let about = self.about("watch");
        Ok(ObjectWatch { body: response.into_body(), line: Vec::new(), searched: 0, about })
    }

    fn request(&self) -> Request {
        Request::new(&*self.path)
    }

    fn about(&self, verb: &str) -> String {
        format!("cannot {verb} {} in the namespace {:?}", self.plural, self.namespace)
    }

    fn failed(&self, verb: &str, status: Option<u16>, why: &str) -> ApiError {
        let why: String = why.chars().take(LETTERS_MAX).collect();
        ApiError { status, is_busy: false, text: format!("{}: {why}", self.about(verb)) }
    }

    async fn ask<T: DeserializeOwned>(&self, verb: &str, request: BuiltRequest) -> Result<T, ApiError> {
        let failed = |why: &str| self.failed(verb, None, why);
        let answer = timeout(DEADLINE, async {
            let response = self.send(verb, request).await?;
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
            body.map_err(|error| match error.is::<LengthLimitError>() {
                true => failed(&format!("the answer has more than {} MiB", ANSWER_BYTES_MAX >> 20)),
                false => failed(&error.to_string()),
            })
        });
        let body = answer.await.map_err(|_| failed(&late()))??.to_bytes();
        // The error of the parser would quote the text.
        serde_json::from_slice(&body).map_err(|_| failed("the answer is not as the API has it"))
    }

    async fn send(&self, verb: &str, request: BuiltRequest) -> Result<Response<Body>, ApiError> {
        let failed = |why: &str| self.failed(verb, None, why);
        let request = request.map_err(|error| failed(&error.to_string()))?;
        self.server.pause.over().await;
        let sent = self.server.client.send(request.map(Body::from)).await;
        let response = sent.map_err(|error| failed(&reason(&error)))?;
        if response.status().is_success() { Ok(response) } else { Err(self.refused(verb, response).await) }
    }

    async fn refused(&self, verb: &str, response: Response<Body>) -> ApiError {
        let (head, body) = response.into_parts();
        let status = head.status.as_u16();
        let body = Limited::new(body, REFUSAL_BYTES_MAX).collect().await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        // The server itself answers so. Something in between may answer in plain text.
        let refusal: ApiRefusal = serde_json::from_slice(&body).unwrap_or_default();
        let after = head.headers.get(header::RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
        let after = after.or(Some(refusal.details.retry_after_seconds).filter(|after| *after > 0));
        let is_busy = status == 429 || status >= 500 && after.is_some();
        if is_busy {
            self.server.pause.extend(Duration::from_secs(after.unwrap_or_default()));
        }
        let hint = match status {
            401 => "; the credentials are not valid (any more)".to_owned(),
            403 => format!("; a Role has to allow {verb:?} for {:?}", self.plural),
            404 => "; is the namespace there?".to_owned(),
            _ => String::new(),
        };
        let why = format!("status {status}: {}", refusal.message);
        let mut error = self.failed(verb, Some(status), why.trim_end_matches([':', ' ']));
        error.text.push_str(&hint);
        ApiError { is_busy, ..error }
    }
}

fn late() -> String {
    format!("no answer within {DEADLINE:?}")
}

/// The changes of a collection.
pub struct ObjectWatch {
    body: Body,
    /// The bytes without an end of a line so far, and how many of them are known to have none.
    line: Vec<u8>,
    searched: usize,
    about: String,
}

impl ObjectWatch {
    /// The next change. `None`: the server has ended the watch, or the connection is gone; the next watch
    /// goes on from the last version. Cancel-safe.
    ///
    /// # Errors
    /// A line that is none of a watch, in words.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<WatchEvent<T>>, String> {
        loop {
            if let Some(at) = self.line[self.searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.line.split_off(self.searched + at + 1);
                let line = std::mem::replace(&mut self.line, rest);
                self.searched = 0;
                let event = serde_json::from_slice(&line);
                return event.map(Some).map_err(|_| self.fault("a line is not as the API has it"));
            }
            self.searched = self.line.len();
            if self.line.len() > LINE_BYTES_MAX {
                return Err(self.fault("a line is too long"));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.line.extend_from_slice(&bytes);
                    }
                }
                Some(Err(_)) | None => return Ok(None),
            }
        }
    }

    fn fault(&self, why: &str) -> String {
        format!("{}: {why}", self.about)
    }
}
