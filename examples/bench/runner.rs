//! Runners in processes of their own: fairq's, and one whose steps do nothing but say so.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fairq::ambient::Dice;
use fairq::crew::process::BootId;
use fairq::crew::shell::Shell;
use fairq::engine::Neighbours;
use fairq::event::NoSink;
use fairq::model::RunnerId;
use fairq::presence::bell::Bell;
use fairq::presence::{self, Card, Presence};
use fairq::store::sqlite::{Mode, runners_dir};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::engine::{Job, Nothing, stop, wait_until_alone};
use super::kit::{Any, FAIRQ, Kit, RUNNER, named};
use super::proc;

/// What a no-op runner has done, as it says at its end.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) steps: u64,
    pub(crate) selected: u64,
    pub(crate) discarded: u64,
    pub(crate) won: u64,
    pub(crate) lost: u64,
}

/// What it says while it lives.
const READY: u8 = b'r';
const STEP: u8 = b's';
const END: u8 = b'e';

/// Is a runner whose steps do nothing: `noop-runner STORE WORKERS [shell]`. With the last word they are
/// run after all, but not told of. It ends when nothing is left to do after its standard input has.
pub(crate) fn main() -> Any<()> {
    let mut args = std::env::args().skip(1);
    let store = args.next().ok_or("no store")?;
    let workers = args.next().ok_or("no workers")?.parse()?;
    let real = args.next().is_some();
    let kit = Kit::new(Path::new("/"), true, 0);
    let store = kit.open(Path::new(&store), Mode::Serve)?;
    let runners = runners_dir(store.root());
    let runner = RunnerId::new(Dice::fresh().bits().cast_signed());
    let card = Card {
        pid: std::process::id(),
        workers,
        started: kit.clock.now(),
        boot: format!("{:032x}", BootId::current()?.get()),
    };
    let presence = Presence::enter(&runners, runner, &card)?;
    let shell = Arc::new(Shell::new(
        store.root().to_owned(),
        presence.dir().to_owned(),
        65_536,
        Arc::clone(&kit.clock),
    )?);
    let job = Job {
        store: Arc::clone(&store) as Arc<_>,
        executor: if real {
            Arc::clone(&shell) as Arc<_>
        } else {
            // Who listens no more has seen enough.
            Nothing::telling(&kit.clock, || drop(say(STEP)))
        },
        sink: Arc::new(NoSink),
        workers,
        runner,
        neighbours: Some(Neighbours {
            store: store.root().to_owned(),
            runners,
            bell: Arc::new(Bell::hang(presence.dir())?),
        }),
    };
    let engine = job.start(&kit.clock)?;
    say(READY)?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    loop {
        let seen = engine.notice().seen();
        if engine.is_drained()? {
            break;
        }
        engine.notice().wait(seen, Duration::from_millis(100));
    }
    let done = stop(&engine)?;
    drop(engine);
    wait_until_alone(&store);
    shell.close();
    drop(presence);
    let told = Told {
        steps: done.steps,
        selected: done.cache.selected,
        discarded: done.cache.discarded,
        won: done.won,
        lost: done.lost,
    };
    say(END)?;
    std::io::stdout().write_all(&serde_json::to_vec(&told)?)?;
    Ok(())
}

fn say(byte: u8) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(&[byte])?;
    out.flush()
}

/// A no-op runner, from outside.
pub(crate) struct NoopRunner {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
}

impl NoopRunner {
    /// Starts one, and returns when it serves.
    pub(crate) fn start(store: &Path, workers: usize, real: bool) -> Any<Self> {
        let mut command = named(RUNNER)?;
        command.arg(store).arg(workers.to_string());
        if real {
            command.arg("shell");
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or("no pipe")?;
        let mut runner = Self {
            child,
            stdin,
            stdout,
        };
        runner.hear(READY)?;
        Ok(runner)
    }

    /// Waits until it has run a step.
    pub(crate) fn step(&mut self) -> Any<()> {
        self.hear(STEP)
    }

    fn hear(&mut self, byte: u8) -> Any<()> {
        let mut heard = [0];
        self.stdout.read_exact(&mut heard)?;
        if heard == [byte] {
            Ok(())
        } else {
            Err(format!("a no-op runner said {heard:?}").into())
        }
    }

    /// Lets it end when nothing is left to do.
    pub(crate) fn let_go(&mut self) {
        drop(self.stdin.take());
    }

    /// Waits for its end and returns what it has done.
    pub(crate) fn end(mut self) -> Any<Told> {
        self.let_go();
        let mut rest = Vec::new();
        self.stdout.read_to_end(&mut rest)?;
        if !self.child.wait()?.success() {
            return Err("a no-op runner failed".into());
        }
        let at = rest.iter().position(|byte| *byte == END);
        let at = at.ok_or("a no-op runner said nothing of its end")?;
        Ok(serde_json::from_slice(&rest[at + 1..])?)
    }
}

impl Drop for NoopRunner {
    fn drop(&mut self) {
        end_child(&mut self.child);
    }
}

/// Does nothing to one that has ended already.
fn end_child(child: &mut Child) {
    if matches!(child.try_wait(), Ok(None)) {
        drop(child.kill());
        drop(child.wait());
    }
}

/// A `fairq run`, from outside.
pub(crate) struct Serving {
    child: Child,
}

impl Serving {
    /// Starts one with two workers, and returns when others can see it.
    pub(crate) fn start(kit: &Kit, store: &Path) -> Any<Self> {
        let child = named(FAIRQ)?
            .args(["run", "--quiet", "--workers", "2"])
            .env("FAIRQ_STORE", store)
            .stderr(Stdio::null())
            .spawn()?;
        let mut serving = Self { child };
        while presence::alive(&runners_dir(store))?.is_empty() {
            if serving.child.try_wait()?.is_some() {
                return Err("fairq run has ended".into());
            }
            kit.rest(Duration::from_millis(1));
        }
        Ok(serving)
    }

    /// Returns the most memory that it has had at once.
    pub(crate) fn peak_mib(&self) -> Any<f64> {
        proc::peak_mib(self.child.id())
    }

    /// Returns how long it has been on processors.
    pub(crate) fn spent(&self) -> Any<Duration> {
        let threads = proc::spent(self.child.id())?;
        Ok(threads.into_values().map(|(_, spent)| spent).sum())
    }

    /// Ends it, and with it what it runs.
    pub(crate) fn end(mut self) -> Any<()> {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGINT)?;
        if self.child.wait()?.success() {
            Ok(())
        } else {
            Err("fairq run did not end well".into())
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        end_child(&mut self.child);
    }
}
