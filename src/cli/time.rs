//! Instants as people write and read them: in local time, with the zone.
//!
//! Data carries RFC 3339 in UTC instead, which is how a [`Timestamp`] displays itself.

use std::sync::OnceLock;

use jiff::civil::{DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};

use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::model::{Span, Timestamp};

const FORMS: &str =
    "write 2027-03-14T16:00:00Z, 2027-03-14 16:00 (local time), 16:00 (the next one) or now+1h30m";

/// The user's time zone.
#[derive(Clone, Debug)]
pub struct Zone {
    /// Found at the first use: the library walks through all zones that the system has, which takes
    /// a tenth of an enqueue that asks for none.
    known: OnceLock<Known>,
}

#[derive(Clone, Debug)]
struct Known {
    zone: TimeZone,
    /// Why the user's zone is not known; UTC stands in for showing, not for reading.
    trouble: Option<String>,
}

impl Zone {
    /// Returns the zone that `TZ` names, else the system's. Where that fails, instants are shown in
    /// UTC, and local times are refused rather than misread.
    pub const fn of_process() -> Self {
        Self {
            known: OnceLock::new(),
        }
    }

    /// Returns a given zone.
    pub fn new(zone: TimeZone) -> Self {
        Self::of(Known {
            zone,
            trouble: None,
        })
    }

    fn of(known: Known) -> Self {
        Self {
            known: known.into(),
        }
    }

    fn found(&self) -> &Known {
        self.known.get_or_init(|| match TimeZone::try_system() {
            Ok(zone) => Known {
                zone,
                trouble: None,
            },
            Err(error) => Known {
                zone: TimeZone::UTC,
                trouble: Some(error.to_string()),
            },
        })
    }

    /// Returns the instant in this zone: `2027-03-14 16:00:00 EDT`.
    pub fn show(&self, instant: Timestamp) -> String {
        // Beyond the calendar's end the plain form still is a number that can be compared.
        jiff::Timestamp::from_millisecond(instant.millis()).map_or_else(
            |_| instant.to_string(),
            |exact| {
                let offset = self.found().zone.to_offset_info(exact);
                let local = offset.offset().to_datetime(exact);
                format!(
                    "{} {}",
                    local.strftime("%Y-%m-%d %H:%M:%S"),
                    offset.abbreviation()
                )
            },
        )
    }

    /// Reads an instant as people write it.
    ///
    /// RFC 3339 names an instant by itself. `now` and `now+1h` count from `now`. `2027-03-14 16:00`
    /// is local; a local time that a clock change leaves out or shows twice is refused. `16:00` is
    /// the next instant at which the local clock shows it, and is refused only on the day on which
    /// the clock leaves it out.
    ///
    /// # Errors
    ///
    /// `Usage` for everything else; `Config` for a local time where the zone is not known.
    pub fn read(&self, text: &str, now: Timestamp) -> Result<Timestamp> {
        if let Some(rest) = text.strip_prefix("now") {
            return relative(rest, now).map_err(|error| error.context(wrong(text)));
        }
        let instant = match Form::of(text) {
            Some(Form::Instant) => text
                .parse()
                .or_fail(ErrorKind::Usage, || wrong(text))
                .map_err(|error| error.hint(FORMS))?,
            Some(Form::Local) => {
                let local = text
                    .parse()
                    .or_fail(ErrorKind::Usage, || wrong(text))
                    .map_err(|error| error.hint(FORMS))?;
                self.only(text, local)?
            }
            Some(Form::Clock) => {
                let clock = text
                    .parse()
                    .or_fail(ErrorKind::Usage, || wrong(text))
                    .map_err(|error| error.hint(FORMS))?;
                self.next(text, clock, now)?
            }
            None => return Err(Error::new(ErrorKind::Usage, wrong(text)).hint(FORMS)),
        };
        Ok(Timestamp::from_millis(instant.as_millisecond()))
    }

    fn known(&self, text: &str) -> Result<&TimeZone> {
        let Known { zone, trouble } = self.found();
        match trouble {
            None => Ok(zone),
            Some(trouble) => Err(Error::new(
                ErrorKind::Config,
                format!("{text:?} is a local time, and the time zone is not known: {trouble}"),
            )
            .hint("set TZ, or write the time with its offset: 2027-03-14T16:00:00+01:00")),
        }
    }

    /// Returns the one instant at which the local clock shows this.
    fn only(&self, text: &str, local: DateTime) -> Result<jiff::Timestamp> {
        let ambiguous = self.known(text)?.to_ambiguous_timestamp(local);
        match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { offset } => instant(text, offset, local),
            AmbiguousOffset::Gap { before, after } => Err(self.gap(text, local, before, after)),
            AmbiguousOffset::Fold { before, after } => {
                let (first, second) = (instant(text, before, local)?, instant(text, after, local)?);
                Err(Error::new(
                    ErrorKind::Usage,
                    format!("the local time {text:?} comes twice: the clock is set back over it"),
                )
                .hint(format!(
                    "write {first} for the first, {second} for the second"
                )))
            }
        }
    }

    /// Returns the next instant at which the local clock shows this time of day.
    fn next(&self, text: &str, clock: Time, now: Timestamp) -> Result<jiff::Timestamp> {
        let zone = self.known(text)?;
        let from = jiff::Timestamp::from_millisecond(now.millis())
            .or_fail(ErrorKind::General, || {
                "the machine's clock is beyond the calendar".to_owned()
            })?;
        let here = zone.to_datetime(from);
        let mut day = here.date();
        // Today, tomorrow, and the day after where tomorrow's is over when today's comes twice.
        for _ in 0..3 {
            let local = day.to_datetime(clock);
            match zone.to_ambiguous_timestamp(local).offset() {
                AmbiguousOffset::Unambiguous { offset } => {
                    let found = instant(text, offset, local)?;
                    if found > from {
                        return Ok(found);
                    }
                }
                AmbiguousOffset::Gap { before, after } => {
                    if local > here {
                        return Err(self.gap(text, local, before, after));
                    }
                }
                AmbiguousOffset::Fold { before, after } => {
                    for offset in [before, after] {
                        let found = instant(text, offset, local)?;
                        if found > from {
                            return Ok(found);
                        }
                    }
                }
            }
            day = day.tomorrow().or_fail(ErrorKind::Usage, || wrong(text))?;
        }
        Err(Error::new(ErrorKind::Usage, wrong(text)).hint(FORMS))
    }

    fn gap(
        &self,
        text: &str,
        local: DateTime,
        before: jiff::tz::Offset,
        after: jiff::tz::Offset,
    ) -> Error {
        let error = Error::new(
            ErrorKind::Usage,
            format!(
                "the local time {text:?} does not exist on {}: the clock is set forward over it",
                local.date()
            ),
        );
        // Read with the offset before the change, a skipped time lies just after it; with the other,
        // just before.
        match (after.to_timestamp(local), before.to_timestamp(local)) {
            (Ok(earlier), Ok(later)) => {
                let shown = |exact: jiff::Timestamp| {
                    self.show(Timestamp::from_millis(exact.as_millisecond()))
                };
                error.hint(format!(
                    "write {earlier} ({}) or {later} ({})",
                    shown(earlier),
                    shown(later)
                ))
            }
            _ => error,
        }
    }
}

fn wrong(text: &str) -> String {
    format!("{text:?} is not a time")
}

fn instant(text: &str, offset: jiff::tz::Offset, local: DateTime) -> Result<jiff::Timestamp> {
    offset
        .to_timestamp(local)
        .or_fail(ErrorKind::Usage, || wrong(text))
}

fn relative(rest: &str, now: Timestamp) -> Result<Timestamp> {
    if rest.is_empty() {
        return Ok(now);
    }
    let Some(span) = rest.strip_prefix('+') else {
        return Err(Error::new(ErrorKind::Usage, "after now comes + and a duration").hint(FORMS));
    };
    Ok(now + super::words::span(span)?)
}

/// What a text looks like, letter for letter, before anything lenient reads it.
#[derive(Debug, PartialEq, Eq)]
enum Form {
    Instant,
    Local,
    Clock,
}

impl Form {
    fn of(text: &str) -> Option<Self> {
        if !text.is_ascii() {
            return None;
        }
        if clock(text) == Some("") {
            return Some(Self::Clock);
        }
        let rest = pattern(text, "0000-00-00")?;
        let rest = rest.strip_prefix(['T', 't', ' '])?;
        match clock(rest)? {
            "" => Some(Self::Local),
            "Z" | "z" => Some(Self::Instant),
            offset => {
                let offset = offset.strip_prefix(['+', '-'])?;
                (pattern(offset, "00:00") == Some("")).then_some(Self::Instant)
            }
        }
    }
}

/// Cuts a time of day off the text's beginning: `16:00`, `16:00:05`, `16:00:05.25`.
fn clock(text: &str) -> Option<&str> {
    let minutes = pattern(text, "00:00")?;
    let Some(seconds) = pattern(minutes, ":00") else {
        return Some(minutes);
    };
    let Some(fraction) = seconds.strip_prefix('.') else {
        return Some(seconds);
    };
    let rest = fraction.trim_start_matches(|letter: char| letter.is_ascii_digit());
    (rest.len() < fraction.len()).then_some(rest)
}

/// Cuts off what looks like the pattern, in which `0` stands for any digit.
fn pattern<'t>(text: &'t str, pattern: &str) -> Option<&'t str> {
    let head = text.as_bytes().get(..pattern.len())?;
    let alike = head.iter().zip(pattern.as_bytes()).all(|(byte, wanted)| {
        if *wanted == b'0' {
            byte.is_ascii_digit()
        } else {
            byte == wanted
        }
    });
    alike.then(|| &text[pattern.len()..])
}

/// Returns how long ago an instant was, or how far ahead it is: `3m ago`, `in 2h`, `now`.
pub fn ago(instant: Timestamp, now: Timestamp) -> String {
    let (past, ahead) = (now.since(instant), instant.since(now));
    if past.max(ahead) < Span::from_millis(1_000) {
        "now".to_owned()
    } else if ahead > past {
        format!("in {}", rough(ahead))
    } else {
        format!("{} ago", rough(past))
    }
}

/// Returns a length of time in its largest unit, rounded down: `3m`.
pub fn rough(span: Span) -> String {
    let seconds = span.millis() / 1_000;
    match seconds {
        0 => format!("{}ms", span.millis()),
        1..=59 => format!("{seconds}s"),
        60..=3_599 => format!("{}m", seconds / 60),
        3_600..=86_399 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
#[path = "time_tests.rs"]
mod tests;
