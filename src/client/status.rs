//! The gRPC status of an ended stream.

use h2::Reason;
use http::{HeaderMap, StatusCode};
use percent_encoding::percent_decode;

use sluice_xds::{Code, Status};

/// The maximum length of a status message, in bytes; the rest is cut off. The text is only for humans.
/// Statuses within messages have the same limit (`wire::status`).
const MESSAGE_BYTES_MAX: usize = 4096;

/// The status in trailers, or in the headers of a response without a body. `None` without a `grpc-status`.
pub(super) fn of_trailers(trailers: &HeaderMap) -> Option<Status> {
    let number = trailers.get("grpc-status")?;
    let code = number
        .to_str()
        .ok()
        .and_then(|number| number.parse::<i32>().ok())
        .map_or(Code::Unknown, Code::from_number);
    let message = trailers.get("grpc-message").map_or_else(String::new, |m| decoded(m.as_bytes()));
    Some(Status::new(code, message))
}

/// The meaning of an HTTP status without a `grpc-status` (gRPC's `http-grpc-status-mapping.md`).
pub(super) fn of_http(status: StatusCode) -> Status {
    let code = match status.as_u16() {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502 | 503 | 504 => Code::Unavailable,
        _ => Code::Unknown,
    };
    Status::new(code, format!("the server answered with HTTP status {status}"))
}

/// The meaning of an HTTP/2 error (gRPC's `PROTOCOL-HTTP2.md`, "Errors"). An error of the whole connection is
/// UNAVAILABLE.
pub(super) fn of_h2(error: &h2::Error) -> Status {
    if !error.is_reset() {
        return Status::new(Code::Unavailable, error.to_string());
    }
    let code = match error.reason() {
        Some(Reason::REFUSED_STREAM) => Code::Unavailable,
        Some(Reason::CANCEL) => Code::Cancelled,
        Some(Reason::ENHANCE_YOUR_CALM) => Code::ResourceExhausted,
        Some(Reason::INADEQUATE_SECURITY) => Code::PermissionDenied,
        _ => Code::Internal,
    };
    Status::new(code, error.to_string())
}

/// Decodes the percent-encoding of `grpc-message`. Invalid escapes stay as they are.
fn decoded(text: &[u8]) -> String {
    let bytes: Vec<u8> = percent_decode(text).take(MESSAGE_BYTES_MAX).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use http::HeaderValue;

    use super::*;

    #[test]
    fn trailers_give_the_status_and_its_decoded_message() {
        let cases: [(&str, Option<&str>, Status); 6] = [
            ("0", None, Status::ok()),
            ("14", Some("gone"), Status::new(Code::Unavailable, "gone")),
            ("5", Some("100%25 gone%0A%E2%82%AC"), Status::new(Code::NotFound, "100% gone\n€")),
            ("5", Some("%4 %zz %"), Status::new(Code::NotFound, "%4 %zz %")),
            ("99", None, Status::new(Code::Unknown, "")),
            ("x", None, Status::new(Code::Unknown, "")),
        ];
        for (number, message, status) in cases {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_str(number).unwrap());
            if let Some(message) = message {
                trailers.insert("grpc-message", HeaderValue::from_str(message).unwrap());
            }
            assert_eq!(of_trailers(&trailers), Some(status));
        }
        assert_eq!(of_trailers(&HeaderMap::new()), None);
    }

    #[test]
    fn a_long_message_is_cut() {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("2"));
        trailers.insert("grpc-message", HeaderValue::from_bytes(&[b'x'; 10_000]).unwrap());
        assert_eq!(of_trailers(&trailers).unwrap().message.len(), MESSAGE_BYTES_MAX);
    }

    #[test]
    fn http_statuses_map_as_grpc_says() {
        for (number, code) in [
            (400, Code::Internal),
            (401, Code::Unauthenticated),
            (403, Code::PermissionDenied),
            (404, Code::Unimplemented),
            (429, Code::Unavailable),
            (503, Code::Unavailable),
            (500, Code::Unknown),
            (302, Code::Unknown),
        ] {
            assert_eq!(of_http(StatusCode::from_u16(number).unwrap()).code, code, "{number}");
        }
    }
}
