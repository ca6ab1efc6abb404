//! Which file a command's first word means.
//!
//! A new process is started from an absolute path: with a bare name and a PATH of the step's own
//! the standard library would have to copy our whole process to search in it. So we search, by the
//! rules of `execvp`, with the step's PATH and from the step's directory.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

/// Where a program is looked for if the step has no PATH.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// What runs a shell line, and a program that the kernel does not know the format of.
pub(super) const SHELL: &str = "/bin/sh";

/// A program that there is none of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unresolved {
    /// What was looked for, and where.
    pub(super) reason: String,
    /// ENOENT, or EACCES where a file has the name but may not be executed.
    pub(super) errno: Errno,
}

/// Returns the absolute path of the program that `word` names for a process in `cwd` with this
/// PATH. A word with a slash is a path and taken as it is, whether there is such a file or not.
///
/// In PATH an empty element is `cwd`, a relative one starts there; the first regular file that may
/// be executed wins.
pub(super) fn resolve<'p>(
    word: &OsStr,
    cwd: &Path,
    path: impl FnOnce() -> Option<&'p OsStr>,
) -> Result<PathBuf, Unresolved> {
    if word.as_bytes().contains(&b'/') {
        return Ok(cwd.join(word));
    }
    if word.is_empty() {
        return Err(Unresolved {
            reason: "the program's name is empty".to_owned(),
            errno: Errno::ENOENT,
        });
    }
    let path = path().unwrap_or(OsStr::new(DEFAULT_PATH));
    let mut not_executable = None;
    for element in path.as_bytes().split(|byte| *byte == b':') {
        let folder = cwd.join(OsStr::from_bytes(element));
        let mut bytes = folder.into_os_string().into_vec();
        if !bytes.ends_with(b"/") {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(word.as_bytes());
        let file = PathBuf::from(OsString::from_vec(bytes));
        match access(&file, AccessFlags::X_OK) {
            Ok(()) if is_regular(&file) => return Ok(file),
            Err(Errno::EACCES) if not_executable.is_none() && is_regular(&file) => {
                not_executable = Some(file);
            }
            Ok(()) | Err(_) => {}
        }
    }
    Err(not_executable.map_or_else(
        || Unresolved {
            reason: format!("{word:?} is not in PATH ({})", path.display()),
            errno: Errno::ENOENT,
        },
        |file| Unresolved {
            reason: format!("{} may not be executed", file.display()),
            errno: Errno::EACCES,
        },
    ))
}

/// Folders are executable too, in a sense of their own.
fn is_regular(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|meta| meta.is_file())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn file(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_word_with_a_slash_is_a_path_from_the_steps_directory() {
        for (word, path) in [
            ("/bin/x", "/bin/x"),
            ("./x", "/work/./x"),
            ("a/x", "/work/a/x"),
            ("../x", "/work/../x"),
        ] {
            let found = resolve(OsStr::new(word), Path::new("/work"), || None).unwrap();
            assert_eq!(found, Path::new(path));
        }
    }

    #[test]
    fn the_first_executable_file_in_path_wins() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("folder/tool")).unwrap();
        file(&root.join("first/tool"), 0o755);
        file(&root.join("second/tool"), 0o755);
        file(&root.join("tool"), 0o755);
        let find = |path: &str| resolve(OsStr::new("tool"), root, || Some(OsStr::new(path)));
        let absolute = format!("/nowhere:{}", root.join("second").display());
        assert_eq!(find(&absolute), Ok(root.join("second/tool")));
        assert_eq!(find("folder:first:second"), Ok(root.join("first/tool")));
        assert_eq!(find("none::first"), Ok(root.join("tool")), "empty is here");
        assert_eq!(find("first/:none"), Ok(root.join("first/tool")));
        assert_eq!(find("none").unwrap_err().errno, Errno::ENOENT);
    }

    #[test]
    fn without_a_path_the_usual_places_are_searched() {
        let found = resolve(OsStr::new("sh"), Path::new("/"), || None).unwrap();
        assert!(found.is_absolute() && found.ends_with("sh"));
        let missing = resolve(OsStr::new("no such tool"), Path::new("/"), || None).unwrap_err();
        assert!(missing.reason.contains("no such tool"), "{missing:?}");
        assert!(missing.reason.contains(DEFAULT_PATH), "{missing:?}");
        assert!(resolve(OsStr::new(""), Path::new("/"), || None).is_err());
    }

    #[test]
    fn a_file_that_may_not_be_executed_is_named_only_if_nothing_better_comes() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        file(&root.join("a/tool"), 0o644);
        file(&root.join("b/tool"), 0o755);
        let find = |path: &str| resolve(OsStr::new("tool"), root, || Some(OsStr::new(path)));
        assert_eq!(find("a:b"), Ok(root.join("b/tool")));
        let refused = find("a").unwrap_err();
        assert_eq!(refused.errno, Errno::EACCES);
        assert!(refused.reason.contains("a/tool"), "{refused:?}");
    }
}
