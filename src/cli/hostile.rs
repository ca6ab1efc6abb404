//! Words that nobody means: whatever is typed, it is read as what it says or refused in one safe line.

mod kept;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use jiff::tz::TimeZone;

use super::render::color::Paint;
use super::time::{Zone, ago, rough};
use super::{Context, Screen, words};
use crate::ambient::ManualClock;
use crate::config::{Flags, Settings, Surroundings};
use crate::error::{Error, ErrorKind, Result};
use crate::fuzz::{self, below, each, one_of, texts};
use crate::model::{
    Band, FairnessKey, LimitName, Policy, RunnerId, ShardId, Span, StepId, StepState, Timestamp,
    Weight,
};

/// How many inputs each of these gets in an ordinary run.
const USUAL: u64 = 4_000;

/// What was written, for whoever wants to look at it.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl io::Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// When all of this happens.
pub(super) const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// A place without a store, at a fixed time, whose data goes to this paper.
fn context_over(paper: Paper, width: Option<u16>) -> Context {
    let around = Surroundings {
        vars: BTreeMap::from([
            ("HOME".into(), "/nowhere".into()),
            ("PATH".into(), "/usr/bin".into()),
        ]),
        cwd: Some("/".into()),
        cpus: crate::config::Cpus::of(2),
        uid: 0,
    };
    let flags = Flags {
        store: Some("/nowhere/store".into()),
        ..Flags::default()
    };
    Context {
        settings: Settings::load(&flags, &around).unwrap(),
        around,
        screen: Screen::over(paper, io::sink(), width, Paint::NONE),
        clock: Arc::new(ManualClock::new(NOW)),
        zone: Zone::new(TimeZone::UTC),
    }
}

/// Returns a place without a store, at a fixed time.
pub(super) fn context() -> Context {
    context_over(Paper::default(), None)
}

/// Returns what is written as data.
pub(super) fn on_paper(
    width: Option<u16>,
    write: impl FnOnce(&mut Context) -> Result<()>,
) -> String {
    let paper = Paper::default();
    write(&mut context_over(paper.clone(), width)).unwrap();
    String::from_utf8(paper.0.lock().unwrap().clone()).unwrap()
}

/// Checks that an error is of one of these kinds, and is told in safe lines: one of what happened,
/// then causes and hints.
#[track_caller]
pub(super) fn is_told_well(error: &Error, kinds: &[ErrorKind]) {
    assert!(kinds.contains(&error.kind()), "{:?}: {error}", error.kind());
    assert!(!error.to_string().contains(char::is_control), "{error:?}");
    let paper = Paper::default();
    Screen::over(io::sink(), paper.clone(), None, Paint::NONE).error(error);
    let said = String::from_utf8(paper.0.lock().unwrap().clone()).unwrap();
    let acts = |letter: char| {
        letter != '\n' && (letter.is_control() || ('\u{202a}'..='\u{202e}').contains(&letter))
    };
    assert!(!said.contains(acts), "{said:?}");
    let starts = ["  caused by: ", "hint: "];
    for (number, line) in said.lines().enumerate() {
        let right = match number {
            0 => line.starts_with("error: "),
            _ => starts.iter().any(|start| line.starts_with(start)),
        };
        assert!(right, "{said:?}");
        assert!(line.len() < 50_000, "{} bytes", line.len());
    }
}

/// Returns what was read, if it was; an error must be one of usage.
#[track_caller]
fn usable<T>(read: Result<T>) -> Option<T> {
    read.inspect_err(|error| is_told_well(error, &[ErrorKind::Usage]))
        .ok()
}

#[test]
fn a_duration_reads_back_or_is_refused() {
    let samples = [
        "90",
        "90s",
        "1h30m",
        "2d",
        "250ms",
        "1.5s",
        "1w2d3h4m5s6ms",
        "0",
        "0.001s",
        "106751991167d",
        "9223372036854775807ms",
        "15250284452w",
        "0,5s",
        "1_000",
        "1e3s",
        "１s",
        "-1s",
        "1h30",
        ".5s",
        "5.s",
        "1..5s",
        "00000000000000000000000000000001s",
        "0.0000000000000000000001s",
        "1h1h",
        "1s1h",
        " 1s",
        "1 s",
        "9223372036854775808ms",
        "0.99999999999999999999999w",
    ];
    let pieces = [
        "1",
        "0",
        "9",
        ".",
        "w",
        "d",
        "h",
        "m",
        "s",
        "ms",
        "99999999999",
        "0000",
    ];
    texts("a duration", USUAL, &samples, &pieces, |text| {
        let Some(span) = usable(words::span(text)) else {
            return false;
        };
        assert!(i64::try_from(span.millis()).is_ok(), "{span:?}");
        assert!(
            text.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
        );
        let exact = format!("{}ms", span.millis());
        assert_eq!(exact.parse(), Ok(span));
        // What is shown is rounded; it is a duration, never a longer one.
        for shown in [span.to_string(), rough(span)] {
            let read: Span = shown.parse().unwrap();
            assert!(read <= span, "{shown} of {span:?}");
        }
        assert_eq!(
            span.to_string().parse::<Span>().unwrap().to_string(),
            span.to_string()
        );
        true
    });
}

#[test]
fn a_time_reads_back_or_is_refused() {
    let zones = [
        Zone::new(TimeZone::UTC),
        Zone::new(TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()),
        Zone::new(TimeZone::posix("XXX24YYY-24,J1,J365/167").unwrap()),
        Zone::new(TimeZone::posix("<+1245>-12:45<+1345>,M9.5.0/2:45,M4.1.0/3:45").unwrap()),
    ];
    let samples = [
        "2027-03-14T16:00:00Z",
        "2027-03-14 16:00",
        "16:00",
        "now+1h30m",
        "now",
        "23:59:59.999",
        "2027-03-28 02:30",
        "2027-10-31 02:30",
        "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999Z",
        "9999-12-31 23:59",
        "-000001-01-01T00:00:00Z",
        "2027-02-29T00:00:00Z",
        "2028-02-29 00:00",
        "2027-03-14T16:00:60Z",
        "24:00",
        "2027-03-14t16:00:00z",
        "2027-03-14T16:00:00+25:59",
        "2027-03-14T16:00:00-00:00",
        "now+9223372036854775807ms",
        "now-1h",
        "nowhere",
        "０１:00",
        "2027-03-14T16:00:00.0000000000001Z",
        "2027-03-14T16:00Z[Europe/Berlin]",
        "9999-12-31T23:59:59-23:59",
    ];
    let pieces = [
        "now", "+", "-", ":", "T", "Z", "2027", "03", "31", "02", "30", "00", ".5", "1h", " ",
    ];
    let nows = [
        0,
        1_805_000_000_000,
        1_806_197_400_000,
        253_402_300_799_999,
        i64::MAX,
        i64::MIN,
    ];
    let kinds = [ErrorKind::Usage, ErrorKind::General];
    texts("a time", USUAL / 4, &samples, &pieces, |text| {
        let mut accepted = 0;
        for (zone, now) in zones.iter().flat_map(|zone| nows.map(|now| (zone, now))) {
            let now = Timestamp::from_millis(now);
            let read = zone.read(text, now);
            let Ok(instant) = read.inspect_err(|error| is_told_well(error, &kinds)) else {
                continue;
            };
            accepted += 1;
            for shown in [zone.show(instant), ago(instant, now), instant.to_string()] {
                assert!(!shown.contains(char::is_control), "{shown:?}");
            }
            let within = (-62_167_219_200_000..=253_402_207_200_000).contains(&instant.millis());
            if within {
                let again = zone.read(&instant.to_string(), now).unwrap();
                assert_eq!(again, instant);
            }
            if let Ok(since) = words::since(text, zone, now) {
                assert!(since <= now, "{since} after {now}");
            }
        }
        accepted > 0
    });
}

#[test]
fn ids_and_ranges_read_back_or_are_refused() {
    let samples = [
        "a1",
        "z9223372036854775807",
        "a5-a9",
        "a1-a1",
        "a0",
        "a01",
        "a+1",
        "a-1",
        "A1",
        "aa1",
        "a9223372036854775808",
        "a1-b2",
        "a9-a5",
        "a1-",
        "-a1",
        "a1-a2-a3",
        "ä1",
        "a１",
        "{1",
        "a1 ",
    ];
    let pieces = [
        "a",
        "z",
        "{",
        "`",
        "-",
        "1",
        "9",
        "0",
        "17",
        "9223372036854775807",
    ];
    texts("an id", USUAL, &samples, &pieces, |text| {
        let runner: Result<RunnerId, _> = text.parse();
        assert!(runner.is_err() || runner.unwrap().to_string() == text);
        if let Ok(id) = text.parse::<StepId>() {
            assert_eq!(id.to_string(), text);
            let json = serde_json::to_string(&id).unwrap();
            assert_eq!(serde_json::from_str::<StepId>(&json).unwrap(), id);
        }
        let Some(range) = usable(words::ids(text)) else {
            return false;
        };
        assert!(range.shard.number() < ShardId::MAX_SHARDS);
        assert!(1 <= range.first.get() && range.first <= range.last);
        assert_eq!(words::ids(&range.to_string()).unwrap(), range);
        true
    });
}

#[test]
fn a_runners_name_has_one_spelling() {
    let samples = [
        "00000abc",
        "7fffffffffffffff",
        "deadbeef",
        "00000000",
        "+0000001",
        "-0000001",
        "0000000000000001",
        "ABCDEF00",
        "ffffffffffffffff",
        "8000000000000000",
    ];
    let pieces = ["0", "f", "7", "+", "-", "dead", "beef", "1234"];
    texts("a runner", USUAL, &samples, &pieces, |text| {
        let read: Option<RunnerId> = text.parse().ok();
        assert!(read.is_none_or(|runner| runner.to_string() == text && runner.get() >= 0));
        read.is_some()
    });
}

#[test]
fn keys_weights_bands_limits_numbers_and_signals_are_in_their_ranges() {
    let long = "k".repeat(200);
    let samples = [
        "1",
        "2.5",
        "1e300",
        "5e-324",
        "0",
        "-0",
        "inf",
        "NaN",
        "1e999",
        "+1",
        ".5",
        "5.",
        "0x10",
        "2147483647",
        "2147483648",
        "4294967295",
        "alice",
        "gpu",
        "gpu:2",
        "a,b",
        "",
        "TERM",
        "SIGTERM",
        "sigkill",
        "15",
        "64",
        "SIGSIGTERM",
        "Ωmega",
        "a\0b",
        "a\nb",
        &long,
        "succeeded",
        "running",
        "\u{202e}x",
    ];
    let pieces = [
        "1", ".", "e", "-", "+", "9", "k", ":", "SIG", "INT", "nan", "infinity", "\0",
    ];
    texts("a word", USUAL, &samples, &pieces, |text| {
        let mut accepted = false;
        if let Ok(key) = text.parse::<FairnessKey>() {
            assert!((1..=FairnessKey::MAX_BYTES).contains(&key.as_str().len()));
            assert!(key.as_str() == text && !text.contains('\0'));
        }
        if let Ok(weight) = text.parse::<Weight>() {
            accepted = true;
            assert!(weight.get().is_finite() && weight.get() > 0.0);
            assert_eq!(weight.to_string().parse(), Ok(weight));
        }
        if let Ok(name) = text.parse::<LimitName>() {
            assert!((1..=LimitName::MAX_BYTES).contains(&name.as_str().len()));
            assert!(!text.contains([',', ':']) && !text.contains(char::is_control));
        }
        if let Some(number) = usable(words::number(text)) {
            assert_eq!(
                number.to_string(),
                text.trim_start_matches('0').to_owned() + if number == 0 { "0" } else { "" }
            );
        }
        if let Some(signal) = usable(words::signal(text)) {
            assert!((1..=31).contains(&signal), "{signal}");
            assert_eq!(words::signal(&signal.to_string()).unwrap(), signal);
        }
        if let Ok(state) = text.parse::<StepState>() {
            assert_eq!(state.word(), text);
        }
        accepted
    });
}

/// The dice of the tests: what is drawn depends on the seed alone.
#[test]
fn a_seed_gives_the_same_input_each_time() {
    let draw = |seed| {
        let mut dice = crate::ambient::Dice::seeded(seed);
        let of = one_of(&mut dice, &[b"a1-a9".as_slice(), b"now+1h"]);
        let mutant = fuzz::mutant(&mut dice, &[of], &[b"x"]);
        (
            mutant,
            fuzz::value(&mut dice, 4).to_string(),
            below(&mut dice, 9),
        )
    };
    assert_eq!(draw(7), draw(7));
    assert_ne!(draw(7), draw(8));
}
