//! Header blocks (HPACK, RFC 7541). Requests are literals without a table; in responses only the end of a
//! stream is decoded, since a healthy stream needs no headers.

use loona_hpack::Decoder;

/// RFC 7541, appendix A: indexed `:status: 200`, the start of every gRPC response.
const STATUS_200: u8 = 0x88;

/// The maximum number of header blocks of a stream: informational blocks, the response's, the trailers.
const MAX_BLOCKS: usize = 4;

/// The header block of a gRPC request.
pub fn request_block(authority: &str, path: &str) -> Vec<u8> {
    // Indexed `:method: POST` and `:scheme: http`; then literals without indexing, with names from the static
    // table.
    let mut block = vec![0x83, 0x86];
    put_literal_indexed(&mut block, 1, authority.as_bytes());
    put_literal_indexed(&mut block, 4, path.as_bytes());
    put_literal_indexed(&mut block, 31, b"application/grpc");
    block.push(0);
    put_string(&mut block, b"te");
    put_string(&mut block, b"trailers");
    block
}

/// A literal without indexing whose name is in the static table (RFC 7541, section 6.2.2).
fn put_literal_indexed(block: &mut Vec<u8>, name: usize, value: &[u8]) {
    put_integer(block, 0, 4, name);
    put_string(block, value);
}

/// A string without Huffman coding (RFC 7541, section 5.2).
fn put_string(block: &mut Vec<u8>, value: &[u8]) {
    put_integer(block, 0, 7, value.len());
    block.extend_from_slice(value);
}

/// RFC 7541, section 5.1.
fn put_integer(block: &mut Vec<u8>, high_bits: u8, prefix_bits: u32, mut value: usize) {
    let top = (1usize << prefix_bits) - 1;
    if value < top {
        return block.push(high_bits | value as u8);
    }
    block.push(high_bits | top as u8);
    value -= top;
    while value >= 0x80 {
        block.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    block.push(value as u8);
}

/// The header blocks of one response stream, kept as received: later blocks may refer to earlier blocks.
#[derive(Default)]
pub struct ResponseHeaders {
    blocks: Vec<Box<[u8]>>,
}

impl ResponseHeaders {
    /// False if the stream has too many blocks.
    #[must_use]
    pub fn push(&mut self, block: &[u8]) -> bool {
        self.blocks.push(block.into());
        self.blocks.len() <= MAX_BLOCKS
    }

    /// Whether the response is plainly a gRPC stream that continues.
    pub fn is_ok(&self) -> bool {
        self.blocks.first().is_some_and(|block| block.first() == Some(&STATUS_200))
    }

    /// The reason for the end of the stream, in words.
    pub fn describe(&self) -> String {
        let mut decoder = Decoder::new();
        let mut words = Vec::new();
        for block in &self.blocks {
            let Ok(headers) = decoder.decode(block) else {
                words.push("an undecodable header block".to_owned());
                break;
            };
            for (name, value) in headers {
                if matches!(&name[..], b"grpc-status" | b"grpc-message")
                    || (name == b":status" && value != b"200")
                {
                    words.push(format!(
                        "{} {}",
                        String::from_utf8_lossy(&name),
                        String::from_utf8_lossy(&value)
                    ));
                }
            }
        }
        if words.is_empty() { "no grpc-status".to_owned() } else { words.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_request_block_is_what_a_decoder_reads() {
        let path = format!("/{}", "p".repeat(300));
        let headers = Decoder::new().decode(&request_block("127.0.0.1:1", &path)).unwrap();
        let text: Vec<_> = headers
            .iter()
            .map(|(name, value)| {
                format!("{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
            })
            .collect();
        let expected = [
            ":method=POST".to_owned(),
            ":scheme=http".to_owned(),
            ":authority=127.0.0.1:1".to_owned(),
            format!(":path={path}"),
            "content-type=application/grpc".to_owned(),
            "te=trailers".to_owned(),
        ];
        assert_eq!(text, expected);
    }

    #[test]
    fn the_end_of_a_stream_is_told_in_words() {
        let mut headers = ResponseHeaders::default();
        assert!(headers.push(&[STATUS_200]));
        assert!(headers.is_ok());
        assert_eq!(headers.describe(), "no grpc-status");
        let mut trailers = vec![0];
        put_string(&mut trailers, b"grpc-status");
        put_string(&mut trailers, b"14");
        trailers.push(0);
        put_string(&mut trailers, b"grpc-message");
        put_string(&mut trailers, b"draining");
        assert!(headers.push(&trailers));
        assert_eq!(headers.describe(), "grpc-status 14, grpc-message draining");
    }

    #[test]
    fn a_status_that_is_not_200_is_not_ok() {
        let mut headers = ResponseHeaders::default();
        assert!(headers.push(&[0x8d]));
        assert!(!headers.is_ok());
        assert_eq!(headers.describe(), ":status 404");
    }

    #[test]
    fn blocks_without_end_and_blocks_that_are_none_are_refused() {
        let mut headers = ResponseHeaders::default();
        assert!((0..4).all(|_| headers.push(&[STATUS_200])));
        assert!(!headers.push(&[STATUS_200]));
        let mut headers = ResponseHeaders::default();
        assert!(headers.push(&[0xff, 0xff]));
        assert_eq!(headers.describe(), "an undecodable header block");
    }
}
