//! Which configuration file, which store.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::{Flags, Origin, file};
use crate::error::{Context as _, Error, ErrorKind, Result};

/// No configuration is larger; `--config /dev/zero` must end.
pub(super) const MOST_BYTES: usize = 1024 * 1024;

/// The name of a project's store.
const PROJECT: &str = ".fairq";

/// The number of CPUs that this process may use. It is found out when somebody asks, for that takes some
/// fifteen calls of the system, and most commands never do.
#[derive(Clone, Debug, Default)]
pub struct Cpus(OnceLock<u32>);

impl Cpus {
    /// Returns so many, whatever the process may use.
    pub fn of(count: u32) -> Self {
        Self(OnceLock::from(count))
    }

    /// Returns the number, 1 if it cannot be found out.
    pub fn count(&self) -> u32 {
        *self.0.get_or_init(|| {
            std::thread::available_parallelism()
                .map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX))
        })
    }
}

/// What the settings need to know of the process they are for.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The environment. A variable that is empty counts as not set.
    pub vars: BTreeMap<OsString, OsString>,
    /// The working directory; `None` if it has been deleted.
    pub cwd: Option<PathBuf>,
    /// The number of CPUs that the process may use.
    pub cpus: Cpus,
    /// The user: a project's store must be theirs.
    pub uid: u32,
}

impl Surroundings {
    /// Returns those of this process.
    pub fn of_process() -> Self {
        Self {
            vars: std::env::vars_os().collect(),
            cwd: std::env::current_dir().ok(),
            cpus: Cpus::default(),
            uid: nix::unistd::geteuid().as_raw(),
        }
    }

    fn var(&self, name: &str) -> Option<&OsStr> {
        self.vars
            .get(OsStr::new(name))
            .map(OsString::as_os_str)
            .filter(|value| !value.is_empty())
    }

    /// Returns a variable that has to be text.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>> {
        self.var(name)
            .map(|value| {
                value.to_str().map(str::to_owned).ok_or_else(|| {
                    Error::new(ErrorKind::Config, format!("{name}: {value:?} is not UTF-8"))
                })
            })
            .transpose()
    }

    /// Returns an XDG base directory; as its specification wants, a relative one is ignored.
    fn base(&self, name: &str, below_home: &str) -> Option<PathBuf> {
        let absolute = |name: &str| {
            self.var(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        absolute(name).or_else(|| Some(absolute("HOME")?.join(below_home)))
    }

    /// Makes a path absolute.
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        if path.is_absolute() {
            return Ok(path.to_owned());
        }
        let cwd = self.cwd.as_ref().ok_or_else(|| {
            Error::new(
                ErrorKind::General,
                format!(
                    "{} is relative to a directory that has been deleted",
                    path.display()
                ),
            )
            .hint("give an absolute path, or change to another directory")
        })?;
        Ok(cwd.join(path))
    }
}

/// A file to read settings from.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    /// Whether somebody named it: then it must be there.
    named: bool,
}

/// Returns where the configuration is; `None` if there is no such place.
pub(super) fn config_file(flags: &Flags, around: &Surroundings) -> Result<Option<Found>> {
    if let Some(path) = &flags.config {
        not_empty(path, "--config")?;
    }
    let named = flags
        .config
        .as_deref()
        .or_else(|| around.var("FAIRQ_CONFIG").map(Path::new));
    if let Some(path) = named {
        let path = around.absolute(path)?;
        return Ok(Some(Found { path, named: true }));
    }
    let base = around.base("XDG_CONFIG_HOME", ".config");
    Ok(base.map(|base| Found {
        path: base.join("fairq/config.toml"),
        named: false,
    }))
}

impl Found {
    /// Reads the file; `None` if it may be missing and is.
    pub(super) fn read(&self) -> Result<Option<String>> {
        let read = File::open(&self.path).and_then(|file| {
            let mut bytes = Vec::new();
            let most = u64::try_from(MOST_BYTES).unwrap_or(u64::MAX);
            file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        match read {
            Ok(bytes) => file::text(&self.path, bytes).map(Some),
            Err(error) if !self.named && is_absent(&error) => Ok(None),
            Err(error) => Err(error).or_fail(ErrorKind::Config, || {
                format!("cannot read the configuration {}", self.path.display())
            }),
        }
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn not_empty(path: &Path, flag: &str) -> Result<()> {
    if path.as_os_str().is_empty() {
        return Err(Error::new(
            ErrorKind::Usage,
            format!("{flag}: the path is empty"),
        ));
    }
    Ok(())
}

/// Returns where the store is, and who said so.
pub(super) fn store(
    flags: &Flags,
    around: &Surroundings,
    in_file: Option<(PathBuf, Origin)>,
) -> Result<(PathBuf, Origin)> {
    if let Some(path) = &flags.store {
        not_empty(path, "--store")?;
        return Ok((around.absolute(path)?, Origin::Flag("--store".to_owned())));
    }
    if let Some(path) = around.var("FAIRQ_STORE") {
        let origin = Origin::Environment("FAIRQ_STORE".to_owned());
        return Ok((around.absolute(Path::new(path))?, origin));
    }
    if let Some(path) = project(around)? {
        return Ok((path, Origin::Project));
    }
    if let Some((path, origin)) = in_file {
        return Ok((below_file(around, &path, &origin)?, origin));
    }
    let base = around
        .base("XDG_DATA_HOME", ".local/share")
        .ok_or_else(|| {
            Error::new(
                ErrorKind::Config,
                "cannot tell where the store is: HOME is not set to an absolute path",
            )
            .hint("set HOME, or name a directory with --store or FAIRQ_STORE")
        })?;
    Ok((base.join("fairq"), Origin::Default))
}

/// Returns the nearest `.fairq` directory at or above the working directory.
///
/// One that belongs to somebody else is an error, not a store: in a directory that all may write
/// to, it could have been put there to have its commands run, or to read ours.
fn project(around: &Surroundings) -> Result<Option<PathBuf>> {
    let Some(cwd) = &around.cwd else {
        return Ok(None);
    };
    for directory in cwd.ancestors() {
        let path = directory.join(PROJECT);
        let Ok(found) = path.metadata() else {
            continue;
        };
        if !found.is_dir() {
            continue;
        }
        if found.uid() != around.uid {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "the project store {} belongs to another user (uid {})",
                    path.display(),
                    found.uid()
                ),
            )
            .hint("name the store that you mean with --store or FAIRQ_STORE"));
        }
        return Ok(Some(path));
    }
    Ok(None)
}

/// Reads a path of the file: `~/` is the home directory, and what is relative is so to the file.
fn below_file(around: &Surroundings, path: &Path, origin: &Origin) -> Result<PathBuf> {
    if let Ok(rest) = path.strip_prefix("~") {
        let home = around.base("HOME", "").ok_or_else(|| {
            Error::new(
                ErrorKind::Config,
                format!("{origin}: store: HOME is not set to an absolute path"),
            )
        })?;
        return Ok(home.join(rest));
    }
    match origin {
        Origin::File { path: file, .. } => Ok(file.with_file_name("").join(path)),
        Origin::Default | Origin::Project | Origin::Environment(_) | Origin::Flag(_) => {
            around.absolute(path)
        }
    }
}
