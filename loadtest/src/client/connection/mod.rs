//! One HTTP/2 connection of simulated clients, with the streams of each client. Bytes in, bytes out: the
//! connection has no socket and never waits.

use thiserror::Error;

use super::flow::{DEFAULT_WINDOW, FlowError, ReceiveWindow, SendWindow};
use super::frame::{self, FrameError, FrameReader, Header, Piece, flag, kind};
use super::request::Requests;
use super::response::ResponseError;
use super::stream::{Outcome, Stream};
use super::{Manner, Observer, Tally};

/// As Envoy 1.40 advertises.
const STREAM_WINDOW: u32 = 16 << 20;
const CONNECTION_WINDOW: u32 = 24 << 20;
const SETTINGS: &[(u16, u32)] = &[(1, 4096), (2, 0), (3, 1024), (4, STREAM_WINDOW)];

/// Buffers that grew beyond this size for a long request are freed once empty.
const KEPT_CAPACITY: usize = 1024;

/// A server that keeps sending without reading would make a client queue ACKs without end.
const MAX_UNREAD: usize = 4 << 20;

/// The failure of a connection's clients.
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
    #[error("the server sent resources of a type without a subscription of this client")]
    UnknownType,
    #[error("the server sent more header blocks than a stream can have")]
    TooManyBlocks,
    #[error("the server answers load reports without an interval")]
    Wish,
    #[error("the server does not read the requests of this client")]
    Unread,
    #[error("the server closed the connection with GOAWAY, error code {0}")]
    GoAway(u32),
    #[error("the server reset the stream, error code {0}")]
    Reset(u32),
    #[error("the server ended the stream: {0}")]
    Ended(String),
}

/// The parameters of a new connection.
pub struct Opening<'a> {
    /// The clients on the connection, by their numbers among all clients.
    pub clients: std::ops::Range<usize>,
    /// The header block of each stream of a client.
    pub blocks: &'a [Vec<u8>],
    pub requests: &'a Requests,
}

pub struct Connection {
    frames: FrameReader,
    core: Core,
}

impl Connection {
    pub fn open(opening: &Opening<'_>) -> Connection {
        let mut core = Core::new(opening);
        core.out.extend_from_slice(frame::PREFACE);
        frame::put_settings(&mut core.out, SETTINGS);
        frame::put_window_update(&mut core.out, 0, CONNECTION_WINDOW - DEFAULT_WINDOW);
        for (number, stream) in core.streams.iter_mut().enumerate() {
            let block = &opening.blocks[number % opening.blocks.len()];
            frame::put_frame(&mut core.out, kind::HEADERS, flag::END_HEADERS, stream.id, block);
            let count = if opening.requests.profile.chained { 1 } else { core.subscriptions };
            for index in 0..count {
                stream.ask(index, opening.requests);
            }
            stream.introduce(opening.requests);
        }
        core.flush();
        Connection { frames: FrameReader::new(), core }
    }

    /// Handles bytes from the socket. Appends answers to [`Connection::out`].
    pub fn receive(
        &mut self,
        mut input: &[u8],
        requests: &Requests,
        manner: Manner,
        observer: &mut impl Observer,
    ) -> Result<(), ConnectionError> {
        while let Some(piece) = self.frames.next(&mut input)? {
            match piece {
                Piece::Data { stream, bytes } => self.core.data(stream, bytes, requests, manner, observer)?,
                Piece::DataEnd(header) => self.core.data_end(header)?,
                Piece::Control(header, payload) => self.core.control(header, payload)?,
            }
        }
        self.core.flush();
        let queued = self.core.streams.iter().map(|stream| stream.queued.len()).sum::<usize>();
        if queued.max(self.core.out.len()) > MAX_UNREAD {
            return Err(ConnectionError::Unread);
        }
        Ok(())
    }

    /// Moves a client's subscription on by this number of names; appends the request to [`Connection::out`].
    pub fn move_on(&mut self, client: usize, subscription: usize, by: usize, requests: &Requests) {
        let streams = self.core.streams.iter_mut().filter(|stream| stream.client == client);
        streams.for_each(|stream| stream.move_on(subscription, by, requests));
        self.core.flush();
    }

    /// The time of the next late request or load report.
    pub fn due(&self) -> Option<u64> {
        self.core.streams.iter().filter_map(Stream::due).min()
    }

    /// Sends late requests and load reports that are due.
    pub fn release(&mut self, now: u64, requests: &Requests) {
        self.core.streams.iter_mut().for_each(|stream| stream.release(now, requests));
        self.core.flush();
    }

    /// Sends no further load reports.
    pub fn stop_reporting(&mut self) {
        self.core.streams.iter_mut().for_each(Stream::stop_reporting);
    }

    /// The load reports of the connection's clients.
    pub fn tally(&self) -> Tally {
        let mut all = Tally::default();
        self.core.streams.iter().filter_map(Stream::tally).for_each(|tally| all += tally);
        all
    }

    /// Bytes to write; the caller removes written bytes with [`Connection::written`].
    pub fn out(&self) -> &[u8] {
        &self.core.out
    }

    pub fn written(&mut self, length: usize) {
        self.core.out.drain(..length);
        give_back(&mut self.core.out);
    }

    /// Whether the server has announced a close: the clients are to reconnect then, and there is no error.
    pub fn is_leaving(&self) -> bool {
        self.core.leaving
    }

    /// The clients whose first answer became complete since the last call.
    pub fn take_served(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.core.served)
    }
}

/// The whole connection except the cutting of frames.
struct Core {
    streams: Vec<Stream>,
    streams_per_client: usize,
    /// The number of subscriptions of a client.
    subscriptions: usize,
    /// The number of subscriptions without a complete answer, by client.
    unanswered: Vec<usize>,
    served: Vec<usize>,
    received: ReceiveWindow,
    sent: SendWindow,
    peer_initial_window: u32,
    peer_max_frame: usize,
    leaving: bool,
    out: Vec<u8>,
}

impl Core {
    fn new(opening: &Opening<'_>) -> Core {
        let layout = opening.requests.profile.streams();
        let subscriptions = opening.requests.profile.subscriptions.len();
        let mut streams = Vec::with_capacity(opening.clients.len() * layout.len());
        for client in opening.clients.clone() {
            for (_, own) in &layout {
                let id = streams.len() as u32 * 2 + 1;
                streams.push(Stream::new(id, client, own, STREAM_WINDOW));
            }
        }
        Core {
            streams,
            streams_per_client: layout.len(),
            subscriptions,
            unanswered: vec![subscriptions; opening.clients.len()],
            served: Vec::new(),
            received: ReceiveWindow::new(CONNECTION_WINDOW),
            sent: SendWindow::new(),
            peer_initial_window: DEFAULT_WINDOW,
            peer_max_frame: frame::MAX_FRAME_SIZE as usize,
            leaving: false,
            out: Vec::new(),
        }
    }

    /// The place of the stream in a frame.
    fn place(&self, id: u32) -> Result<usize, ConnectionError> {
        let place = (id / 2) as usize;
        let known = id % 2 == 1 && place < self.streams.len();
        if known { Ok(place) } else { Err(ConnectionError::UnknownStream) }
    }

    fn data(
        &mut self,
        id: u32,
        bytes: &[u8],
        requests: &Requests,
        manner: Manner,
        observer: &mut impl Observer,
    ) -> Result<(), ConnectionError> {
        let place = self.place(id)?;
        let Outcome { completed, next } = self.streams[place].data(bytes, requests, manner, observer)?;
        let owner = place / self.streams_per_client;
        if let Some(next) = next {
            let own = owner * self.streams_per_client..(owner + 1) * self.streams_per_client;
            self.streams[own].iter_mut().any(|stream| stream.ask(next, requests));
        }
        if completed > 0 {
            self.unanswered[owner] -= completed;
            if self.unanswered[owner] == 0 {
                self.served.push(self.streams[place].client);
            }
        }
        Ok(())
    }

    fn data_end(&mut self, header: Header) -> Result<(), ConnectionError> {
        let place = self.place(header.stream)?;
        let stream = &mut self.streams[place];
        for (window, id) in [(&mut self.received, 0), (&mut stream.received, stream.id)] {
            if let Some(increment) = window.receive(header.length)? {
                frame::put_window_update(&mut self.out, id, increment);
            }
        }
        if header.has(flag::END_STREAM) {
            return Err(ConnectionError::Ended(stream.headers.describe()));
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
            // A GOAWAY without an error announces a close; the streams continue until the close.
            kind::GOAWAY => match word(payload.get(4..8))? {
                0 => {
                    self.leaving = true;
                    Ok(())
                }
                code => Err(ConnectionError::GoAway(code)),
            },
            kind::RST_STREAM => Err(ConnectionError::Reset(word(Some(payload))?)),
            kind::WINDOW_UPDATE => {
                let increment = word(Some(payload))? & 0x7fff_ffff;
                if header.stream == 0 {
                    return Ok(self.sent.grant(increment)?);
                }
                let place = self.place(header.stream)?;
                Ok(self.streams[place].sent.grant(increment)?)
            }
            // PRIORITY and unknown extensions are ignored (RFC 9113, section 5.5).
            _ => Ok(()),
        }
    }

    fn response_headers(&mut self, header: Header, payload: &[u8]) -> Result<(), ConnectionError> {
        let place = self.place(header.stream)?;
        let headers = &mut self.streams[place].headers;
        if !headers.push(frame::header_block(header, payload)?) {
            return Err(ConnectionError::TooManyBlocks);
        }
        if header.has(flag::END_STREAM) || !headers.is_ok() {
            return Err(ConnectionError::Ended(headers.describe()));
        }
        Ok(())
    }

    /// RFC 9113, section 6.5.2. Bounds of header compression do not affect clients that send only literals;
    /// too low a bound of concurrent streams shows as refused streams.
    fn settings(&mut self, payload: &[u8]) -> Result<(), ConnectionError> {
        let (settings, []) = payload.as_chunks::<6>() else { return Err(FrameError::Length.into()) };
        for [id_high, id_low, value @ ..] in settings {
            let value = u32::from_be_bytes(*value);
            match u16::from_be_bytes([*id_high, *id_low]) {
                4 => {
                    let difference = i64::from(value) - i64::from(self.peer_initial_window);
                    self.streams.iter_mut().try_for_each(|stream| stream.sent.shift(difference))?;
                    self.peer_initial_window = value;
                }
                5 => self.peer_max_frame = (value as usize).max(frame::MAX_FRAME_SIZE as usize),
                _ => {}
            }
        }
        frame::put_frame(&mut self.out, kind::SETTINGS, flag::ACK, 0, &[]);
        Ok(())
    }

    /// Frames as much of the queue as the windows allow.
    fn flush(&mut self) {
        for stream in self.streams.iter_mut().filter(|stream| !stream.queued.is_empty()) {
            let mut sent = 0;
            while sent < stream.queued.len() {
                let window = self.sent.available().min(stream.sent.available());
                let length = (stream.queued.len() - sent).min(window).min(self.peer_max_frame);
                if length == 0 {
                    break;
                }
                let payload = &stream.queued[sent..sent + length];
                frame::put_frame(&mut self.out, kind::DATA, 0, stream.id, payload);
                self.sent.send(length);
                stream.sent.send(length);
                sent += length;
            }
            stream.queued.drain(..sent);
            give_back(&mut stream.queued);
        }
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
mod tests;
