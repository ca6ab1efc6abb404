//! The doorbell: how a process that made work due wakes the runners of its store.
//!
//! A named pipe in each runner's folder. One byte a ring, the shard's number, or that runners came or
//! went. A pipe and not a socket, because its path may be as long as any; measured, both wake in
//! 0.3 ms. A lost ring costs at most one heartbeat.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind as Io, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use super::{all, dir_of};
use crate::error::{Context as _, ErrorKind, Result};
use crate::model::ShardId;

const BELL: &str = "bell";
/// The byte by which a runner rings its own bell to be let out.
const CLOSE: u8 = u8::MAX;
/// The byte by which a runner says that it has come or gone.
const RUNNERS: u8 = u8::MAX - 1;

/// What a bell was rung for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// Steps of this shard became due.
    Shard(ShardId),
    /// A runner has come or gone.
    Runners,
}

/// A runner's bell, from inside.
#[derive(Debug)]
pub struct Bell {
    pipe: File,
}

impl Bell {
    /// Hangs the bell in a runner's folder.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the pipe cannot be made.
    pub fn hang(dir: &Path) -> Result<Self> {
        let path = dir.join(BELL);
        let failed = || format!("cannot make {}", path.display());
        nix::unistd::mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)
            .or_fail(ErrorKind::Unavailable, failed)?;
        // Open for writing too: so there is always a writer, and a read never ends for want of one.
        let pipe = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .or_fail(ErrorKind::Unavailable, failed)?;
        Ok(Self { pipe })
    }

    /// Waits for rings and hands each to `heard`, until the bell is [closed](Self::close).
    pub fn listen(&self, heard: impl Fn(Rung)) {
        let mut bytes = [0; 512];
        loop {
            match (&self.pipe).read(&mut bytes) {
                Ok(count) => {
                    for byte in &bytes[..count] {
                        match *byte {
                            CLOSE => return,
                            RUNNERS => heard(Rung::Runners),
                            shard => ShardId::new(shard)
                                .map(Rung::Shard)
                                .into_iter()
                                .for_each(&heard),
                        }
                    }
                }
                Err(error) if error.kind() == Io::Interrupted => {}
                // The heartbeat goes on without the bell.
                Err(_) => return,
            }
        }
    }

    /// Lets the listener go.
    pub fn close(&self) {
        // A full pipe is full of rings: the listener is awake, and we are called again by nobody, so
        // this may block until it has read some.
        drop((&self.pipe).write_all(&[CLOSE]));
    }
}

/// Rings the bells of all live runners for some shards. What cannot be rung is left to its
/// heartbeat.
pub fn ring(runners: &Path, shards: &[ShardId]) {
    let bytes: Vec<u8> = shards.iter().map(|shard| shard.number()).collect();
    send(runners, &bytes);
}

/// Tells all live runners that one has come or gone. They share the work by how many they are, and
/// would try for the same steps until their next heartbeat.
pub fn tell_of_runners(runners: &Path) {
    send(runners, &[RUNNERS]);
}

fn send(runners: &Path, bytes: &[u8]) {
    let Ok(found) = all(runners) else { return };
    for id in found {
        let pipe = OpenOptions::new()
            .write(true)
            // A dead runner's pipe has no reader and is refused at once; a full one is not waited for.
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(dir_of(runners, id).join(BELL));
        if let Ok(mut pipe) = pipe {
            drop(pipe.write_all(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::RunnerId;
    use std::sync::mpsc;

    #[test]
    fn a_ring_reaches_every_listener_and_no_dead_one_holds_it_up() {
        let runners = tempfile::tempdir().unwrap();
        for dead in [1, 2] {
            let dir = dir_of(runners.path(), RunnerId::new(dead));
            std::fs::create_dir(&dir).unwrap();
            drop(Bell::hang(&dir).unwrap());
        }
        let dir = dir_of(runners.path(), RunnerId::new(3));
        std::fs::create_dir(&dir).unwrap();
        let bell = std::sync::Arc::new(Bell::hang(&dir).unwrap());
        let (send, rings) = mpsc::channel();
        let inside = std::sync::Arc::clone(&bell);
        let listener = std::thread::spawn(move || inside.listen(|rung| send.send(rung).unwrap()));
        let [a, c] = [0, 2].map(|n| ShardId::new(n).unwrap());
        ring(runners.path(), &[a, c]);
        assert_eq!(rings.recv().unwrap(), Rung::Shard(a));
        assert_eq!(rings.recv().unwrap(), Rung::Shard(c));
        tell_of_runners(runners.path());
        assert_eq!(rings.recv().unwrap(), Rung::Runners);
        bell.close();
        listener.join().unwrap();
        assert!(rings.recv().is_err());
    }
}
