//! A place of its own for a test that drives the binary: directories, a pinned environment, and
//! processes that are gone when the test is.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use fairq::ambient::{Clock as _, SystemClock};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// The binary that is tried.
const BINARY: &str = env!("CARGO_BIN_EXE_fairq");

/// After so long a fact is taken not to come: far beyond what a loaded machine needs.
const NEVER: Duration = Duration::from_secs(100);

/// Waits until something is so, looking again every few milliseconds; fails if it never is.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !is_so() {
        assert!(clock.monotonic() < NEVER, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(4));
    }
}

/// Directories of their own below one that goes away at the end, and with it every process that was
/// started from here.
pub(crate) struct Sandbox {
    root: tempfile::TempDir,
}

/// What a process said and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Its exit code; 128 + n for a signal.
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

/// A runner in the background; dropping it kills it.
pub(crate) struct Runner {
    child: Child,
    log: PathBuf,
}

impl Sandbox {
    /// Makes one with an empty working directory and no store.
    pub(crate) fn new() -> Self {
        let root = tempfile::Builder::new()
            .prefix("fairq-box-")
            .tempdir()
            .unwrap();
        for dir in ["work", "home", "logs", "run"] {
            fs::create_dir(root.path().join(dir)).unwrap();
        }
        Self { root }
    }

    /// Makes one with a store of so many shards.
    pub(crate) fn with_shards(shards: u8) -> Self {
        let sandbox = Self::new();
        let args = ["init", "--shards", &shards.to_string()];
        sandbox.fairq(args).expect(0);
        sandbox
    }

    /// Returns a path in the working directory.
    pub(crate) fn work(&self, name: &str) -> PathBuf {
        self.root.path().join("work").join(name)
    }

    /// Returns where the store is, or will be: in the user's data directory.
    pub(crate) fn store(&self) -> PathBuf {
        self.root.path().join("data/fairq")
    }

    /// Returns the binary with these arguments, in the pinned environment.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.program(BINARY);
        command.args(args);
        command
    }

    /// Returns a program in the pinned environment, and the binary's path as `FAIRQ`.
    pub(crate) fn program(&self, program: &str) -> Command {
        let at = |name: &str| self.root.path().join(name);
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("FAIRQ", BINARY)
            .env("PATH", "/usr/bin:/bin")
            .env("TZ", "UTC")
            .env("LC_ALL", "C")
            .env("HOME", at("home"))
            .env("XDG_CONFIG_HOME", at("home/config"))
            .env("XDG_DATA_HOME", at("data"))
            .env("XDG_STATE_HOME", at("home/state"))
            .env("XDG_CACHE_HOME", at("home/cache"))
            .env("XDG_RUNTIME_DIR", at("run"))
            .current_dir(at("work"))
            .stdin(Stdio::null());
        command
    }

    /// Runs the binary to its end.
    pub(crate) fn fairq<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Ran {
        Ran::of(&mut self.command(args))
    }

    /// Runs the binary to its end with these bytes on its standard input.
    pub(crate) fn fairq_with<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
        input: &[u8],
    ) -> Ran {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // Whoever does not read its input to the end closes it.
                stdin.write_all(input).ok();
            });
            Ran::from_output(child.wait_with_output().unwrap())
        })
    }

    /// Puts steps in and returns their ids.
    pub(crate) fn enqueue<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Vec<String> {
        let mut command = self.command(["enqueue"]);
        command.args(args);
        Ran::of(&mut command).expect(0).ids()
    }

    /// Puts in a shell line a step, with these options, and returns their ids.
    pub(crate) fn enqueue_lines(&self, options: &[&str], lines: &[String]) -> Vec<String> {
        let args = ["enqueue", "--from", "-"].iter().chain(options);
        let ids = self
            .fairq_with(args, lines.join("\n").as_bytes())
            .expect(0)
            .ids();
        assert_eq!(ids.len(), lines.len());
        ids
    }

    /// Runs everything that is due, with so many workers.
    pub(crate) fn drain(&self, workers: usize) -> Ran {
        self.fairq(["run", "--drain", "--workers", &workers.to_string()])
    }

    /// Runs a command that prints JSON and reads it.
    pub(crate) fn json<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Value {
        let mut command = self.command(args);
        command.arg("--json");
        Ran::of(&mut command).expect(0).json()
    }

    /// Returns what is known of a step.
    pub(crate) fn step(&self, id: &str) -> Value {
        self.json(["show", id])["step"].take()
    }

    /// Returns how many steps are in a state.
    pub(crate) fn count(&self, state: &str) -> u64 {
        self.json(["status"])["counts"][state].as_u64().unwrap_or(0)
    }

    /// Starts a runner in the background, and returns once it is there.
    pub(crate) fn runner(&self, options: &[&str]) -> Runner {
        let runner = self.runner_unseen(options);
        let pid = runner.pid();
        until("the runner is there", || {
            self.json(["status"])["runners"]
                .as_array()
                .unwrap()
                .iter()
                .any(|runner| runner["pid"] == pid)
        });
        runner
    }

    /// Starts a runner in the background and does not wait for it.
    pub(crate) fn runner_unseen(&self, options: &[&str]) -> Runner {
        let logs = self.root.path().join("logs");
        let log = logs.join(fs::read_dir(&logs).unwrap().count().to_string());
        let file = fs::File::create(&log).unwrap();
        let child = self
            .command(["run"].iter().chain(options))
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Runner { child, log }
    }

    /// Returns the processes that were started from here and still live, zombies left out: they
    /// carry the sandbox in their environment.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let root = self.root.path().as_os_str().as_encoded_bytes();
        let carries = |pid: &i32| {
            fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|env| env.windows(root.len()).any(|part| part == root))
        };
        fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(carries)
            .collect()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        for pid in self.processes() {
            kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
        }
    }
}

impl Ran {
    /// Runs a command to its end.
    pub(crate) fn of(command: &mut Command) -> Self {
        Self::from_output(command.output().unwrap())
    }

    /// Returns what a process said that has ended.
    pub(crate) fn from_output(output: Output) -> Self {
        Self {
            code: code_of(output.status),
            out: output.stdout,
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Fails unless it ended with this code. A trace of a panic is never right.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}\n{}", self.text(), self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self
    }

    /// Returns its standard output as text.
    #[track_caller]
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// Returns its standard output, which must be one JSON value and nothing else.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.out)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", self.text(), self.err))
    }

    fn ids(&self) -> Vec<String> {
        self.text().lines().map(str::to_owned).collect()
    }
}

impl Runner {
    /// Returns its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.pid()).unwrap()), signal).unwrap();
    }

    /// Waits for its end and returns its exit code (128 + n for a signal) and all that it said.
    pub(crate) fn end(mut self) -> (i32, String) {
        let mut code = None;
        until("the runner ends", || {
            code = self.child.try_wait().unwrap().map(code_of);
            code.is_some()
        });
        (code.unwrap(), self.said())
    }

    /// Returns what it has said so far.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Kills it with no chance to tidy up.
    pub(crate) fn kill_hard(self) {
        self.signal(Signal::SIGKILL);
        assert_eq!(self.end().0, 137);
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // Both fail where it has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn code_of(status: ExitStatus) -> i32 {
    status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap()
}

/// Returns the lines of a file; none if it is not there yet.
pub(crate) fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path)
        .unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect()
}
