//! One error type: what happened, why, what to do, and which exit code it means.
//!
//! What is not a fault is not an error: a lost claim, a fenced write, nothing due are ordinary
//! values elsewhere.

use std::fmt;

/// The result of everything that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What sort of trouble it is. The kind alone decides heading and exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Something else went wrong: exit 1.
    General,
    /// The command line is not one: exit 2.
    Usage,
    /// No such step, or nothing matched: exit 3.
    NotFound,
    /// Another process holds the store; trying again may help: exit 75.
    Busy,
    /// The store, or a part of it, cannot be reached: exit 75.
    Unavailable,
    /// The store's files are not what they must be: exit 1.
    Damaged,
    /// The store was made by a newer fairq: exit 1.
    NewerSchema,
    /// The configuration is wrong: exit 78.
    Config,
    /// A bug of ours: exit 70.
    Internal,
}

impl ErrorKind {
    /// Returns the process's exit code for this kind.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::General | Self::Damaged | Self::NewerSchema => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Internal => 70,
            Self::Busy | Self::Unavailable => 75,
            Self::Config => 78,
        }
    }
}

/// What went wrong, for the person who must act on it.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    what: String,
    causes: Vec<String>,
    hints: Vec<String>,
}

impl Error {
    /// Says what happened: lower case, no full stop, naming the thing.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: tidy(what.into()),
            causes: Vec::new(),
            hints: Vec::new(),
        }
    }

    /// Adds what it was caused by, and that error's own causes.
    #[must_use]
    pub fn caused_by(mut self, cause: &dyn std::error::Error) -> Self {
        let mut next = Some(cause);
        while let Some(error) = next {
            let text = plain(error);
            if self.causes.last() != Some(&text) {
                self.causes.push(text);
            }
            next = error.source();
        }
        self
    }

    /// Adds what the user can do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(tidy(hint.into()));
        self
    }

    /// Puts the error into the context of what was being done.
    #[must_use]
    pub fn context(mut self, what: impl Into<String>) -> Self {
        self.causes
            .insert(0, std::mem::replace(&mut self.what, tidy(what.into())));
        self
    }

    /// Returns the kind.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns what happened, without causes and hints.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Returns the causes, nearest first.
    pub fn causes(&self) -> &[String] {
        &self.causes
    }

    /// Returns what the user can do.
    pub fn hints(&self) -> &[String] {
        &self.hints
    }
}

impl fmt::Display for Error {
    /// Writes what happened and its causes on one line; hints are for the terminal alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.causes
            .iter()
            .try_for_each(|cause| write!(f, ": {cause}"))
    }
}

impl std::error::Error for Error {}

/// The longest that a part of an error is, in bytes: it may repeat what it was given, which may be
/// megabytes of anything.
const MOST_BYTES: usize = 4_096;

/// Returns what an error says, for people: one line of bounded length, without the system's number
/// for it, which says nothing more than the words before it.
pub fn plain(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    let mut rest = text.as_str();
    let mut kept = String::with_capacity(rest.len());
    while let Some((before, after)) = rest.split_once(" (os error ") {
        kept.push_str(before);
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        match after[digits..].strip_prefix(')') {
            Some(end) if digits > 0 => rest = end,
            _ => {
                kept.push_str(" (os error ");
                rest = after;
            }
        }
    }
    kept.push_str(rest);
    tidy(kept)
}

/// Makes a text one line of bounded length.
fn tidy(mut text: String) -> String {
    if text.len() > MOST_BYTES {
        let end = (0..=MOST_BYTES).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    if !text.contains(char::is_control) {
        return text;
    }
    let mut line = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\r' | '\t' => line.extend(letter.escape_default()),
            '\0'..='\x1f' | '\x7f' => line.push_str(&format!("\\x{:02x}", u32::from(letter))),
            _ if letter.is_control() => line.extend(letter.escape_unicode()),
            _ => line.push(letter),
        }
    }
    line
}

/// Lets an error of the operating system or of a library become one of ours, with its context.
pub trait Context<T> {
    /// Says what was being done when it failed.
    ///
    /// # Errors
    ///
    /// The same failure, as an [`Error`] of this kind.
    fn or_fail(self, kind: ErrorKind, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: std::error::Error> Context<T> for std::result::Result<T, E> {
    fn or_fail(self, kind: ErrorKind, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::new(kind, what()).caused_by(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_tells_what_why_and_what_to_do() {
        let io = std::io::Error::other("disk on fire");
        let error = Error::new(ErrorKind::Unavailable, "cannot open shard 2")
            .caused_by(&io)
            .hint("pour water on it")
            .context("cannot list steps");
        assert_eq!(
            error.to_string(),
            "cannot list steps: cannot open shard 2: disk on fire"
        );
        assert_eq!(error.kind().exit_code(), 75);
        assert_eq!(error.hints(), ["pour water on it"]);
    }

    #[test]
    fn a_number_of_the_system_is_not_said() {
        for (said, plain) in [
            (
                "No such file or directory (os error 2)",
                "No such file or directory",
            ),
            ("a (os error 2): b (os error 13)", "a: b"),
            (
                "is (os error x) (os error ) (os error 7",
                "is (os error x) (os error ) (os error 7",
            ),
        ] {
            let cause = std::io::Error::other(said);
            assert_eq!(super::plain(&cause), plain);
            let error = Error::new(ErrorKind::General, "no").caused_by(&cause);
            assert_eq!(error.causes(), [plain]);
        }
    }

    #[test]
    fn whatever_it_was_given_an_error_is_a_short_line() {
        let text = "a\n\r\t\u{1b}[2J\0\u{85}é".repeat(100_000);
        let cause = std::io::Error::other(text.clone());
        let error = Error::new(ErrorKind::Usage, &*text)
            .caused_by(&cause)
            .hint(&*text)
            .context(text);
        let parts = error.causes().iter().chain(error.hints());
        for part in parts.map(String::as_str).chain([error.what()]) {
            assert!(!part.contains(char::is_control), "{part}");
            assert!(
                part.len() < 10 * MOST_BYTES && part.starts_with("a\\n"),
                "{part}"
            );
        }
    }
}
