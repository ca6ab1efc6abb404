//! Input that fights back: what the property tests of parsers share.
//!
//! Each input comes from dice of its own seed, so that a failure is replayed by one number.
//! `FAIRQ_FUZZ=N` tries so many inputs of each kind, `FAIRQ_FUZZ_SEED=S` begins at that seed and,
//! alone, tries just that one.

use std::io::{Read, Result};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value};

use crate::ambient::Dice;

/// Bytes that end, quote, escape, overflow, turn the direction of text or are no text at all.
const SPICE: [&[u8]; 32] = [
    b"\0",
    b"\n",
    b"\r\n",
    b"\t",
    b" ",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\"",
    b"'",
    b"\\",
    b"\\u0000",
    b"{",
    b"}",
    b"[",
    b"]",
    b"[[",
    b"=",
    b"-",
    b",",
    b":",
    b".",
    b"+",
    b"0",
    b"18446744073709551615",
    b"9223372036854775808",
    b"-1",
    b"e309",
    b"\x1b[2J",
    b"\x1b]0;x\x07",
    "\u{202e}\u{ff11}\u{85}".as_bytes(),
    "\u{200b}é漢".as_bytes(),
];

/// Numbers at which something ends.
const EDGES: [i64; 14] = [
    0,
    1,
    -1,
    26,
    127,
    128,
    255,
    256,
    65_536,
    i32::MAX as i64,
    1 << 31,
    u32::MAX as i64,
    i64::MAX,
    i64::MIN,
];

/// Says which seed to replay when a property does not hold, and of what.
struct Replay<'i> {
    what: &'i str,
    seed: u64,
    input: &'i [u8],
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let shown = &self.input[..self.input.len().min(2_000)];
            let (what, seed) = (self.what, self.seed);
            let text = String::from_utf8_lossy(shown);
            eprintln!("{what}: replay with FAIRQ_FUZZ_SEED={seed}: {text:?}");
        }
    }
}

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap())
}

/// Tries inputs that `make` draws; `usual` many, unless the environment says how many. `test` returns
/// whether the input was accepted. Inputs of which none or all are would test nothing: there must be
/// both.
pub(crate) fn each(
    what: &str,
    usual: u64,
    make: impl Fn(&mut Dice) -> Vec<u8>,
    test: impl Fn(&[u8]) -> bool,
) {
    let given = from_environment("FAIRQ_FUZZ_SEED");
    let only = given.map_or(usual, |_| 1);
    let count = from_environment("FAIRQ_FUZZ").unwrap_or(only);
    let first = given.unwrap_or_else(|| Dice::fresh().bits());
    let mut accepted = 0;
    for seed in (0..count).map(|number| first.wrapping_add(number)) {
        let input = make(&mut Dice::seeded(seed));
        let replay = Replay {
            what,
            seed,
            input: &input,
        };
        accepted += u64::from(test(&input));
        drop(replay);
    }
    let both = 0 < accepted && accepted < count;
    assert!(
        both || count < 500,
        "{what}: {accepted} of {count} were accepted, from seed {first}"
    );
}

/// Tries each sample as it is, and then mutants of them, which consist of these words as well.
pub(crate) fn mutants(
    what: &str,
    usual: u64,
    samples: &[&[u8]],
    words: &[&[u8]],
    test: impl Fn(&[u8]) -> bool,
) {
    for sample in samples {
        test(sample);
    }
    each(what, usual, |dice| mutant(dice, samples, words), test);
}

/// As [`mutants`], for what is text.
pub(crate) fn texts(
    what: &str,
    usual: u64,
    samples: &[&str],
    words: &[&str],
    test: impl Fn(&str) -> bool,
) {
    let samples: Vec<&[u8]> = samples.iter().map(|sample| sample.as_bytes()).collect();
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    mutants(what, usual, &samples, &words, |bytes| {
        test(&String::from_utf8_lossy(bytes))
    });
}

/// Returns a number below `bound`, which is not 0.
pub(crate) fn below(dice: &mut Dice, bound: usize) -> usize {
    usize::try_from(dice.below(bound as u64)).unwrap()
}

/// Returns one of these.
pub(crate) fn one_of<T: Copy>(dice: &mut Dice, among: &[T]) -> T {
    among[below(dice, among.len())]
}

/// Draws an input: a sample that is changed a little or much, a row of words, or noise.
pub(crate) fn mutant(dice: &mut Dice, samples: &[&[u8]], words: &[&[u8]]) -> Vec<u8> {
    match dice.below(16) {
        0 => (0..dice.below(40))
            .map(|_| dice.bits().to_le_bytes()[0])
            .collect(),
        1..=4 if !words.is_empty() => {
            let row = (0..dice.below(8)).map(|_| one_of(dice, words));
            row.collect::<Vec<_>>().concat()
        }
        _ => {
            let mut bytes = one_of(dice, samples).to_vec();
            for _ in 0..dice.below(6) {
                change(dice, &mut bytes, samples, words);
            }
            bytes
        }
    }
}

/// Changes some bytes in one place.
pub(crate) fn change(dice: &mut Dice, bytes: &mut Vec<u8>, samples: &[&[u8]], words: &[&[u8]]) {
    let at = below(dice, bytes.len() + 1);
    let to = (at + below(dice, 9)).min(bytes.len());
    let piece = match dice.below(4) {
        0 if !words.is_empty() => one_of(dice, words).to_vec(),
        1 if !samples.is_empty() => {
            // The end of another sample: two that are crossed.
            let other = one_of(dice, samples);
            other[below(dice, other.len() + 1)..].to_vec()
        }
        2 => one_of(dice, &EDGES).to_string().into_bytes(),
        _ => one_of(dice, &SPICE).to_vec(),
    };
    match dice.below(8) {
        0 | 1 => drop(bytes.drain(at..to)),
        2 | 3 => drop(bytes.splice(at..at, piece)),
        4 => drop(bytes.splice(at..to, piece)),
        5 => {
            let copied = bytes[at..to].to_vec();
            drop(bytes.splice(at..at, copied));
        }
        6 => {
            // Very much of the same: depth, length, number.
            let many = piece.repeat(1 + below(dice, 300));
            drop(bytes.splice(at..at, many));
        }
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << dice.below(8);
            }
        }
    }
}

/// Draws an object of fields whose names are mostly these, and whose values are mostly their own.
pub(crate) fn object(dice: &mut Dice, fields: &[(&str, &[&str])]) -> Value {
    let mut object = Map::new();
    for _ in 0..dice.below(6) {
        let (name, values) = one_of(dice, fields);
        let value = if dice.below(8) > 0 {
            let text = one_of(dice, values);
            // What is JSON stands for itself, everything else for a text.
            serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
        } else {
            value(dice, 4)
        };
        let name = if dice.below(30) == 0 {
            text(dice)
        } else {
            name.to_owned()
        };
        object.insert(name, value);
    }
    Value::Object(object)
}

/// Draws any value at all, of so many levels.
pub(crate) fn value(dice: &mut Dice, depth: u32) -> Value {
    match dice.below(if depth == 0 { 5 } else { 7 }) {
        0 => Value::Null,
        1 => Value::Bool(dice.below(2) == 0),
        2 => Value::from(one_of(dice, &EDGES)),
        3 => Value::from(f64::from_bits(dice.bits())),
        4 => Value::from(text(dice)),
        5 => (0..dice.below(4)).map(|_| value(dice, depth - 1)).collect(),
        _ => {
            let entries = (0..dice.below(4)).map(|_| (text(dice), value(dice, depth - 1)));
            Value::Object(entries.collect())
        }
    }
}

fn text(dice: &mut Dice) -> String {
    let pieces = (0..dice.below(4)).map(|_| one_of(dice, &SPICE));
    String::from_utf8_lossy(&pieces.collect::<Vec<_>>().concat()).into_owned()
}

/// Bytes without an end, which counts how many of them were taken: who reads them to their end never
/// comes back, and who has no bound for what it keeps takes the test over its own.
#[derive(Debug)]
pub(crate) struct Endless<'c> {
    pub(crate) piece: &'c [u8],
    pub(crate) taken: &'c AtomicU64,
    pub(crate) most: u64,
}

impl Read for Endless<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let before = self.taken.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        assert!(before <= self.most, "{before} bytes were taken");
        for (place, byte) in buffer.iter_mut().enumerate() {
            *byte = self.piece[place % self.piece.len()];
        }
        Ok(buffer.len())
    }
}
