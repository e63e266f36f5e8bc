//! Makes the `:authority` of calls on unix sockets readable for h2.
//!
//! gRPC's C++ core, and so Python and Ruby, sends the percent-encoded path of an absolute `unix:` address; grpc-java is
//! reported to send the path itself (grpc/grpc#38142, hyperium/h2#487). h2 takes neither `%` nor `/` in an authority, and
//! would answer each call with PROTOCOL_ERROR. On a unix socket the relay has no use for the authority. So the two octets
//! become `-` in place, before h2 sees them: the value keeps its length, and the tables of HPACK (RFC 7541) on both sides
//! keep equal sizes.
//!
//! Values in Huffman code pass unchanged: gRPC's C++ core sends plain text. The filter refuses nothing. It stops at bytes
//! that break a rule, and leaves the error to h2.

const HEAD_BYTES: usize = 9;
const HEADERS: u8 = 0x1;
const CONTINUATION: u8 = 0x9;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
const PRIORITY_BYTES: usize = 5;

const NAME: &[u8] = b":authority";
/// The entry of HPACK's static table with this name.
const NAME_INDEX: u8 = 1;

/// Follows one connection from its first frame on.
#[derive(Debug, Default)]
pub(super) struct AuthorityFilter {
    /// The received part of the next head.
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    /// The frame's first byte has the length of the padding.
    has_pad_length: bool,
    /// Bytes of the priority that are still to pass.
    priority: usize,
    /// Bytes of the field block fragment that are still to pass.
    fragment: usize,
    /// Bytes until the next head, after the fragment.
    skip: usize,
    fields: Fields,
    /// The bytes broke a rule. Nothing is looked at any more.
    is_lost: bool,
}

/// The place in a field block, by RFC 7541 §6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fields {
    #[default]
    Start,
    /// In an integer that needs no value: an index above those of the static table, or a size of the table.
    Integer {
        then: AfterInteger,
    },
    Length {
        text: Text,
    },
    /// In a length of more than one byte.
    LongLength {
        text: Text,
        is_huffman: bool,
        length: usize,
        shift: u32,
    },
    Text {
        text: Text,
        is_huffman: bool,
        left: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterInteger {
    Start,
    Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    /// A name that equals [`NAME`] so far, by this many bytes; `None` after a difference.
    Name(Option<usize>),
    Value {
        is_authority: bool,
    },
}

impl AuthorityFilter {
    /// Follows the next bytes of the connection, and changes the octets of authorities in place.
    pub(super) fn pass(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() && !self.is_lost {
            let taken = self.step(bytes);
            bytes = &mut bytes[taken..];
        }
    }

    /// Returns the number of bytes that have passed.
    fn step(&mut self, bytes: &mut [u8]) -> usize {
        if self.has_pad_length {
            let padding = usize::from(bytes[0]);
            self.has_pad_length = false;
            self.is_lost = padding > self.fragment;
            self.fragment = self.fragment.saturating_sub(padding);
            self.skip = padding;
            1
        } else if self.priority > 0 {
            let taken = self.priority.min(bytes.len());
            self.priority -= taken;
            taken
        } else if self.fragment > 0 {
            let most = self.fragment.min(bytes.len());
            let taken = self.field(&mut bytes[..most]);
            self.fragment -= taken;
            taken
        } else if self.skip > 0 {
            let taken = self.skip.min(bytes.len());
            self.skip -= taken;
            taken
        } else {
            let taken = (HEAD_BYTES - self.head_bytes).min(bytes.len());
            self.head[self.head_bytes..self.head_bytes + taken].copy_from_slice(&bytes[..taken]);
            self.head_bytes += taken;
            if self.head_bytes == HEAD_BYTES {
                self.head_bytes = 0;
                self.begin_frame();
            }
            taken
        }
    }

    fn begin_frame(&mut self) {
        let [a, b, c, frame_type, flags, ..] = self.head;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        if !matches!(frame_type, HEADERS | CONTINUATION) {
            self.skip = length;
            return;
        }
        let is_headers = frame_type == HEADERS;
        self.has_pad_length = is_headers && flags & PADDED != 0;
        self.priority = if is_headers && flags & PRIORITY != 0 { PRIORITY_BYTES } else { 0 };
        let before = usize::from(self.has_pad_length) + self.priority;
        self.is_lost = before > length;
        self.fragment = length.saturating_sub(before);
        if is_headers {
            self.fields = Fields::Start;
        }
    }

    /// Takes the next bytes of a field block: all of a text, or else one.
    fn field(&mut self, bytes: &mut [u8]) -> usize {
        if let Fields::Text { text, is_huffman, left } = self.fields {
            let taken = left.min(bytes.len());
            let (text, left) = (text.after(&mut bytes[..taken], is_huffman), left - taken);
            self.fields = if left > 0 { Fields::Text { text, is_huffman, left } } else { text.next() };
            return taken;
        }
        match self.fields.after(bytes[0]) {
            Some(fields) => self.fields = fields,
            None => self.is_lost = true,
        }
        1
    }
}

impl Fields {
    /// The place after a byte outside texts; `None` for a length that no block has.
    fn after(self, byte: u8) -> Option<Fields> {
        Some(match self {
            Fields::Start => Fields::of_first(byte),
            Fields::Integer { .. } if byte & 0x80 != 0 => self,
            Fields::Integer { then: AfterInteger::Start } => Fields::Start,
            Fields::Integer { then: AfterInteger::Value } => Fields::value(false),
            Fields::Length { text } => {
                let (is_huffman, length) = (byte & 0x80 != 0, usize::from(byte & 0x7f));
                match length {
                    0x7f => Fields::LongLength { text, is_huffman, length, shift: 0 },
                    _ => Fields::text(text, is_huffman, length),
                }
            }
            Fields::LongLength { text, is_huffman, length, shift } => {
                let length = length + (usize::from(byte & 0x7f) << shift);
                match byte & 0x80 {
                    0 => Fields::text(text, is_huffman, length),
                    // More than 2 MiB.
                    _ if shift >= 14 => return None,
                    _ => Fields::LongLength { text, is_huffman, length, shift: shift + 7 },
                }
            }
            Fields::Text { .. } => return None,
        })
    }

    /// By the first byte of a field, or of a new size of the table.
    fn of_first(byte: u8) -> Fields {
        let (mask, then) = match byte {
            0x80.. => (0x7f, AfterInteger::Start),
            0x40..0x80 => (0x3f, AfterInteger::Value),
            0x20..0x40 => (0x1f, AfterInteger::Start),
            _ => (0x0f, AfterInteger::Value),
        };
        let index = byte & mask;
        match then {
            _ if index == mask => Fields::Integer { then },
            AfterInteger::Start => Fields::Start,
            AfterInteger::Value if index == 0 => Fields::Length { text: Text::Name(Some(0)) },
            AfterInteger::Value => Fields::value(index == NAME_INDEX),
        }
    }

    fn value(is_authority: bool) -> Fields {
        Fields::Length { text: Text::Value { is_authority } }
    }

    fn text(text: Text, is_huffman: bool, left: usize) -> Fields {
        if left > 0 { Fields::Text { text, is_huffman, left } } else { text.next() }
    }
}

impl Text {
    /// The text after these bytes. Changes the octets of an authority.
    fn after(self, bytes: &mut [u8], is_huffman: bool) -> Text {
        match self {
            Text::Name(Some(equal)) if !is_huffman => {
                let is_equal = NAME.get(equal..equal + bytes.len()).is_some_and(|part| part == &*bytes);
                Text::Name(is_equal.then_some(equal + bytes.len()))
            }
            Text::Name(_) => Text::Name(None),
            Text::Value { is_authority } => {
                if is_authority && !is_huffman {
                    bytes
                        .iter_mut()
                        .filter(|byte| matches!(**byte, b'%' | b'/'))
                        .for_each(|byte| *byte = b'-');
                }
                self
            }
        }
    }

    /// The place after the whole text.
    fn next(self) -> Fields {
        match self {
            Text::Name(equal) => Fields::value(equal == Some(NAME.len())),
            Text::Value { .. } => Fields::Start,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(frame_type: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&[a, b, c, frame_type, flags, 0, 0, 0, 1][..], payload].concat()
    }

    fn text(text: &str) -> Vec<u8> {
        [&[u8::try_from(text.len()).unwrap()][..], text.as_bytes()].concat()
    }

    /// In segments of each length from 1 on.
    #[track_caller]
    fn assert_becomes(input: &[u8], expected: &[u8]) {
        for segment in 1..=input.len() {
            let (mut filter, mut output) = (AuthorityFilter::default(), input.to_vec());
            output.chunks_mut(segment).for_each(|bytes| filter.pass(bytes));
            assert_eq!(output, expected, "in segments of {segment}");
        }
    }

    const GIVEN: &str = "%2Ftmp%2Fa/b.sock";
    const TAKEN: &str = "-2Ftmp-2Fa-b.sock";

    /// A call with this literal `:authority`, with other fields around.
    fn call(name: &[u8], authority: &str) -> Vec<u8> {
        let path = [&[0x04][..], &text("/envoy%2F")].concat();
        let long_index = [&[0x0f, 0x80, 0x01][..], &text("%/")].concat();
        let resize = [0x3f, 0xe1, 0x1f];
        let other =
            [&[0x40][..], &text(":authoritx"), &text("/%"), &[0x10], &text(":authority%"), &text("/")];
        [&resize[..], &[0x83, 0xff, 0x00], &path, &long_index, name, &text(authority), &other.concat()]
            .concat()
    }

    fn names() -> [Vec<u8>; 4] {
        let literal = |first: u8| [&[first][..], &text(":authority")].concat();
        [vec![0x41], vec![0x01], literal(0x40), literal(0x10)]
    }

    #[test]
    fn octets_that_no_authority_has_are_replaced_in_the_authority_alone() {
        for name in names() {
            let of = |authority| {
                let block = call(&name, authority);
                let (first, second) = block.split_at(block.len() / 2);
                let padded = [&[3, 0, 0, 0, 1, 7][..], &block, b"/%/"].concat();
                [
                    frame(0x0, 0, b"%/%/"),
                    frame(HEADERS, 0x4, &block),
                    frame(HEADERS, PADDED | PRIORITY | 0x4, &padded),
                    frame(HEADERS, 0, first),
                    frame(CONTINUATION, 0x4, second),
                    frame(0x6, 0, b"%%%%////"),
                ]
                .concat()
            };
            assert_becomes(&of(GIVEN), &of(TAKEN));
        }
    }

    #[test]
    fn a_long_value_is_followed_to_its_end() {
        let of = |octet: &str| {
            // 127 and 173: a length of 300.
            let length = [0x7f, 0x80 | 45, 1];
            frame(HEADERS, 0x4, &[&[0x41][..], &length, octet.repeat(300).as_bytes(), &[0x84]].concat())
        };
        assert_becomes(&of("/"), &of("-"));
    }

    #[test]
    fn huffman_code_and_broken_frames_pass_unchanged() {
        let huffman = frame(HEADERS, 0x4, &[0x41, 0x82, b'%', b'/']);
        let padding = frame(HEADERS, PADDED | 0x4, &[9, 0x41, 1, b'%']);
        let priority = frame(HEADERS, PRIORITY | 0x4, &[0x41, 1, b'%']);
        let endless = frame(HEADERS, 0x4, &[0x41, 0x7f, 0xff, 0xff, 0xff, 0xff, b'%', b'/']);
        for input in [huffman, padding, priority, endless] {
            let input = [&input[..], b"%/"].concat();
            assert_becomes(&input, &input);
        }
    }
}
