//! Why a step could not be started, in words: which of the things that a start needs was wrong.

use std::fs;
use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

use crate::error::plain;
use crate::model::{Claim, Command};

use super::child::StartError;
use super::program::Unresolved;

/// Says why there is no program to start.
pub(super) fn no_program(claim: &Claim, unresolved: &Unresolved) -> StartError {
    let reason = bad_directory(claim).unwrap_or_else(|| {
        let errno = unresolved.errno as i32;
        format!(
            "{}: {}",
            unresolved.reason,
            plain(&io::Error::from_raw_os_error(errno))
        )
    });
    StartError::Never { reason }
}

/// Says why `program` was not started.
pub(super) fn explain(claim: &Claim, program: &Path, error: &io::Error) -> StartError {
    let cannot = || format!("cannot run {}: {}", program.display(), plain(error));
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EAGAIN | Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM) => {
            StartError::NotNow { reason: cannot() }
        }
        Some(Errno::E2BIG) => StartError::Never {
            reason: format!("{}: {}", cannot(), sizes(claim)),
        },
        // The system's error is the same for a directory, a program and its interpreter.
        _ => StartError::Never {
            reason: bad_directory(claim)
                .or_else(|| bad_interpreter(program, error))
                .unwrap_or_else(cannot),
        },
    }
}

/// Says what is wrong with the step's directory, if anything is.
fn bad_directory(claim: &Claim) -> Option<String> {
    let cwd = &claim.cwd;
    let error = match fs::metadata(cwd) {
        Ok(meta) if !meta.is_dir() => Errno::ENOTDIR.into(),
        Ok(_) => io::Error::from(access(cwd, AccessFlags::X_OK).err()?),
        Err(error) => error,
    };
    Some(format!(
        "cannot use the directory {}: {}",
        cwd.display(),
        plain(&error)
    ))
}

/// Says that the program is there and what its first line names is not.
fn bad_interpreter(program: &Path, error: &io::Error) -> Option<String> {
    (error.kind() == io::ErrorKind::NotFound && program.exists()).then(|| {
        format!(
            "cannot run {}: its interpreter is missing: {}",
            program.display(),
            plain(error)
        )
    })
}

/// Says how large what was to be passed on is. Names, never values: those may be secrets.
fn sizes(claim: &Claim) -> String {
    let words = match &claim.command {
        Command::Shell(_) => 1,
        Command::Argv(words) => words.len(),
    };
    let size_of =
        |(name, value): (&std::ffi::OsStr, &std::ffi::OsStr)| name.len() + value.len() + 2;
    let largest = claim.env.pairs().max_by_key(|pair| size_of(*pair));
    let largest = largest.map_or_else(String::new, |pair| {
        format!(
            ", the largest is {} with {}",
            pair.0.display(),
            size_of(pair)
        )
    });
    format!(
        "{words} words of command have {} bytes, {} variables have {}{largest}",
        claim.command.size(),
        claim.env.pairs().count(),
        claim.env.as_bytes().len(),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::{Band, Environment, FairnessKey, Policy, RunnerId, Timestamp};

    #[test]
    fn a_lack_of_resources_is_not_for_good_and_everything_else_is() {
        let claim = Claim {
            id: "a1".parse().unwrap(),
            runner: RunnerId::new(1),
            fence: 1,
            attempt: 1,
            band: Band::DEFAULT,
            key: FairnessKey::default(),
            name: None,
            command: Command::Shell("true".into()),
            cwd: "/".into(),
            env: Arc::new(Environment::default()),
            policy: Policy::default(),
            since: Timestamp::default(),
            claimed: Timestamp::default(),
        };
        for number in 1..134 {
            let error = io::Error::from_raw_os_error(number);
            let lack = [Errno::EAGAIN, Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM];
            let (is_lack, reason) = match explain(&claim, Path::new("/no/such"), &error) {
                StartError::NotNow { reason } => (true, reason),
                StartError::Never { reason } => (false, reason),
            };
            assert_eq!(is_lack, lack.contains(&Errno::from_raw(number)), "{reason}");
            let named = reason.contains("/no/such");
            assert!(named && reason.contains(&plain(&error)), "{reason}");
            assert!(!reason.contains("os error"), "{reason}");
        }
    }
}
