//! A JSON list of any length in a small buffer: items are pulled from the view as the reader takes them.

use std::future::Future;
use std::io;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use serde::Serialize;
use tokio::sync::mpsc;

/// What is gathered before it is handed to the connection. One chunk may wait beside the one being filled.
const CHUNK_BYTES: usize = 16 << 10;

/// Items looked at before other tasks get their turn.
const ITEMS_PER_TURN: usize = 64;

/// The part of a response body that is ready to be written; the last one ends the document.
struct Chunk {
    bytes: Bytes,
    last: bool,
}

/// Answers `{"<name>":[…],"count":n,"truncated":false}`, written by `write` as the reader takes it. `truncated`
/// says that there may be more than `limit` items.
pub(super) fn respond<F>(name: &'static str, limit: usize, write: impl FnOnce(ListWriter) -> F) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    let (chunks, received) = mpsc::channel(1);
    // The writer ends by itself when the body is dropped.
    tokio::spawn(write(ListWriter { name, limit, chunks }));
    let body = stream::try_unfold(Some(received), |received| async move {
        let Some(mut received) = received else { return Ok(None) };
        match received.recv().await {
            Some(chunk) => Ok(Some((chunk.bytes, (!chunk.last).then_some(received)))),
            // The reader must not take a part for the whole.
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
    /// Writes each item for which `render` returns true, having appended its JSON; the others are left out. Ends
    /// early when the reader is gone.
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
        // A reader that is gone misses nothing.
        let _ = self.chunks.send(Chunk { bytes: buffer.into(), last: true }).await;
    }
}

/// Appends an item that passed; false for one that did not.
pub(super) fn append(buffer: &mut Vec<u8>, item: Option<impl Serialize>) -> bool {
    item.is_some_and(|item| serde_json::to_writer(buffer, &item).is_ok())
}
