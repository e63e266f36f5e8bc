//! Seeded mutations: the same seed gives the same inputs on each machine.

/// SplitMix64.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// The longest input.
const LENGTH_MAX: usize = 8 << 10;

const NUMBERS: [u8; 12] = [0, 1, 0x7f, 0x80, 0xff, 0x30, 0x82, 0x86, b'0', b'9', b'"', b'/'];

pub struct Mutator {
    rng: Rng,
    words: &'static [&'static str],
}

impl Mutator {
    pub fn new(seed: u64, words: &'static [&'static str]) -> Mutator {
        Mutator { rng: Rng::new(seed), words }
    }

    /// An input made of one of these, and at times of two.
    pub fn next(&mut self, known: &[Vec<u8>]) -> Vec<u8> {
        let mut input = known.get(self.rng.below(known.len())).cloned().unwrap_or_default();
        // Most often one change: several rarely leave anything intact.
        let changes = [1, 1, 1, 2, 2, 3, 5, 9][self.rng.below(8)];
        for _ in 0..changes {
            self.change(&mut input, known);
        }
        input.truncate(LENGTH_MAX);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, known: &[Vec<u8>]) {
        let at = self.rng.below(input.len());
        let length = 1 + self.rng.below((input.len() - at).min(32));
        let end = (at + length).min(input.len());
        match self.rng.below(13) {
            0 | 1 => set(input, at, |byte| byte ^ 1 << (length & 7)),
            2 => {
                let number = NUMBERS[self.rng.below(NUMBERS.len())];
                set(input, at, |_| number);
            }
            3 => set(input, at, |byte| byte.wrapping_add(1)),
            4 => set(input, at, |byte| byte.wrapping_sub(1)),
            5 => drop(input.drain(at..end)),
            6 => {
                let copy = input[at..end].to_vec();
                let to = self.rng.below(input.len() + 1);
                input.splice(to..to, copy);
            }
            7 | 8 => {
                let word = self.word();
                let to = self.rng.below(input.len() + 1);
                // Half of the time in place of as many bytes.
                let until = if self.rng.below(2) == 0 { to } else { (to + word.len()).min(input.len()) };
                input.splice(to..until, word);
            }
            9 => {
                let other = known.get(self.rng.below(known.len())).cloned().unwrap_or_default();
                let from = self.rng.below(other.len());
                input.truncate(at);
                input.extend_from_slice(other.get(from..).unwrap_or_default());
            }
            10 => input.truncate(at),
            11 => self.insert_within_lengths(input),
            _ => self.count(input),
        }
    }

    fn word(&mut self) -> Vec<u8> {
        match self.words {
            [] => (0..4).map(|_| self.rng.next() as u8).collect(),
            words => words[self.rng.below(words.len())].as_bytes().to_vec(),
        }
    }

    /// Inserts a word, and adds its length to all bytes before it that look like the length of the rest around it: of DER,
    /// of protobuf, and of frames.
    fn insert_within_lengths(&mut self, input: &mut Vec<u8>) {
        let at = self.rng.below(input.len() + 1);
        let word = self.word();
        for place in 0..at {
            let length = usize::from(input[place]);
            let ends_behind = place + 1 + length >= at && place + 1 + length <= input.len();
            if ends_behind && length + word.len() < 256 {
                input[place] += word.len() as u8;
            }
        }
        input.splice(at..at, word);
    }

    /// Replaces a number in digits.
    fn count(&mut self, input: &mut Vec<u8>) {
        let start = self.rng.below(input.len());
        let Some(at) = input[start.min(input.len())..].iter().position(u8::is_ascii_digit) else { return };
        let at = start + at;
        let digits = input[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let numbers = ["0", "1", "255", "65536", "4294967296", "18446744073709551616", "-1", "1.5", "1e999"];
        let number = numbers[self.rng.below(numbers.len())];
        input.splice(at..at + digits, number.bytes());
    }
}

fn set(input: &mut [u8], at: usize, change: impl FnOnce(u8) -> u8) {
    if let Some(byte) = input.get_mut(at) {
        *byte = change(*byte);
    }
}
