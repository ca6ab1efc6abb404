//! What is too large for any kernel to start is refused as it is put in.

use crate::cli::render::number;
use crate::error::{Error, ErrorKind, Result};
use crate::model::Command;

/// The largest command or environment that is taken: beyond it no kernel starts a process.
pub(super) const MOST_BYTES: usize = 2 * 1024 * 1024;
/// The largest single word or variable: Linux takes 32 pages.
pub(super) const MOST_WORD: usize = 128 * 1024;

/// Refuses a command that no kernel would start.
///
/// # Errors
///
/// `Usage`, with the sizes.
pub(in crate::cli) fn check(command: &Command, what: &str) -> Result<()> {
    let longest = match command {
        Command::Shell(line) => line.len(),
        Command::Argv(words) => words.iter().map(|word| word.len()).max().unwrap_or(0),
    };
    too_large(what, "in one word", longest, MOST_WORD)?;
    too_large(what, "in all", command.size(), MOST_BYTES)
}

/// Refuses what is not below `most` bytes.
///
/// # Errors
///
/// `Usage`, with the sizes.
pub(super) fn too_large(what: &str, how: &str, size: usize, most: usize) -> Result<()> {
    if size < most {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Usage,
        format!(
            "{what} is too large: {} {how}, the system takes less than {}",
            number::bytes(size as u64),
            number::bytes(most as u64)
        ),
    )
    .hint("put the data into a file; nothing was stored"))
}
