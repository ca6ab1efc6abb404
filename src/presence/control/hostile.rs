//! Askers and runners that mean harm: whatever comes through the socket, in whatever pieces, it is
//! answered or given up.

use super::*;
use crate::ambient::{Dice, ManualClock};
use crate::fuzz::{self, each, mutants, one_of};
use crate::model::Timestamp;

const SAMPLES: [&[u8]; 12] = [
    br#"{"ask":"cache"}"#,
    br#"{"ask":"runner"}"#,
    br#"{"ask":"resize","workers":3}"#,
    br#"{"ask":"resize","workers":18446744073709551615}"#,
    br#"{"ask":"signal","steps":[["a1",1],["z9223372036854775807",4294967295]],"signal":15}"#,
    br#"{"ask":"signal","steps":[],"signal":-2147483648}"#,
    br#"{"ask":"signal","steps":[["a0",1]],"signal":1}"#,
    br#"{"workers":3,"ask":"resize"}"#,
    br#"{"ask":"cache","ask":"plan"}"#,
    br#"["cache"]"#,
    b"{\"ask\":\"cache\"}\n{\"ask\":\"crew\"}\n",
    b"\xff\xfe\0",
];
const WORDS: [&[u8]; 10] = [
    b"{\"ask\":",
    b"\"cache\"",
    b"\"resize\"",
    b",\"workers\":",
    b"[[[[[[[[",
    b"{\"a\":",
    b"}",
    b"1e400",
    b"\"\\ud800\"",
    b"\n",
];

/// Repeats the question, so that it is seen how it was understood.
fn echo() -> Answerer {
    Arc::new(|question| Ok(serde_json::to_value(question).unwrap()))
}

#[test]
fn a_question_is_understood_as_it_was_meant_or_refused() {
    mutants("a question", 4_000, &SAMPLES, &WORDS, |bytes| {
        let answer = reply(bytes, &echo());
        let text = serde_json::to_vec(&answer).unwrap();
        assert!(!text.contains(&b'\n') && text.len() < 16_384 + 2 * bytes.len());
        match answer {
            Answer::Ok(value) => {
                let asked: Question = serde_json::from_slice(bytes).unwrap();
                let again: Question = serde_json::from_value(value).unwrap();
                assert_eq!(again, asked);
                true
            }
            Answer::Error(why) => {
                assert!(!why.contains(char::is_control), "{why:?}");
                false
            }
        }
    });
}

#[test]
fn an_answer_is_a_value_or_one_line_of_what_is_wrong() {
    let long = format!(r#"{{"{}":1}}"#, "x".repeat(100_000));
    let samples: [&[u8]; 8] = [
        br#"{"ok":{"workers":3}}"#,
        br#"{"ok":null}"#,
        br#"{"error":"no \u001b[2J\n\u202e"}"#,
        br#"{"ok":1,"error":"both"}"#,
        br#""ok""#,
        long.as_bytes(),
        b"",
        b"\xff\n",
    ];
    let make = |dice: &mut Dice| match dice.below(3) {
        0 => serde_json::json!({ "ok": fuzz::value(dice, 6) })
            .to_string()
            .into_bytes(),
        _ => fuzz::mutant(dice, &samples, &WORDS),
    };
    each("an answer", 4_000, make, |bytes| {
        let kinds = [ErrorKind::Unavailable, ErrorKind::General];
        let answer = understand(RunnerId::new(7), bytes);
        if let Err(error) = &answer {
            assert!(kinds.contains(&error.kind()));
            let text = error.to_string();
            assert!(
                !text.contains(char::is_control) && text.len() < 32_768,
                "{text:?}"
            );
        }
        answer.is_ok()
    });
}

fn still() -> ManualClock {
    ManualClock::new(Timestamp::default())
}

/// In pieces of any size, with anything behind it, and without an end.
#[test]
fn a_line_is_heard_whole_however_it_comes_and_never_more_than_it_may_have() {
    let make = |dice: &mut Dice| {
        let line = one_of(dice, &SAMPLES);
        let many = if dice.below(4) == 0 {
            1 + dice.below(3_000)
        } else {
            1
        };
        line.repeat(usize::try_from(many).unwrap())
    };
    let clock = still();
    each("a line in pieces", 300, make, |bytes| {
        let mut dice = Dice::seeded(bytes.len() as u64);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let heard = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut rest = bytes;
                while !rest.is_empty() {
                    let size = 1 + fuzz::below(&mut dice, rest.len().min(9_000));
                    // Whoever has heard enough closes.
                    if theirs.write_all(&rest[..size]).is_err() {
                        break;
                    }
                    rest = &rest[size..];
                }
                drop(theirs);
            });
            let heard = hear(&ours, MOST_ASKED, &Until::after(PATIENCE, &clock));
            drop(ours);
            heard.unwrap()
        });
        assert!(heard.len() < MOST_ASKED + PART);
        assert!(bytes.starts_with(&heard));
        let line = bytes.iter().position(|byte| *byte == b'\n');
        let whole = line.map_or(bytes.len(), |at| at + 1);
        assert!(heard.len() >= whole.min(MOST_ASKED));
        whole <= MOST_ASKED
    });
}

/// Each byte comes in time, and all of them never end: it is the whole that has a time.
#[test]
fn who_gives_or_takes_a_byte_now_and_then_is_given_up() {
    let clock = still();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let given = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while theirs.write_all(b"x").is_ok() {
                given.fetch_add(1, Ordering::SeqCst);
                clock.advance(PATIENCE / 2);
            }
        });
        let failed = hear(&ours, MOST_ANSWERED, &Until::after(MOST_PATIENCE, &clock));
        drop(ours);
        assert_eq!(failed.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    });
    assert!(given.load(Ordering::SeqCst) >= 1);

    let (ours, mut theirs) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut some = [0; 64];
            while theirs.read(&mut some).is_ok_and(|count| count > 0) {
                clock.advance(PATIENCE / 2);
            }
        });
        let line = vec![b'x'; 64 << 20];
        let failed = say(&ours, &line, &Until::after(MOST_PATIENCE, &clock));
        drop(ours);
        assert_eq!(failed.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    });
}

/// What a runner's socket says that is no runner's: rubbish, nothing, half of something, far too much.
#[test]
fn whoever_asks_a_false_runner_gets_an_error() {
    let root = tempfile::tempdir().unwrap();
    let id = RunnerId::new(7);
    let dir = dir_of(root.path(), id);
    fs::create_dir(&dir).unwrap();
    let listener = through_short_path(&dir, UnixListener::bind).unwrap();
    let answers: [&[u8]; 6] = [
        b"",
        b"{\"ok\":",
        b"\xff\0rubbish\n",
        b"{\"error\":\"\\u001b[2J\"}\n",
        &[b'['; 1 << 20],
        b"{\"ok\":[1]} {\"ok\":[2]}\n",
    ];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut asked = [0; 4_096];
                assert!(stream.read(&mut asked).unwrap() > 0);
                stream.write_all(answer).unwrap();
            }
        });
        for answer in answers {
            let error = ask_by(&still(), root.path(), id, &Question::Cache).unwrap_err();
            let shown = &answer[..answer.len().min(99)];
            assert_ne!(error.kind(), ErrorKind::Internal, "{shown:?}: {error}");
        }
    });
}
