//! gRPC statuses as HTTP headers and trailers.

use http::{HeaderMap, HeaderName, HeaderValue, Response, header};

use sluice_xds::Status;

/// The maximum length of a message. Clients refuse header lists of 8 KiB, and the encoding may triple the
/// length.
pub(super) const MESSAGE_BYTES_MAX: usize = 1024;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// A constant: HTTP/2 keeps the names that a connection has sent, and each would have a text of its own.
const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// The trailers that end a stream with `status`; the message is percent-encoded.
pub(super) fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(2);
    add(status, &mut trailers);
    trailers
}

/// The response that begins a stream. Tells the client that the server reads only uncompressed requests.
pub(super) fn stream_response<B>(body: B) -> Response<B> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, GRPC);
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    response
}

/// Adds a status to the headers or trailers.
pub(super) fn add(status: &Status, headers: &mut HeaderMap) {
    let end = status.message.floor_char_boundary(MESSAGE_BYTES_MAX);
    let status = tonic::Status::new(tonic::Code::from_i32(status.code as i32), &status.message[..end]);
    // Fails only if the percent-encoded text contained bytes that are illegal in a header.
    let encoded = status.add_header(headers);
    debug_assert!(encoded.is_ok());
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use sluice_xds::Code;

    #[test]
    fn messages_are_encoded_and_bounded() {
        let headers = trailers(&Status::new(Code::InvalidArgument, "naïve\n100%"));
        assert_eq!(headers["grpc-status"], "3");
        assert_eq!(headers["grpc-message"], "na%C3%AFve%0A100%25");
        assert!(!trailers(&Status::ok()).contains_key("grpc-message"));

        let long = format!("x{}", "ä".repeat(MESSAGE_BYTES_MAX));
        let headers = trailers(&Status::new(Code::Internal, long));
        assert_eq!(headers["grpc-message"].len(), 1 + 6 * ((MESSAGE_BYTES_MAX - 1) / 2));
    }
}
