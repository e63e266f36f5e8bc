//! Ports and plain HTTP.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A port below the ephemeral range, so that no outgoing connection takes the port while its owner is down.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 4000).expect("below 4000") * 3;
    loop {
        let port = 20_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Listens on a port of [`free_port`]. A child of another test may hold the port for a moment: until its
/// exec, the child has copies of all open sockets, including the socket that checked the port.
pub async fn listen(address: SocketAddr) -> TcpListener {
    for _ in 0..200 {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                tokio::time::sleep(Duration::from_millis(10)).await
            }
            bound => return bound.expect("a port of this machine"),
        }
    }
    panic!("{address} is in use");
}

/// `GET path`: the status code and the body. HTTP/1.0, so that the body is not chunked and ends with the
/// connection.
pub async fn http_get(address: &str, path: &str) -> std::io::Result<(u16, String)> {
    http(address, "GET", path).await
}

/// Sends a request without a body: the status and the body of the answer.
pub async fn http(address: &str, method: &str, path: &str) -> std::io::Result<(u16, String)> {
    http_with(address, method, path, "").await
}

/// The same with a body.
pub async fn http_with(
    address: &str,
    method: &str,
    path: &str,
    body: &str,
) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let length = match body {
        "" => String::new(),
        body => format!("Content-Length: {}\r\n", body.len()),
    };
    let request = format!("{method} {path} HTTP/1.0\r\nHost: {address}\r\n{length}\r\n{body}");
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Ok((status, body.to_owned()))
}
