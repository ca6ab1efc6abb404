//! The control socket: how others ask a live runner what it is doing.
//!
//! One question a connection: a line of JSON in, a line of JSON out, closed. Each connection has a
//! thread, a time-out and a size limit of its own, so that whoever connects and stays silent, sends
//! half a message or sends rubbish holds up nobody.

use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::dir_of;
use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::model::RunnerId;

const SOCKET: &str = "control";
/// A question is a short line.
const MOST_ASKED: u64 = 64 * 1024;
/// An answer names keys and running steps.
const MOST_ANSWERED: u64 = 64 * 1024 * 1024;
/// How long a connection may take to ask, and an asker waits for a live runner's answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// More connections at once are closed unheard: a flood must not become a flood of threads.
const MOST_AT_ONCE: usize = 256;

/// What can be asked of a runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Question {
    /// What its cache holds.
    Cache,
    /// What its crew does.
    Crew,
    /// Which shards take no part in its plans.
    Withdrawn,
    /// What the pools of its reading connections have done.
    Pool,
}

/// What comes back.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ok(serde_json::Value),
    Error(String),
}

/// Answers questions; called by many threads at once.
pub type Answerer = Arc<dyn Fn(&Question) -> serde_json::Value + Send + Sync>;

/// A runner's socket, from inside.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
    closed: AtomicBool,
    open: Arc<AtomicUsize>,
}

impl Control {
    /// Opens the socket in a runner's folder.
    ///
    /// # Errors
    ///
    /// `Unavailable` if it cannot be made.
    pub fn open(dir: &Path) -> Result<Self> {
        let path = dir.join(SOCKET);
        let failed = || format!("cannot make {}", path.display());
        let listener = through_short_path(dir, |path| {
            let listener = UnixListener::bind(&path)?;
            // The folder keeps others out already; the socket does so by itself.
            fs::set_permissions(path, Permissions::from_mode(0o600))?;
            Ok(listener)
        })
        .or_fail(ErrorKind::Unavailable, failed)?;
        Ok(Self {
            listener,
            path,
            closed: AtomicBool::new(false),
            open: Arc::default(),
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
            let spawned = std::thread::Builder::new()
                .name("control".to_owned())
                .spawn(move || {
                    // Whatever goes wrong with one connection is the business of who opened it.
                    drop(converse(&stream, &answer));
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
    let failed = || format!("the runner {id} does not answer");
    let mut stream = through_short_path(&dir_of(runners, id), UnixStream::connect)
        .or_fail(ErrorKind::Unavailable, failed)?;
    patient(&stream).or_fail(ErrorKind::Unavailable, failed)?;
    let mut line = serde_json::to_string(question).or_fail(ErrorKind::Internal, failed)?;
    line.push('\n');
    stream
        .write_all(line.as_bytes())
        .or_fail(ErrorKind::Unavailable, failed)?;
    let mut text = String::new();
    BufReader::new(stream.take(MOST_ANSWERED))
        .read_line(&mut text)
        .or_fail(ErrorKind::Unavailable, failed)?;
    match serde_json::from_str(&text).or_fail(ErrorKind::Unavailable, failed)? {
        Answer::Ok(value) => Ok(value),
        Answer::Error(text) => Err(Error::new(ErrorKind::General, failed()).hint(text)),
    }
}

fn converse(stream: &UnixStream, answer: &Answerer) -> std::io::Result<()> {
    patient(stream)?;
    let mut line = String::new();
    BufReader::new(stream.take(MOST_ASKED)).read_line(&mut line)?;
    let reply = match serde_json::from_str(&line) {
        Ok(question) => Answer::Ok(answer(&question)),
        Err(error) => Answer::Error(format!("not a question that this fairq knows: {error}")),
    };
    let mut text = serde_json::to_string(&reply)?;
    text.push('\n');
    let mut stream = stream;
    stream.write_all(text.as_bytes())
}

fn patient(stream: &UnixStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
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

    /// Two hundred clients that say nothing, half of something or rubbish.
    #[test]
    fn silent_and_rude_clients_hold_up_nobody() {
        let (_root, runners, id) = runner(true);
        let control = Arc::new(Control::open(&dir_of(&runners, id)).unwrap());
        let serving = Arc::clone(&control);
        let answer: Answerer = Arc::new(|question| serde_json::json!({ "asked": question }));
        let server = std::thread::spawn(move || serving.serve(&answer));
        let dir = dir_of(&runners, id);
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
        let told = ask(&runners, id, &Question::Cache).unwrap();
        assert_eq!(told["asked"]["ask"], "cache");
        drop(rude);
        control.close();
        server.join().unwrap();
    }

    #[test]
    fn a_runner_that_is_gone_does_not_answer() {
        let (_root, runners, id) = runner(false);
        let error = ask(&runners, id, &Question::Crew).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}
