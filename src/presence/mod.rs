//! Runners as others see them: who is there, who is dead, and how to ring their bells.
//!
//! Each runner has a folder of its own below `runners/`, named by its id, with a lock that it holds
//! for life, a bell, its workers' capture files and its journal. Whoever can take the lock knows that
//! the runner is dead; nobody ever guesses from the age of something.

pub mod bell;
pub mod control;

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::model::{RunnerId, Timestamp};

const LOCK: &str = "lock";
/// What the lock is called until it is held.
const UNBORN: &str = "lock.new";
/// No card is larger.
const MOST_BYTES: u64 = 4_096;
/// How often a runner makes its folder that is taken away as it does so.
const MOST_BIRTHS: u32 = 8;

/// What a runner says of itself, in its lock file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// Its process.
    pub pid: u32,
    /// How many steps it runs at once, as it started.
    pub workers: usize,
    /// When it started.
    pub started: Timestamp,
    /// The machine's boot, so that a pid from before is never believed.
    pub boot: String,
}

/// This process's own presence; dropping it takes the folder away and lets the lock go.
#[derive(Debug)]
pub struct Presence {
    id: RunnerId,
    dir: PathBuf,
    // Held, not used: the lock lives as long as the descriptor.
    _lock: File,
}

/// What is known of a runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It holds its lock.
    Alive,
    /// Its lock could be taken.
    Dead,
    /// There is no lock to ask: only its leases tell.
    Unknown,
}

impl Presence {
    /// Makes this process a runner.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the folder or the lock cannot be made.
    pub fn enter(runners: &Path, id: RunnerId, card: &Card) -> Result<Self> {
        let dir = dir_of(runners, id);
        let failed = || format!("cannot make {}", dir.display());
        let text = serde_json::to_string(card).or_fail(ErrorKind::Internal, failed)?;
        let mut made = Err(io::ErrorKind::NotFound.into());
        for _ in 0..MOST_BIRTHS {
            made = make(&dir, &text);
            // Somebody took it for one whose runner died before it had a lock.
            if !matches!(&made, Err(error) if error.kind() == io::ErrorKind::NotFound) {
                break;
            }
        }
        let lock = made.or_fail(ErrorKind::Unavailable, failed)?;
        Ok(Self {
            id,
            dir,
            _lock: lock,
        })
    }

    /// Returns the runner's id.
    pub const fn id(&self) -> RunnerId {
        self.id
    }

    /// Returns the runner's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // What cannot be removed is removed by the next runner that finds it dead.
        drop(remove(&self.dir));
        self.dir
            .parent()
            .into_iter()
            .for_each(bell::tell_of_runners);
    }
}

/// Makes a folder with a lock that is held and says this.
fn make(dir: &Path, text: &str) -> io::Result<File> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)?;
    // Locked under another name first: a lock file that can be seen is always held or dead.
    let unborn = dir.join(UNBORN);
    let mut lock = File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&unborn)?;
    lock.lock()?;
    lock.write_all(text.as_bytes())?;
    fs::rename(&unborn, dir.join(LOCK))?;
    Ok(lock)
}

/// Removes a runner's folder, its lock last: one that was removed in part is still that of a dead
/// runner.
fn remove(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name() != LOCK {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_file(dir.join(LOCK))?;
    fs::remove_dir(dir)
}

/// Returns the folder of a runner.
pub fn dir_of(runners: &Path, id: RunnerId) -> PathBuf {
    runners.join(id.to_string())
}

/// Returns whether a runner lives, by its lock.
///
/// # Errors
///
/// `Unavailable` if the lock is there and cannot be asked.
pub fn standing(runners: &Path, id: RunnerId) -> Result<Standing> {
    let path = dir_of(runners, id).join(LOCK);
    let lock = match File::open(&path) {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Standing::Unknown),
        Err(error) => {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!("cannot open {}", path.display()),
            )
            .caused_by(&error));
        }
    };
    match lock.try_lock_shared() {
        Ok(()) => Ok(Standing::Dead),
        Err(fs::TryLockError::WouldBlock) => Ok(Standing::Alive),
        Err(fs::TryLockError::Error(error)) => Err(Error::new(
            ErrorKind::Unavailable,
            format!("cannot ask the lock {}", path.display()),
        )
        .caused_by(&error)),
    }
}

/// Returns all runners that have a folder, by id.
///
/// # Errors
///
/// `Unavailable` if the folder of runners cannot be read; that there is none means that there is no
/// runner.
pub fn all(runners: &Path) -> Result<Vec<RunnerId>> {
    let failed = || format!("cannot read {}", runners.display());
    let entries = match fs::read_dir(runners) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::new(ErrorKind::Unavailable, failed()).caused_by(&error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry.or_fail(ErrorKind::Unavailable, failed)?.file_name();
        if let Some(id) = name.to_str().and_then(|name| name.parse().ok()) {
            found.push(id);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns the live runners with what they say of themselves.
///
/// # Errors
///
/// As [`all`] and [`standing`].
pub fn alive(runners: &Path) -> Result<Vec<(RunnerId, Option<Card>)>> {
    let mut found = Vec::new();
    for id in all(runners)? {
        if standing(runners, id)? == Standing::Alive {
            found.push((id, card(runners, id)));
        }
    }
    Ok(found)
}

/// Returns what a runner says of itself, if it can be read.
pub fn card(runners: &Path, id: RunnerId) -> Option<Card> {
    let mut text = String::new();
    File::open(dir_of(runners, id).join(LOCK))
        .ok()?
        .take(MOST_BYTES)
        .read_to_string(&mut text)
        .ok()?;
    serde_json::from_str(&text).ok()
}

/// Removes the folder of a runner that is dead and whose steps are all taken back.
///
/// # Errors
///
/// `Unavailable` if it cannot be removed.
pub fn bury(runners: &Path, id: RunnerId) -> Result<()> {
    let dir = dir_of(runners, id);
    match remove(&dir) {
        Ok(()) => Ok(()),
        // Another runner was faster.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::new(
            ErrorKind::Unavailable,
            format!("cannot remove {}", dir.display()),
        )
        .caused_by(&error)),
    }
}

/// Removes the folder of a runner that died before it had a lock, or in the moment in which its folder
/// was removed. One that is just starting is left alone, or makes its folder anew.
pub fn bury_unborn(runners: &Path, id: RunnerId) {
    let dir = dir_of(runners, id);
    let unborn = dir.join(UNBORN);
    if let Ok(lock) = File::open(&unborn) {
        if lock.try_lock().is_err() {
            return;
        }
        // Under the lock: who waits for it sees that the name is gone.
        fs::remove_file(&unborn).ok();
    }
    // Only an empty one goes.
    fs::remove_dir(&dir).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card_of(pid: u32) -> Card {
        Card {
            pid,
            workers: 2,
            started: Timestamp::from_millis(5),
            boot: "b".to_owned(),
        }
    }

    #[test]
    fn a_lock_that_can_be_taken_means_dead() {
        let runners = tempfile::tempdir().unwrap();
        let id = RunnerId::new(77);
        assert_eq!(standing(runners.path(), id).unwrap(), Standing::Unknown);
        let presence = Presence::enter(runners.path(), id, &card_of(42)).unwrap();
        assert_eq!(standing(runners.path(), id).unwrap(), Standing::Alive);
        assert_eq!(alive(runners.path()).unwrap(), [(id, Some(card_of(42)))]);
        // A crash: the folder stays, the lock goes.
        let Presence { id: _, dir, _lock } = &presence;
        let copy = dir.join("copy");
        fs::copy(dir.join(LOCK), &copy).unwrap();
        fs::rename(copy, dir.join(LOCK)).unwrap();
        assert_eq!(standing(runners.path(), id).unwrap(), Standing::Dead);
        assert_eq!(alive(runners.path()).unwrap(), []);
        bury(runners.path(), id).unwrap();
        bury(runners.path(), id).unwrap();
        assert_eq!(all(runners.path()).unwrap(), []);
    }

    #[test]
    fn a_folder_whose_runner_never_had_a_lock_is_removed_and_no_other() {
        let runners = tempfile::tempdir().unwrap();
        let presence = Presence::enter(runners.path(), RunnerId::new(1), &card_of(42)).unwrap();
        let [empty, unborn, starting] = [2, 3, 4].map(RunnerId::new);
        for id in [empty, unborn, starting] {
            fs::create_dir(dir_of(runners.path(), id)).unwrap();
        }
        let lock_of = |id| File::create(dir_of(runners.path(), id).join(UNBORN)).unwrap();
        drop(lock_of(unborn));
        let held = lock_of(starting);
        held.lock().unwrap();
        for id in all(runners.path()).unwrap() {
            bury_unborn(runners.path(), id);
        }
        assert_eq!(all(runners.path()).unwrap(), [presence.id(), starting]);
    }

    /// Else it would be litter for ever: nobody knows of a folder without a lock whose it is.
    #[test]
    fn the_lock_goes_last() {
        let runners = tempfile::tempdir().unwrap();
        let id = RunnerId::new(1);
        let presence = Presence::enter(runners.path(), id, &card_of(42)).unwrap();
        // What cannot be removed like a file stops it half-way.
        fs::create_dir(presence.dir().join("folder")).unwrap();
        drop(presence);
        assert_eq!(standing(runners.path(), id).unwrap(), Standing::Dead);
    }
}
