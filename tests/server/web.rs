//! HTTP/1.1 as bytes: one connection, its requests and responses.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::kit::{Running, soon};

pub struct Web {
    socket: TcpStream,
    received: Vec<u8>,
}

#[derive(Debug)]
pub struct Page {
    pub status: u16,
    /// Lower-case names.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Page {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn message(&self) -> String {
        self.json()["message"].as_str().unwrap_or_default().to_owned()
    }
}

impl Web {
    pub async fn connect(server: &Running) -> Web {
        Web { socket: TcpStream::connect(server.address).await.unwrap(), received: Vec::new() }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).await.unwrap();
    }

    pub async fn post(&mut self, path: &str, body: &str) -> Page {
        self.send(request("POST", path, "application/json", body)).await;
        self.page().await.expect("an answer")
    }

    /// The next response; `None` if the connection closes first.
    pub async fn page(&mut self) -> Option<Page> {
        let end = loop {
            if let Some(at) = self.received.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.read().await {
                assert!(self.received.is_empty(), "{:?}", String::from_utf8_lossy(&self.received));
                return None;
            }
        };
        let head = String::from_utf8(self.received.drain(..end).collect()).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let header = |line: &str| line.split_once(": ").map(|(n, v)| (n.to_lowercase(), v.to_owned()));
        let mut page = Page { status, headers: lines.filter_map(header).collect(), body: Vec::new() };
        let length: usize = page.header("content-length").map_or(0, |length| length.parse().unwrap());
        while self.received.len() < length {
            assert!(self.read().await, "the body is cut off");
        }
        page.body = self.received.drain(..length).collect();
        Some(page)
    }

    /// Whether the server closed the connection without another byte.
    pub async fn is_closed(&mut self) -> bool {
        assert!(self.received.is_empty());
        !self.read().await
    }

    async fn read(&mut self) -> bool {
        matches!(soon(self.socket.read_buf(&mut self.received)).await, Ok(1..))
    }
}

pub fn request(method: &str, path: &str, content_type: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: relay\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}
