//! A web server of the operator that is asked in JSON (WAV-20).

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;

use super::dial::Dialer;
use super::rest_connector::Connector;
use super::stream::USER_AGENT;
use super::{ClientSettings, Credentials, GrpcAddress, ServerChannel};
use crate::telemetry::metrics::{ClientMetrics, TlsMetrics};
use crate::trust::client::{ClientTls, Protocol};
use sluice_setting::InForce;

/// The longest answer. A verdict has a word and a sentence.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// A web server behind one URL, in HTTP/1.1. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Webhook {
    client: Client<Connector, Full<Bytes>>,
    url: String,
    limit: Duration,
}

impl Webhook {
    /// `limit`: the time for one answer, from the begin of the connection to the last byte. TLS trusts the
    /// certificates of the system. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The reason why the URL cannot be asked.
    pub fn new(url: &str, limit: Duration) -> Result<Webhook, String> {
        let uri: Uri = url.parse().map_err(|error| format!("{url}: {error}"))?;
        let host = uri.host().ok_or_else(|| format!("{url}: no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_tls = uri.scheme() == Some(&http::uri::Scheme::HTTPS);
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let credentials = Credentials { tls: is_tls.then(ClientTls::default), ..Credentials::default() };
        let address = GrpcAddress::Tcp { host, port };
        // The metrics of control planes are not about hooks.
        let (metrics, tls_metrics) = (std::sync::Arc::new(ClientMetrics::default()), TlsMetrics::default());
        let channel =
            ServerChannel::open(address, credentials, Protocol::Http1, "rollouts.hook", &tls_metrics);
        let channel = channel.map_err(|fault| fault.to_string())?;
        let dialer = Dialer::new(channel, InForce::new(ClientSettings::default()), metrics.clone());
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            // A question comes every few seconds at most: a connection that stays open would only grow stale.
            .pool_max_idle_per_host(0)
            .build(Connector { dialer: dialer.into(), metrics });
        Ok(Webhook { client, url: url.to_owned(), limit })
    }

    /// Posts JSON, and returns the body of the answer.
    ///
    /// # Errors
    /// The reason why there is no answer with the status 200 in time.
    pub async fn post(&self, body: impl Into<Bytes>) -> Result<Bytes, String> {
        let body = body.into();
        timeout(self.limit, self.ask(body))
            .await
            .unwrap_or_else(|_| Err(format!("no answer within {:?}", self.limit)))
    }

    async fn ask(&self, body: Bytes) -> Result<Bytes, String> {
        let request = Request::post(&self.url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, USER_AGENT)
            .body(Full::new(body))
            .map_err(|error| error.to_string())?;
        let response = self.client.request(request).await.map_err(|error| innermost(&error))?;
        let status = response.status();
        if status != StatusCode::OK {
            return Err(format!("the answer has the status {status}; expected 200"));
        }
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok(body.map_err(|error| error.to_string())?.to_bytes())
    }
}

/// The last cause of an error. The outermost says only that something failed.
fn innermost(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// The answer of a server that sends these bytes once it has the question.
    async fn answered(answer: &str) -> Result<Bytes, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = answer.to_owned();
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut question = Vec::new();
            while !question.ends_with(b"{}") {
                socket.read_buf(&mut question).await.unwrap();
            }
            assert!(question.starts_with(b"POST /gate HTTP/1.1"));
            socket.write_all(answer.as_bytes()).await.unwrap();
            // The client ends the connection.
            let _ = socket.read(&mut [0; 1]).await;
        });
        let hook = Webhook::new(&format!("http://{address}/gate"), Duration::from_millis(500)).unwrap();
        hook.post("{}").await
    }

    fn ok(body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    }

    #[tokio::test]
    async fn wav_20_only_a_whole_200_in_time_is_an_answer() {
        assert_eq!(answered(&ok("yes")).await, Ok(Bytes::from("yes")));
        let refused = answered("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n").await;
        assert_eq!(refused.unwrap_err(), "the answer has the status 503 Service Unavailable; expected 200");
        let moved = answered("HTTP/1.1 302 Found\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n").await;
        assert_eq!(moved.unwrap_err(), "the answer has the status 302 Found; expected 200");
        assert_eq!(answered("").await.unwrap_err(), "no answer within 500ms");
        let half = answered("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"verdict\":\"go\"}").await;
        assert_eq!(half.unwrap_err(), "no answer within 500ms");
        let long = answered(&ok(&"x".repeat(ANSWER_BYTES_MAX + 1))).await;
        assert_eq!(long.unwrap_err(), "length limit exceeded");
    }

    #[tokio::test]
    async fn wav_20_a_server_that_is_away_is_told_with_its_address() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let hook = Webhook::new(&format!("http://{address}/"), Duration::from_secs(5)).unwrap();
        let away = hook.post("{}").await.unwrap_err();
        assert!(away.contains(&address.to_string()) && away.contains("refused"), "{away}");
    }
}
