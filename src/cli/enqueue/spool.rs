//! Reads records from a file or from standard input, and keeps them until they are stored.
//!
//! A million of them must not lie in memory, and whoever pours them into the store must not wait for
//! a slow writer while it holds every shard: so they go to a file without a name first.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read as _, Seek as _, Write as _};
use std::path::Path;

use crate::cli::render::number;
use crate::error::{Context as _, Error, ErrorKind, Result};

/// What ends a record, and how large one may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) end: u8,
    pub(super) most: usize,
}

/// A record and where it stood.
pub(super) struct Record {
    /// The number of the line, from 1.
    pub(super) line: u64,
    pub(super) bytes: Vec<u8>,
}

/// Records that have been read once.
pub(super) struct Spool {
    file: File,
    form: Form,
    name: String,
}

impl Spool {
    /// Reads all records of a file, or of standard input for `-`, handing each to `look`.
    ///
    /// # Errors
    ///
    /// It cannot be read or kept; `Usage` for a record that is too large; what `look` says.
    pub(super) fn fill(
        from: &Path,
        form: Form,
        mut look: impl FnMut(&Record, &str) -> Result<()>,
    ) -> Result<Self> {
        let name = name_of(from);
        let source: Box<dyn BufRead> = if from == Path::new("-") {
            Box::new(io::stdin().lock())
        } else {
            let file =
                File::open(from).or_fail(ErrorKind::General, || format!("cannot read {name}"))?;
            Box::new(BufReader::new(file))
        };
        let failed = || format!("cannot keep {name} in {}", std::env::temp_dir().display());
        let file = tempfile::tempfile().or_fail(ErrorKind::General, failed)?;
        let mut kept = BufWriter::new(file);
        for record in records(source, form, &name) {
            let record = record?;
            // Line by line as it was, so that it is numbered the same when it is read again.
            look(&record, &name)?;
            kept.write_all(&record.bytes)
                .and_then(|()| kept.write_all(&[form.end]))
                .or_fail(ErrorKind::General, failed)?;
        }
        let file = kept
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
            .or_fail(ErrorKind::General, failed)?;
        Ok(Self { file, form, name })
    }

    /// Reads the records again, from the first one on.
    ///
    /// # Errors
    ///
    /// They cannot be read.
    pub(super) fn records(&self) -> Result<impl Iterator<Item = Result<Record>> + '_> {
        let mut file = &self.file;
        file.rewind()
            .or_fail(ErrorKind::General, || format!("cannot read {}", self.name))?;
        Ok(records(BufReader::new(file), self.form, &self.name))
    }

    /// Returns what the records are called in errors.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// Reads all of a file, or of standard input for `-`.
///
/// # Errors
///
/// `General` if it cannot be read, `Usage` for more than so many bytes: `/dev/zero` has no end.
pub(super) fn whole(from: &Path, most: usize) -> Result<Vec<u8>> {
    let name = name_of(from);
    if from == Path::new("-") {
        return at_most(io::stdin().lock(), most, &name);
    }
    let file = File::open(from).or_fail(ErrorKind::General, || format!("cannot read {name}"))?;
    at_most(file, most, &name)
}

pub(super) fn at_most(source: impl io::Read, most: usize, name: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source
        .take(most as u64 + 1)
        .read_to_end(&mut bytes)
        .or_fail(ErrorKind::General, || format!("cannot read {name}"))?;
    if bytes.len() > most {
        let most = number::bytes(most as u64);
        let what = format!("{name} is too large: more than {most}");
        return Err(Error::new(ErrorKind::Usage, what).hint("nothing was stored"));
    }
    Ok(bytes)
}

/// Returns what a file is called in errors.
pub(super) fn name_of(from: &Path) -> String {
    if from == Path::new("-") {
        "standard input".to_owned()
    } else {
        from.display().to_string()
    }
}

/// Returns the records one by one, empty ones too: they count as lines.
pub(super) fn records<'r>(
    mut source: impl BufRead + 'r,
    form: Form,
    name: &'r str,
) -> impl Iterator<Item = Result<Record>> + 'r {
    let mut line = 0;
    std::iter::from_fn(move || {
        line += 1;
        let mut bytes = Vec::new();
        let most = form.most as u64 + 1;
        match (&mut source).take(most).read_until(form.end, &mut bytes) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) => {
                return Some(Err(Error::new(
                    ErrorKind::General,
                    format!("cannot read {name}"),
                )
                .caused_by(&error)));
            }
        }
        if bytes.last() == Some(&form.end) {
            bytes.pop();
        } else if bytes.len() > form.most {
            let most = number::bytes(form.most as u64);
            return Some(Err(Error::new(
                ErrorKind::Usage,
                format!("line {line} of {name} is too large: more than {most}"),
            )
            .hint("put the data into a file; nothing was stored")));
        }
        Some(Ok(Record { line, bytes }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_numbered_as_lines_and_bounded() {
        let form = Form {
            end: b'\n',
            most: 4,
        };
        let read = |text: &'static str| -> Vec<(u64, Vec<u8>)> {
            records(text.as_bytes(), form, "it")
                .map_while(Result::ok)
                .map(|record| (record.line, record.bytes))
                .collect()
        };
        assert_eq!(
            read("a\n\nbcde"),
            [(1, b"a".to_vec()), (2, Vec::new()), (3, b"bcde".to_vec())]
        );
        assert_eq!(read("abcd\nabcde\nx").len(), 1, "the second is too large");
        assert_eq!(read("").len(), 0);
    }
}
