//! The configuration file: TOML, every key known, every value of its type.

use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Origin;
use super::knob::{self, Knob, Shape};
use super::places::MOST_BYTES;
use crate::error::{Error, ErrorKind, Result};
use crate::model::Band;

/// One line of the file, understood as far as it can be without the others.
#[derive(Debug)]
pub(super) enum Entry {
    /// A knob and its value, not yet checked.
    Knob {
        knob: Knob,
        value: String,
        origin: Origin,
    },
    /// A name for a band.
    Band {
        name: String,
        band: Band,
        origin: Origin,
    },
    /// The store's directory.
    Store { path: PathBuf, origin: Origin },
}

struct Source<'t> {
    path: &'t Path,
    text: &'t str,
}

impl Source<'_> {
    fn line(&self, at: &Range<usize>) -> usize {
        let before = &self.text.as_bytes()[..at.start.min(self.text.len())];
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    fn origin(&self, at: &Range<usize>) -> Origin {
        Origin::File {
            path: self.path.to_owned(),
            line: self.line(at),
        }
    }

    fn wrong(&self, at: &Range<usize>, what: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::Config, format!("{}: {what}", self.origin(at)))
    }

    /// Refuses a text that is not TOML, showing the line, which holds the key.
    fn not_toml(&self, error: &toml::de::Error) -> Error {
        let at = error.span().unwrap_or(0..0);
        let line = self.line(&at);
        let shown = self.text.lines().nth(line - 1).unwrap_or_default().trim();
        self.wrong(&at, format!("{} in {shown:?}", error.message()))
    }
}

/// Reads the file's text.
///
/// # Errors
///
/// `Config`, naming file, line and key: not TOML, an unknown or doubled key, a value of the wrong
/// type. Whether a value is in its range is for the caller to see.
pub(super) fn entries(path: &Path, text: &str) -> Result<Vec<Entry>> {
    let source = Source { path, text };
    let table = DeTable::parse(text).map_err(|error| source.not_toml(&error))?;
    let mut entries = Vec::new();
    for (key, value) in table.get_ref() {
        let (name, at) = (key.get_ref().as_ref(), key.span());
        match name {
            "bands" => bands(&source, &at, value, &mut entries)?,
            "store" => entries.push(store(&source, &at, value)?),
            _ => {
                let knob = Knob::ALL
                    .into_iter()
                    .find(|knob| knob.key() == name)
                    .ok_or_else(|| unknown(&source, &at, name))?;
                entries.push(Entry::Knob {
                    knob,
                    value: typed(&source, &at, knob, value.get_ref())?,
                    origin: source.origin(&at),
                });
            }
        }
    }
    Ok(entries)
}

fn unknown(source: &Source<'_>, at: &Range<usize>, name: &str) -> Error {
    let keys: Vec<_> = Knob::ALL.into_iter().map(Knob::key).collect();
    source
        .wrong(at, format!("unknown key {name:?}"))
        .hint(format!("the keys are store, {}, bands", keys.join(", ")))
}

/// Returns the value as text if it has the knob's type.
fn typed(
    source: &Source<'_>,
    at: &Range<usize>,
    knob: Knob,
    value: &DeValue<'_>,
) -> Result<String> {
    let shape = knob.shape();
    match value {
        DeValue::Integer(_) if shape != Shape::Word => Ok(integer(value)),
        DeValue::String(text) if shape != Shape::Number => Ok(text.to_string()),
        DeValue::Integer(_)
        | DeValue::String(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => {
            let wanted = match shape {
                Shape::Number => "a whole number",
                Shape::Word => "a string",
                Shape::NumberOrWord => "a whole number or a string",
            };
            let found = value.type_str();
            Err(source
                .wrong(
                    at,
                    format!(
                        "{}: expected {wanted}, found a value of type {found}",
                        knob.key()
                    ),
                )
                .hint(format!("{}: {}", knob.key(), knob.doc())))
        }
    }
}

/// Returns an integer in decimal, whatever its spelling; a number too large for any knob stays text
/// that no knob accepts.
fn integer(value: &DeValue<'_>) -> String {
    value.as_integer().map_or_else(String::new, |integer| {
        i128::from_str_radix(integer.as_str(), integer.radix())
            .map_or_else(|_| integer.as_str().to_owned(), |number| number.to_string())
    })
}

fn bands(
    source: &Source<'_>,
    at: &Range<usize>,
    value: &Spanned<DeValue<'_>>,
    entries: &mut Vec<Entry>,
) -> Result<()> {
    let table = value.get_ref().as_table().ok_or_else(|| {
        source
            .wrong(at, "bands: expected a table of names and numbers")
            .hint("for example: bands = { urgent = 10, nightly = 500 }")
    })?;
    for (key, value) in table {
        let (name, at) = (key.get_ref().as_ref(), key.span());
        let starts_well = name.starts_with(|first: char| first.is_ascii_alphabetic());
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
        if !starts_well || !name.chars().all(plain) {
            return Err(source
                .wrong(&at, format!("bands: {name:?} cannot be a band's name"))
                .hint("a name starts with a letter; letters, digits, - and _ may follow"));
        }
        let number = integer(value.get_ref());
        let band = knob::whole(&number, 0, Band::WORST.get().into())
            .ok()
            .and_then(Band::new)
            .ok_or_else(|| {
                let worst = Band::WORST;
                source.wrong(
                    &at,
                    format!("bands.{name}: expected a whole number from 0 to {worst}"),
                )
            })?;
        entries.push(Entry::Band {
            name: name.to_owned(),
            band,
            origin: source.origin(&at),
        });
    }
    Ok(())
}

fn store(source: &Source<'_>, at: &Range<usize>, value: &Spanned<DeValue<'_>>) -> Result<Entry> {
    match value.get_ref().as_str() {
        Some(text) if !text.is_empty() && !text.contains('\0') => Ok(Entry::Store {
            path: PathBuf::from(text),
            origin: source.origin(at),
        }),
        _ => Err(source.wrong(at, "store: expected the path of a directory as a string")),
    }
}

/// Turns what was read into text.
///
/// # Errors
///
/// `Config` if it is larger than any configuration or not UTF-8.
pub(super) fn text(path: &Path, bytes: Vec<u8>) -> Result<String> {
    let path = path.display();
    if bytes.len() > MOST_BYTES {
        return Err(Error::new(
            ErrorKind::Config,
            format!("{path}: larger than {MOST_BYTES} bytes, this is no configuration"),
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        Error::new(ErrorKind::Config, format!("{path}:{line}: not UTF-8"))
    })
}
