//! Ending what a dead runner's steps still run, before the steps are given to anybody else.
//!
//! A runner that is killed leaves its steps' processes alive, and a step that is put back would then
//! run twice at a time. The runner's journal names the processes. A number alone proves nothing: it
//! may be a bystander's by now. A group is ended only if its leader is the very process that the
//! journal knows, or, where the leader has gone, if a member's environment says which step it is.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};

use super::journal::{Left, SlotState, Testament};
use super::process::{BootId, ProcessStat, all_processes, as_pid, living_members};
use crate::ambient::Clock;
use crate::model::StepId;

/// How long they may clean up after TERM: a takeover waits for it.
const GRACE: Duration = Duration::from_millis(500);
/// How long the kernel may take to end what was killed.
const KILLED: Duration = Duration::from_secs(2);
/// How often a process is looked for that may just be starting.
const LOOKS: u32 = 4;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// Ends what the dead runner of this journal has left, once: when that is done the journal is removed.
///
/// Runners may do so at a time: the others wait for the first, and then there is nothing to do. Else
/// one that has read the journal early could end the step of whoever runs it again by now. If the
/// journal cannot be read there is nobody of whom we could be certain.
///
/// In between `over` is told of each worker that had a step, of which and under which claim; if it
/// says no, the journal stays.
pub fn end_of(
    journal: &Path,
    store: &Path,
    clock: &dyn Clock,
    mut over: impl FnMut(u32, StepId, u32) -> bool,
) {
    let Ok(lock) = File::open(journal) else {
        return;
    };
    let is_first = lock.lock().is_ok() && lock.metadata().is_ok_and(|now| now.nlink() > 0);
    if let (true, Ok(testament)) = (is_first, Testament::read(journal)) {
        end(&testament, store, clock);
        let all = (0..)
            .zip(&testament.slots)
            .all(|(worker, slot)| match slot {
                SlotState::Running { id, fence, .. } | SlotState::AboutToStart { id, fence } => {
                    over(worker, *id, *fence)
                }
                SlotState::Idle | SlotState::Damaged => true,
            });
        // If it stays, whoever comes next looks again.
        if all {
            fs::remove_file(journal).ok();
        }
    }
}

/// Returns the process groups that a dead runner of the store at `store` has left and that still
/// live, as its journal tells.
pub fn left(testament: &Testament, store: &Path) -> Vec<u32> {
    let ours = testament
        .runner
        .is_some_and(|(boot, _)| BootId::current().ok() == Some(boot));
    if !ours {
        // The machine has been started since, or the journal cannot be read: there is nobody left, or
        // nobody of whom we could be certain.
        return Vec::new();
    }
    let mut groups = groups_of(&testament.slots, store);
    groups.extend(left_behind(&testament.left, store));
    groups
}

/// Ends the process groups that a dead runner of the store at `store` has left, as its journal tells.
/// Blocks until they are gone, at most some seconds. Returns how many there were.
pub fn end(testament: &Testament, store: &Path, clock: &dyn Clock) -> usize {
    let groups = left(testament, store);
    for (signal, patience) in [(Signal::SIGTERM, GRACE), (Signal::SIGKILL, KILLED)] {
        let left: Vec<u32> = groups
            .iter()
            .copied()
            .filter(|group| !living_members(*group).is_empty())
            .collect();
        for group in &left {
            // One that has gone meanwhile is what is wanted.
            killpg(as_pid(*group), signal).ok();
            // A stopped process takes nothing but KILL before it goes on.
            killpg(as_pid(*group), Signal::SIGCONT).ok();
        }
        wait_until_gone(&left, patience, clock);
    }
    groups.len()
}

/// Returns the groups of the slots' steps that certainly are that.
fn groups_of(slots: &[SlotState], store: &Path) -> Vec<u32> {
    let mut groups = Vec::new();
    let mut unseen: Vec<&SlotState> = slots.iter().collect();
    for look in 0..LOOKS {
        if look > 0 {
            std::thread::park_timeout(LOOK);
        }
        let processes = all_processes();
        unseen.retain(|slot| {
            let group = group_of(slot, store, &processes);
            groups.extend(group);
            // A process that is about to become its program does not say yet who it is.
            group.is_none() && matches!(slot, SlotState::AboutToStart { .. })
        });
        if unseen.is_empty() {
            break;
        }
    }
    groups
}

/// Returns the groups of what steps left behind that certainly are that. Their leaders have been
/// reaped: where there is one, the number was given away.
fn left_behind(left: &[Left], store: &Path) -> Vec<u32> {
    if left.is_empty() {
        return Vec::new();
    }
    let processes = all_processes();
    let still_there = left.iter().filter(|left| {
        let is_given_away = processes
            .iter()
            .any(|process| process.identity.pid == left.group);
        let mut members = processes
            .iter()
            .filter(|process| process.group == left.group && !process.zombie);
        !is_given_away
            && members
                .any(|member| member.identity == left.member || is_told(member, left.id, store))
    });
    still_there.map(|left| left.group).collect()
}

/// Returns the group of a slot's step, if it certainly is that.
fn group_of(slot: &SlotState, store: &Path, processes: &[ProcessStat]) -> Option<u32> {
    match slot {
        SlotState::Idle | SlotState::Damaged => None,
        SlotState::Running { id, birth, .. } => {
            let leader = processes
                .iter()
                .find(|process| process.identity.pid == birth.pid);
            let mut members = processes
                .iter()
                .filter(|process| process.group == birth.pid && !process.zombie);
            let certain = match leader {
                Some(leader) => birth.is(leader.identity),
                None => members.any(|member| is_told(member, *id, store)),
            };
            certain.then_some(birth.pid)
        }
        // The runner died between its note and the process's; the process says itself who it is.
        SlotState::AboutToStart { id, .. } => processes
            .iter()
            .filter(|process| process.group == process.identity.pid && !process.zombie)
            .find(|leader| is_told(leader, *id, store))
            .map(|leader| leader.group),
    }
}

/// Returns whether a process's environment says that it belongs to this step of this store.
fn is_told(process: &ProcessStat, id: StepId, store: &Path) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{}/environ", process.identity.pid)) else {
        return false;
    };
    let id = format!("FAIRQ_ID={id}");
    let store = [b"FAIRQ_STORE=", store.as_os_str().as_bytes()].concat();
    let has = |wanted: &[u8]| {
        environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == wanted)
    };
    has(id.as_bytes()) && has(&store)
}

fn wait_until_gone(groups: &[u32], patience: Duration, clock: &dyn Clock) {
    let until = clock.monotonic() + patience;
    while clock.monotonic() < until
        && groups
            .iter()
            .any(|group| !living_members(*group).is_empty())
    {
        // Nobody tells when a process that is not our child ends.
        std::thread::park_timeout(LOOK);
    }
}
