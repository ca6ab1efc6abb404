//! Input that nobody means: whatever is thrown at the program, it answers with a documented code and
//! one error, never with a panic, and what it refuses leaves nothing behind.
//!
//! Good samples are mutated byte by byte, by seeded dice; a failure prints the seed that replays it
//! (`FAIRQ_TEST_SEED`), and `FAIRQ_TEST_ROUNDS` runs more of them.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;

use fairq::ambient::Dice;

use crate::common::{Ran, Sandbox};
use crate::seeds;

/// How many inputs of each kind are tried.
const ROUNDS: u64 = 60;

fn rounds() -> u64 {
    let given = std::env::var("FAIRQ_TEST_ROUNDS").ok();
    given.map_or(ROUNDS, |text| text.parse().unwrap())
}

/// What mutations like to put in: what ends, quotes, escapes, overflows or is no text at all.
const SPICE: [&[u8]; 16] = [
    b"\0",
    b"\n",
    b"\xff",
    b"\"",
    b"'",
    b"\\",
    b"{",
    b"}",
    b"[[",
    b"=",
    b"-",
    b",",
    b"99999999999999999999",
    b"\x1b[2J",
    "\u{ff11}".as_bytes(),
    b"e309",
];

/// Changes a sample in a few places.
fn mutated(sample: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = sample.to_vec();
    for _ in 0..=dice.below(4) {
        let at = below(dice, bytes.len() + 1);
        let to = (at + below(dice, 9)).min(bytes.len());
        let spice = SPICE[below(dice, SPICE.len())];
        match dice.below(4) {
            0 => drop(bytes.drain(at..to)),
            1 => drop(bytes.splice(at..at, spice.iter().copied())),
            2 => drop(bytes.splice(at..to, spice.iter().copied())),
            _ => {
                let copied = bytes[at..to].to_vec();
                drop(bytes.splice(at..at, copied));
            }
        }
    }
    bytes
}

fn below(dice: &mut Dice, bound: usize) -> usize {
    usize::try_from(dice.below(bound as u64)).unwrap()
}

/// Checks an answer to input that may be good or bad. Returns whether it was taken.
fn answered(ran: &Ran, what: &[u8]) -> bool {
    let shown = String::from_utf8_lossy(what).into_owned();
    assert!(
        matches!(ran.code, 0 | 1 | 2 | 3 | 78),
        "code {} for {shown:?}: {}",
        ran.code,
        ran.err
    );
    assert!(!ran.err.contains("panicked"), "{shown:?}: {}", ran.err);
    assert!(!ran.err.contains('\x1b'), "{shown:?}: {}", ran.err);
    if ran.code == 0 {
        return true;
    }
    let told = |word: &str| {
        ran.err
            .lines()
            .filter(|line| line.starts_with(word))
            .count()
    };
    // Commands that take many steps answer for each in a line of its own.
    assert!(!ran.err.is_empty(), "{shown:?}");
    assert!(told("error: ") <= 1, "{shown:?}: {}", ran.err);
    assert_eq!(told("warning: "), 0, "{shown:?}: {}", ran.err);
    false
}

/// Throws mutated files at one option of `enqueue`; what is refused stores nothing.
fn files(option: &str, name: &str, sample: &[u8]) {
    seeds::each_seed(rounds(), |mut dice| {
        let sandbox = Sandbox::with_shards(2);
        let bytes = mutated(sample, &mut dice);
        fs::write(sandbox.work(name), &bytes).unwrap();
        let taken = answered(&sandbox.fairq(["enqueue", option, name]), &bytes);
        let stored = sandbox
            .fairq(["status", "--json", "--limit", "0"])
            .expect(0);
        let steps = stored.json()["steps"].as_array().unwrap().len();
        assert!(taken || steps == 0, "refused, and {steps} steps are there");
    });
}

#[test]
fn flow_files() {
    let sample = include_bytes!("../../examples/flow.toml");
    files("--file", "flow.toml", sample);
}

#[test]
fn lines_of_objects() {
    let sample = br#"{"command": ["echo", "one"], "key": "alice", "band": 5, "weight": 2.5}
{"command": "echo two", "name": "two", "tags": ["a", "b"], "retries": 3, "timeout": "1m30s"}
{"command": "true", "delay": "2h", "limits": {"gpu": 1}, "env": {"A": "b"}, "flow": "f"}
"#;
    files("--from-ndjson", "steps.ndjson", sample);
}

#[test]
fn lists_of_lines() {
    files(
        "--from",
        "lines",
        b"echo one\necho 'two'\n\nprintf %s three\n",
    );
}

#[test]
fn words_on_the_command_line() {
    let samples: [(&[&str], &[u8]); 10] = [
        (&["enqueue", "--delay"], b"1h30m"),
        (&["enqueue", "--at"], b"2031-05-06T07:08:09+02:00"),
        (&["enqueue", "--backoff"], b"5s,2,1h"),
        (&["enqueue", "--array"], b"0-9:3"),
        (&["enqueue", "--param"], b"x=1,2,3"),
        (&["enqueue", "--after"], b"a1,a2-a3"),
        (&["enqueue", "--limit"], b"gpu:1"),
        (&["enqueue", "--weight"], b"2.5"),
        (&["enqueue", "--max-output"], b"64K"),
        (&["enqueue", "--band"], b"100"),
    ];
    let sandbox = Sandbox::with_shards(2);
    sandbox.enqueue(["--hold", "true"]);
    seeds::each_seed(rounds() * 2, |mut dice| {
        let (words, sample) = samples[below(&mut dice, samples.len())];
        let bytes: Vec<u8> = mutated(sample, &mut dice)
            .into_iter()
            // No process can be given a NUL, and a million members are no hostile input but much work.
            .filter(|byte| *byte != 0)
            .take(12)
            .collect();
        let mut args: Vec<OsString> = words.iter().map(OsString::from).collect();
        args.push(OsString::from_vec(bytes.clone()));
        args.extend(["--dry-run", "--", "true"].map(OsString::from));
        answered(&sandbox.fairq(args), &bytes);
    });
}

#[test]
fn selectors() {
    let sandbox = Sandbox::with_shards(2);
    sandbox.enqueue(["--hold", "true"]);
    seeds::each_seed(rounds(), |mut dice| {
        let bytes: Vec<u8> = mutated(b"a1-a9", &mut dice)
            .into_iter()
            .filter(|byte| *byte != 0)
            .collect();
        for command in ["status", "show", "hold", "explain"] {
            let args = [command.into(), OsString::from_vec(bytes.clone())];
            answered(&sandbox.fairq(args), &bytes);
        }
    });
}
