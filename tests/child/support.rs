//! One worker on a store of its own, and how to wait for facts.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fairq::ambient::{Clock as _, SystemClock};
use fairq::crew::capture::{Capture, live_path};
use fairq::crew::child::{self, Child, Ended, StartError};
use fairq::crew::launch::Launcher;
use fairq::model::Stream;
use fairq::model::{
    Band, Captured, Claim, Command, Ending, Environment, FairnessKey, Policy, RunnerId, Timestamp,
};

/// What a stream may hold to be kept with the step's record, in bytes.
pub(crate) const INLINE_MAX: u64 = 64 * 1024;

/// When steps are started here, as they are told.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// Waits until something is so, looking again every few milliseconds; fails after a minute, which
/// no healthy run comes near.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !is_so() {
        assert!(clock.monotonic() < Duration::from_secs(60), "never: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

pub(crate) fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}/stat")).exists() && !is_zombie(pid)
}

pub(crate) fn is_zombie(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.contains("\nState:\tZ")
}

pub(crate) fn is_stopped(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.contains("\nState:\tT")
}

/// One worker on a store of its own, in a directory that steps may use.
pub(crate) struct Bench {
    pub(crate) root: tempfile::TempDir,
    pub(crate) capture: Capture,
    pub(crate) claim: Claim,
    pub(crate) launcher: Launcher,
}

/// What became of a command.
pub(crate) struct Ran {
    pub(crate) ended: Ended,
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
    pub(crate) captured: (Captured, Captured),
}

impl Ran {
    pub(crate) fn code(&self) -> Option<i32> {
        if let Ending::Exited { code } = self.ended.ending {
            Some(code)
        } else {
            None
        }
    }
}

pub(crate) fn sh(line: &str) -> Command {
    Command::Shell(line.into())
}

pub(crate) fn argv<W: AsRef<[u8]>>(words: &[W]) -> Command {
    let word = |word: &W| OsString::from_vec(word.as_ref().to_vec());
    Command::Argv(words.iter().map(word).collect())
}

pub(crate) fn env(pairs: &[(&str, &str)]) -> Arc<Environment> {
    let pairs = pairs
        .iter()
        .map(|(name, value)| (name.into(), value.into()));
    Arc::new(Environment::from_pairs(pairs))
}

impl Bench {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let runner = root.path().join("runners");
        fs::create_dir(&runner).unwrap();
        let work = root.path().join("work");
        fs::create_dir(&work).unwrap();
        let claim = Claim {
            id: "a17".parse().unwrap(),
            runner: RunnerId::new(1),
            fence: 0,
            attempt: 1,
            band: Band::DEFAULT,
            key: FairnessKey::default(),
            name: None,
            command: sh("true"),
            cwd: work,
            env: env(&[("PATH", "/usr/bin:/bin")]),
            policy: Policy::default(),
            since: Timestamp::default(),
            claimed: Timestamp::default(),
        };
        let capture = Capture::create(root.path(), &runner, 4, INLINE_MAX).unwrap();
        Self {
            root,
            capture,
            claim,
            launcher: Launcher::of_this_thread(),
        }
    }

    pub(crate) fn work(&self) -> &Path {
        &self.claim.cwd
    }

    pub(crate) fn live(&self, stream: Stream) -> PathBuf {
        live_path(&self.root.path().join("runners"), 4, stream)
    }

    pub(crate) fn start(&mut self, command: Command) -> Result<Child, StartError> {
        self.claim.command = command;
        self.claim.fence += 1;
        child::start(&self.claim, &mut self.capture, &self.launcher, NOW)
    }

    pub(crate) fn finish(&mut self, child: &Child) -> Ran {
        let ended = child.wait();
        let left_some = ended.leftover.is_some();
        let captured = self
            .capture
            .collect(self.claim.id, self.claim.fence, left_some)
            .unwrap();
        Ran {
            ended,
            out: self.bytes(&captured.0),
            err: self.bytes(&captured.1),
            captured,
        }
    }

    pub(crate) fn run(&mut self, command: Command) -> Ran {
        let child = self.start(command).unwrap();
        self.finish(&child)
    }

    pub(crate) fn bytes(&self, captured: &Captured) -> Vec<u8> {
        match captured {
            Captured::Empty => Vec::new(),
            Captured::Inline(bytes) => bytes.clone(),
            Captured::File { path, .. } => fs::read(self.root.path().join(path)).unwrap(),
        }
    }

    /// Returns why a command can never be started.
    pub(crate) fn refusal(&mut self, command: Command) -> String {
        match self.start(command) {
            Err(StartError::Never { reason }) => reason,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Returns the number that a step wrote to a file in its directory, once it is there.
    pub(crate) fn pid_in(&self, name: &str) -> u32 {
        let path = self.work().join(name);
        let read = || {
            fs::read_to_string(&path)
                .ok()?
                .strip_suffix('\n')?
                .parse()
                .ok()
        };
        until(name, || read().is_some());
        read().unwrap()
    }

    pub(crate) fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.work().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}
