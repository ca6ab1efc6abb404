//! Files and words of steps that nobody means. What is taken keeps to what is documented and says the
//! same when it is written down again; what is refused is refused in one safe line.

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

#[test]
fn arrays_and_parameters_expand_to_what_they_say_or_are_refused() {
    let many = "1,".repeat(40_000);
    let values = format!("x={}", "ab,".repeat(30_000));
    let samples = [
        "0-99",
        "1,5,9",
        "0-10:2",
        "0-18446744073709551615",
        "0-18446744073709551615:18446744073709551615",
        "5-1",
        "1:0",
        "0-9999999",
        "0-10000000",
        "18446744073709551615",
        "18446744073709551616",
        "x=1,2,3",
        "lr=0.1,0.01",
        "FAIRQ_X=1",
        "1x=2",
        "x=",
        "x",
        "=",
        "x=,,,",
        &many,
        &values,
    ];
    let pieces = [
        "0",
        "-",
        ",",
        ":",
        "9",
        "=",
        "x",
        "lr",
        "1",
        "99",
        "18446744073709551615",
        "{x}",
        "{}",
    ];
    let like = |bytes: &[u8]| {
        let context = context();
        let maker = Maker::new(&context, None, NOW);
        let object = json!({ "command": ["echo", String::from_utf8_lossy(bytes).replace('\0', ""), "{}-{x}"],
            "name": "n{}{x}", "unique": "u{x}" });
        object_or_none(&object, &maker)
    };
    let step = like(b"{x}{}").unwrap();
    texts("an array", USUAL, &samples, &pieces, |text| {
        let (array, param) = (term::<Indices>(text), term::<Param>(text));
        let params: Vec<Param> = param.into_iter().collect();
        let Some(Some(all)) = taken(Expansion::of(array.as_ref(), &params)) else {
            return false;
        };
        assert!((1..=10_000_000).contains(&all.count()));
        for at in [0, all.count() / 2, all.count() - 1] {
            if let Some(step) = taken(all.step(&step, at)) {
                is_sound(&step);
                let vars = &step.policy.vars;
                assert!((1..=2).contains(&vars.len()));
                // An argv is exact: the value stands there as it is.
                let Command::Argv(words) = &step.command else {
                    panic!("it was an argv");
                };
                if let Some(index) = vars.get("FAIRQ_ARRAY_INDEX") {
                    assert!(words[2].to_str().unwrap().starts_with(index.as_str()));
                }
            }
        }
        true
    });
}

fn object_or_none(value: &Value, maker: &Maker<'_>) -> Option<NewStep> {
    taken(object(value.to_string().as_bytes(), maker)).flatten()
}

/// A hundred thousand places for a value of a hundred thousand bytes.
#[test]
fn a_long_value_in_many_places_is_refused_before_it_fills_the_memory() {
    let context = context();
    let maker = Maker::new(&context, None, NOW);
    let line = "{x}".repeat(40_000);
    let value = format!("x={}", "v".repeat(120_000));
    let all = Expansion::of(None, &[Param::read(&value).unwrap()])
        .unwrap()
        .unwrap();
    for object in [
        json!({ "command": line }),
        json!({ "command": ["true", line] }),
        json!({ "command": "true", "name": line }),
        json!({ "command": "true", "unique": line }),
    ] {
        let like = object_or_none(&object, &maker).unwrap();
        let error = all.step(&like, 0).unwrap_err();
        is_told_well(&error, &[ErrorKind::Usage]);
        assert!(error.what().contains("too large: 2"), "{error}");
    }
}

#[test]
fn variables_of_a_file_read_back_or_are_refused() {
    let samples: [&[u8]; 7] = [
        b"A=1\nB=two words\n# remark\n\n_C=\r\n",
        b"A=b=c\nA=again\n",
        b"1A=x\n",
        b"no sign\n",
        b"A=\xff\xfe\n",
        b"A=x\0y\n",
        b"=x\n",
    ];
    let words: [&[u8]; 6] = [b"A=", b"\n", b"#", b"\r", b"=", b"B_2=x"];
    mutants(
        "a file of variables",
        2 * USUAL,
        &samples,
        &words,
        |bytes| {
            let mut vars = BTreeMap::new();
            if taken(env::read_lines(bytes, Path::new("vars"), &mut vars)).is_none() {
                return false;
            }
            let mut text = Vec::new();
            for (name, value) in &vars {
                assert!(env::is_name(name.as_bytes()), "{name:?}");
                assert!(!value.as_bytes().contains(&0) && !value.as_bytes().contains(&b'\n'));
                text.extend_from_slice(name.as_bytes());
                text.push(b'=');
                text.extend_from_slice(value.as_bytes());
                // A value may end with a carriage return: the next one is taken off.
                text.extend_from_slice(b"\r\n");
            }
            let mut again = BTreeMap::new();
            env::read_lines(&text, Path::new("vars"), &mut again).unwrap();
            assert_eq!(again, vars);
            let env = Environment::from_pairs(vars.clone());
            let pairs = env
                .pairs()
                .map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(pairs.collect::<BTreeMap<_, _>>(), vars);
            true
        },
    );
}

#[test]
fn records_are_all_of_a_file_and_none_is_larger_than_it_may_be() {
    let form = Form {
        end: b'\n',
        most: 40,
    };
    let samples: [&[u8]; 3] = [
        b"one\n\ntwo\nthree",
        b"\n\n\n",
        b"0123456789012345678901234567890123456789\n",
    ];
    mutants(
        "records",
        USUAL,
        &samples,
        &[b"\n", b"0123456789"],
        |bytes| {
            let mut text = Vec::new();
            let mut lines = 0;
            for record in records(Cursor::new(bytes), form, "file") {
                let Some(record) = taken(record) else {
                    return false;
                };
                lines += 1;
                assert_eq!(record.line, lines);
                assert!(record.bytes.len() <= form.most && !record.bytes.contains(&form.end));
                text.extend_from_slice(&record.bytes);
                text.push(form.end);
            }
            if !bytes.ends_with(&[form.end]) && !bytes.is_empty() {
                text.pop();
            }
            assert_eq!(text, bytes);
            true
        },
    );
}

#[test]
fn a_file_without_an_end_is_given_up() {
    let form = Form {
        end: b'\n',
        most: 1 << 20,
    };
    for piece in [&b"\0"[..], b"x", b"{\"command\":[", b"A=b "] {
        let endless = |taken| Endless {
            piece,
            taken,
            most: 4 << 20,
        };
        let count = AtomicU64::new(0);
        let source = io::BufReader::new(endless(&count));
        let error = records(source, form, "file").find_map(Result::err).unwrap();
        is_told_well(&error, &[ErrorKind::Usage]);
        let count = AtomicU64::new(0);
        let error = at_most(endless(&count), 1 << 20, "file").unwrap_err();
        is_told_well(&error, &[ErrorKind::Usage]);
        assert!(count.load(Ordering::Relaxed) > 1 << 20);
    }
}
