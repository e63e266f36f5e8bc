#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

fn framed(message: &[u8]) -> Vec<u8> {
    [&header(message.len()).unwrap()[..], message].concat()
}

#[test]
fn messages_come_out_whole_however_they_are_cut() {
    let messages: [&[u8]; 4] = [b"one", b"", &[7; 5000], b"end"];
    let body: Vec<u8> = messages.iter().flat_map(|message| framed(message)).collect();
    for size in [1, 2, 7, 1400, body.len()] {
        let mut reader = ResponseReader::default();
        let mut read = Vec::new();
        for chunk in body.chunks(size) {
            reader.push(Bytes::copy_from_slice(chunk));
            for message in &mut reader {
                read.push(message.unwrap());
            }
        }
        assert_eq!(read, messages, "in chunks of {size}");
        assert_eq!(reader.finish(), Ok(()));
    }
}

#[test]
fn memory_grows_with_what_arrives_not_with_what_is_announced() {
    let mut gather = Gather::new(200 << 20);
    assert!(gather.read(&mut Bytes::from_static(&[0; 100])).is_none());
    assert!(gather.bytes.capacity() < 1000);

    let mut gather = Gather::new(1000);
    let mut chunk = Bytes::from_static(&[0; 700]);
    assert!(gather.read(&mut chunk).is_none());
    let mut chunk = Bytes::from_static(&[0; 400]);
    let message = gather.read(&mut chunk).expect("whole");
    assert_eq!((message.len(), message.capacity(), chunk.len()), (1000, 1000, 100), "the rest is left");
    assert_eq!(gather.bytes.capacity(), 0);
}

#[test]
fn a_response_is_refused_for_its_size_its_flag_or_its_end() {
    let refused = |max, body: &[u8]| {
        let mut reader = ResponseReader::new(max);
        reader.push(Bytes::copy_from_slice(body));
        let error = reader.next().map(|message| message.expect_err("refused"));
        assert_eq!(reader.next(), None);
        error.or_else(|| reader.finish().err())
    };
    let limit = Bound::ResponseBytes;
    assert_eq!(refused(4, &framed(b"12345")), Some(ReadError::OverLimit { limit, found: 5, allowed: 4 }));
    assert_eq!(refused(9, &[1, 0, 0, 0, 0]), Some(ReadError::Compressed));
    assert_eq!(refused(9, &framed(b"12345")[..7]), Some(ReadError::Truncated));
}
