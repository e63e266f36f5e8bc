//! Compressed messages. The shared body of a response is compressed once, and each client's own fields stand
//! before it as they are: a frame of zstd may follow another one, and a block of gzip may be stored.

use std::io::Read;

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use flate2::write::DeflateEncoder;

use super::fields::Malformed;
use super::frame::{Bound, ReadError, compressed_header};
use sluice_xds::Coding;

/// Shorter bodies are not worth the bytes.
const BODY_MIN: usize = 8 << 10;

/// The fast ones. A third of the time of level 3 for a tenth more bytes, and each tier pays.
const ZSTD_LEVEL: i32 = 1;
const GZIP_LEVEL: u32 = 1;

/// The greatest window of a peer's frames, in powers of two: 8 MiB, as RFC 8878 recommends. The memory of the
/// reader is that of the window.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// The largest block of zstd (RFC 8878 §3.1.1.2), and what a stored block of gzip can hold (RFC 1951 §3.2.4).
const ZSTD_BLOCK_MAX: usize = 128 << 10;
const STORED_BLOCK_MAX: usize = 65_535;

/// A magic number, the descriptor of a frame of unknown size without a checksum, and a window of 128 KiB (RFC
/// 8878 §3.1.1).
const ZSTD_HEADER: [u8; 6] = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38];

/// A magic number, DEFLATE, and neither flags nor time nor system (RFC 1952 §2.3).
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// A compressed body, for any own fields before.
#[derive(Clone, Debug)]
pub struct CompressedBody {
    coding: Coding,
    bytes: Bytes,
    /// The checksum and the length of the plain body.
    checksum: crc32fast::Hasher,
    length: usize,
}

impl CompressedBody {
    /// `None`: the body is short, or does not become shorter.
    pub fn new(coding: Coding, body: &[u8]) -> Option<CompressedBody> {
        if body.len() < BODY_MIN {
            return None;
        }
        let mut checksum = crc32fast::Hasher::new();
        let bytes = match coding {
            Coding::Zstd => zstd::bulk::compress(body, ZSTD_LEVEL).ok()?,
            Coding::Gzip => {
                checksum.update(body);
                deflate(body).ok()?
            }
        };
        (bytes.len() < body.len()).then(|| CompressedBody {
            coding,
            bytes: bytes.into(),
            checksum,
            length: body.len(),
        })
    }

    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// A message for gRPC: a client's own part with the fields, and the shared part. `None`: the fields are
    /// too long for a block, or the message is too long for gRPC.
    pub fn message(&self, fields: &[u8]) -> Option<(Bytes, Bytes)> {
        match self.coding {
            Coding::Zstd => {
                let length = u32::try_from(fields.len()).ok().filter(|_| fields.len() <= ZSTD_BLOCK_MAX)?;
                // A raw block, the last of its frame.
                let [a, b, c, _] = (length << 3 | 1).to_le_bytes();
                let parts: [&[u8]; 3] = [&ZSTD_HEADER, &[a, b, c], fields];
                let private = parts.concat();
                let header = compressed_header(private.len() + self.bytes.len())?;
                Some(([&header[..], &private].concat().into(), self.bytes.clone()))
            }
            Coding::Gzip => {
                let length = u16::try_from(fields.len()).ok().filter(|_| fields.len() <= STORED_BLOCK_MAX)?;
                let mut checksum = crc32fast::Hasher::new();
                checksum.update(fields);
                checksum.combine(&self.checksum);
                let size = (fields.len() + self.length) as u32;
                let parts: [&[u8]; 7] = [
                    &GZIP_HEADER,
                    // A stored block, and others follow.
                    &[0],
                    &length.to_le_bytes(),
                    &(!length).to_le_bytes(),
                    fields,
                    &self.bytes,
                    &[checksum.finalize().to_le_bytes(), size.to_le_bytes()].concat(),
                ];
                let message = parts.concat();
                let header = compressed_header(message.len())?;
                // The checksum at the end depends on the client's fields, so nothing is shared.
                Some(([&header[..], &message].concat().into(), Bytes::new()))
            }
        }
    }
}

fn deflate(body: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), flate2::Compression::new(GZIP_LEVEL));
    std::io::Write::write_all(&mut encoder, body)?;
    encoder.finish()
}

/// The plain message. `max_bytes`: the limit of a plain message. What is beyond is not read.
///
/// # Errors
/// The bytes are not of this coding, or the message is too long.
pub fn decompress(coding: Coding, message: &[u8], max_bytes: usize) -> Result<Bytes, ReadError> {
    let malformed = |error: std::io::Error| Malformed(format!("a message in {}: {error}", coding.name()));
    let reader: Box<dyn Read + '_> = match coding {
        Coding::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(message).map_err(malformed)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(malformed)?;
            Box::new(decoder)
        }
        Coding::Gzip => Box::new(MultiGzDecoder::new(message)),
    };
    let mut plain = Vec::new();
    reader.take(max_bytes as u64 + 1).read_to_end(&mut plain).map_err(malformed)?;
    ReadError::check(Bound::ResponseBytes, plain.len(), max_bytes)?;
    Ok(plain.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::ResponseReader;
    use crate::frame::HEADER_LEN;

    fn body() -> Vec<u8> {
        (0..5_000_u32).flat_map(|number| format!("cluster-{} ", number % 700).into_bytes()).collect()
    }

    /// The parts of a message as HTTP carries them.
    fn written(body: &CompressedBody, fields: &[u8]) -> Vec<u8> {
        let (private, shared) = body.message(fields).unwrap();
        [private, shared].concat()
    }

    #[test]
    fn a_compressed_body_is_read_with_any_fields_before() {
        let plain = body();
        for coding in Coding::ALL {
            let body = CompressedBody::new(coding, &plain).unwrap();
            assert!(body.bytes() * 5 < plain.len(), "{coding:?}: {} of {}", body.bytes(), plain.len());
            for length in [0, 1, 40, 255, 256, 60_000] {
                let fields = vec![7; length];
                let mut reader = ResponseReader::default();
                reader.accept(Some(coding));
                reader.push(written(&body, &fields).into());
                let message = reader.next().unwrap().unwrap();
                assert!(reader.is_compressed());
                let read = decompress(coding, &message, usize::MAX >> 1).unwrap();
                assert_eq!(read, [fields, plain.clone()].concat(), "{coding:?} {length}");
            }
        }
    }

    /// Other programs read the same bytes.
    #[test]
    fn the_forms_are_those_of_the_standards() {
        let plain = body();
        let message =
            |coding| written(&CompressedBody::new(coding, &plain).unwrap(), b"fields")[HEADER_LEN..].to_vec();
        let expected = [&b"fields"[..], &plain].concat();
        assert_eq!(zstd::stream::decode_all(&*message(Coding::Zstd)).unwrap(), expected);
        // One member: C-core reads no second one.
        let mut single = Vec::new();
        flate2::read::GzDecoder::new(&*message(Coding::Gzip)).read_to_end(&mut single).unwrap();
        assert_eq!(single, expected);
    }

    #[test]
    fn short_bodies_and_those_that_do_not_shrink_stay_as_they_are() {
        let mut state = 1_u64;
        let noise: Vec<u8> = (0..20_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
            .collect();
        for coding in Coding::ALL {
            assert!(CompressedBody::new(coding, &body()[..BODY_MIN - 1]).is_none());
            assert!(CompressedBody::new(coding, &noise).is_none());
            assert!(CompressedBody::new(coding, &body()).unwrap().message(&vec![0; 1 << 20]).is_none());
        }
    }

    /// A bomb is read up to the limit, and not further (FD20).
    #[test]
    fn fd20_a_bomb_ends_at_the_limit() {
        let zeros = vec![0; 64 << 20];
        for coding in Coding::ALL {
            let bomb = written(&CompressedBody::new(coding, &zeros).unwrap(), b"");
            assert!(bomb.len() < 400 << 10, "{coding:?}: {}", bomb.len());
            let refused = decompress(coding, &bomb[HEADER_LEN..], 1 << 20);
            let limit = Bound::ResponseBytes;
            let (value, allowed) = ((1 << 20) + 1, 1 << 20);
            assert_eq!(refused, Err(ReadError::OverLimit { limit, value, allowed }), "{coding:?}");
            let cut = decompress(coding, &bomb[HEADER_LEN..bomb.len() / 2], usize::MAX >> 1);
            assert!(matches!(cut, Err(ReadError::Malformed(_))), "{coding:?}");
        }
        // A frame that asks for a window of 256 MiB gets no memory.
        let greedy = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x90, 0x0b, 0x00, 0x00, 0x00];
        assert!(matches!(decompress(Coding::Zstd, &greedy, 1 << 20), Err(ReadError::Malformed(_))));
    }
}
