//! A connection by the crate `h2`, in one task, as the relay has it (`src/server/http2.rs`) without its own parts.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, buf::Chain};
use h2::server::{Builder, Connection};
use h2::{RecvStream, SendStream};
use http::{HeaderValue, Response, header};
use tokio::net::TcpStream;
use tokio::task::coop;

use super::hub::{Hub, IO, UPDATE, Wakes, prefix};

/// The receive windows of the relay.
pub const WINDOW: u32 = 1 << 20;

type Piece = Chain<Bytes, Bytes>;

/// The builder of the relay, with its default limits.
pub fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(1_200)
        .max_local_error_reset_streams(Some(64))
        .max_pending_accept_reset_streams(20)
        .max_header_list_size(4 * 8 * 1024)
        .initial_connection_window_size(WINDOW)
        .initial_window_size(WINDOW)
        .max_send_buffer_size(8 * 1024);
    builder
}

/// Everything that the builder offers, as small as HTTP/2 and the clients of this bench allow.
pub fn tuned() -> Builder {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(1)
        .max_concurrent_reset_streams(0)
        .max_local_error_reset_streams(Some(1))
        .max_pending_accept_reset_streams(1)
        .max_header_list_size(1024)
        .header_table_size(0)
        .max_frame_size(16_384)
        .initial_connection_window_size(65_535)
        .initial_window_size(65_535)
        .max_send_buffer_size(1024);
    builder
}

pub struct Http2 {
    h2: Connection<TcpStream, Piece>,
    call: Option<(RecvStream, SendStream<Piece>)>,
    hub: Arc<Hub>,
    wakes: Arc<Wakes>,
    /// The waker of HTTP/2: it marks the part.
    waker: Waker,
}

impl Http2 {
    pub async fn open(builder: &Builder, socket: TcpStream, hub: Arc<Hub>) -> io::Result<Pin<Box<Self>>> {
        let h2 = builder.handshake(socket).await.map_err(io::Error::other)?;
        let wakes = hub.join();
        let waker = Waker::from(wakes.clone());
        Ok(Box::pin(Http2 { h2, call: None, hub, wakes, waker }))
    }

    /// Resolves to the error that ends the connection.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        self.wakes.watch(context.waker());
        loop {
            let is_updated = self.wakes.take(UPDATE);
            if is_updated && let Err(error) = self.send() {
                return Poll::Ready(error);
            }
            let has_io = self.wakes.take(IO);
            if has_io && let Poll::Ready(Err(error)) = self.poll_io() {
                return Poll::Ready(error);
            }
            if !is_updated && !has_io || !coop::has_budget_remaining() {
                break;
            }
        }
        self.wakes.leave(context.waker());
        Poll::Pending
    }

    fn send(&mut self) -> io::Result<()> {
        if let Some((_, send)) = &mut self.call {
            let body = self.hub.newest();
            let piece = Bytes::copy_from_slice(&prefix(body.len())).chain(body);
            send.send_data(piece, false).map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn poll_io(&mut self) -> Poll<io::Result<()>> {
        let mut context = Context::from_waker(&self.waker);
        while let Poll::Ready(accepted) = self.h2.poll_accept(&mut context) {
            let accepted = accepted.ok_or(io::ErrorKind::UnexpectedEof)?;
            let (request, mut respond) = accepted.map_err(io::Error::other)?;
            let mut response = Response::new(());
            let grpc = HeaderValue::from_static("application/grpc");
            response.headers_mut().insert(header::CONTENT_TYPE, grpc);
            let send = respond.send_response(response, false).map_err(io::Error::other)?;
            self.call = Some((request.into_body(), send));
        }
        let Some((receive, _)) = &mut self.call else { return Poll::Pending };
        // Polled after HTTP/2 each time, so its wakes are of no use.
        let mut unwoken = Context::from_waker(Waker::noop());
        while let Poll::Ready(data) = receive.poll_data(&mut unwoken) {
            let data = data.ok_or(io::ErrorKind::UnexpectedEof)?.map_err(io::Error::other)?;
            self.hub.heard(&data)?;
            let _ = receive.flow_control().release_capacity(data.len());
        }
        Poll::Pending
    }
}
