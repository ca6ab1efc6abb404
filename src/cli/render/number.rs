//! Numbers for people, with their units. The same in every locale; data carries plain numbers.

/// Returns a count with its thousands apart: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Returns how many of something there are: `1 shard`, `1,234 shards`.
pub fn many(number: u64, what: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{} {what}{end}", count(number))
}

/// Returns a size in its largest binary unit: `512 B`, `1.5 KiB`, `20 MiB`. Rounded down, so that
/// 1024 of a unit never show.
pub fn bytes(size: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if size < 1_024 {
        return format!("{size} B");
    }
    let power = size.ilog2() / 10;
    let unit = UNITS[power as usize - 1];
    let whole = size >> (10 * power);
    if whole >= 10 {
        return format!("{whole} {unit}");
    }
    let rest = size & ((1 << (10 * power)) - 1);
    let tenth = (u128::from(rest) * 10) >> (10 * power);
    format!("{whole}.{tenth} {unit}")
}

/// Returns a short time, given in microseconds: `17µs`, `1.2ms`, `250ms`, `3.5s`. Rounded down.
pub fn micros(micros: u64) -> String {
    let (unit, name) = match micros {
        0..1_000 => return format!("{micros}µs"),
        1_000..1_000_000 => (1_000, "ms"),
        _ => (1_000_000, "s"),
    };
    let whole = micros / unit;
    if whole >= 10 {
        format!("{whole}{name}")
    } else {
        format!("{whole}.{}{name}", micros % unit / (unit / 10))
    }
}

/// Returns a share from 0 to 1 as `12.5 %`. What is not 0 never shows as 0, and what is not all
/// never as 100; `-` for what is no number.
pub fn percent(share: f64) -> String {
    if !share.is_finite() {
        return "-".to_owned();
    }
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.05 {
        "<0.1 %".to_owned()
    } else if (99.95..100.0).contains(&percent) {
        ">99.9 %".to_owned()
    } else {
        // A sum with no terms is -0.
        format!("{:.1} %", percent + 0.0)
    }
}

/// Returns how often a second: `1,234/s`, `12.3/s`, `0.25/s`; `-` for what is no number.
pub fn rate(number: f64) -> String {
    if !number.is_finite() || number < 0.0 {
        "-".to_owned()
    } else if number >= 99.95 {
        format!("{}/s", count(rounded(number)))
    } else if number >= 9.995 {
        format!("{number:.1}/s")
    } else {
        format!("{:.2}/s", number + 0.0)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, and `as` stops at the largest number"
)]
fn rounded(number: f64) -> u64 {
    number.round() as u64
}

/// Returns a bar of this many columns, filled up to the share in eighths of a column; the rest is
/// spaces. A share that is not 0 shows at least an eighth, one that is not all lacks at least one.
pub fn bar(share: f64, columns: usize) -> String {
    const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let share = if share.is_finite() {
        share.clamp(0.0, 1.0)
    } else {
        0.0
    };
    let all = u32::try_from(columns).unwrap_or(u32::MAX).saturating_mul(8);
    let exact = share * f64::from(all);
    let filled = if share <= 0.0 {
        0
    } else if share >= 1.0 {
        u64::from(all)
    } else {
        // Both bounds hold for a bar of one column and more; one of none stays empty.
        rounded(exact).max(1).min(u64::from(all).saturating_sub(1))
    };
    let filled = usize::try_from(filled).unwrap_or(usize::MAX);
    let mut bar = "█".repeat(filled / 8);
    if let Some(part) = (filled % 8).checked_sub(1) {
        bar.push(EIGHTHS[part]);
    }
    let spaces = columns - filled.div_ceil(8);
    bar.push_str(&" ".repeat(spaces));
    bar
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cli::render::text::width;

    #[test]
    fn thousands_stand_apart() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (12_345, "12,345"),
            (1_234_567, "1,234,567"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn one_is_singular() {
        assert_eq!(many(0, "step"), "0 steps");
        assert_eq!(many(1, "step"), "1 step");
        assert_eq!(many(1_234, "step"), "1,234 steps");
    }

    #[test]
    fn sizes_have_binary_units() {
        for (size, text) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.0 KiB"),
            (1_536, "1.5 KiB"),
            (10_240, "10 KiB"),
            (1_048_575, "1023 KiB"),
            (1_048_576, "1.0 MiB"),
            (u64::MAX, "15 EiB"),
        ] {
            assert_eq!(bytes(size), text);
        }
    }

    #[test]
    fn shares_and_rates_never_lie_at_their_ends() {
        for (share, text) in [
            (0.0, "0.0 %"),
            (-0.0, "0.0 %"),
            (0.0001, "<0.1 %"),
            (0.125, "12.5 %"),
            (0.9999, ">99.9 %"),
            (1.0, "100.0 %"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(percent(share), text);
        }
        for (number, text) in [
            (0.0, "0.00/s"),
            (0.25, "0.25/s"),
            (9.999, "10.0/s"),
            (12.34, "12.3/s"),
            (99.99, "100/s"),
            (1_234.4, "1,234/s"),
            (f64::INFINITY, "-"),
            (-1.0, "-"),
        ] {
            assert_eq!(rate(number), text);
        }
    }

    #[test]
    fn a_bar_is_filled_in_eighths() {
        for (share, columns, text) in [
            (0.0, 4, "    "),
            (1.0, 4, "████"),
            (0.5, 4, "██  "),
            (0.5, 1, "▌"),
            (0.53125, 4, "██▏ "),
            (1e-9, 2, "▏ "),
            (1.0 - 1e-9, 2, "█▉"),
            (7.0, 2, "██"),
            (f64::NAN, 2, "  "),
            (0.5, 0, ""),
        ] {
            assert_eq!(bar(share, columns), text, "{share}");
        }
    }

    proptest! {
        #[test]
        fn a_bar_takes_its_columns(share in any::<f64>(), columns in 0_usize..50) {
            prop_assert_eq!(width(&bar(share, columns)), columns);
            prop_assert_eq!(width(&bar(share.fract().abs(), columns)), columns);
        }
    }
}
