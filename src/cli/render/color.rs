//! Whether to colour, and how.

use std::ffi::OsStr;

use crate::config::{ColorChoice, Surroundings};

/// What a colour stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Nothing in particular.
    #[default]
    Plain,
    /// It went well.
    Good,
    /// It went badly.
    Bad,
    /// It goes on.
    Active,
    /// It deserves a look.
    Notice,
    /// It matters less.
    Quiet,
    /// It matters more.
    Strong,
}

impl Tone {
    /// Returns the parameters of the escape sequence that selects it.
    const fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Good => Some("32"),
            Self::Bad => Some("31"),
            Self::Active => Some("36"),
            Self::Notice => Some("33"),
            Self::Quiet => Some("2"),
            Self::Strong => Some("1"),
        }
    }
}

/// Adds colour around text, or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint(bool);

impl Paint {
    /// Adds none.
    pub const NONE: Self = Self(false);

    /// Decides for one stream. `always` and `never` are obeyed; `auto` colours a terminal, unless
    /// `NO_COLOR` is set to anything (<https://no-color.org>) or `TERM` is missing or `dumb`.
    pub fn decide(choice: ColorChoice, around: &Surroundings, terminal: bool) -> Self {
        let var = |name: &str| {
            around
                .vars
                .get(OsStr::new(name))
                .filter(|value| !value.is_empty())
        };
        Self(match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                terminal
                    && var("NO_COLOR").is_none()
                    && var("TERM").is_some_and(|term| term != "dumb")
            }
        })
    }

    /// Returns whether colour is added.
    pub const fn is_on(self) -> bool {
        self.0
    }

    /// Returns the text in this tone. The text must be safe to show already.
    pub fn tone(self, tone: Tone, text: &str) -> String {
        match tone.code() {
            Some(code) if self.0 && !text.is_empty() => format!("\x1b[{code}m{text}\x1b[0m"),
            _ => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn colour_is_for_terminals_that_want_it() {
        use ColorChoice::{Always, Auto, Never};
        let xterm = ("TERM", "xterm-256color");
        for (choice, vars, terminal, on) in [
            (Auto, vec![xterm], true, true),
            (Auto, vec![xterm], false, false),
            (Auto, vec![xterm, ("NO_COLOR", "")], true, true),
            (Auto, vec![xterm, ("NO_COLOR", "0")], true, false),
            (Auto, vec![("TERM", "dumb")], true, false),
            (Auto, vec![], true, false),
            (
                Always,
                vec![("TERM", "dumb"), ("NO_COLOR", "1")],
                false,
                true,
            ),
            (Never, vec![xterm], true, false),
        ] {
            let around = Surroundings {
                vars: vars
                    .iter()
                    .map(|(name, value)| ((*name).into(), (*value).into()))
                    .collect::<BTreeMap<_, _>>(),
                cwd: None,
                cpus: crate::config::Cpus::of(1),
                uid: 0,
            };
            let paint = Paint::decide(choice, &around, terminal);
            assert_eq!(paint.is_on(), on, "{choice} {vars:?} {terminal}");
        }
    }

    #[test]
    fn colour_is_only_around() {
        assert_eq!(Paint(true).tone(Tone::Bad, "x"), "\x1b[31mx\x1b[0m");
        assert_eq!(Paint(true).tone(Tone::Plain, "x"), "x");
        assert_eq!(Paint(true).tone(Tone::Bad, ""), "");
        assert_eq!(Paint::NONE.tone(Tone::Bad, "x"), "x");
    }
}
