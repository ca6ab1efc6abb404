//! The control socket: how others ask a live runner what it is doing.
//!
//! One question a connection: a line of JSON in, a line of JSON out, closed. Each connection has a
//! thread, a time-out and a size limit of its own, so that whoever connects and stays silent, sends
//! half a message or sends rubbish holds up nobody.

use std::fs::{self, File, Permissions};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::dir_of;
use crate::ambient::{Clock, SystemClock};
use crate::error::{Context as _, Error, ErrorKind, Result, plain};
use crate::model::{RunnerId, StepId};

const SOCKET: &str = "control";
/// A question is a short line.
const MOST_ASKED: usize = 64 * 1024;
/// An answer names keys and running steps.
const MOST_ANSWERED: usize = 64 * 1024 * 1024;
/// So much is read or written at once.
const PART: usize = 16 * 1024;
/// How long a connection may take to ask, and an asker waits for a live runner to go on answering.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long an answer may take in all: whoever gave or took a byte now and then would else never end.
const MOST_PATIENCE: Duration = Duration::from_secs(10);
/// More connections at once are closed unheard: a flood must not become a flood of threads.
const MOST_AT_ONCE: usize = 256;

/// What can be asked of a runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Question {
    /// What its cache holds.
    Cache,
    /// What its crew does, and with which steps.
    Crew,
    /// What it planned last, and from what.
    Plan,
    /// What the pools of its reading connections have done.
    Pool,
    /// Who it is, what its crew does, and how the cycles and writers of its shards fare.
    Runner,
    /// Run so many steps at once from now on.
    Resize {
        /// How many.
        workers: usize,
    },
    /// Send a signal to the process groups of those of these steps that it still runs under these
    /// claims; it answers with the ids of those that were there, as `signalled`.
    Signal {
        /// Which, each with its fence.
        steps: Vec<(StepId, u32)>,
        /// The signal's number.
        signal: i32,
    },
}

/// What comes back.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ok(serde_json::Value),
    Error(String),
}

/// Answers questions, or says why not; called by many threads at once.
pub type Answerer = Arc<dyn Fn(&Question) -> Result<serde_json::Value> + Send + Sync>;

/// A runner's socket, from inside.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
    closed: AtomicBool,
    open: Arc<AtomicUsize>,
    clock: Arc<dyn Clock>,
}

impl Control {
    /// Opens the socket in a runner's folder.
    ///
    /// # Errors
    ///
    /// `Unavailable` if it cannot be made.
    pub fn open(dir: &Path, clock: Arc<dyn Clock>) -> Result<Self> {
        let path = dir.join(SOCKET);
        let failed = || format!("cannot make {}", path.display());
        let listener =
            through_short_path(dir, UnixListener::bind).or_fail(ErrorKind::Unavailable, failed)?;
        // Whoever can write to it can ask; the folder around it is its owner's alone already.
        fs::set_permissions(&path, Permissions::from_mode(0o600))
            .or_fail(ErrorKind::Unavailable, failed)?;
        Ok(Self {
            listener,
            path,
            closed: AtomicBool::new(false),
            open: Arc::default(),
            clock,
        })
    }

    /// Answers until the socket is [closed](Self::close).
    pub fn serve(&self, answer: &Answerer) {
        loop {
            let accepted = self.listener.accept();
            if self.closed.load(Ordering::SeqCst) {
                return;
            }
            let Ok((stream, _)) = accepted else { continue };
            if self.open.fetch_add(1, Ordering::SeqCst) >= MOST_AT_ONCE {
                self.open.fetch_sub(1, Ordering::SeqCst);
                continue;
            }
            let (answer, open) = (Arc::clone(answer), Arc::clone(&self.open));
            let clock = Arc::clone(&self.clock);
            let spawned = std::thread::Builder::new()
                .name("control".to_owned())
                .spawn(move || {
                    // Whatever goes wrong with one connection is the business of who opened it.
                    drop(converse(&stream, &answer, &*clock));
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            if spawned.is_err() {
                self.open.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    /// Ends [`Self::serve`].
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        if let Some(dir) = self.path.parent() {
            // The listener sleeps in accept: a connection wakes it.
            drop(through_short_path(dir, UnixStream::connect));
        }
    }
}

/// Asks a runner.
///
/// # Errors
///
/// `Unavailable` if it cannot be reached or does not answer; `General` with its own words if it
/// refuses.
pub fn ask(runners: &Path, id: RunnerId, question: &Question) -> Result<serde_json::Value> {
    ask_by(&SystemClock::new(), runners, id, question)
}

fn ask_by(
    clock: &dyn Clock,
    runners: &Path,
    id: RunnerId,
    question: &Question,
) -> Result<serde_json::Value> {
    let failed = || format!("the runner {id} does not answer");
    let mut line = serde_json::to_vec(question).or_fail(ErrorKind::Internal, failed)?;
    line.push(b'\n');
    let until = Until::after(MOST_PATIENCE, clock);
    let answer = through_short_path(&dir_of(runners, id), UnixStream::connect)
        .and_then(|stream| {
            say(&stream, &line, &until)?;
            hear(&stream, MOST_ANSWERED, &until)
        })
        .or_fail(ErrorKind::Unavailable, failed)?;
    understand(id, &answer)
}

/// Returns what a runner has answered, which may be anything.
fn understand(id: RunnerId, answer: &[u8]) -> Result<serde_json::Value> {
    let failed = || format!("the runner {id} does not answer");
    match serde_json::from_slice(answer).or_fail(ErrorKind::Unavailable, failed)? {
        Answer::Ok(value) => Ok(value),
        Answer::Error(text) => Err(Error::new(
            ErrorKind::General,
            format!("the runner {id} refuses: {text}"),
        )),
    }
}

fn converse(stream: &UnixStream, answer: &Answerer, clock: &dyn Clock) -> std::io::Result<()> {
    let line = hear(stream, MOST_ASKED, &Until::after(PATIENCE, clock))?;
    let mut text = serde_json::to_vec(&reply(&line, answer))?;
    text.push(b'\n');
    say(stream, &text, &Until::after(MOST_PATIENCE, clock))
}

/// Returns what is answered to a line, which may be anything.
fn reply(line: &[u8], answer: &Answerer) -> Answer {
    match serde_json::from_slice(line) {
        Ok(question) => match answer(&question) {
            Ok(value) => Answer::Ok(value),
            Err(error) => Answer::Error(error.to_string()),
        },
        Err(error) => Answer::Error(format!(
            "not a question that this fairq knows: {}",
            plain(&error)
        )),
    }
}

/// How long something may still take.
struct Until<'c> {
    clock: &'c dyn Clock,
    end: Duration,
}

impl<'c> Until<'c> {
    fn after(span: Duration, clock: &'c dyn Clock) -> Self {
        let end = clock.monotonic() + span;
        Self { clock, end }
    }

    /// Returns for how long to wait for the other side to go on; an error if time is over.
    fn left(&self) -> std::io::Result<Option<Duration>> {
        let left = self.end.saturating_sub(self.clock.monotonic());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        Ok(Some(left.min(PATIENCE)))
    }
}

/// Reads a line, or as much as one may have. All of it must come in time.
fn hear(mut stream: &UnixStream, most: usize, until: &Until<'_>) -> std::io::Result<Vec<u8>> {
    let (mut line, mut part) = (Vec::new(), [0; PART]);
    loop {
        stream.set_read_timeout(until.left()?)?;
        let read = match stream.read(&mut part) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        line.extend_from_slice(&part[..read]);
        if read == 0 || part[..read].contains(&b'\n') || line.len() >= most {
            return Ok(line);
        }
    }
}

/// Writes a line. All of it must be taken in time, so it is written in parts: the kernel begins to
/// count anew whenever something of what it was given at once has been taken.
fn say(mut stream: &UnixStream, mut line: &[u8], until: &Until<'_>) -> std::io::Result<()> {
    while !line.is_empty() {
        stream.set_write_timeout(until.left()?)?;
        match stream.write(&line[..line.len().min(PART)]) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            written => line = &line[written?..],
        }
    }
    Ok(())
}

/// Names the socket in a folder by a path that is short however deep the folder lies: the kernel
/// takes at most 108 bytes, and a store may be anywhere.
fn through_short_path<T>(
    dir: &Path,
    with: impl FnOnce(PathBuf) -> std::io::Result<T>,
) -> std::io::Result<T> {
    let folder = File::open(dir)?;
    with(PathBuf::from(format!(
        "/proc/self/fd/{}/{SOCKET}",
        folder.as_raw_fd()
    )))
}

#[cfg(test)]
mod hostile;

#[cfg(test)]
mod tests {
    use super::*;

    fn runner(deep: bool) -> (tempfile::TempDir, PathBuf, RunnerId) {
        let root = tempfile::tempdir().unwrap();
        let runners = if deep {
            root.path().join("x".repeat(200))
        } else {
            root.path().to_owned()
        };
        let id = RunnerId::new(7);
        fs::create_dir_all(dir_of(&runners, id)).unwrap();
        (root, runners, id)
    }

    fn clock() -> Arc<dyn Clock> {
        Arc::new(SystemClock::new())
    }

    /// Serves with this answer while `with` runs.
    fn served(runners: &Path, id: RunnerId, answer: &Answerer, with: impl FnOnce()) {
        let control = Arc::new(Control::open(&dir_of(runners, id), clock()).unwrap());
        let (serving, answer) = (Arc::clone(&control), Arc::clone(answer));
        let server = std::thread::spawn(move || serving.serve(&answer));
        with();
        control.close();
        server.join().unwrap();
    }

    fn echo() -> Answerer {
        Arc::new(|question| Ok(serde_json::json!({ "asked": question })))
    }

    /// Two hundred clients that say nothing, half of something or rubbish. An asker waits for a
    /// short while only, and served behind them it would wait for all of theirs.
    #[test]
    fn silent_and_rude_clients_hold_up_nobody() {
        let (_root, runners, id) = runner(true);
        let dir = dir_of(&runners, id);
        served(&runners, id, &echo(), || {
            let rude: Vec<UnixStream> = (0..200)
                .map(|number| {
                    let mut stream = through_short_path(&dir, UnixStream::connect).unwrap();
                    match number % 3 {
                        0 => {}
                        1 => stream.write_all(b"{\"ask\":").unwrap(),
                        _ => stream.write_all(b"\xff\xfe\0rubbish\n").unwrap(),
                    }
                    stream
                })
                .collect();
            for workers in 0..50 {
                let told = ask(&runners, id, &Question::Resize { workers }).unwrap();
                assert_eq!(told["asked"]["ask"], "resize");
                assert_eq!(told["asked"]["workers"], workers);
            }
            drop(rude);
        });
    }

    #[test]
    fn a_question_without_an_end_is_not_read_to_its_end() {
        let (_root, runners, id) = runner(false);
        let dir = dir_of(&runners, id);
        served(&runners, id, &echo(), || {
            let mut stream = through_short_path(&dir, UnixStream::connect).unwrap();
            stream.write_all(&vec![b' '; MOST_ASKED]).unwrap();
            let mut told = String::new();
            stream.read_to_string(&mut told).unwrap();
            assert!(told.contains("not a question"), "{told}");
        });
    }

    /// It never falls silent for long, and loses its place all the same.
    #[test]
    fn a_question_that_drips_in_is_not_waited_for() {
        let (_root, runners, id) = runner(false);
        let dir = dir_of(&runners, id);
        served(&runners, id, &echo(), || {
            let mut stream = through_short_path(&dir, UnixStream::connect).unwrap();
            let drips = (0..600).take_while(|_| {
                std::thread::park_timeout(Duration::from_millis(50));
                stream.write_all(b" ").is_ok()
            });
            assert!(drips.count() < 600, "it was listened to for ever");
        });
    }

    #[test]
    fn a_refusal_comes_with_its_reason() {
        let (_root, runners, id) = runner(false);
        let answer: Answerer = Arc::new(|_| Err(Error::new(ErrorKind::Usage, "not that many")));
        served(&runners, id, &answer, || {
            let error = ask(&runners, id, &Question::Pool).unwrap_err();
            assert!(error.to_string().contains("not that many"), "{error}");
        });
    }

    #[test]
    fn the_socket_is_its_owners_alone() {
        let (_root, runners, id) = runner(true);
        let dir = dir_of(&runners, id);
        let _control = Control::open(&dir, clock()).unwrap();
        let mode = fs::metadata(dir.join(SOCKET)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_runner_that_is_gone_does_not_answer() {
        let (_root, runners, id) = runner(false);
        let error = ask(&runners, id, &Question::Runner).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}
