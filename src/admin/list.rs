//! A JSON list of any length in a small buffer: the reader's pace decides when items are made.

use std::future::Future;
use std::io;
use std::pin::pin;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;
use tokio::sync::{Semaphore, mpsc};

use super::page::{ListForm, Page};

/// Bytes gathered for one chunk. One chunk may wait beside the chunk being filled.
const CHUNK_BYTES: usize = 16 << 10;

/// The number of items between two turns of other tasks (ADM-6).
pub(super) const ITEMS_PER_TURN: usize = 64;

/// One walk over all clients at a time: the walks of several operators follow one another (TRU-4).
pub(super) static WALKS: Semaphore = Semaphore::const_new(1);

/// A part of a response body. The last part ends the document.
struct Chunk {
    bytes: Bytes,
    last: bool,
}

/// Answers `{"<name>":[…],"count":n,"truncated":false,"next":null}`, or a line for each item. `write` makes
/// the items at the reader's pace. `truncated`: there may be more items; `next` is the cursor of the next
/// page then.
pub(super) fn respond<F>(name: &'static str, page: &Page, write: impl FnOnce(ListWriter) -> F) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    let (chunks, received) = mpsc::channel(1);
    let Page { form, limit, .. } = *page;
    // The writer stops when the body is dropped.
    tokio::spawn(write(ListWriter { name, form, limit, about: None, chunks }));
    let body = stream::try_unfold(Some(received), |received| async move {
        let Some(mut received) = received else { return Ok(None) };
        match received.recv().await {
            Some(chunk) => Ok(Some((chunk.bytes, (!chunk.last).then_some(received)))),
            // An error, so that the reader does not mistake a part for the whole.
            None => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        }
    });
    ([(header::CONTENT_TYPE, form.content_type())], Body::from_stream(body)).into_response()
}

/// Writes one list.
pub(super) struct ListWriter {
    name: &'static str,
    form: ListForm,
    limit: usize,
    about: Option<&'static str>,
    chunks: mpsc::Sender<Chunk>,
}

impl ListWriter {
    /// A sentence about all items, as `about` beside the list. A document of lines has no place for it.
    pub(super) fn about(self, sentence: &'static str) -> ListWriter {
        ListWriter { about: Some(sentence), ..self }
    }

    /// Writes the items. `render` appends an item's JSON and returns true, or returns false to leave the item
    /// out. `cursor` is the place behind an item. Ends early when the reader is gone.
    pub(super) async fn write_all<T>(
        self,
        items: impl Iterator<Item = T>,
        cursor: impl Fn(&T) -> String,
        render: impl Fn(&T, &mut Vec<u8>) -> bool,
    ) {
        self.write_stream(stream::iter(items), cursor, render).await;
    }

    /// As [`ListWriter::write_all`], with items that take their time.
    pub(super) async fn write_stream<T>(
        self,
        items: impl Stream<Item = T>,
        cursor: impl Fn(&T) -> String,
        render: impl Fn(&T, &mut Vec<u8>) -> bool,
    ) {
        let mut items = pin!(items);
        let is_document = self.form == ListForm::Document;
        let mut buffer = Vec::new();
        if is_document {
            let about = self.about.map(|about| format!("\"about\":{},", serde_json::Value::from(about)));
            let start = format!("{{{}\"{}\":[", about.unwrap_or_default(), self.name);
            buffer.extend_from_slice(start.as_bytes());
        }
        let (mut count, mut seen, mut next) = (0, 0, None);
        let truncated = loop {
            let Some(item) = items.next().await else { break false };
            if count == self.limit {
                break true;
            }
            let before = buffer.len();
            if is_document {
                buffer.extend_from_slice(if count == 0 { b"\n" } else { b",\n" });
            }
            if render(&item, &mut buffer) {
                count += 1;
                if count == self.limit {
                    next = Some(cursor(&item));
                }
                if !is_document {
                    buffer.push(b'\n');
                }
            } else {
                buffer.truncate(before);
            }
            seen += 1;
            if buffer.len() >= CHUNK_BYTES {
                let bytes = Bytes::from(std::mem::take(&mut buffer));
                if self.chunks.send(Chunk { bytes, last: false }).await.is_err() {
                    return;
                }
            }
            if seen % ITEMS_PER_TURN == 0 {
                tokio::task::yield_now().await;
                if self.chunks.is_closed() {
                    return;
                }
            }
        };
        if is_document {
            let next = next.filter(|_| truncated).map_or("null".to_owned(), |next| format!("\"{next}\""));
            let end = format!("\n],\"count\":{count},\"truncated\":{truncated},\"next\":{next}}}\n");
            buffer.extend_from_slice(end.as_bytes());
        }
        // The reader may be gone.
        let _ = self.chunks.send(Chunk { bytes: buffer.into(), last: true }).await;
    }
}

/// An answer whose keys stand in alphabetical order, at every level.
pub(super) fn in_alphabetical_order(answer: &impl Serialize) -> Response {
    match serde_json::to_value(answer) {
        Ok(value) => axum::Json(value).into_response(),
        Err(error) => (axum::http::StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// Appends an item; returns false for `None`.
pub(super) fn append(buffer: &mut Vec<u8>, item: Option<impl Serialize>) -> bool {
    item.is_some_and(|item| serde_json::to_writer(buffer, &item).is_ok())
}
