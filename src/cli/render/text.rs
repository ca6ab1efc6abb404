//! Text that is safe to show: what would act on the terminal, or hide, becomes visible.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr as _;

/// What stands for the part that did not fit.
const CUT: &str = "…";

/// Returns the bytes as text of one line that only shows.
///
/// Control characters (newlines and ESC too), characters that turn the direction of text, and
/// invisible ones become escapes like `\n`, `\x1b`, `\u{202e}`; bytes that are not UTF-8 become
/// `\xff`. A backslash stays as it is: this is for eyes, and data comes as JSON.
pub fn shown(bytes: impl AsRef<[u8]>) -> String {
    let mut line = String::new();
    let mut before = None;
    for chunk in bytes.as_ref().utf8_chunks() {
        for letter in chunk.valid().chars() {
            push_escaped(&mut line, letter, before);
            before = Some(letter);
        }
        for byte in chunk.invalid() {
            before = None;
            // Writing to a String cannot fail.
            write!(line, "\\x{byte:02x}").ok();
        }
    }
    line
}

fn push_escaped(line: &mut String, letter: char, before: Option<char>) {
    if is_plain(letter, before) {
        line.push(letter);
        return;
    }
    match letter {
        '\n' => line.push_str("\\n"),
        '\t' => line.push_str("\\t"),
        '\r' => line.push_str("\\r"),
        '\0'..='\x7f' => write!(line, "\\x{:02x}", u32::from(letter)).unwrap_or_default(),
        _ => write!(line, "\\u{{{:x}}}", u32::from(letter)).unwrap_or_default(),
    }
}

/// Returns whether a character only shows itself, after the one before it.
pub(super) fn is_plain(letter: char, before: Option<char>) -> bool {
    // A variation selector is how an emoji is told from a sign; behind a letter it only hides.
    if matches!(letter, '\u{fe0e}' | '\u{fe0f}') {
        return before.is_some_and(|before| !before.is_ascii() && is_plain(before, None));
    }
    !letter.is_control() && !is_hidden(letter)
}

/// Returns whether a character is one of Unicode's that have no look of their own: format
/// characters (category Cf), line and paragraph separators, fillers and what is
/// `Default_Ignorable_Code_Point`.
fn is_hidden(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
        | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}'
        | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Returns how many columns of a terminal a safe text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Returns a safe text cut to so many columns, with `…` at its end if something is missing.
pub fn fit(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(width(CUT));
    // From the end, because a character's width may depend on the ones around it.
    let end = text
        .char_indices()
        .map(|(at, _)| at)
        .take_while(|at| width(&text[..*at]) <= room)
        .last()
        .unwrap_or(0);
    if columns == 0 {
        String::new()
    } else {
        format!("{}{CUT}", &text[..end])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_acts_or_hides_is_made_visible() {
        for (bytes, expected) in [
            (&b"make -j8 | tee log"[..], "make -j8 | tee log"),
            (b"a\nb\tc\rd", "a\\nb\\tc\\rd"),
            (b"\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
            (b"\x07\x08\x7f\0", "\\x07\\x08\\x7f\\x00"),
            (
                "csi \u{9b}2J nel \u{85}".as_bytes(),
                "csi \\u{9b}2J nel \\u{85}",
            ),
            ("\u{202e}evil\u{202c}".as_bytes(), "\\u{202e}evil\\u{202c}"),
            (
                "\u{2066}\u{2069}\u{61c}".as_bytes(),
                "\\u{2066}\\u{2069}\\u{61c}",
            ),
            (
                "a\u{200b}b\u{feff}\u{ad}".as_bytes(),
                "a\\u{200b}b\\u{feff}\\u{ad}",
            ),
            (
                "line\u{2028}par\u{2029}".as_bytes(),
                "line\\u{2028}par\\u{2029}",
            ),
            ("tag\u{e0041}".as_bytes(), "tag\\u{e0041}"),
            (b"caf\xe9 \xff\xfe", "caf\\xe9 \\xff\\xfe"),
            (b"cut \xe2\x82", "cut \\xe2\\x82"),
            (
                "Ωmega 漢字 👍 e\u{301}".as_bytes(),
                "Ωmega 漢字 👍 e\u{301}",
            ),
            ("❤\u{fe0f}".as_bytes(), "❤\u{fe0f}"),
            ("a\u{fe0f}".as_bytes(), "a\\u{fe0f}"),
            (br"C:\temp", r"C:\temp"),
            (b"", ""),
        ] {
            assert_eq!(shown(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_cut_text_says_so_and_fits() {
        for (text, columns, expected) in [
            ("hello", 5, "hello"),
            ("hello!", 5, "hell…"),
            ("漢字漢字", 8, "漢字漢字"),
            ("漢字漢字", 7, "漢字漢…"),
            ("漢字漢字", 6, "漢字…"),
            ("漢字", 1, "…"),
            ("漢字", 0, ""),
            ("", 0, ""),
        ] {
            assert_eq!(fit(text, columns), expected);
        }
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_one_safe_line_comes_out(
            bytes in proptest::collection::vec(any::<u8>(), 0..60),
            text in "\\PC*|[\\x00-\\x{2fff}]{0,30}",
            columns in 0_usize..40,
        ) {
            for line in [shown(&bytes), shown(&text)] {
                prop_assert!(line.chars().all(|letter| !letter.is_control()));
                let bad = ['\u{202e}', '\u{2066}', '\u{200b}', '\u{2028}', '\u{2029}'];
                prop_assert!(!line.contains(bad));
                // What is safe stays as it is.
                prop_assert_eq!(&shown(&line), &line);
                prop_assert!(width(&fit(&line, columns)) <= columns);
            }
        }
    }
}
