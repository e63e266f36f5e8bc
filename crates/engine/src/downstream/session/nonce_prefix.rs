//! The form of nonces on the wire.

use arrayvec::ArrayString;

/// The longest number after a prefix.
const DIGITS_MAX: usize = 20;

/// The start of all nonces of one stream, drawn for the stream, so that no nonce of another stream is valid
/// (STR-5, RLY-33). Every response to every client has a nonce: the prefix is spelled once.
#[derive(Debug)]
pub(super) struct NoncePrefix(ArrayString<9>);

impl NoncePrefix {
    /// Eight hexadecimal digits and a hyphen.
    pub fn new(drawn: u32) -> NoncePrefix {
        let mut text = ArrayString::new();
        for nibble in (0..8).rev() {
            text.push(char::from(b"0123456789abcdef"[(drawn >> (4 * nibble)) as usize & 15]));
        }
        text.push('-');
        NoncePrefix(text)
    }

    pub fn spell(&self, nonce: u64) -> String {
        let mut text = String::with_capacity(self.0.len() + DIGITS_MAX);
        text.push_str(&self.0);
        text.push_str(itoa::Buffer::new().format(nonce));
        text
    }

    /// The number of a nonce; `None` if the stream has no such nonce.
    pub fn parse(&self, text: &str) -> Option<u64> {
        text.strip_prefix(&*self.0)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::NoncePrefix;

    #[test]
    fn str_5_a_nonce_is_valid_on_its_stream_only() {
        for drawn in [0, 1, 0x00ab_00cd, 0x1234_5678, u32::MAX] {
            let prefix = NoncePrefix::new(drawn);
            for nonce in [0, 1, 10, 4_294_967_296, u64::MAX] {
                let text = prefix.spell(nonce);
                assert_eq!(text, format!("{drawn:08x}-{nonce}"));
                assert_eq!(prefix.parse(&text), Some(nonce));
                assert_eq!(NoncePrefix::new(drawn ^ 1).parse(&text), None);
            }
        }
        let prefix = NoncePrefix::new(0xab);
        for foreign in [
            "",
            "000000ab",
            "000000ab-",
            "000000ab-x",
            "000000ab--1",
            "ab-1",
            "000000AB-1",
            "000000ab-18446744073709551616",
        ] {
            assert_eq!(prefix.parse(foreign), None, "{foreign}");
        }
    }
}
