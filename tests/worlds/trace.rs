//! What happened, line by line: the last of it for people, a hash of all of it to tell whether two runs
//! were the same.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};

/// How many lines are kept.
const LINES: usize = 40;

#[derive(Debug)]
pub(crate) struct Trace {
    last: VecDeque<String>,
    hash: u64,
    pub(crate) lines: u64,
    /// Print each line as it comes.
    loud: bool,
}

impl Trace {
    pub(crate) fn new(loud: bool) -> Self {
        Self {
            last: VecDeque::new(),
            hash: 0xcbf2_9ce4_8422_2325,
            lines: 0,
            loud,
        }
    }

    #[expect(clippy::print_stderr, reason = "for the reader of one world's replay")]
    pub(crate) fn note(&mut self, micros: u64, line: fmt::Arguments<'_>) {
        let mut text = if self.last.len() < LINES {
            String::new()
        } else {
            self.last.pop_front().unwrap_or_default()
        };
        text.clear();
        let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
        write!(text, "{seconds:>4}.{rest:06} {line}").expect("a string can be written to");
        if self.loud {
            eprintln!("{text}");
        }
        for byte in text.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.lines += 1;
        self.last.push_back(text);
    }

    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn last(&self) -> String {
        Vec::from(self.last.clone()).join("\n")
    }
}
