//! Makes the `:authority` of every call readable for h2 (ADR 64).
//!
//! The relay has no use for the authority, and h2 answers each call with PROTOCOL_ERROR whose authority is
//! none by the rules of URIs. Some clients send such a text: Envoy sends the name of its cluster unless it is
//! told otherwise (`outbound|18000||host`), gRPC's C++ core, and so Python and Ruby, the percent-encoded path
//! of an absolute `unix:` address, and grpc-java is reported to send the path itself (grpc/grpc#38142,
//! hyperium/h2#487). So each octet becomes an `X` in place, before h2 sees the text. In Huffman code the
//! letter has eight bits, so the text keeps its length here.
//!
//! A text stays in its code, because h2 has a price for each. It decodes Huffman code into a page that a
//! client without such a text never needs. It keeps a plain text of the table as a part of the bytes read,
//! and with it the connection's first buffer of 8 KiB, which a client without such a text gets back.
//!
//! The tables of HPACK (RFC 7541) on both sides then differ by the length of the text. A text in Huffman code
//! is nearly always longer than its code, so the relay keeps an entry that the client has dropped, and no
//! client refers to such an entry.
//!
//! The filter refuses nothing. It stops at bytes that break a rule, and leaves the error to h2.

const HEAD_BYTES: u8 = 9;
const HEADERS: u8 = 0x1;
const CONTINUATION: u8 = 0x9;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
const PRIORITY_BYTES: u32 = 5;

const NAME: &[u8] = b":authority";
/// The same in Huffman code.
const NAME_IN_HUFFMAN: &[u8] = b"\xb8\x3b\x53\x39\xec\x32\x7d\x7f";
/// The mark of a text in Huffman code, in the first byte of its length.
const HUFFMAN: u8 = 0x80;
/// The letter `X` in Huffman code (RFC 7541, appendix B).
const X_IN_HUFFMAN: u8 = 0xfc;
/// The entry of HPACK's static table with this name.
const NAME_INDEX: u8 = 1;

/// Follows one connection from its first frame on.
#[derive(Debug, Default)]
pub(super) struct AuthorityFilter {
    /// The received part of the next head.
    head: [u8; HEAD_BYTES as usize],
    head_bytes: u8,
    /// The frame's first byte has the length of the padding.
    has_pad_length: bool,
    /// Bytes of the priority that are still to pass.
    priority: u32,
    /// Bytes of the field block fragment that are still to pass.
    fragment: u32,
    /// Bytes until the next head, after the fragment.
    skip: u32,
    fields: HeaderFields,
    /// The bytes broke a rule. Nothing is looked at any more.
    is_lost: bool,
}

/// The place in a field block, by RFC 7541 §6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HeaderFields {
    #[default]
    Start,
    /// In an integer that needs no value: an index above those of the static table, or a size of the table.
    Integer {
        then: AfterInteger,
    },
    Length {
        text: HeaderText,
    },
    /// In a length of more than one byte.
    LongLength {
        text: HeaderText,
        is_huffman: bool,
        length: u32,
        shift: u8,
    },
    Text {
        text: HeaderText,
        is_huffman: bool,
        left: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterInteger {
    Start,
    Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeaderText {
    /// A name that equals [`NAME`] so far, by this many bytes; `None` after a difference.
    Name(Option<u8>),
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
            let padding = u32::from(bytes[0]);
            self.has_pad_length = false;
            self.is_lost = padding > self.fragment;
            self.fragment = self.fragment.saturating_sub(padding);
            self.skip = padding;
            1
        } else if self.priority > 0 {
            pass(&mut self.priority, bytes.len())
        } else if self.fragment > 0 {
            let most = bytes.len().min(self.fragment as usize);
            let taken = self.field(&mut bytes[..most]);
            self.fragment -= taken as u32;
            taken
        } else if self.skip > 0 {
            pass(&mut self.skip, bytes.len())
        } else {
            let free = &mut self.head[usize::from(self.head_bytes)..];
            let taken = free.len().min(bytes.len());
            free[..taken].copy_from_slice(&bytes[..taken]);
            self.head_bytes += taken as u8;
            if self.head_bytes == HEAD_BYTES {
                self.head_bytes = 0;
                self.begin_frame();
            }
            taken
        }
    }

    fn begin_frame(&mut self) {
        let [a, b, c, frame_type, flags, ..] = self.head;
        let length = u32::from_be_bytes([0, a, b, c]);
        if !matches!(frame_type, HEADERS | CONTINUATION) {
            self.skip = length;
            return;
        }
        let is_headers = frame_type == HEADERS;
        self.has_pad_length = is_headers && flags & PADDED != 0;
        self.priority = if is_headers && flags & PRIORITY != 0 { PRIORITY_BYTES } else { 0 };
        let before = u32::from(self.has_pad_length) + self.priority;
        self.is_lost = before > length;
        self.fragment = length.saturating_sub(before);
        if is_headers {
            self.fields = HeaderFields::Start;
        }
    }

    /// Takes the next bytes of a field block: all of a text, or else one.
    fn field(&mut self, bytes: &mut [u8]) -> usize {
        if let HeaderFields::Text { text, is_huffman, left } = self.fields {
            let taken = bytes.len().min(left as usize);
            let text = text.after(&mut bytes[..taken], is_huffman);
            self.fields = HeaderFields::text(text, is_huffman, left - taken as u32);
            return taken;
        }
        match self.fields.after(bytes[0]) {
            Some(fields) => self.fields = fields,
            None => self.is_lost = true,
        }
        1
    }
}

/// Takes as much of what is still to pass as there is.
fn pass(left: &mut u32, bytes: usize) -> usize {
    let taken = bytes.min(*left as usize);
    *left -= taken as u32;
    taken
}

impl HeaderFields {
    /// The place after a byte outside texts; `None` for a length that no block has.
    fn after(self, byte: u8) -> Option<HeaderFields> {
        Some(match self {
            HeaderFields::Start => HeaderFields::of_first(byte),
            HeaderFields::Integer { .. } if byte & 0x80 != 0 => self,
            HeaderFields::Integer { then: AfterInteger::Start } => HeaderFields::Start,
            HeaderFields::Integer { then: AfterInteger::Value } => HeaderFields::value(false),
            HeaderFields::Length { text } => {
                let (is_huffman, length) = (byte & HUFFMAN != 0, u32::from(byte & 0x7f));
                match length {
                    0x7f => HeaderFields::LongLength { text, is_huffman, length, shift: 0 },
                    _ => HeaderFields::text(text, is_huffman, length),
                }
            }
            HeaderFields::LongLength { text, is_huffman, length, shift } => {
                let length = length + (u32::from(byte & 0x7f) << shift);
                match byte & 0x80 {
                    0 => HeaderFields::text(text, is_huffman, length),
                    // More than 2 MiB.
                    _ if shift >= 14 => return None,
                    _ => HeaderFields::LongLength { text, is_huffman, length, shift: shift + 7 },
                }
            }
            HeaderFields::Text { .. } => return None,
        })
    }

    /// By the first byte of a field, or of a new size of the table.
    fn of_first(byte: u8) -> HeaderFields {
        let (mask, then) = match byte {
            0x80.. => (0x7f, AfterInteger::Start),
            0x40..0x80 => (0x3f, AfterInteger::Value),
            0x20..0x40 => (0x1f, AfterInteger::Start),
            _ => (0x0f, AfterInteger::Value),
        };
        let index = byte & mask;
        match then {
            _ if index == mask => HeaderFields::Integer { then },
            AfterInteger::Start => HeaderFields::Start,
            AfterInteger::Value if index == 0 => HeaderFields::Length { text: HeaderText::Name(Some(0)) },
            AfterInteger::Value => HeaderFields::value(index == NAME_INDEX),
        }
    }

    fn value(is_authority: bool) -> HeaderFields {
        HeaderFields::Length { text: HeaderText::Value { is_authority } }
    }

    fn text(text: HeaderText, is_huffman: bool, left: u32) -> HeaderFields {
        if left > 0 { HeaderFields::Text { text, is_huffman, left } } else { text.next(is_huffman) }
    }
}

/// [`NAME`] in this code.
fn name(is_huffman: bool) -> &'static [u8] {
    if is_huffman { NAME_IN_HUFFMAN } else { NAME }
}

impl HeaderText {
    /// The text after these bytes. Changes the octets of an authority.
    fn after(self, bytes: &mut [u8], is_huffman: bool) -> HeaderText {
        match self {
            HeaderText::Name(Some(equal)) => {
                let rest = &name(is_huffman)[usize::from(equal)..];
                HeaderText::Name(rest.starts_with(bytes).then_some(equal + bytes.len().min(rest.len()) as u8))
            }
            HeaderText::Value { is_authority: true } => {
                bytes.fill(if is_huffman { X_IN_HUFFMAN } else { b'X' });
                self
            }
            HeaderText::Name(None) | HeaderText::Value { is_authority: false } => self,
        }
    }

    /// The place after the whole text.
    fn next(self, is_huffman: bool) -> HeaderFields {
        match self {
            HeaderText::Name(equal) => {
                HeaderFields::value(equal.is_some_and(|equal| usize::from(equal) == name(is_huffman).len()))
            }
            HeaderText::Value { .. } => HeaderFields::Start,
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
        marked(0, text.as_bytes())
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

    const GIVEN: &str = "outbound|18000||b@%2F:1:é[";

    /// The marks of both codes, and the letter in them.
    const TAKEN: [(u8, u8); 2] = [(0, b'X'), (HUFFMAN, X_IN_HUFFMAN)];

    /// A text of these octets with this mark.
    fn marked(mark: u8, octets: &[u8]) -> Vec<u8> {
        [&[mark | u8::try_from(octets.len()).unwrap()], octets].concat()
    }

    /// A call with this literal `:authority`, with other fields around.
    fn call(name: &[u8], authority: &[u8]) -> Vec<u8> {
        let path = [&[0x04][..], &text("/envoy%2F")].concat();
        let long_index = [&[0x0f, 0x80, 0x01][..], &text("%/")].concat();
        let resize = [0x3f, 0xe1, 0x1f];
        let other =
            [&[0x40][..], &text(":authoritx"), &text("/%"), &[0x10], &text(":authority%"), &text("/")];
        [&resize[..], &[0x83, 0xff, 0x00], &path, &long_index, name, authority, &other.concat()].concat()
    }

    fn names() -> [Vec<u8>; 6] {
        let literal = |first: u8| [&[first][..], &text(":authority")].concat();
        let in_huffman = |first: u8| [&[first, HUFFMAN | 8][..], NAME_IN_HUFFMAN].concat();
        [vec![0x41], vec![0x01], literal(0x40), literal(0x10), in_huffman(0x40), in_huffman(0x10)]
    }

    #[test]
    fn octets_are_replaced_in_the_authority_alone() {
        for name in names() {
            let of = |authority: &[u8]| {
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
            for (mark, letter) in TAKEN {
                let taken = marked(mark, &vec![letter; GIVEN.len()]);
                assert_becomes(&of(&marked(mark, GIVEN.as_bytes())), &of(&taken));
            }
        }
    }

    #[test]
    fn a_long_value_is_followed_to_its_end() {
        let long = |mark: u8, octet: u8| {
            // 127 and 173: a length of 300.
            let length = [mark | 0x7f, 0x80 | 45, 1];
            frame(HEADERS, 0x4, &[&[0x41][..], &length, &[octet; 300], &[0x84]].concat())
        };
        for (mark, letter) in TAKEN {
            assert_becomes(&long(mark, b'%'), &long(mark, letter));
        }
    }

    #[test]
    fn other_texts_stay() {
        let call =
            |text: &[u8]| frame(HEADERS, 0x4, &[&[0x04, 0x82, b'%', b'/', 0x01], text, &[0x82]].concat());
        for (mark, letter) in TAKEN {
            assert_becomes(&call(&marked(mark, b"%/")), &call(&marked(mark, &[letter; 2])));
            assert_becomes(&call(&[mark]), &call(&[mark]));
        }
    }

    #[test]
    fn broken_frames_pass_unchanged() {
        let padding = frame(HEADERS, PADDED | 0x4, &[9, 0x41, 1, b'%']);
        let priority = frame(HEADERS, PRIORITY | 0x4, &[0x41, 1, b'%']);
        let endless = frame(HEADERS, 0x4, &[0x41, 0xff, 0xff, 0xff, 0xff, 0xff, b'%', b'/']);
        for input in [padding, priority, endless] {
            let input = [&input[..], b"%/"].concat();
            assert_becomes(&input, &input);
        }
    }
}
