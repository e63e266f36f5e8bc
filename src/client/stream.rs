//! One gRPC stream to an upstream, in a task of its own.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, header};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::connection::{ConnectionPhase, SendRequest, StreamPermit, UpstreamConnection};
use super::connections::PoolInner;
use super::decode::{Decoded, Decoder, StreamContent};
use super::queue::{Queue, Queued};
use super::{ConnectionChoice, StreamEvent, status};
use sluice_xds::{Code, Coding, ResourceCopies, Status, Variant, coding, last_word, mark};

pub(super) const USER_AGENT: &str = concat!("sluice/", env!("CARGO_PKG_VERSION"));

/// The caller's end of one stream. Dropping the handle resets the stream and frees its permit, without
/// further events.
#[derive(Debug)]
pub struct StreamHandle {
    queue: Arc<Queue>,
    probed: Arc<Notify>,
    rounds: Arc<Notify>,
    _task: AbortOnDropHandle<()>,
}

impl StreamHandle {
    /// Queues a message that is already framed for gRPC; HTTP/2 sends it when flow control permits. Never
    /// blocks. If more than [`super::ClientSettings::queue_bytes_max`] are waiting, the stream ends with
    /// RESOURCE_EXHAUSTED (FU30).
    pub fn send(&self, message: Bytes) {
        self.queue.push(message);
    }

    /// [`StreamEvent::Flushed`] follows once HTTP/2 has taken all earlier messages.
    pub fn flush(&self) {
        self.queue.mark();
    }

    /// Ends the relay's side of the stream after all earlier messages. The server's status follows.
    pub fn finish(&self) {
        self.queue.end();
    }

    /// Asks whether the transport is alive. The server is made to send something, and [`StreamEvent::Alive`]
    /// follows once all earlier messages have been written and bytes have arrived since then and since the
    /// question (RLY-29). If none arrive, the connection and its streams end. Bytes from before the question
    /// prove nothing, because they may have been on the way when the connection died. Several probes may
    /// share one answer.
    pub fn probe(&self) {
        self.probed.notify_one();
    }

    /// Makes a round trip of the transport. [`StreamEvent::Returned`] follows once the server has answered a
    /// PING sent from now on, and all earlier data of the stream has been reported. Only one round trip runs
    /// at a time.
    ///
    /// Callers make a round trip only after a response. Servers therefore send responses between the PINGs,
    /// and don't take them for abuse.
    pub fn round_trip(&self) {
        self.rounds.notify_one();
    }
}

pub(super) fn open(
    pool: Arc<PoolInner>,
    path: String,
    content: StreamContent,
    metadata: Vec<(HeaderName, HeaderValue)>,
    choice: ConnectionChoice,
    copies: Option<Arc<dyn ResourceCopies>>,
    events: mpsc::Sender<StreamEvent>,
) -> StreamHandle {
    let queue = Arc::new(Queue::new(pool.peer.settings.clone()));
    let probed = Arc::new(Notify::new());
    let rounds = Arc::new(Notify::new());
    let (queued, probing, returning) = (queue.clone(), probed.clone(), rounds.clone());
    let stream = StreamTask {
        pool,
        path,
        content,
        metadata,
        choice,
        copies,
        events,
        queue: queued,
        probed: probing,
        rounds: returning,
    };
    StreamHandle { queue, probed, rounds, _task: AbortOnDropHandle::new(tokio::spawn(stream.run())) }
}

struct StreamTask {
    pool: Arc<PoolInner>,
    /// The path of the method.
    path: String,
    content: StreamContent,
    /// For this call alone.
    metadata: Vec<(HeaderName, HeaderValue)>,
    choice: ConnectionChoice,
    /// The resources of other streams.
    copies: Option<Arc<dyn ResourceCopies>>,
    events: mpsc::Sender<StreamEvent>,
    queue: Arc<Queue>,
    probed: Arc<Notify>,
    rounds: Arc<Notify>,
}

/// The round trip of one stream.
enum Round {
    None,
    Running(u64),
    /// The round trip has ended. Data from before its end may still be unread.
    Over,
}

/// A stream with its request headers sent.
struct StartedStream {
    permit: StreamPermit,
    response: ResponseFuture,
    request: SendStream<Bytes>,
}

/// The end of a stream.
struct StreamEnd {
    status: Status,
    /// A GOAWAY on the connection ended the stream.
    by_goaway: bool,
    /// The server sent the status.
    by_server: bool,
}

impl StreamEnd {
    fn by_server(status: Status) -> StreamEnd {
        StreamEnd { status, by_goaway: false, by_server: true }
    }
}

impl From<Status> for StreamEnd {
    fn from(status: Status) -> StreamEnd {
        StreamEnd { status, by_goaway: false, by_server: false }
    }
}

impl StreamTask {
    async fn run(self) {
        // The stream lives much longer than it takes to open.
        let event = match Box::pin(self.establish()).await {
            Ok(opened) => self.live(opened).await,
            Err(status) => StreamEvent::Closed(status),
        };
        self.report(event).await;
    }

    /// If the server is leaving the connection when the request is sent, the request moves to the next
    /// connection: only headers were sent so far.
    async fn establish(&self) -> Result<StartedStream, Status> {
        loop {
            let (permit, mut send) = self.pool.acquire(&self.choice, &self.events).await;
            self.choice.taken.take(permit.connection.number, permit.connection.way.remote);
            let settings = self.pool.peer.settings();
            let (limit, backoff) = (settings.stream_open_timeout, settings.backoff);
            drop(settings);
            // A status of ours, without a call: the server would only refuse a call without its token
            // (IDN-9).
            let mut head = self.head()?;
            self.pool.channel().calls.add_to(head.headers_mut(), &backoff).await?;
            match timeout(limit, self.send_headers(&mut send, head)).await {
                Ok(Ok((response, request))) => return Ok(StartedStream { permit, response, request }),
                Ok(Err(error)) if error.is_go_away() && error.is_remote() => {
                    // The connection's task will close the connection to new streams. Wait for that, or this
                    // loop would find the same connection again.
                    until_leaving(&mut permit.connection.phase()).await;
                }
                Ok(Err(error)) => return Err(status::of_h2(&error)),
                Err(_) => {
                    let message = format!("the request headers could not be sent within {limit:?}");
                    return Err(Status::new(Code::Unavailable, message));
                }
            }
        }
    }

    /// Returns once the headers are sent; the server's limit of streams may delay them.
    async fn send_headers(
        &self,
        send: &mut SendRequest,
        head: Request<()>,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        poll_fn(|context| send.poll_ready(context)).await?;
        let opened = send.send_request(head, false)?;
        poll_fn(|context| send.poll_ready(context)).await?;
        Ok(opened)
    }

    fn head(&self) -> Result<Request<()>, Status> {
        let request = Request::post(format!("{}{}", self.pool.channel().origin(), self.path))
            .version(http::Version::HTTP_2)
            .header(header::TE, "trailers")
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::USER_AGENT, USER_AGENT)
            .header(coding::ACCEPT_HEADER, coding::ACCEPTED);
        // The server may be a sluice or not. Other servers ignore the headers.
        let request = match self.content {
            StreamContent::Responses(Variant::Delta) => request
                .header(mark::HEADER, mark::HEADER_VALUE)
                .header(last_word::HEADER, last_word::HEADER_VALUE),
            StreamContent::Responses(Variant::Sotw) => {
                request.header(last_word::HEADER, last_word::HEADER_VALUE)
            }
            StreamContent::Messages => request,
        };
        let request =
            self.metadata.iter().fold(request, |request, (name, value)| request.header(name, value));
        request.body(()).map_err(|error| Status::new(Code::Internal, error.to_string()))
    }

    /// Runs an open stream to its end. Reports a GOAWAY before the end.
    async fn live(&self, opened: StartedStream) -> StreamEvent {
        let StartedStream { permit, response, request } = opened;
        let connection = &*permit.connection;
        self.report(StreamEvent::Opened).await;

        let mut phase = connection.phase();
        let mut has_reported = false;
        let mut replaced = pin!(self.pool.replacement());
        let mut read = pin!(self.read(connection, response));
        let mut write = pin!(self.write(request));
        let mut probe = pin!(self.answer_probes(connection));
        let end = loop {
            tokio::select! {
                end = &mut read => break end,
                status = &mut write => break status.into(),
                never = &mut probe => match never {},
                () = until_leaving(&mut phase), if !has_reported => {
                    has_reported = true;
                    self.report(StreamEvent::GoingAway).await;
                }
                // Wait for the new connection before ending the stream on the old one (FU10). Two streams at
                // once would be wrong: a control plane may take them for one client, and end the first for
                // the second.
                () = &mut replaced, if has_reported => {
                    break Status::new(Code::Unavailable, "the connection is being replaced").into();
                }
            }
        };
        let is_leaving = end.by_goaway || connection.phase().borrow().leaving;
        if !has_reported && is_leaving {
            self.report(StreamEvent::GoingAway).await;
        }
        match end.by_server && !is_leaving {
            true => StreamEvent::Ended(end.status),
            false => StreamEvent::Closed(end.status),
        }
    }

    /// Reads responses until the stream ends. While the event channel is full, nothing is read, and HTTP/2's
    /// flow control stops the server.
    async fn read(&self, connection: &UpstreamConnection, response: ResponseFuture) -> StreamEnd {
        let (head, mut body) = match response.await {
            Ok(response) => response.into_parts(),
            Err(error) => return failed(connection, &error).await,
        };
        if let Some(status) = refusal(head.status, &head.headers, body.is_end_stream()) {
            return StreamEnd::by_server(status);
        }
        let mut decoder = Decoder::new(self.content, self.copies.clone());
        decoder.decompress(coding_of(&head.headers));
        if self.content == StreamContent::Responses(Variant::Delta) && sets_marks(&head.headers) {
            decoder.read_marks();
            self.report(StreamEvent::Marks).await;
        }
        if matches!(self.content, StreamContent::Responses(_)) && tells_last_words(&head.headers) {
            decoder.read_last_words();
            self.report(StreamEvent::TellsLastWords).await;
        }
        let (mut answered, mut is_receiving) = (false, false);
        let mut round = Round::None;
        while let Some(chunk) = self.next_chunk(connection, &mut body, &mut round).await {
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(error) => return failed(connection, &error).await,
            };
            // Release capacity at once: a message may be longer than the window.
            let _ = body.flow_control().release_capacity(chunk.len());
            decoder.push(chunk, self.pool.peer.settings().max_response_bytes);
            while let Some(response) = decoder.next().await {
                is_receiving = false;
                let is_answer = matches!(response, Ok(Decoded::Response(..) | Decoded::Message(_)));
                if is_answer && !std::mem::replace(&mut answered, true) {
                    self.pool.answered();
                }
                match response {
                    Ok(Decoded::LastWord(word)) => self.report(StreamEvent::LastWord(word)).await,
                    Ok(Decoded::Message(message)) => self.report(StreamEvent::Message(message)).await,
                    Ok(Decoded::Response(response, arrival)) => {
                        let marked = decoder.take_mark().map(|mark| (response.type_url().clone(), mark));
                        self.report(StreamEvent::Response(Box::new(response), arrival)).await;
                        if let Some((type_url, mark)) = marked {
                            self.report(StreamEvent::Marked(type_url, mark)).await;
                        }
                    }
                    Err(status) => {
                        self.pool.peer.metrics.undecodable.inc();
                        self.report(StreamEvent::Undecodable(status.clone())).await;
                        return status.into();
                    }
                }
            }
            if !is_receiving && decoder.finish().is_err() {
                is_receiving = true;
                self.report(StreamEvent::Receiving).await;
            }
        }
        finish(connection, &mut body, &decoder).await
    }

    /// The next bytes of the body; `None` at the end. Handles round trips in the meantime.
    async fn next_chunk(
        &self,
        connection: &UpstreamConnection,
        body: &mut RecvStream,
        round: &mut Round,
    ) -> Option<Result<Bytes, h2::Error>> {
        loop {
            match round {
                Round::None => tokio::select! {
                    chunk = body.data() => return chunk,
                    () = self.rounds.notified() => *round = Round::Running(connection.begin_round()),
                },
                Round::Running(number) => tokio::select! {
                    chunk = body.data() => return chunk,
                    () = connection.round_ended(*number) => *round = Round::Over,
                },
                // All data received before the answer is available by now.
                Round::Over => match body.data().now_or_never() {
                    Some(chunk) => return chunk,
                    None => {
                        *round = Round::None;
                        self.report(StreamEvent::Returned).await;
                    }
                },
            }
        }
    }

    /// Sends queued messages. Returns only if the queue overflows. For any other end, the reading side sees
    /// the trailers and returns the status.
    async fn write(&self, mut request: SendStream<Bytes>) -> Status {
        let sending = async {
            loop {
                let message = match self.queue.next().await {
                    Queued::Message(message) => message,
                    Queued::Mark => {
                        self.report(StreamEvent::Flushed).await;
                        continue;
                    }
                    Queued::End => {
                        // Fails only if the stream is gone.
                        let _ = request.send_data(Bytes::new(), true);
                        return pending::<()>().await;
                    }
                };
                let length = message.len();
                if send_all(&mut request, message).await.is_err() {
                    pending::<()>().await;
                }
                self.queue.sent(length);
            }
        };
        tokio::select! {
            () = sending => pending().await,
            () = self.queue.overflowed() => {
                let settings = self.pool.peer.settings();
                let message = format!(
                    "the server does not read: more than {} bytes or {} messages wait to be sent",
                    settings.queue_bytes_max, settings.queue_messages_max
                );
                Status::new(Code::ResourceExhausted, message)
            }
        }
    }

    async fn answer_probes(&self, connection: &UpstreamConnection) -> Infallible {
        loop {
            self.probed.notified().await;
            loop {
                // Unwritten messages can't be unanswered. The probe ends a dead connection, too.
                let is_drained = self.queue.is_drained();
                connection.probe(connection.traffic.received()).await;
                if is_drained {
                    break;
                }
                while !self.queue.is_drained() {
                    self.queue.drained().await;
                }
            }
            self.report(StreamEvent::Alive).await;
        }
    }

    /// Waits while the channel is full. A send error means that the handle was dropped, which aborts this
    /// task.
    async fn report(&self, event: StreamEvent) {
        let _ = self.events.send(event).await;
    }
}

/// Waits until the server asks clients to leave the connection.
async fn until_leaving(phase: &mut watch::Receiver<ConnectionPhase>) {
    let _ = phase.wait_for(|phase| phase.leaving).await;
}

/// Passes a message to HTTP/2, as the windows of the stream and the connection permit.
async fn send_all(request: &mut SendStream<Bytes>, mut message: Bytes) -> Result<(), ()> {
    while !message.is_empty() {
        request.reserve_capacity(message.len());
        let capacity = match poll_fn(|context| request.poll_capacity(context)).await {
            Some(Ok(capacity)) => capacity,
            Some(Err(_)) | None => return Err(()),
        };
        let part = message.split_to(capacity.min(message.len()));
        if !part.is_empty() {
            request.send_data(part, false).map_err(|_| ())?;
        }
    }
    Ok(())
}

/// The compression of the server's messages.
fn coding_of(headers: &HeaderMap) -> Option<Coding> {
    Coding::of_name(headers.get(coding::HEADER)?.to_str().ok()?)
}

/// Whether the server is a sluice that marks complete answers (ADR 14).
fn sets_marks(headers: &HeaderMap) -> bool {
    headers.get(mark::HEADER).is_some_and(|value| value == mark::HEADER_VALUE)
}

/// Whether the server is a sluice that tells last words (ADR 101).
fn tells_last_words(headers: &HeaderMap) -> bool {
    headers.get(last_word::HEADER).is_some_and(|value| value == last_word::HEADER_VALUE)
}

/// The status of a response without messages.
fn refusal(http: StatusCode, headers: &HeaderMap, ended: bool) -> Option<Status> {
    if let Some(status) = status::of_trailers(headers) {
        return Some(status);
    }
    if http != StatusCode::OK {
        return Some(status::of_http(http));
    }
    let content_type = headers.get(header::CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    if !content_type.starts_with(b"application/grpc") {
        let content_type = String::from_utf8_lossy(content_type);
        return Some(Status::new(
            Code::Unknown,
            format!("the server answered with content-type {content_type:?}"),
        ));
    }
    ended.then(|| Status::new(Code::Internal, "the server ended the stream without a grpc-status"))
}

/// The status in the trailers.
async fn finish(connection: &UpstreamConnection, body: &mut RecvStream, decoder: &Decoder) -> StreamEnd {
    match body.trailers().await {
        Err(error) => failed(connection, &error).await,
        Ok(trailers) => match trailers.as_ref().and_then(status::of_trailers) {
            Some(status) if status.code == Code::Ok => match decoder.finish() {
                Ok(()) => StreamEnd::by_server(status),
                Err(status) => status.into(),
            },
            Some(status) => StreamEnd::by_server(status),
            None => Status::new(Code::Internal, "the server ended the stream without a grpc-status").into(),
        },
    }
}

/// The status of a stream that HTTP/2 ended: by an error of the stream, by a GOAWAY, or by the end of the
/// connection. In the last case, the connection's task knows the reason.
async fn failed(connection: &UpstreamConnection, error: &h2::Error) -> StreamEnd {
    let by_goaway = error.is_go_away() && error.is_remote();
    if error.is_io() {
        let mut phase = connection.phase();
        if let Ok(phase) = phase.wait_for(|phase| phase.ended.is_some()).await
            && let Some(status) = &phase.ended
        {
            return StreamEnd { status: status.clone(), by_goaway, by_server: false };
        }
    }
    StreamEnd { status: status::of_h2(error), by_goaway, by_server: false }
}
