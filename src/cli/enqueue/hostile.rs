//! Files and words of steps that nobody means. What is taken keeps to what is documented and says the
//! same when it is written down again; what is refused is refused in one safe line.

mod expand;
mod files;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Cursor};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value, json};

use super::array::{Expansion, Indices, Param};
use super::batch;
use super::env;
use super::flow;
use super::make::Maker;
use super::options::Said;
use super::size::{MOST_BYTES, MOST_WORD};
use super::spool::{Form, Record, at_most, records};
use super::terms::{Codes, Places, SignalNumber, Size, Term};
use crate::ambient::Dice;
use crate::cli::hostile::{NOW, context, is_told_well};
use crate::error::{Error, ErrorKind, Result};
use crate::fuzz::{self, Endless, each, mutants, texts};
use crate::model::{
    Backoff, Band, Command, Due, Environment, FairnessKey, LimitName, NewStep, OnLost, Parent,
    Policy, Scope, Timestamp,
};

/// How many inputs each of these gets in an ordinary run.
const USUAL: u64 = 2_000;
/// What a mistake in a step may be: what it names may not be there, or a file of its may be unreadable.
const KINDS: [ErrorKind; 3] = [ErrorKind::Usage, ErrorKind::NotFound, ErrorKind::General];
/// What a step can be said to be, right and wrong.
const FIELDS: [(&str, &[&str]); 33] = [
    (
        "command",
        &[
            "true",
            "echo '{}'",
            r#"["echo", "a b", ""]"#,
            "[]",
            r#"[""]"#,
            "",
            "\u{202e}\u{1b}[2J",
        ],
    ),
    ("command", &["make -j8", r#"["a", 1, 2.5]"#]),
    ("command", &["true"]),
    ("name", &["build", "", "a\nb", "n"]),
    (
        "band",
        &[
            "0",
            "100",
            "urgent",
            "-1",
            "2147483647",
            "2147483648",
            "1.5",
        ],
    ),
    ("key", &["alice", "", "\u{1b}[31m", "a/../b"]),
    ("weight", &["1", "2.5", "0", "-1", "1e308", "1e999", "NaN"]),
    ("tag", &["x", r#"["a", "b"]"#, "[]", r#"{"a": "b"}"#]),
    ("tags", &[r#"["a", "a"]"#]),
    ("flow", &["nightly", ""]),
    (
        "delay",
        &["1h30m", "0", "90", "0,5s", "9223372036854775807ms", "-1s"],
    ),
    (
        "at",
        &[
            "now",
            "2031-05-06T07:08:09Z",
            "16:00",
            "now+1h",
            "yesterday",
        ],
    ),
    ("expire", &["1h", "2031-05-06T07:08:09Z", "0", "now"]),
    ("limit", &["gpu", "gpu:1", "gpu:2", "gpu:0"]),
    (
        "limits",
        &[
            r#"{"gpu": 1}"#,
            r#"{"gpu": 4294967296}"#,
            r#"["a", "b"]"#,
            r#"{"a\u0000": 1}"#,
        ],
    ),
    ("retries", &["0", "3", "4294967295", "4294967296", "1_000"]),
    (
        "backoff",
        &[
            "10s",
            "1s,3",
            "1s,2,5m",
            "5m,2,1s",
            "1s,0.5",
            "1s,1000001",
            "1s,2,3,4",
        ],
    ),
    ("retry_on", &["1,5-9", "0-255", "256", "9-5"]),
    ("no-retry-on", &["75"]),
    ("timeout", &["10m", "0", "1ms"]),
    ("kill_signal", &["TERM", "SIGINT", "9", "64"]),
    ("grace", &["0", "5s"]),
    ("on_lost", &["retry", "fail", "hold", "panic"]),
    ("leave_group", &["true", "false", "yes"]),
    ("max_output", &["0", "64K", "1TiB", "9223372036854775808"]),
    ("cwd", &["/", "/nowhere", ".", "../../..", ""]),
    (
        "env",
        &[
            r#"{"A": "b", "C": ""}"#,
            "PATH",
            "A=b",
            "=x",
            r#"["A=1", "A=2"]"#,
            r#"{"A\u0000B": "x"}"#,
            r#"{"": "x"}"#,
        ],
    ),
    ("env_file", &["/no/such/file", "/", "/dev/null"]),
    ("clean_env", &["true"]),
    ("hold", &["true", "false"]),
    (
        "after",
        &["a1", r#"["a1-a9"]"#, "one", "two", r#"["one", "two"]"#],
    ),
    ("after_any", &["one"]),
    ("unique", &["nightly", ""]),
];

#[track_caller]
fn taken<T>(read: Result<T>) -> Option<T> {
    read.inspect_err(|error| is_told_well(error, &KINDS)).ok()
}

/// Reads a word of an option; what is wrong with it becomes a part of an error.
#[track_caller]
fn term<T: Term>(text: &str) -> Option<T> {
    let wrong = |why: String| is_told_well(&Error::new(ErrorKind::Usage, why), &KINDS);
    T::read(text).map_err(wrong).ok()
}

/// Checks that a step keeps to what is documented.
fn is_sound(step: &NewStep) {
    match &step.command {
        Command::Shell(line) => assert!(!line.is_empty()),
        Command::Argv(words) => assert!(!words[0].is_empty()),
    }
    assert!(step.command.size() < MOST_BYTES);
    let bytes = step.command.to_bytes();
    let is_shell = matches!(step.command, Command::Shell(_));
    assert_eq!(
        Command::from_bytes(is_shell, &bytes).as_ref(),
        Some(&step.command)
    );
    assert!(step.cwd.is_absolute());
    assert!(step.band <= Band::WORST);
    assert!((1..=FairnessKey::MAX_BYTES).contains(&step.key.as_str().len()));
    assert!(step.weight.get().is_finite() && step.weight.get() > 0.0);
    let texts = step.name.iter().chain(&step.tags).chain(&step.flow);
    for text in texts.chain(step.unique.iter().map(|unique| &unique.key)) {
        assert!(!text.contains('\0') && text.len() < MOST_WORD.max(16 * MOST_BYTES));
    }
    assert!(step.env.as_bytes().len() < MOST_BYTES);
    assert!(!matches!(step.due, Due::At(at) if at < Timestamp::default()));
    let kept = serde_json::to_string(&step.policy).unwrap();
    assert_eq!(
        Policy::from_json(&kept).as_ref(),
        Some(&step.policy),
        "{kept}"
    );
}

/// Writes a step down as an object that says the same.
fn object_of(step: &NewStep) -> Option<Value> {
    let text = |os: &OsStr| os.to_str().map(str::to_owned);
    let policy = &step.policy;
    let backoff =
        |of: &Backoff| format!("{}ms,{},{}ms", of.base.millis(), of.factor, of.cap.millis());
    let codes = |codes: &[u8]| {
        codes
            .iter()
            .map(u8::to_string)
            .collect::<Vec<_>>()
            .join(",")
    };
    let mut object = Map::new();
    let mut say = |field: &str, value: Value| object.insert(field.to_owned(), value);
    say(
        "command",
        match &step.command {
            Command::Shell(line) => json!(text(line)?),
            Command::Argv(words) => json!(
                words
                    .iter()
                    .map(|word| text(word))
                    .collect::<Option<Vec<_>>>()?
            ),
        },
    );
    say("cwd", json!(text(step.cwd.as_os_str())?));
    let pairs = step
        .env
        .pairs()
        .map(|(name, value)| Some((text(name)?, json!(text(value)?))));
    say("env", Value::Object(pairs.collect::<Option<_>>()?));
    say("clean_env", json!(true));
    say("band", json!(step.band));
    say("key", json!(step.key));
    say("weight", json!(step.weight));
    say("tags", json!(step.tags));
    for (field, value) in [("name", &step.name), ("flow", &step.flow)] {
        if let Some(value) = value {
            say(field, json!(value));
        }
    }
    match step.due {
        Due::At(at) => drop(say("at", json!(at.to_string()))),
        Due::Held => drop(say("hold", json!(true))),
        Due::Now => {}
    }
    if let Some(unique) = &step.unique {
        say("unique", json!(unique.key));
    }
    say("retries", json!(policy.retries));
    say("backoff", json!(backoff(&policy.backoff)));
    for (field, of) in [
        ("retry_on", &policy.retry_on),
        ("no_retry_on", &policy.no_retry_on),
    ] {
        if !of.is_empty() {
            say(field, json!(codes(of)));
        }
    }
    if let Some(timeout) = policy.timeout {
        say("timeout", json!(format!("{}ms", timeout.millis())));
    }
    if let Some(expire) = policy.expire {
        say("expire", json!(expire.to_string()));
    }
    if let Some(most) = policy.max_output {
        say("max_output", json!(most));
    }
    say("kill_signal", json!(policy.kill_signal));
    say("grace", json!(format!("{}ms", policy.grace.millis())));
    say("on_lost", json!(policy.on_lost));
    say("leave_group", json!(policy.leave_group));
    say("limits", json!(policy.limits));
    Some(Value::Object(object))
}

fn object(bytes: &[u8], maker: &Maker<'_>) -> Result<Option<NewStep>> {
    let record = Record {
        line: 7,
        bytes: bytes.to_vec(),
    };
    batch::object(&record, "steps", &Said::default(), maker)
}

#[test]
fn a_line_of_an_object_is_a_sound_step_that_reads_back_or_is_refused() {
    let context = context();
    let maker = Maker::new(&context, None, NOW);
    let deep = "[".repeat(20_000);
    let samples: [&[u8]; 6] = [
        br#"{"command": "true", "key": "\ud800"}"#,
        br#"{"command": "true", "command": "false"}"#,
        br#"{"command": "true"} {"command": "false"}"#,
        b"\xef\xbb\xbf{\"command\": \"true\"}",
        br#"{"command": 1e400}"#,
        deep.as_bytes(),
    ];
    let make = |dice: &mut Dice| {
        if dice.below(20) == 0 {
            return fuzz::mutant(dice, &samples, &[]);
        }
        let mut bytes = fuzz::object(dice, &FIELDS).to_string().into_bytes();
        if dice.below(4) == 0 {
            fuzz::change(dice, &mut bytes, &samples, &[]);
        }
        bytes
    };
    each("a line of an object", USUAL, make, |bytes| {
        let Some(Some(step)) = taken(object(bytes, &maker)) else {
            return false;
        };
        is_sound(&step);
        let in_calendar = |at: Timestamp| at.to_string().ends_with('Z');
        let at = match step.due {
            Due::At(at) => at,
            Due::Now | Due::Held => NOW,
        };
        if in_calendar(at)
            && step.policy.expire.is_none_or(in_calendar)
            && let Some(object_again) = object_of(&step)
        {
            let text = object_again.to_string();
            let again = object(text.as_bytes(), &maker).unwrap().unwrap();
            assert_eq!(format!("{again:?}"), format!("{step:?}"), "{text}");
        }
        true
    });
}

#[test]
fn a_flow_is_sound_steps_in_an_order_that_exists_or_is_refused() {
    let context = context();
    let maker = Maker::new(&context, None, NOW);
    let deep = format!("a = {}", "[".repeat(5_000));
    let dotted = format!("{}a = 1", "a.".repeat(5_000));
    let samples: [&[u8]; 6] = [
        include_bytes!("../../../examples/flow.toml"),
        b"[[step]]\nname = 'a'\ncommand = 'x'\nafter = ['b']\n[[step]]\nname = 'b'\ncommand = 'x'\nafter = 'a'\n",
        b"[[step]]\nname = 'a'\ncommand = 'x'\nafter = 'a'\n",
        b"[defaults]\nat = 2031-05-06T07:08:09Z\n[[step]]\nname = 'a'\ncommand = ['x', 1, 2.5]\n",
        deep.as_bytes(),
        dotted.as_bytes(),
    ];
    let make = |dice: &mut Dice| {
        if dice.below(3) == 0 {
            return fuzz::mutant(
                dice,
                &samples,
                &[
                    b"[[step]]\n",
                    b"[defaults]\n",
                    b"name = 'a'\n",
                    b"command = 'x'\n",
                ],
            );
        }
        let steps = (0..1 + dice.below(3)).map(|number| {
            let mut step = fuzz::object(dice, &FIELDS);
            if dice.below(8) > 0 {
                step["name"] = json!(["one", "two", "three"][usize::try_from(number).unwrap()]);
                step["command"] = json!("true");
            }
            step
        });
        let file = json!({ "step": steps.collect::<Vec<_>>() });
        // Not everything in JSON can be said in TOML.
        let mut bytes = toml::to_string(&file).unwrap_or_default().into_bytes();
        if dice.below(4) == 0 {
            fuzz::change(dice, &mut bytes, &samples, &[]);
        }
        bytes
    };
    each("a flow", USUAL, make, |bytes| {
        let entries = flow::entries(bytes, "flow.toml", &Said::default());
        let Some(entries) = taken(entries) else {
            return false;
        };
        let Some(steps) = taken(flow::steps(&entries, &maker)) else {
            return false;
        };
        assert_eq!(steps.len(), entries.len());
        let mut names: Vec<&String> = steps.iter().filter_map(|step| step.name.as_ref()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), steps.len(), "a name of its own for each");
        steps.iter().for_each(is_sound);
        // Taking away those that wait for nothing that is left takes all away.
        let mut left: Vec<usize> = (0..steps.len()).collect();
        while !left.is_empty() {
            let before = left.len();
            let waits = |at: &usize| {
                steps[*at].after.iter().any(|dependency| {
                    matches!(dependency.parent, Parent::InBatch(parent) if left.contains(&parent))
                })
            };
            left = left.iter().copied().filter(|at| waits(at)).collect();
            assert!(left.len() < before, "a circle: {left:?}");
        }
        true
    });
}

#[test]
fn the_words_of_options_read_back_or_are_refused() {
    let samples = "10s 1s,3 1s,2,5m 5m,2,1s 1s,0.999 1s,1000000 1s,1000000.1 1s,.,1h 1,5-9 0-255 255-0 \
                   1,,2 64K 1KiB 8388607T 8388608T 10MB 9223372036854775807 TERM SIGKILL gpu gpu:2 gpu:0 \
                   gpu:4294967296 :1 a:b:1 retry fail hold queued active kept none none:1 1s,１ ٣K";
    let samples: Vec<&str> = samples.split(' ').collect();
    let pieces = "1 0 , - : . s ms K TiB gpu SIG 255 9999999999";
    let pieces: Vec<&str> = pieces.split(' ').collect();
    texts(
        "a word of an option",
        2 * USUAL,
        &samples,
        &pieces,
        |text| {
            let mut accepted = false;
            if let Some(backoff) = term::<Backoff>(text) {
                accepted = true;
                assert!(backoff.base <= backoff.cap && (1.0..=1e6).contains(&backoff.factor));
                let (base, cap) = (backoff.base.millis(), backoff.cap.millis());
                let again = format!("{base}ms,{},{cap}ms", backoff.factor);
                assert_eq!(Backoff::read(&again), Ok(backoff));
                let mut last = backoff.longest(1);
                for failed in 2..40 {
                    let next = backoff.longest(failed);
                    assert!(last <= next && next <= backoff.cap);
                    last = next;
                }
            }
            if let Some(codes) = term::<Codes>(text) {
                accepted = true;
                assert!(codes.0.is_sorted_by(|one, next| one < next) && !codes.0.is_empty());
                let words: Vec<String> = codes.0.iter().map(u8::to_string).collect();
                assert_eq!(Codes::read(&words.join(",")), Ok(codes));
            }
            if let Some(size) = term::<Size>(text) {
                assert!(i64::try_from(size.0).is_ok());
                assert_eq!(Size::read(&size.0.to_string()), Ok(size));
            }
            if let Some(signal) = term::<SignalNumber>(text) {
                assert!((1..=31).contains(&signal.0));
            }
            if let Some(places) = term::<Places>(text) {
                assert!(places.places > 0);
                assert!((1..=LimitName::MAX_BYTES).contains(&places.limit.as_str().len()));
                let again = format!("{}:{}", places.limit, places.places);
                assert_eq!(Places::read(&again), Ok(places));
            }
            let words = ["retry", "fail", "hold"].contains(&text);
            assert_eq!(term::<OnLost>(text).is_some(), words);
            let words = ["queued", "active", "kept"].contains(&text);
            assert_eq!(term::<Scope>(text).is_some(), words);
            accepted
        },
    );
}
