//! Reading a length of time as people write it.

use std::fmt;
use std::str::FromStr;

use super::Span;

/// The units, largest first, and their length in milliseconds.
const UNITS: [(&str, u64); 6] = [
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Why a text is not a length of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseSpanError {
    text: String,
    reason: &'static str,
}

impl fmt::Display for ParseSpanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a duration: {}; durations look like 90, 90s, 1h30m, 2d, 1.5s or 250ms",
            self.text, self.reason
        )
    }
}

impl std::error::Error for ParseSpanError {}

impl FromStr for Span {
    type Err = ParseSpanError;

    /// Reads `90` (seconds), `90s`, `1h30m`, `2d`, `250ms`, `1.5s`: units from large to small, each
    /// once, the last number perhaps with a decimal point. The same in every locale; what could be
    /// read in two ways (`0,5s`, `1_000`, `1h30`) is refused.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        read(text)
            .map(Self::from_millis)
            .map_err(|reason| ParseSpanError {
                text: text.to_owned(),
                reason,
            })
    }
}

fn read(text: &str) -> Result<u64, &'static str> {
    if text.is_empty() {
        return Err("it is empty");
    }
    if text.starts_with('-') {
        return Err("it cannot be negative");
    }
    let mut rest = text;
    let mut total = 0_u64;
    // The units that may still come: those smaller than the last one.
    let mut open = UNITS.as_slice();
    while !rest.is_empty() {
        let number = leading(&mut rest, |byte| byte.is_ascii_digit() || byte == b'.');
        let unit = leading(&mut rest, |byte| byte.is_ascii_lowercase());
        if number.is_empty() || (unit.is_empty() && !rest.is_empty()) {
            return Err("it holds something that is neither a plain number nor a unit");
        }
        let length = if unit.is_empty() {
            if number.len() != text.len() {
                return Err("its last number has no unit");
            }
            1_000
        } else {
            if UNITS.iter().all(|(name, _)| *name != unit) {
                return Err("its units are not among w, d, h, m, s and ms");
            }
            let place = open
                .iter()
                .position(|(name, _)| *name == unit)
                .ok_or("its units do not go from large to small, each once")?;
            let length = open[place].1;
            open = &open[place + 1..];
            length
        };
        if number.contains('.') && !rest.is_empty() {
            return Err("only its last number may have a decimal point");
        }
        total = total
            .checked_add(millis(number, length)?)
            .filter(|sum| i64::try_from(*sum).is_ok())
            .ok_or("it is too long")?;
    }
    Ok(total)
}

/// Cuts off and returns the beginning of `rest` that consists of such bytes.
fn leading<'t>(rest: &mut &'t str, wanted: impl Fn(u8) -> bool) -> &'t str {
    let end = rest
        .bytes()
        .position(|byte| !wanted(byte))
        .unwrap_or(rest.len());
    let (head, tail) = rest.split_at(end);
    *rest = tail;
    head
}

/// Returns `number` units of `length` milliseconds, exactly.
fn millis(number: &str, length: u64) -> Result<u64, &'static str> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return Err("its decimal point does not stand between digits");
    }
    let whole: u64 = whole.parse().or(Err("it is too long"))?;
    // Twelve digits are a billionth of a millisecond, and their power of ten fits easily.
    let fraction = fraction.trim_end_matches('0');
    let digits = u32::try_from(fraction.len()).unwrap_or(u32::MAX);
    if digits > 12 {
        return Err("it is finer than a millisecond");
    }
    let parts: u64 = if fraction.is_empty() {
        0
    } else {
        fraction.parse().or(Err("it is too long"))?
    };
    let (product, scale) = (u128::from(parts) * u128::from(length), 10_u128.pow(digits));
    if product % scale != 0 {
        return Err("it is finer than a millisecond");
    }
    let part = u64::try_from(product / scale).or(Err("it is too long"))?;
    whole
        .checked_mul(length)
        .and_then(|whole| whole.checked_add(part))
        .ok_or("it is too long")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_read_exactly() {
        for (text, millis) in [
            ("0", 0),
            ("90", 90_000),
            ("90s", 90_000),
            ("007s", 7_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("1w2d3h4m5s6ms", 788_645_006),
            ("250ms", 250),
            ("1.5s", 1_500),
            ("0.1", 100),
            ("1.5h", 5_400_000),
            ("1m0.25s", 60_250),
            ("1.500000000000000s", 1_500),
            ("9223372036854775807ms", i64::MAX as u64),
        ] {
            assert_eq!(text.parse(), Ok(Span::from_millis(millis)), "{text:?}");
        }
    }

    #[test]
    fn what_could_be_misread_is_refused() {
        for text in [
            "",
            " ",
            "-1",
            "-1s",
            "+1s",
            "0,5s",
            "1,000",
            "1_000",
            "１s",
            "９０",
            "١s",
            "1 s",
            " 1s",
            "1s ",
            "1s\n",
            "s",
            "h1",
            "1h30",
            "30m1h",
            "1h1h",
            "1s1m",
            "1S",
            "1H",
            "1M",
            "1y",
            "1mo",
            "1min",
            "1sec",
            "1us",
            "1µs",
            ".5s",
            "5.s",
            "1..5s",
            "1.2.3s",
            "1.5h30m",
            "1e3",
            "1e3s",
            "0x10",
            "inf",
            "nan",
            "NaN",
            "∞",
            "0.0001s",
            "0.5ms",
            "1.0000000000001s",
            "9223372036854775808ms",
            "18446744073709551616",
            "99999999999999999999d",
            "9223372036854775807ms1ms",
            "1s\0",
            "1:30",
            "PT1H",
        ] {
            let read = text.parse::<Span>();
            assert!(read.is_err(), "{text:?} was read as {read:?}");
        }
    }

    #[test]
    fn the_message_names_the_text_and_the_reason() {
        let error = "0,5s".parse::<Span>().unwrap_err().to_string();
        assert!(error.contains("\"0,5s\""), "{error}");
        assert!(error.contains("1h30m"), "{error}");
        let error = "1h30".parse::<Span>().unwrap_err().to_string();
        assert!(error.contains("its last number has no unit"), "{error}");
    }
}
