//! The words of a step's options, each read in one place: by the command line, by the lines of
//! `--from-ndjson` and by flow files alike. Strict, and the same in every locale.

use std::str::FromStr as _;

use crate::cli::words;
use crate::model::{Backoff, FairnessKey, LimitName, OnLost, Scope, Span, Weight};

/// Something that is written as one word.
pub(in crate::cli) trait Term: Sized {
    /// What stands between a name and what is said of it, where words consist of these.
    const BETWEEN: Option<char> = None;

    /// Reads it; the error says what is wrong with the word, and names it.
    fn read(text: &str) -> Result<Self, String>;
}

/// Reads a word, as clap wants it.
pub(super) fn term<T: Term>(text: &str) -> Result<T, String> {
    T::read(text)
}

/// Exit codes, as a shell reports them: `1,5-9`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Codes(pub(super) Vec<u8>);

/// A number of bytes: `64K`, `10M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Size(pub(super) u64);

/// The number of a signal, written as `TERM`, `SIGTERM` or `15`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) struct SignalNumber(pub(super) i32);

/// Places of a named limit: `gpu`, `gpu:2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Places {
    pub(super) limit: LimitName,
    /// At least 1.
    pub(super) places: u32,
}

/// Something, or the word `none` for that there shall be none of it, whatever there was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum OrNone<T> {
    /// None of it.
    None,
    /// This.
    Some(T),
}

impl<T> OrNone<T> {
    /// Returns what there shall be.
    pub(super) fn into_option(self) -> Option<T> {
        match self {
            Self::None => None,
            Self::Some(value) => Some(value),
        }
    }
}

impl<T: Term> Term for OrNone<T> {
    const BETWEEN: Option<char> = T::BETWEEN;

    fn read(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::None);
        }
        T::read(text).map(Self::Some)
    }
}

impl Term for String {
    fn read(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl Term for std::path::PathBuf {
    fn read(text: &str) -> Result<Self, String> {
        Ok(text.into())
    }
}

impl Term for std::ffi::OsString {
    const BETWEEN: Option<char> = Some('=');

    fn read(text: &str) -> Result<Self, String> {
        Ok(text.into())
    }
}

impl Term for u32 {
    fn read(text: &str) -> Result<Self, String> {
        words::number(text).map_err(|error| error.what().to_owned())
    }
}

impl Term for Span {
    fn read(text: &str) -> Result<Self, String> {
        Self::from_str(text).map_err(|error| error.to_string())
    }
}

impl Term for FairnessKey {
    fn read(text: &str) -> Result<Self, String> {
        Self::from_str(text).map_err(|error| error.to_string())
    }
}

impl Term for Weight {
    fn read(text: &str) -> Result<Self, String> {
        Self::from_str(text).map_err(|error| error.to_string())
    }
}

impl Term for OnLost {
    fn read(text: &str) -> Result<Self, String> {
        match text {
            "retry" => Ok(Self::Retry),
            "fail" => Ok(Self::Fail),
            "hold" => Ok(Self::Hold),
            _ => Err("it is retry, fail or hold".to_owned()),
        }
    }
}

impl Term for Scope {
    fn read(text: &str) -> Result<Self, String> {
        match text {
            "queued" => Ok(Self::Queued),
            "active" => Ok(Self::Active),
            "kept" => Ok(Self::Kept),
            _ => Err("it is queued, active or kept".to_owned()),
        }
    }
}

impl Term for Backoff {
    /// Reads `BASE[,FACTOR[,CAP]]`: `10s`, `1s,3`, `1s,2,5m`.
    fn read(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let mut backoff = Self::default();
        if let Some(base) = parts.next() {
            backoff.base = Span::read(base)?;
        }
        if let Some(factor) = parts.next() {
            backoff.factor = decimal(factor)
                .filter(|factor| *factor >= 1.0)
                .ok_or_else(|| {
                    format!(
                        "the factor {factor:?} is not a number from 1 to 1000000, such as 2 or 1.5"
                    )
                })?;
        }
        match parts.next() {
            Some(cap) => backoff.cap = Span::read(cap)?,
            // A base beyond the usual cap is meant as it stands.
            None => backoff.cap = backoff.cap.max(backoff.base),
        }
        if parts.next().is_some() {
            return Err("it is BASE, BASE,FACTOR or BASE,FACTOR,CAP".to_owned());
        }
        if backoff.cap < backoff.base {
            return Err("its cap is below its base".to_owned());
        }
        Ok(backoff)
    }
}

impl Term for Codes {
    fn read(text: &str) -> Result<Self, String> {
        let code = |text: &str| {
            digits(text)
                .and_then(|code| u8::try_from(code).ok())
                .ok_or_else(|| {
                    format!("{text:?} is not an exit code; codes are 0 to 255, written 1,5-9")
                })
        };
        let mut codes = std::collections::BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (code(first)?, code(last)?);
            if first > last {
                return Err(format!("the range {part:?} runs backwards"));
            }
            codes.extend(first..=last);
        }
        Ok(Self(codes.into_iter().collect()))
    }
}

impl Term for Size {
    fn read(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a size; sizes look like 65536, 64K, 10M or 1G");
        let end = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(end);
        // Powers of 1024, as `ulimit`, `head` and `split` count. A B after it would be read in two ways.
        let shift = match unit.to_ascii_uppercase().as_str() {
            "" => 0,
            "K" | "KIB" => 10,
            "M" | "MIB" => 20,
            "G" | "GIB" => 30,
            "T" | "TIB" => 40,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().or(Err(wrong()))?;
        number
            .checked_mul(1 << shift)
            .filter(|bytes| i64::try_from(*bytes).is_ok())
            .map(Self)
            .ok_or_else(|| format!("{text:?} is too large"))
    }
}

impl Term for SignalNumber {
    fn read(text: &str) -> Result<Self, String> {
        words::signal(text)
            .map(Self)
            .map_err(|error| error.what().to_owned())
    }
}

impl Term for Places {
    const BETWEEN: Option<char> = Some(':');

    fn read(text: &str) -> Result<Self, String> {
        let (name, places) = match text.rsplit_once(':') {
            Some((name, places)) => (
                name,
                digits(places).filter(|places| *places > 0).ok_or_else(|| {
                    format!("{places:?} is not a number of places; write gpu, or gpu:2")
                })?,
            ),
            None => (text, 1),
        };
        let limit = name
            .parse::<LimitName>()
            .map_err(|error| error.to_string())?;
        Ok(Self { limit, places })
    }
}

/// Reads plain digits: no sign, no blanks, no separators.
fn digits(text: &str) -> Option<u32> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
}

/// Reads a plain number with perhaps a decimal point.
fn decimal(text: &str) -> Option<f64> {
    let plain = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    text.bytes()
        .all(plain)
        .then(|| text.parse().ok())
        .flatten()
        .filter(|number: &f64| *number <= Backoff::MOST_FACTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_lists_of_ranges() {
        assert_eq!(Codes::read("1,5-7,6").unwrap().0, [1, 5, 6, 7]);
        assert_eq!(Codes::read("0-255").unwrap().0.len(), 256);
        for bad in [
            "", ",", "1,", "256", "-1", "5-", "9-5", "1 ,2", "1-2-3", "+1", "１",
        ] {
            assert!(Codes::read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_backoff_has_a_base_and_perhaps_a_factor_and_a_cap() {
        let read = |text| {
            let backoff = Backoff::read(text).unwrap();
            (backoff.base.millis(), backoff.factor, backoff.cap.millis())
        };
        assert_eq!(read("1s"), (1_000, 2.0, 3_600_000));
        assert_eq!(read("250ms,1.5"), (250, 1.5, 3_600_000));
        assert_eq!(read("1s,3,1m"), (1_000, 3.0, 60_000));
        assert_eq!(read("2h"), (7_200_000, 2.0, 7_200_000));
        for bad in [
            "",
            "1s,",
            "1s,0.5",
            "1s,-2",
            "1s,2,",
            "1s,2,3s,4",
            "1m,2,1s",
            "1s,inf",
            "1s,NaN",
        ] {
            assert!(Backoff::read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_size_counts_in_powers_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("65536", 65_536),
            ("64K", 65_536),
            ("10m", 10 << 20),
            ("1GiB", 1 << 30),
        ] {
            assert_eq!(Size::read(text).unwrap().0, bytes, "{text}");
        }
        for bad in [
            "",
            "K",
            "64KB",
            "1.5M",
            "-1",
            "1_000",
            "64 K",
            "99999999999T",
            "１K",
        ] {
            assert!(Size::read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_signal_has_a_name_or_a_number() {
        for (text, number) in [
            ("TERM", 15),
            ("SIGTERM", 15),
            ("int", 2),
            ("9", 9),
            ("USR1", 10),
        ] {
            assert_eq!(SignalNumber::read(text).unwrap().0, number, "{text}");
        }
        for bad in ["", "0", "SIG", "TERMINATE", "-15", "99", "1 5"] {
            assert!(SignalNumber::read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_limit_is_taken_once_or_so_many_times() {
        let read = |text| Places::read(text).map(|read| (read.limit.to_string(), read.places));
        assert_eq!(read("gpu"), Ok(("gpu".to_owned(), 1)));
        assert_eq!(read("gpu:3"), Ok(("gpu".to_owned(), 3)));
        for bad in ["", "gpu:", "gpu:0", "gpu:-1", ":2", "a,b", "gpu:x", "a:b:2"] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
