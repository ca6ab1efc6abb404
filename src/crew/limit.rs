//! What keeps a step's output within its limit.
//!
//! A step writes to files of its own, to their ends, without anybody in between: so it can neither be
//! told to stop nor be counted. What it has written beyond its limit is cut off time and again while
//! it runs, so that it cannot fill the disk between two looks unless it writes faster than that, and
//! once more when it has ended. Where something was cut off, the last line says so.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::error::{Context as _, ErrorKind, Result};

/// The limit of one step's two streams. Only for as long as the step has the files.
#[derive(Debug)]
pub(super) struct Limit {
    most: u64,
    files: [File; 2],
    /// Whether something of the file was cut off.
    was_cut: [bool; 2],
}

impl Limit {
    /// Returns the limit of `most` bytes for each of two files.
    pub(super) const fn new(most: u64, out: File, err: File) -> Self {
        Self {
            most,
            files: [out, err],
            was_cut: [false; 2],
        }
    }

    /// Cuts off what is beyond. A file that cannot be cut now is left to the next time.
    pub(super) fn cut(&mut self) {
        for (file, was_cut) in self.files.iter().zip(&mut self.was_cut) {
            *was_cut |= cut(file, self.most).unwrap_or(false);
        }
    }

    /// Cuts off what is beyond for the last time, and says so at the end of what is kept.
    ///
    /// # Errors
    ///
    /// Unavailable: a file cannot be cut or written.
    pub(super) fn seal(self) -> Result<()> {
        let seal = |file: &File, was_cut: bool| {
            if !(cut(file, self.most)? || was_cut) {
                return Ok(());
            }
            let most = self.most;
            let begin = if ends_a_line(file, most)? { "" } else { "\n" };
            let note = format!("{begin}[fairq: output was cut off after {most} bytes]\n");
            file.write_all_at(note.as_bytes(), most)
        };
        let mut both = self.files.iter().zip(self.was_cut);
        both.try_for_each(|(file, was_cut)| seal(file, was_cut))
            .or_fail(ErrorKind::Unavailable, || {
                "cannot cut off what is beyond the limit of the output".to_owned()
            })
    }
}

/// Makes a file no longer than `most`; returns whether it was. Whoever appends goes on at the new end.
fn cut(file: &File, most: u64) -> io::Result<bool> {
    let beyond = file.metadata()?.len() > most;
    if beyond {
        file.set_len(most)?;
    }
    Ok(beyond)
}

/// Returns whether the next byte after the first `size` bytes begins a line.
fn ends_a_line(file: &File, size: u64) -> io::Result<bool> {
    let Some(last) = size.checked_sub(1) else {
        return Ok(true);
    };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    Ok(byte == *b"\n")
}
