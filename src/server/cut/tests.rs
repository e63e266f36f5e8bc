use super::*;

fn frame(frame_type: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![a, b, c, frame_type, flags, 0, 0, 0, stream];
    frame.extend_from_slice(payload);
    frame
}

/// The output for a connection that receives `input` in reads of `read` bytes, with a buffer of `room`
/// bytes, and the number of pauses.
fn through(cutter: &mut Cutter, input: &[u8], read: usize, room: usize) -> (Vec<u8>, usize) {
    let (mut output, mut pauses) = (Vec::new(), 0);
    for bytes in input.chunks(read.min(room)) {
        let mut storage = vec![0; room];
        let mut buffer = ReadBuf::new(&mut storage);
        buffer.put_slice(bytes);
        cutter.take(&mut buffer, 0);
        output.extend_from_slice(buffer.filled());
        loop {
            let is_paused = cutter.take_pause();
            pauses += usize::from(is_paused);
            let mut storage = vec![0; room];
            let mut buffer = ReadBuf::new(&mut storage);
            if !cutter.give(&mut buffer) && !is_paused {
                break;
            }
            output.extend_from_slice(buffer.filled());
        }
        let ahead = cutter.kept.as_ref().map_or(0, |kept| kept.ahead.len());
        assert!(ahead <= read + HEAD_BYTES, "no more than one read waits");
    }
    (output, pauses)
}

type Frame = (u8, u8, u8, Vec<u8>);

fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let (head, rest) = bytes.split_at(HEAD_BYTES);
        let (payload, rest) = rest.split_at(length_of(head));
        frames.push((head[3], head[4], head[8], payload.to_vec()));
        bytes = rest;
    }
    frames
}

#[test]
fn long_data_comes_out_in_pieces_and_all_else_as_it_was() {
    let long: Vec<u8> = (0..16_384u32).map(|at| (at % 251) as u8).collect();
    let input = [
        frame(0x1, 0x4, 1, b"headers"),
        frame(DATA, 0, 1, &long),
        frame(DATA, END_STREAM, 1, &long[..10_000]),
        frame(DATA, 0, 3, b"ack"),
        frame(DATA, PADDED, 3, &long[..9000]),
        frame(0x6, 0, 0, b"pingpong"),
        frame(DATA, 0, 3, &long[..8193]),
    ];
    let plain = input.concat();
    for (read, room) in [(1, 1), (1, 8192), (3, 8192), (9, 20), (100, 4096), (8192, 8192), (100_000, 100_000)]
    {
        let (output, pauses) = through(&mut Cutter::default(), &plain, read, room);
        assert_eq!(pauses, 4 + 2 + 2, "after each piece but the last of a frame");
        let frames = frames(&output);
        let lengths: Vec<_> = frames.iter().map(|(_, _, _, payload)| payload.len()).collect();
        let expected = [7, 3277, 3277, 3277, 3277, 3276, 3334, 3333, 3333, 3, 9000, 8, 2731, 2731, 2731];
        assert_eq!(lengths, expected, "reads of {read} into {room}");
        let flags: Vec<_> = frames.iter().map(|(_, flags, _, _)| *flags).collect();
        assert_eq!(flags, [0x4, 0, 0, 0, 0, 0, 0, 0, END_STREAM, 0, PADDED, 0, 0, 0, 0]);
        let of_first: Vec<u8> = frames
            .iter()
            .filter(|frame| (frame.0, frame.2) == (DATA, 1))
            .flat_map(|frame| frame.3.clone())
            .collect();
        assert_eq!(of_first, [&long[..], &long[..10_000]].concat());
    }
}

#[test]
fn long_frames_that_keep_coming_pass_as_they_are() {
    let long = vec![7; 16_384];
    let count = LONG_BYTES_CUT as usize / long.len();
    let input = frame(DATA, 0, 1, &long).repeat(count + 3);
    for (read, room) in [(100, 8192), (8192, 8192), (100_000, 100_000)] {
        let frames = frames(&through(&mut Cutter::default(), &input, read, room).0);
        assert_eq!(frames.len(), 5 * count + 3, "reads of {read} into {room}");
        let bytes: usize = frames.iter().map(|(_, _, _, payload)| payload.len()).sum();
        assert_eq!(bytes, (count + 3) * long.len());
        assert!(frames[5 * count..].iter().all(|(_, _, _, payload)| payload.len() == long.len()));
    }
}

/// A client with load reports, and one that repeats its node in each of many requests: once the frames of the
/// latter have made the buffer grow, they are all read in place.
#[test]
fn long_frames_are_cut_for_ever_if_they_are_few() {
    for (every, is_cut) in [(10, true), (1, false)] {
        let mut cutter = Cutter::default();
        let report = [frame(DATA, 0, 1, &[7; 16_384]), frame(DATA, 0, 1, &[7; 14_000])].concat();
        let mut last = Vec::new();
        for number in 0..100 {
            cutter.leak(|| Duration::from_secs(every * number));
            last = frames(&through(&mut cutter, &report, 8192, 8192).0);
        }
        let pieces = if is_cut { 5 + 4 } else { 2 };
        assert_eq!(last.len(), pieces, "each {every} s");
    }
}

/// Whatever lies before a piece, the buffer of the connection keeps its size. `BytesMut` grows by rules
/// of its own, which this test watches.
#[test]
fn pieces_never_grow_the_buffer_of_a_connection() {
    use bytes::{Buf, BytesMut};

    let report = [frame(DATA, 0, 1, &[7; 16_384]), frame(DATA, 0, 1, &[7; 14_000])].concat();
    for before in 0..BUFFER_BYTES {
        let mut cutter = Cutter::default();
        let mut buffer = BytesMut::with_capacity(BUFFER_BYTES);
        // Short frames, which are gone.
        buffer.resize(before, 0);
        drop(buffer.split_to(before));
        let mut input = report.as_slice();
        let mut most = 0;
        while !input.is_empty() || cutter.kept.is_some() {
            cutter.take_pause();
            buffer.reserve(1);
            let mut storage = vec![0; buffer.capacity() - buffer.len()];
            let mut read = ReadBuf::new(&mut storage);
            while !cutter.give(&mut read) && !input.is_empty() {
                let count = input.len().min(read.remaining());
                read.put_slice(&input[..count]);
                input.advance(count);
                cutter.take(&mut read, 0);
                if !read.filled().is_empty() {
                    break;
                }
            }
            buffer.extend_from_slice(read.filled());
            while let Some(length) = buffer.get(..HEAD_BYTES).map(|head| HEAD_BYTES + length_of(head)) {
                buffer.reserve(length.saturating_sub(buffer.len()));
                most = most.max(buffer.capacity());
                if buffer.len() < length {
                    break;
                }
                drop(buffer.split_to(length));
            }
        }
        assert!(most <= BUFFER_BYTES, "{most} bytes after {before}");
    }
}

#[test]
fn short_frames_pass_where_they_lie() {
    let mut storage = [0; 200];
    let mut buffer = ReadBuf::new(&mut storage);
    let mut cutter = Cutter::default();
    let input = [frame(DATA, 0, 1, b"ack"), frame(0x8, 0, 0, &[0, 0, 0, 9])].concat();
    buffer.put_slice(&input);
    cutter.take(&mut buffer, 0);
    assert_eq!(buffer.filled(), input);
    assert!(cutter.kept.is_none());
}
