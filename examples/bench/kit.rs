//! What every subject needs: a clock, stores full of steps, this program under its other names.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fairq::ambient::{Clock, SystemClock};
use fairq::model::{
    Band, Command as StepCommand, Due, Environment, FairnessKey, NewStep, Policy, Weight,
};
use fairq::store::Intake as _;
use fairq::store::placement::Placement;
use fairq::store::sqlite::{Durability, Mode, NewStore, SqliteStore};
use tempfile::TempDir;

/// What went wrong, whatever it was: it ends the run.
pub(crate) type Any<T> = Result<T, Box<dyn Error>>;

/// The names under which this program is another one.
pub(crate) const FAIRQ: &[u8] = b"fairq";
pub(crate) const ONE_COMMIT: &[u8] = b"one-commit";
pub(crate) const RUNNER: &[u8] = b"noop-runner";

/// How many shards stores have where nothing else is said.
pub(crate) const SHARDS: u8 = 4;

/// What every subject is given.
#[derive(Debug)]
pub(crate) struct Kit {
    dir: PathBuf,
    short: bool,
    most: u64,
    /// The time.
    pub(crate) clock: Arc<dyn Clock>,
}

impl Kit {
    pub(crate) fn new(dir: &Path, short: bool, most: u64) -> Self {
        Self {
            dir: dir.to_owned(),
            short,
            most,
            clock: Arc::new(SystemClock::new()),
        }
    }

    /// Returns a number for this run: the first in a short one.
    pub(crate) const fn of<T: Copy>(&self, short: T, full: T) -> T {
        if self.short { short } else { full }
    }

    /// Returns a number of steps: of these the first in a short run, and never more than allowed.
    pub(crate) fn steps(&self, short: u64, full: u64) -> u64 {
        self.of(short, full).min(self.most)
    }

    /// Makes a directory that is gone when it is dropped.
    pub(crate) fn place(&self) -> Any<TempDir> {
        Ok(tempfile::Builder::new()
            .prefix("fairq-bench-")
            // As a store's directory is to be, or each command would warn of it.
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(&self.dir)?)
    }

    /// Makes an empty store.
    pub(crate) fn store(&self, shards: u8, mode: Mode) -> Any<(TempDir, Arc<SqliteStore>)> {
        let place = self.place()?;
        let store = self.make(place.path(), shards, mode)?;
        Ok((place, store))
    }

    fn make(&self, at: &Path, shards: u8, mode: Mode) -> Any<Arc<SqliteStore>> {
        let new = NewStore {
            shards,
            placement: Placement::Key,
        };
        let clock = &self.clock;
        let store = SqliteStore::open_or_create(at, new, mode, Durability::Normal, clock)?;
        Ok(Arc::new(store))
    }

    /// Opens a store that is there.
    pub(crate) fn open(&self, at: &Path, mode: Mode) -> Any<Arc<SqliteStore>> {
        self.make(at, SHARDS, mode)
    }

    /// Makes a store of `steps` steps of so many keys, each `true`; returns its place only, closed.
    pub(crate) fn filled(&self, shards: u8, steps: u64, keys: u64) -> Any<TempDir> {
        let (place, store) = self.store(shards, Mode::Visit)?;
        self.fill(&store, steps, keys)?;
        Ok(place)
    }

    /// Puts steps in, in turns for so many keys.
    pub(crate) fn fill(&self, store: &SqliteStore, steps: u64, keys: u64) -> Any<()> {
        let keys: Vec<FairnessKey> = (0..keys.max(1))
            .map(|number| format!("key-{number:05}").parse())
            .collect::<Result<_, _>>()?;
        let step = step();
        let all: BTreeSet<FairnessKey> = keys.iter().cloned().collect();
        let mut made = keys
            .iter()
            .cycle()
            .take(usize::try_from(steps)?)
            .map(|key| {
                Ok(NewStep {
                    key: key.clone(),
                    ..step.clone()
                })
            });
        store.pour(&all, &mut made, self.clock.now())?;
        Ok(())
    }

    /// Returns how long something takes.
    pub(crate) fn time<T>(&self, what: impl FnOnce() -> Any<T>) -> Any<(Duration, T)> {
        let began = self.clock.monotonic();
        let value = what()?;
        Ok((self.clock.monotonic() - began, value))
    }

    /// Waits for a while. Benches may: what they measure is time.
    pub(crate) fn rest(&self, pause: Duration) {
        let until = self.clock.monotonic() + pause;
        while let Some(left) = until.checked_sub(self.clock.monotonic())
            && !left.is_zero()
        {
            std::thread::park_timeout(left);
        }
    }

    /// Runs this program under the name of fairq, on the store at `store`; it must end well.
    pub(crate) fn fairq(&self, store: &Path, args: &[&str]) -> Any<Duration> {
        let mut command = named(FAIRQ)?;
        command.args(args).env("FAIRQ_STORE", store);
        self.ended_well(&mut command)
    }

    /// Runs a command to its end, which must be a good one. What it says is not shown unless it is not.
    pub(crate) fn ended_well(&self, command: &mut Command) -> Any<Duration> {
        command.stderr(Stdio::piped());
        let (took, output) = self.time(|| Ok(command.spawn()?.wait_with_output()?))?;
        if output.status.success() {
            return Ok(took);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("{command:?}: {}\n{said}", output.status).into())
    }
}

/// Returns this program under one of its other names, with nothing of our surroundings but what every
/// process needs, and nothing to read or to say.
pub(crate) fn named(name: &[u8]) -> Any<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg0(str::from_utf8(name)?)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/nonexistent")
        .env("FAIRQ_CONFIG", "/dev/null")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    Ok(command)
}

/// Returns the program that does nothing.
pub(crate) fn true_path() -> &'static str {
    ["/usr/bin/true", "/bin/true"]
        .into_iter()
        .find(|path| Path::new(path).exists())
        .unwrap_or("/bin/true")
}

/// Returns a step that does nothing, of the default key.
pub(crate) fn step() -> NewStep {
    NewStep {
        command: StepCommand::Argv(vec![true_path().into()]),
        cwd: "/".into(),
        env: Arc::new(Environment::from_pairs([(
            "PATH".into(),
            "/usr/bin:/bin".into(),
        )])),
        band: Band::DEFAULT,
        key: FairnessKey::default(),
        weight: Weight::ONE,
        name: None,
        tags: Vec::new(),
        flow: None,
        due: Due::Now,
        after: Vec::new(),
        unique: None,
        policy: Policy::default(),
    }
}

/// Returns the value below which this part of all lies.
pub(crate) fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let at = (part * last as f64).round();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a place in a list"
    )]
    sorted.get(at as usize).copied().unwrap_or(f64::NAN)
}

/// Returns the value in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Returns how many there were in a second.
pub(crate) fn rate(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64().max(1e-9)
}

/// Returns a duration in milliseconds.
pub(crate) fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

/// Returns a duration in microseconds.
pub(crate) fn micros(took: Duration) -> f64 {
    took.as_secs_f64() * 1e6
}
