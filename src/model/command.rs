//! What is run, and with which variables.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::sync::OnceLock;

/// What is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A line for `sh -c`.
    Shell(OsString),
    /// A program and its arguments, byte for byte; at least the program.
    Argv(Vec<OsString>),
}

/// The variables that a step's process starts with: sorted by name, each name once.
///
/// Held as the kernel takes them, `NAME=VALUE` followed by NUL, because a store keeps many and
/// compares them whole.
#[derive(Clone, Default)]
pub struct Environment {
    bytes: Vec<u8>,
    /// The same, taken apart: thousands of processes are started with one environment.
    entries: OnceLock<Box<[Entry]>>,
}

#[derive(Clone, Debug)]
struct Entry {
    /// `NAME=VALUE`.
    whole: CString,
    /// The length of the name.
    name: usize,
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Environment").field(&self.bytes).finish()
    }
}

impl PartialEq for Environment {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Environment {}

impl Environment {
    /// Collects variables; of two with one name the later wins. Names that no process could be
    /// given (empty, or with `=` or NUL in them) and values with NUL are left out.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let possible = |name: &OsStr, value: &OsStr| {
            let name = name.as_bytes();
            !name.is_empty()
                && !name.contains(&b'=')
                && !name.contains(&0)
                && !value.as_bytes().contains(&0)
        };
        let sorted: std::collections::BTreeMap<OsString, OsString> = pairs
            .into_iter()
            .filter(|(name, value)| possible(name, value))
            .collect();
        let mut bytes = Vec::new();
        for (name, value) in sorted {
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(b'=');
            bytes.extend_from_slice(value.as_bytes());
            bytes.push(0);
        }
        Self::from_bytes(bytes)
    }

    /// Takes what [`Self::as_bytes`] gave.
    pub const fn from_bytes(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            entries: OnceLock::new(),
        }
    }

    /// Returns the variables as `NAME=VALUE` strings, each ended by NUL.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns names and values in the order of the names.
    pub fn pairs(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.apart().iter().map(|entry| {
            let bytes = entry.whole.as_bytes();
            (entry.name(), OsStr::from_bytes(&bytes[entry.name + 1..]))
        })
    }

    /// Returns the names in their order, each with its `NAME=VALUE` as the kernel takes it.
    pub fn entries(&self) -> impl Iterator<Item = (&OsStr, &CStr)> {
        self.apart()
            .iter()
            .map(|entry| (entry.name(), entry.whole.as_c_str()))
    }

    fn apart(&self) -> &[Entry] {
        self.entries.get_or_init(|| {
            self.bytes
                .split(|byte| *byte == 0)
                .filter_map(|entry| {
                    let name = entry.iter().position(|byte| *byte == b'=')?;
                    let whole = CString::new(entry).ok()?;
                    Some(Entry { whole, name })
                })
                .collect()
        })
    }

    /// Returns one variable's value.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.pairs()
            .find(|(other, _)| *other == name)
            .map(|(_, value)| value)
    }
}

impl Entry {
    fn name(&self) -> &OsStr {
        OsStr::from_bytes(&self.whole.as_bytes()[..self.name])
    }
}

impl Command {
    /// Returns the command as bytes: each word ended by NUL.
    pub fn to_bytes(&self) -> Vec<u8> {
        let words: &[OsString] = match self {
            Self::Shell(line) => std::slice::from_ref(line),
            Self::Argv(words) => words,
        };
        let mut bytes = Vec::with_capacity(words.iter().map(|word| word.len() + 1).sum());
        for word in words {
            bytes.extend_from_slice(word.as_bytes());
            bytes.push(0);
        }
        bytes
    }

    /// Takes what [`Self::to_bytes`] gave. `None` if there is no word in it.
    pub fn from_bytes(shell: bool, bytes: &[u8]) -> Option<Self> {
        let mut words = bytes
            .strip_suffix(&[0])?
            .split(|byte| *byte == 0)
            .map(|word| OsString::from_vec(word.to_vec()));
        if shell {
            words.next().map(Self::Shell)
        } else {
            Some(Self::Argv(words.collect()))
        }
    }

    /// Returns the number of bytes that the words take.
    pub fn size(&self) -> usize {
        match self {
            Self::Shell(line) => line.len() + 1,
            Self::Argv(words) => words.iter().map(|word| word.len() + 1).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn os(bytes: &[u8]) -> OsString {
        OsString::from_vec(bytes.to_vec())
    }

    #[test]
    fn a_command_survives_byte_for_byte() {
        for command in [
            Command::Shell(os(b"echo \xff | cat")),
            Command::Shell(os(b"")),
            Command::Argv(vec![
                os(b"printf"),
                os(b""),
                os(b"\xfe\xff"),
                os(b"a b\n'\"$X"),
            ]),
        ] {
            let shell = matches!(command, Command::Shell(_));
            let bytes = command.to_bytes();
            assert_eq!(command.size(), bytes.len());
            assert_eq!(Command::from_bytes(shell, &bytes), Some(command));
        }
        assert_eq!(Command::from_bytes(false, b""), None);
    }

    #[test]
    fn an_environment_is_sorted_and_keeps_the_later_value() {
        let env = Environment::from_pairs([
            (os(b"B"), os(b"1")),
            (os(b"A"), os(b"x=y\xa3")),
            (os(b""), os(b"dropped")),
            (os(b"B"), os(b"2")),
        ]);
        assert_eq!(env.as_bytes(), b"A=x=y\xa3\0B=2\0");
        assert_eq!(env.get("A"), Some(OsStr::from_bytes(b"x=y\xa3")));
        assert_eq!(env.get("C"), None);
    }
}
