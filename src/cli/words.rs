//! Words that users type, read strictly: the same in every locale, and refused where they could be
//! misread.
//!
//! Errors are of the kind `Usage` and name the word.

use nix::sys::signal::Signal;

use super::time::Zone;
use crate::config::Settings;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Band, LocalId, ShardId, Span, StepId, Timestamp};

/// Reads a duration: `90`, `90s`, `1h30m`, `2d`, `250ms`, `1.5s`.
///
/// # Errors
///
/// `Usage` for anything else.
pub fn span(text: &str) -> Result<Span> {
    text.parse()
        .map_err(|error: crate::model::ParseSpanError| usage(error.to_string()))
}

/// Reads since when something is wanted: a duration until now, as [`span`], or a time, as
/// [`Zone::read`].
///
/// # Errors
///
/// `Usage` for anything else, and for a time that lies ahead.
pub fn since(text: &str, zone: &Zone, now: Timestamp) -> Result<Timestamp> {
    if let Ok(span) = text.parse::<Span>() {
        return Ok(now - span);
    }
    let instant = zone.read(text, now)?;
    if instant > now {
        return Err(usage(format!("{text:?} is not over yet")).hint(format!(
            "it is read as {instant}; write the day as well, or a duration: 1h30m"
        )));
    }
    Ok(instant)
}

/// Reads a band: its number, or a name from the configuration.
///
/// # Errors
///
/// `Usage` if it is neither.
pub fn band(text: &str, settings: &Settings) -> Result<Band> {
    settings.band(text)
}

/// Reads a signal: `TERM`, `SIGTERM` or `15`.
///
/// # Errors
///
/// `Usage` for anything else.
pub fn signal(text: &str) -> Result<i32> {
    let number = text
        .parse::<i32>()
        .ok()
        .filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|number| Signal::try_from(number).ok());
    let name = text.to_ascii_uppercase();
    let named = || {
        let name = name.strip_prefix("SIG").unwrap_or(&name);
        format!("SIG{name}").parse::<Signal>().ok()
    };
    let signal = number.or_else(named).ok_or_else(|| {
        usage(format!("{text:?} is not a signal"))
            .hint("write its name or number: TERM, SIGTERM, 15")
    })?;
    Ok(signal as i32)
}

/// Reads a whole number of things, in plain digits.
///
/// # Errors
///
/// `Usage` for anything else.
pub fn number(text: &str) -> Result<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten();
    number.ok_or_else(|| {
        usage(format!(
            "{text:?} is not a whole number that is small enough"
        ))
    })
}

/// Steps of one shard whose numbers follow each other; one step is a range of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdRange {
    /// The shard that holds them all.
    pub shard: ShardId,
    /// The first number.
    pub first: LocalId,
    /// The last number, not below the first.
    pub last: LocalId,
}

impl IdRange {
    /// Returns whether the step is one of these.
    pub fn contains(self, id: StepId) -> bool {
        id.shard == self.shard && (self.first..=self.last).contains(&id.local)
    }

    /// Returns the step, if the range is just one.
    pub fn single(self) -> Option<StepId> {
        (self.first == self.last).then(|| StepId::new(self.shard, self.first))
    }
}

impl std::fmt::Display for IdRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        StepId::new(self.shard, self.first).fmt(f)?;
        if self.first != self.last {
            write!(f, "-{}", StepId::new(self.shard, self.last))?;
        }
        Ok(())
    }
}

impl std::str::FromStr for IdRange {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        ids(text)
    }
}

/// Reads a selector of ids: `a3`, or `a5-a9` with both ends included.
///
/// # Errors
///
/// `Usage` for what is no id, for a range over two shards, and for one that runs backwards.
pub fn ids(text: &str) -> Result<IdRange> {
    let id = |part: &str| {
        part.parse::<StepId>().map_err(|error| {
            let error = usage(error.to_string());
            if part == text {
                error
            } else {
                error.context(format!("{text:?} is not a range of steps"))
            }
        })
    };
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (id(first)?, id(last)?),
        None => {
            let one = id(text)?;
            (one, one)
        }
    };
    if first.shard != last.shard {
        return Err(usage(format!(
            "the range {text:?} goes from one shard to another"
        ))
        .hint("the letter is the shard, and numbers count within it: give one range for each letter"));
    }
    if first.local > last.local {
        return Err(usage(format!("the range {text:?} runs backwards"))
            .hint(format!("write {last}-{first}")));
    }
    Ok(IdRange {
        shard: first.shard,
        first: first.local,
        last: last.local,
    })
}

fn usage(what: String) -> Error {
    Error::new(ErrorKind::Usage, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_ranges_read_back_as_they_were_written() {
        for text in ["a1", "z9223372036854775807", "a5-a9", "b1-b2"] {
            assert_eq!(ids(text).unwrap().to_string(), text);
        }
        assert_eq!(ids("a7-a7").unwrap(), ids("a7").unwrap());
        assert_eq!(ids("a7").unwrap().single(), "a7".parse().ok());
        assert_eq!(ids("a7-a8").unwrap().single(), None);
    }

    #[test]
    fn a_range_holds_its_ends_and_nothing_of_other_shards() {
        let range = ids("b5-b9").unwrap();
        for (id, inside) in [
            ("b4", false),
            ("b5", true),
            ("b7", true),
            ("b9", true),
            ("b10", false),
            ("a7", false),
        ] {
            assert_eq!(range.contains(id.parse().unwrap()), inside, "{id}");
        }
    }

    #[test]
    fn what_is_no_range_is_refused_by_name() {
        for (text, part) in [
            ("", "not a step id"),
            ("-", "not a range"),
            ("a", "not a step id"),
            ("5", "not a step id"),
            ("a5-", "not a range"),
            ("-a5", "not a range"),
            ("a5-9", "not a range"),
            ("a5-a9-a12", "not a range"),
            ("a5..a9", "not a step id"),
            ("a5–a9", "not a step id"),
            ("a5 -a9", "not a range"),
            ("a０5", "not a step id"),
            ("a9-a5", "backwards"),
            ("a5-b9", "one shard to another"),
            ("a5,a6", "not a step id"),
            ("*", "not a step id"),
        ] {
            let error = ids(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage, "{text:?}");
            assert!(error.to_string().contains(part), "{text:?}: {error}");
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn since_is_a_duration_until_now_or_a_time_that_is_over() {
        let zone = Zone::new(jiff::tz::TimeZone::UTC);
        let now: Timestamp = Timestamp::from_millis(86_400_000);
        let read = |text| since(text, &zone, now);
        let millis = |text| read(text).unwrap().millis();
        assert_eq!(millis("1h"), 82_800_000);
        assert_eq!(millis("90"), 86_310_000);
        assert_eq!(millis("1970-01-01 01:00"), 3_600_000);
        assert_eq!(millis("now"), 86_400_000);
        for text in ["1970-01-03 00:00", "16:00", "yesterday", ""] {
            assert_eq!(read(text).unwrap_err().kind(), ErrorKind::Usage, "{text}");
        }
    }

    #[test]
    fn a_signal_is_a_name_or_a_number() {
        for text in ["TERM", "SIGTERM", "15", "term", "sigterm"] {
            assert_eq!(signal(text).unwrap(), 15, "{text}");
        }
        assert_eq!(signal("USR1").unwrap(), signal("SIGUSR1").unwrap());
        for text in [
            "",
            "0",
            "-9",
            "+9",
            "999",
            "９",
            "SIG",
            "SIGSIGTERM",
            "NOPE",
            "9 ",
        ] {
            assert_eq!(signal(text).unwrap_err().kind(), ErrorKind::Usage, "{text}");
        }
    }

    #[test]
    fn a_number_is_plain_digits() {
        assert_eq!(number("0").unwrap(), 0);
        assert_eq!(number("4294967295").unwrap(), u32::MAX);
        for text in ["", "-1", "+1", "1_0", "1.0", "４", "4294967296", " 1"] {
            assert_eq!(number(text).unwrap_err().kind(), ErrorKind::Usage, "{text}");
        }
    }

    #[test]
    fn a_wrong_duration_is_a_mistake_of_usage() {
        assert_eq!(span("1h30m").unwrap(), Span::from_millis(5_400_000));
        assert_eq!(span("0,5s").unwrap_err().kind(), ErrorKind::Usage);
    }
}
