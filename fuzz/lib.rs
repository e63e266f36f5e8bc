//! The targets of `tests/fuzz` under libFuzzer.
//!
//! A binary begins with its target's seeds, which it writes into libFuzzer's corpus. It counts the memory that each input
//! takes, and fails above the target's bound.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::path::Path;

pub use libfuzzer_sys;

#[path = "../tests/fuzz/targets/mod.rs"]
pub mod targets;

use targets::{Target, find};

/// The system's allocator, with a count of each thread's bytes.
struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that ends has no counters any more.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: each call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promises are the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Writes the seeds into the corpus of libFuzzer, and runs each once, so that later inputs pay for no lazy value.
pub fn begin(name: &str) {
    let target = find(name).expect("a target of the table");
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    fs::create_dir_all(&corpus).expect("the corpus");
    for (index, input) in (target.seeds)().iter().enumerate() {
        fs::write(corpus.join(format!("seed-{index}")), input).expect("a seed");
        (target.run)(input);
    }
    // libFuzzer refuses an empty file.
    let mut words = vec![format!("# The words of {name}.")];
    words.extend(target.words.iter().map(|word| quoted(word)));
    fs::write(corpus.with_extension("dict"), words.join("\n")).expect("the dictionary");
}

fn quoted(word: &str) -> String {
    let byte = |byte: u8| match byte {
        b'"' | b'\\' => format!("\\{}", char::from(byte)),
        b' '..=b'~' => char::from(byte).to_string(),
        byte => format!("\\x{byte:02x}"),
    };
    format!("\"{}\"", word.bytes().map(byte).collect::<String>())
}

/// Runs one input.
pub fn run(target: &Target, input: &[u8]) {
    let before = LIVE.get();
    PEAK.set(before);
    (target.run)(input);
    if let Some((bytes, factor)) = target.memory {
        let (taken, bound) = (PEAK.get() - before, bytes + factor * input.len());
        assert!(taken <= bound as isize, "{taken} bytes of memory for {} bytes of input", input.len());
    }
}

/// The binary of a target.
#[macro_export]
macro_rules! target {
    ($name:literal) => {
        $crate::libfuzzer_sys::fuzz_target!(
            init: $crate::begin($name),
            |input: &[u8]| {
                static TARGET: std::sync::LazyLock<&$crate::targets::Target> =
                    std::sync::LazyLock::new(|| $crate::targets::find($name).expect("a target"));
                $crate::run(&TARGET, input);
            }
        );
    };
}
