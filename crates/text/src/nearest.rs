//! The word nearest to a mistyped word: a single measure for keys, words, types and the names of resources.

/// The steps of a search at most, some 20 ms of work: bytes that are read, and pairs of letters that are
/// compared. Beyond, words count as far (ADM-6).
const STEPS_MAX: usize = 8 << 20;

/// The longest text and word in bytes. Nobody types a longer one.
const BYTES_MAX: usize = 2048;

/// The least likeness of near words.
const NEAR_MIN: f64 = 2.0 / 3.0;

/// The letters from which on the beginning of a word is near the word.
const BEGINNING_MIN: usize = 3;

/// The number of each letter. Letters with equal last bits count together.
type Counts = [usize; 64];

/// A search for words that are near a text, whatever their case. The distance of two words is the number of
/// letters that are added, left out, exchanged, or swapped with a neighbour.
#[derive(Debug)]
pub struct Near {
    letters: Vec<char>,
    counts: Counts,
    steps_left: usize,
}

impl Near {
    pub fn new(text: &str) -> Near {
        let is_typed = text.len() <= BYTES_MAX;
        let letters = if is_typed { lower(text) } else { Vec::new() };
        Near { counts: counts(&letters), letters, steps_left: if is_typed { STEPS_MAX } else { 0 } }
    }

    /// Whether no further word can be near.
    pub fn is_over(&self) -> bool {
        self.steps_left == 0
    }

    /// The likeness of a word, up to 1 for an equal word; `None`: the word is not near.
    pub fn likeness(&mut self, word: &str) -> Option<f64> {
        if word.len() > BYTES_MAX || !self.takes(word.len().max(1)) {
            return None;
        }
        let letters = lower(word);
        let (shorter, longer) = match self.letters.len() <= letters.len() {
            true => (&self.letters, &letters),
            false => (&letters, &self.letters),
        };
        let begins = shorter.len() >= BEGINNING_MIN && longer.starts_with(shorter);
        let beginning = begins.then_some(NEAR_MIN);
        // Each letter that one of the words has more often costs a step.
        let mut surplus = [0; 2];
        for (a, b) in self.counts.iter().zip(counts(&letters)) {
            surplus = [surplus[0] + a.saturating_sub(b), surplus[1] + b.saturating_sub(*a)];
        }
        if surplus[0].max(surplus[1]) > wrong_max(longer) {
            return beginning;
        }
        let head = equal(shorter.iter().zip(longer));
        let tail = equal(shorter[head..].iter().rev().zip(longer[head..].iter().rev()));
        let middle = |word: &[char]| word[head..word.len() - tail].iter().collect::<String>();
        let pairs = (shorter.len() - head - tail) * (longer.len() - head - tail);
        let (short, long) = (middle(shorter), middle(longer));
        let (letters, wrong_max) = (longer.len(), wrong_max(longer));
        if !self.takes(pairs) {
            return beginning;
        }
        let wrong = strsim::osa_distance(&short, &long);
        let likeness = 1.0 - wrong as f64 / letters.max(1) as f64;
        (wrong <= wrong_max).then_some(likeness).or(beginning)
    }

    /// Whether so many steps are left. The first that are not end the search.
    fn takes(&mut self, steps: usize) -> bool {
        let left = self.steps_left.checked_sub(steps);
        self.steps_left = left.unwrap_or(0);
        left.is_some()
    }
}

/// The word nearest to a text, the first of equals; `None` if no word is near.
pub fn nearest<'a>(text: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (mut near, mut best) = (Near::new(text), None);
    for word in words {
        if let Some(likeness) = near.likeness(word)
            && best.is_none_or(|(of_best, _)| likeness > of_best)
        {
            best = Some((likeness, word));
        }
    }
    best.map(|(_, word)| word)
}

/// A third of the letters of the longer word may be wrong, and one of two.
fn wrong_max(longer: &[char]) -> usize {
    if longer.len() < 2 { 0 } else { (longer.len() / 3).max(1) }
}

/// The number of equal pairs before the first that differs.
fn equal<'a>(pairs: impl Iterator<Item = (&'a char, &'a char)>) -> usize {
    pairs.take_while(|(a, b)| a == b).count()
}

fn lower(text: &str) -> Vec<char> {
    text.chars().flat_map(char::to_lowercase).collect()
}

fn counts(letters: &[char]) -> Counts {
    let mut counts = [0; 64];
    letters.iter().for_each(|letter| counts[*letter as usize % 64] += 1);
    counts
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_differs_in_the_fewest_letters() {
        let words = ["web", "api", "web-frontend", "SYNCED", "node", "xds_servers", "ns/a/web-1", "r4"];
        for (text, expected) in [
            ("wbe", Some("web")),
            ("ewb", Some("web")),
            ("WEB", Some("web")),
            ("webs", Some("web")),
            ("web-frontned", Some("web-frontend")),
            ("web-front", Some("web-frontend")),
            ("SYNCD", Some("SYNCED")),
            ("nod", Some("node")),
            ("xdsservers", Some("xds_servers")),
            ("ns/a/web-2", Some("ns/a/web-1")),
            ("ns", None),
            ("4r", Some("r4")),
            ("cluster", None),
            ("", None),
        ] {
            assert_eq!(nearest(text, words), expected, "{text}");
        }
        assert_eq!(nearest("warning", ["info", "warn"]), Some("warn"), "the beginning is near");
        assert_eq!(nearest("straße", ["strasse", "STRAẞE"]), Some("STRAẞE"));
    }

    #[test]
    fn near_is_what_the_distance_says() {
        let mut random = 7_u64;
        let mut letter = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'a' + (random >> 33) as u8 % 3)
        };
        let mut near = 0;
        for length in 0..2_000 {
            let [a, b]: [String; 2] =
                [length % 7, length % 9].map(|letters| (0..letters).map(|_| letter()).collect());
            let (wrong, longer) = (strsim::osa_distance(&a, &b), a.len().max(b.len()));
            let is_near = wrong * 3 <= longer || (wrong, longer) == (1, 2);
            let expected = is_near.then(|| 1.0 - wrong as f64 / longer.max(1) as f64);
            let likeness = Near::new(&a).likeness(&b);
            let begins = a.len().min(b.len()) >= BEGINNING_MIN && (a.starts_with(&b) || b.starts_with(&a));
            assert_eq!(likeness, expected.or(begins.then_some(NEAR_MIN)), "{a} {b}");
            near += usize::from(likeness.is_some());
        }
        assert!(near > 100, "{near}");
    }

    /// ADM-6: the work of a search has a bound, whatever the text and the names.
    #[test]
    fn adm_6_a_long_text_among_many_names_costs_no_more() {
        let text = "ab".repeat(1_000);
        let mut near = Near::new(&text);
        assert_eq!(near.likeness(&text), Some(1.0));
        let compared = (0..5_000).take_while(|number| {
            // Each name has the letters of the text in another order, so that only their comparison tells.
            let name = format!("{}{}", "ba".repeat(number % 900 + 50), "ab".repeat(949 - number % 900));
            _ = near.likeness(&name);
            !near.is_over()
        });
        let compared = compared.count();
        assert!((1..500).contains(&compared), "the comparisons of long names have an end: {compared}");
        assert_eq!(near.likeness(&text), None, "the search is over");
    }

    /// ADM-6: names of no likeness cost their reading only, and the reading has a bound, too.
    #[test]
    fn adm_6_many_names_end_the_search() {
        let mut near = Near::new("web-frontend");
        let word = "z".repeat(BYTES_MAX);
        let read = (0..100_000).take_while(|_| {
            _ = near.likeness(&word);
            !near.is_over()
        });
        assert_eq!(read.count(), STEPS_MAX / BYTES_MAX - 1);
        let mut near = Near::new("web-frontend");
        for number in 0..100_000 {
            assert_eq!(near.likeness(&format!("outbound|80||svc-{number}.ns.svc.cluster.local")), None);
        }
        assert_eq!(
            near.likeness("web-frontend-2"),
            Some(1.0 - 2.0 / 14.0),
            "100,000 usual names are searched"
        );
    }

    /// ADM-6: a text of 15 KB fits into one request.
    #[test]
    fn adm_6_a_text_that_nobody_typed_is_near_nothing() {
        let long = "a".repeat(15_000);
        let mut near = Near::new(&long);
        assert!(near.is_over() && near.likeness(&long).is_none() && near.letters.is_empty());
        let mut near = Near::new("aaa");
        assert_eq!((near.likeness(&long), near.likeness("aab")), (None, Some(1.0 - 1.0 / 3.0)));
        assert_eq!(near.steps_left, STEPS_MAX - 3 - 1, "the long word was not read");
    }
}
