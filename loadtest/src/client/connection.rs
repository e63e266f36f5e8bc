//! One simulated client: an HTTP/2 connection with one ADS stream. Bytes in, bytes out; it owns no socket and waits
//! for nothing.

use thiserror::Error;

use super::flow::{DEFAULT_WINDOW, FlowError, ReceiveWindow, SendWindow};
use super::frame::{self, FrameError, FrameReader, Header, Piece, flag, kind};
use super::headers::ResponseHeaders;
use super::request::Requests;
use super::response::{Response, ResponseError, ResponseReader};
use crate::measure::monotonic_ns;
use crate::xds::{Kind, Variant};

/// The stream of the one request that a client makes.
const STREAM: u32 = 1;

/// As Envoy 1.40 advertises them.
const STREAM_WINDOW: u32 = 16 << 20;
const CONNECTION_WINDOW: u32 = 24 << 20;
const SETTINGS: &[(u16, u32)] = &[(1, 4096), (2, 0), (3, 1024), (4, STREAM_WINDOW)];

/// Buffers that grew beyond this for a long request are given back once they are empty.
const KEPT_CAPACITY: usize = 1024;

/// A server that reads nothing while it sends on would make a client hold its ACKs without end.
const MAX_UNREAD: usize = 4 << 20;

/// Why a client is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConnectionError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Flow(#[from] FlowError),
    #[error(transparent)]
    Response(#[from] ResponseError),
    #[error("the server sent frames of a stream that this client never opened")]
    UnknownStream,
    #[error("the server sent resources of a type that this client never asked for")]
    UnknownType,
    #[error("the server sent more header blocks than a stream can have")]
    TooManyBlocks,
    #[error("the server does not read what this client sends")]
    Unread,
    #[error("the server closed the connection with GOAWAY, error code {0}")]
    GoAway(u32),
    #[error("the server reset the stream, error code {0}")]
    Reset(u32),
    #[error("the server ended the stream: {0}")]
    Ended(String),
}

/// What the rest of the tool wants to know of a client.
#[derive(Clone, Copy, Default)]
pub struct Progress {
    /// When all resources of the subscription had arrived, in nanoseconds of CLOCK_MONOTONIC.
    pub served_at: Option<u64>,
    /// The newest change that has arrived, and when its message was complete.
    pub stamp: u64,
    pub stamped_at: u64,
}

pub struct Connection {
    frames: FrameReader,
    core: Core,
}

impl Connection {
    /// `block` is the header block of the request; `clusters` says how many make a complete answer.
    pub fn open(client: usize, requests: &Requests, block: &[u8], clusters: u64) -> Connection {
        let mut core = Core::new(client, clusters);
        core.out.extend_from_slice(frame::PREFACE);
        frame::put_settings(&mut core.out, SETTINGS);
        frame::put_window_update(&mut core.out, 0, CONNECTION_WINDOW - DEFAULT_WINDOW);
        frame::put_frame(&mut core.out, kind::HEADERS, flag::END_HEADERS, STREAM, block);
        requests.put_first(&mut core.queued, client);
        core.flush();
        Connection { frames: FrameReader::new(), core }
    }

    /// Takes what the socket gave. Answers are appended to what [`Connection::out`] gives.
    pub fn receive(&mut self, mut input: &[u8], requests: &Requests) -> Result<(), ConnectionError> {
        while let Some(piece) = self.frames.next(&mut input)? {
            match piece {
                Piece::Data { stream: STREAM, bytes } => self.core.data(bytes, requests)?,
                Piece::Data { .. } => return Err(ConnectionError::UnknownStream),
                Piece::DataEnd(header) => self.core.data_end(header)?,
                Piece::Control(header, payload) => self.core.control(header, payload)?,
            }
        }
        self.core.flush();
        if self.core.queued.len().max(self.core.out.len()) > MAX_UNREAD {
            return Err(ConnectionError::Unread);
        }
        Ok(())
    }

    /// Bytes to write; the caller removes what the socket took by [`Connection::written`].
    pub fn out(&self) -> &[u8] {
        &self.core.out
    }

    pub fn written(&mut self, length: usize) {
        self.core.out.drain(..length);
        give_back(&mut self.core.out);
    }

    pub fn progress(&self) -> Progress {
        self.core.progress
    }
}

/// Everything but the cutting of frames.
struct Core {
    client: usize,
    wanted_clusters: u64,
    clusters: u64,
    endpoints: u64,
    progress: Progress,
    headers: ResponseHeaders,
    responses: ResponseReader,
    received: [ReceiveWindow; 2],
    sent_connection: SendWindow,
    sent_stream: SendWindow,
    peer_initial_window: u32,
    peer_max_frame: usize,
    /// gRPC messages that are not yet framed, for want of a window.
    queued: Vec<u8>,
    out: Vec<u8>,
}

impl Core {
    fn new(client: usize, wanted_clusters: u64) -> Core {
        Core {
            client,
            wanted_clusters,
            clusters: 0,
            endpoints: 0,
            progress: Progress::default(),
            headers: ResponseHeaders::default(),
            responses: ResponseReader::new(),
            received: [ReceiveWindow::new(CONNECTION_WINDOW), ReceiveWindow::new(STREAM_WINDOW)],
            sent_connection: SendWindow::new(),
            sent_stream: SendWindow::new(),
            peer_initial_window: DEFAULT_WINDOW,
            peer_max_frame: frame::MAX_FRAME_SIZE as usize,
            queued: Vec::new(),
            out: Vec::new(),
        }
    }

    fn data(&mut self, mut bytes: &[u8], requests: &Requests) -> Result<(), ConnectionError> {
        while let Some(response) = self.responses.next(&mut bytes)? {
            let kind = match Kind::of(&response.type_url) {
                Some(Kind::Endpoints) if requests.endpoint_names() == 0 => {
                    return Err(ConnectionError::UnknownType);
                }
                Some(kind) => kind,
                None => return Err(ConnectionError::UnknownType),
            };
            requests.put_ack(&mut self.queued, self.client, kind, response);
            // A SotW response for clusters is the whole set (SST-1); every other one may be a part of it.
            match (kind, requests.variant()) {
                (Kind::Cluster, Variant::Sotw) => self.clusters = response.resources,
                (Kind::Cluster, Variant::Delta) => self.clusters += response.resources,
                (Kind::Endpoints, _) => self.endpoints += response.resources,
            }
            note_progress(&mut self.progress, response, || {
                self.clusters >= self.wanted_clusters && self.endpoints >= requests.endpoint_names() as u64
            });
        }
        Ok(())
    }

    fn data_end(&mut self, header: Header) -> Result<(), ConnectionError> {
        if header.stream != STREAM {
            return Err(ConnectionError::UnknownStream);
        }
        for (window, stream) in self.received.iter_mut().zip([0, STREAM]) {
            if let Some(increment) = window.receive(header.length)? {
                frame::put_window_update(&mut self.out, stream, increment);
            }
        }
        if header.has(flag::END_STREAM) {
            return Err(ConnectionError::Ended(self.headers.describe()));
        }
        Ok(())
    }

    fn control(&mut self, header: Header, payload: &[u8]) -> Result<(), ConnectionError> {
        match header.kind {
            kind::HEADERS => self.response_headers(header, payload),
            kind::SETTINGS if header.has(flag::ACK) => Ok(()),
            kind::SETTINGS => self.settings(payload),
            kind::PING if payload.len() != 8 => Err(FrameError::Length.into()),
            kind::PING if header.has(flag::ACK) => Ok(()),
            kind::PING => {
                frame::put_frame(&mut self.out, kind::PING, flag::ACK, 0, payload);
                Ok(())
            }
            // Without an error a GOAWAY announces a close; the stream goes on until it comes.
            kind::GOAWAY => match word(payload.get(4..8))? {
                0 => Ok(()),
                code => Err(ConnectionError::GoAway(code)),
            },
            kind::RST_STREAM => Err(ConnectionError::Reset(word(Some(payload))?)),
            kind::WINDOW_UPDATE => {
                let increment = word(Some(payload))? & 0x7fff_ffff;
                let window =
                    if header.stream == 0 { &mut self.sent_connection } else { &mut self.sent_stream };
                Ok(window.grant(increment)?)
            }
            // PRIORITY and whatever extensions may come are to be ignored (RFC 9113, section 5.5).
            _ => Ok(()),
        }
    }

    fn response_headers(&mut self, header: Header, payload: &[u8]) -> Result<(), ConnectionError> {
        if header.stream != STREAM {
            return Err(ConnectionError::UnknownStream);
        }
        if !self.headers.push(frame::header_block(header, payload)?) {
            return Err(ConnectionError::TooManyBlocks);
        }
        if header.has(flag::END_STREAM) || !self.headers.is_ok() {
            return Err(ConnectionError::Ended(self.headers.describe()));
        }
        Ok(())
    }

    /// RFC 9113, section 6.5.2. What bounds header compression and concurrency does not touch a client that sends one
    /// block of literals.
    fn settings(&mut self, payload: &[u8]) -> Result<(), ConnectionError> {
        let (settings, []) = payload.as_chunks::<6>() else { return Err(FrameError::Length.into()) };
        for [id_high, id_low, value @ ..] in settings {
            let value = u32::from_be_bytes(*value);
            match u16::from_be_bytes([*id_high, *id_low]) {
                4 => {
                    self.sent_stream.shift(i64::from(value) - i64::from(self.peer_initial_window))?;
                    self.peer_initial_window = value;
                }
                5 => self.peer_max_frame = (value as usize).max(frame::MAX_FRAME_SIZE as usize),
                _ => {}
            }
        }
        frame::put_frame(&mut self.out, kind::SETTINGS, flag::ACK, 0, &[]);
        Ok(())
    }

    /// Frames as much of what is queued as the windows allow.
    fn flush(&mut self) {
        let mut sent = 0;
        while sent < self.queued.len() {
            let window = self.sent_connection.available().min(self.sent_stream.available());
            let length = (self.queued.len() - sent).min(window).min(self.peer_max_frame);
            if length == 0 {
                break;
            }
            frame::put_frame(&mut self.out, kind::DATA, 0, STREAM, &self.queued[sent..sent + length]);
            self.sent_connection.send(length);
            self.sent_stream.send(length);
            sent += length;
        }
        self.queued.drain(..sent);
        give_back(&mut self.queued);
    }
}

fn note_progress(progress: &mut Progress, response: &Response, complete: impl FnOnce() -> bool) {
    let stamp = response.stamp().unwrap_or(0);
    if stamp <= progress.stamp && progress.served_at.is_some() {
        return;
    }
    let now = monotonic_ns();
    if stamp > progress.stamp {
        progress.stamp = stamp;
        progress.stamped_at = now;
    }
    if progress.served_at.is_none() && complete() {
        progress.served_at = Some(now);
    }
}

fn word(bytes: Option<&[u8]>) -> Result<u32, FrameError> {
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok()).ok_or(FrameError::Length)?;
    Ok(u32::from_be_bytes(bytes))
}

fn give_back(buffer: &mut Vec<u8>) {
    if buffer.is_empty() && buffer.capacity() > KEPT_CAPACITY {
        *buffer = Vec::new();
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
