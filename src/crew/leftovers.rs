//! What a step leaves behind in its process group, and how it is ended.
//!
//! When the main process has been reaped, the group's number is ours only as long as a member of
//! the group lives: the kernel does not give a number away that a group still has. So a
//! [`Leftover`] remembers who the members are, and before it is killed one of those, by number and
//! start time, must still be in the group. Where nobody is, nothing is done: a stranger's process
//! is worth more than the certainty that nothing was missed.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::getsid;

use super::journal::{Left, Note};
use crate::ambient::Clock;
use crate::model::{Span, StepId};

use super::process::{ProcessIdentity, as_pid, living_members};

/// How often the sweeper looks whether a group has gone, and who is in it now. A member that forks
/// and ends between two looks takes its group out of our sight.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// The members of a process group whose leader has been reaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    group: u32,
    members: Vec<ProcessIdentity>,
}

impl Leftover {
    /// Returns what is left of the group of a child that has just been reaped; `None` if nothing
    /// is, which costs one system call to know.
    pub(super) fn of_group(group: u32) -> Option<Self> {
        let left = Self {
            group,
            members: members_now(group)?,
        };
        Some(left)
    }

    /// Returns what a journal has to say of it: enough for others to be certain of it, too.
    pub(super) fn told(&self, id: StepId) -> Option<Left> {
        self.members.first().map(|member| Left {
            id,
            group: self.group,
            member: *member,
        })
    }

    /// Returns who was in it when somebody last looked.
    pub fn members(&self) -> &[ProcessIdentity] {
        &self.members
    }

    /// Looks again; returns whether the group certainly is the one that it was.
    pub(super) fn look(&mut self) -> bool {
        let Some(now) = members_now(self.group) else {
            return false;
        };
        let certain = now.iter().any(|member| self.members.contains(member));
        self.members = now;
        certain
    }

    /// Kills everybody in it, if it still is what it was.
    pub(super) fn kill(&mut self) {
        if self.look() {
            // It may have ended in this moment, which is as good.
            killpg(as_pid(self.group), Signal::SIGKILL).ok();
        }
    }
}

/// Returns the living members of a group without a leader in our session; `None` without any. A
/// leader would mean that the number was given away: ours has been reaped. A group lies within one
/// session, and a step's within ours.
fn members_now(group: u32) -> Option<Vec<ProcessIdentity>> {
    if killpg(as_pid(group), None) == Err(Errno::ESRCH) {
        return None;
    }
    let session = getsid(None).ok()?.as_raw().cast_unsigned();
    let members = living_members(group);
    let ours = !members.is_empty()
        && members
            .iter()
            .all(|member| member.session == session && member.identity.pid != group);
    ours.then(|| members.iter().map(|member| member.identity).collect())
}

/// Ends what steps leave behind: each group has been asked to, and is killed after its grace.
///
/// One thread does it, which lives only while there is something to wait for. Dropping it kills at
/// once what is still there.
#[derive(Debug)]
pub struct Leftovers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Something came in, or it was closed.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// What the sweeper has not seen yet, or will look at again.
    waiting: Vec<Waiting>,
    /// How many the sweeper has in hand.
    looked_at: usize,
    /// The sweeper, if it has been started and has not decided to end.
    sweeper: Option<JoinHandle<()>>,
    is_closed: bool,
}

#[derive(Debug)]
struct Waiting {
    /// When it is killed, on the monotonic clock.
    deadline: Duration,
    leftover: Leftover,
    /// Says that it may still be there, to whoever outlives us.
    note: Option<Note>,
}

impl Leftovers {
    /// Returns one without anything to do.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            shared: Arc::new(Shared {
                clock,
                state: Mutex::default(),
                changed: Condvar::new(),
            }),
        }
    }

    /// Takes over a leftover that has been asked to end: after the grace it is killed. The note is
    /// kept as long as it is there. Does not block. After [`Self::close`] it is killed at once, and so
    /// it is where no thread can be had.
    pub fn end(&self, mut leftover: Leftover, grace: Span, note: Option<Note>) {
        let deadline = self.shared.clock.monotonic() + Duration::from(grace);
        let mut state = self.shared.lock();
        if !state.is_closed && state.sweeper.is_none() {
            let shared = Arc::clone(&self.shared);
            state.sweeper = thread::Builder::new()
                .name("leftovers".to_owned())
                .spawn(move || shared.sweep())
                .ok();
        }
        if state.is_closed || state.sweeper.is_none() {
            drop(state);
            leftover.kill();
            return;
        }
        state.waiting.push(Waiting {
            deadline,
            leftover,
            note,
        });
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Returns how many groups are being waited for.
    pub fn len(&self) -> usize {
        let state = self.shared.lock();
        state.waiting.len() + state.looked_at
    }

    /// Returns whether nothing is being waited for.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Kills at once what is still there, and everything that comes later. Blocks until done.
    pub fn close(&self) {
        let mut state = self.shared.lock();
        state.is_closed = true;
        let sweeper = state.sweeper.take();
        drop(state);
        self.shared.changed.notify_all();
        if let Some(sweeper) = sweeper {
            sweeper.join().ok();
        }
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at each group, time and again, until there is none.
    fn sweep(&self) {
        let mut state = self.lock();
        while !state.waiting.is_empty() {
            let batch = std::mem::take(&mut state.waiting);
            state.looked_at = batch.len();
            let kill_all = state.is_closed;
            drop(state);

            let now = self.clock.monotonic();
            let still_there: Vec<Waiting> = batch
                .into_iter()
                .filter_map(|waiting| waiting.look(now, kill_all))
                .collect();
            let first = still_there.iter().map(|waiting| waiting.deadline).min();

            state = self.lock();
            state.looked_at = 0;
            let came_in = !state.waiting.is_empty();
            state.waiting.extend(still_there);
            if let (Some(first), false) = (first, came_in) {
                let known = state.waiting.len();
                let pause = LOOK.min(first.saturating_sub(now));
                state = self
                    .changed
                    .wait_timeout_while(state, pause, |state| {
                        !state.is_closed && state.waiting.len() == known
                    })
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
        }
        // Under the same lock as the look at the empty list: what comes in next starts another.
        state.sweeper = None;
    }
}

impl Waiting {
    /// Looks whether it is still there; kills it if its time has come.
    fn look(mut self, now: Duration, kill: bool) -> Option<Self> {
        let kill = kill || self.deadline <= now;
        if kill {
            self.leftover.kill();
        }
        if kill || !self.leftover.look() {
            drop(self.note.take());
            return None;
        }
        Some(self)
    }
}
