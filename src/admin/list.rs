//! A JSON list of any length in a small buffer: the reader's pace decides when items are made.

use std::future::Future;
use std::io;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use serde::Serialize;
use tokio::sync::mpsc;

/// Bytes gathered for one chunk. One chunk may wait beside the chunk being filled.
const CHUNK_BYTES: usize = 16 << 10;

/// The number of items between two turns of other tasks.
const ITEMS_PER_TURN: usize = 64;

/// A part of a response body. The last part ends the document.
struct Chunk {
    bytes: Bytes,
    last: bool,
}

/// Answers `{"<name>":[…],"count":n,"truncated":false}`. `write` makes the items at the reader's pace.
/// `truncated` tells that there may be more than `limit` items.
pub(super) fn respond<F>(name: &'static str, limit: usize, write: impl FnOnce(ListWriter) -> F) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    let (chunks, received) = mpsc::channel(1);
    // The writer stops when the body is dropped.
    tokio::spawn(write(ListWriter { name, limit, chunks }));
    let body = stream::try_unfold(Some(received), |received| async move {
        let Some(mut received) = received else { return Ok(None) };
        match received.recv().await {
            Some(chunk) => Ok(Some((chunk.bytes, (!chunk.last).then_some(received)))),
            // An error, so that the reader does not mistake a part for the whole.
            None => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        }
    });
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(body)).into_response()
}

/// Writes one list.
pub(super) struct ListWriter {
    name: &'static str,
    limit: usize,
    chunks: mpsc::Sender<Chunk>,
}

impl ListWriter {
    /// Writes the items. `render` appends an item's JSON and returns true, or returns false to leave the item
    /// out. Ends early when the reader is gone.
    pub(super) async fn write_all<T>(
        self,
        mut items: impl Iterator<Item = T>,
        render: impl Fn(&T, &mut Vec<u8>) -> bool,
    ) {
        let mut buffer = format!("{{\"{}\":[", self.name).into_bytes();
        let (mut count, mut seen) = (0, 0);
        let truncated = loop {
            if count == self.limit {
                break true;
            }
            let Some(item) = items.next() else { break false };
            let before = buffer.len();
            buffer.extend_from_slice(if count == 0 { b"\n" } else { b",\n" });
            if render(&item, &mut buffer) {
                count += 1;
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
        buffer.extend_from_slice(format!("\n],\"count\":{count},\"truncated\":{truncated}}}\n").as_bytes());
        // The reader may be gone.
        let _ = self.chunks.send(Chunk { bytes: buffer.into(), last: true }).await;
    }
}

/// Appends an item; returns false for `None`.
pub(super) fn append(buffer: &mut Vec<u8>, item: Option<impl Serialize>) -> bool {
    item.is_some_and(|item| serde_json::to_writer(buffer, &item).is_ok())
}
