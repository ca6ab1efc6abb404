//! The variables that a step gets.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::options::StepOptions;
use super::size::{MOST_BYTES, MOST_WORD, too_large};
use super::spool::whole;
use crate::error::{Error, ErrorKind, Result};
use crate::model::Environment;

/// What is said of the variables.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Said {
    env: Vec<OsString>,
    files: Vec<PathBuf>,
    clean: bool,
}

impl Said {
    pub(super) fn of(options: &StepOptions) -> Self {
        Self {
            env: options.env.clone(),
            files: options.env_file.clone(),
            clean: options.clean_env,
        }
    }
}

/// Puts the variables together: those of `base`, then those of files, then those that were set, or
/// taken over from the caller's, which are `around`.
///
/// # Errors
///
/// `Usage` for what is no variable, and for more than any kernel takes; a file cannot be read.
pub(super) fn environment(
    said: &Said,
    base: &BTreeMap<OsString, OsString>,
    around: &BTreeMap<OsString, OsString>,
) -> Result<Environment> {
    let mut vars = if said.clean {
        BTreeMap::new()
    } else {
        base.clone()
    };
    for file in &said.files {
        read_file(file, &mut vars)?;
    }
    for given in &said.env {
        let (name, value) = match split(given.as_bytes()) {
            // What follows is not shown: it may be a secret.
            Some((name, _)) if name.is_empty() => {
                return Err(usage("--env: there is no name before the =".to_owned()));
            }
            Some((name, value))
                if name.as_bytes().contains(&0) || value.as_bytes().contains(&0) =>
            {
                return Err(usage("--env: there is a NUL in it".to_owned()));
            }
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => {
                let value = around.get(given).ok_or_else(|| {
                    usage(format!(
                        "--env {}: there is no such variable here",
                        given.display()
                    ))
                    .hint("give its value: --env NAME=VALUE")
                })?;
                (given.clone(), value.clone())
            }
        };
        vars.insert(name, value);
    }
    for (name, value) in &vars {
        let what = format!("the variable {}", name.display());
        too_large(&what, "in all", name.len() + value.len() + 2, MOST_WORD)?;
    }
    let env = Environment::from_pairs(vars);
    too_large(
        "the environment",
        "in all",
        env.as_bytes().len(),
        MOST_BYTES,
    )?;
    Ok(env)
}

/// Reads variables from a file as Docker does: `NAME=VALUE` a line, the value as it stands with no
/// quotes taken off and nothing replaced in it. Empty lines and those that begin with `#` say nothing.
fn read_file(path: &Path, vars: &mut BTreeMap<OsString, OsString>) -> Result<()> {
    // A file that is called - is one: standard input may hold the steps.
    let path = if path == Path::new("-") {
        Path::new("./-")
    } else {
        path
    };
    // Beside variables there may be remarks.
    let bytes = whole(path, 8 * MOST_BYTES)?;
    read_lines(&bytes, path, vars)
}

pub(super) fn read_lines(
    bytes: &[u8],
    path: &Path,
    vars: &mut BTreeMap<OsString, OsString>,
) -> Result<()> {
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let blank = line.iter().all(u8::is_ascii_whitespace);
        if blank || line.starts_with(b"#") {
            continue;
        }
        let refuse = |why: &str| {
            usage(format!("line {} of {}: {why}", number + 1, path.display()))
                .hint("a line is NAME=VALUE, or begins with #; nothing was stored")
        };
        let (name, value) = split(line).ok_or_else(|| refuse("there is no ="))?;
        if !is_name(name.as_bytes()) {
            return Err(refuse("what stands before the = is no name of a variable"));
        }
        if value.as_bytes().contains(&0) {
            return Err(refuse("there is a NUL in it"));
        }
        vars.insert(name.to_owned(), value.to_owned());
    }
    Ok(())
}

/// Returns whether a shell could use a variable of this name.
pub(super) fn is_name(name: &[u8]) -> bool {
    name.first().is_some_and(|first| !first.is_ascii_digit())
        && name
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

fn split(text: &[u8]) -> Option<(&OsStr, &OsStr)> {
    let at = text.iter().position(|byte| *byte == b'=')?;
    Some((
        OsStr::from_bytes(&text[..at]),
        OsStr::from_bytes(&text[at + 1..]),
    ))
}

fn usage(what: String) -> Error {
    Error::new(ErrorKind::Usage, what)
}
