//! Looking after claims: renewing ours, and taking back those of dead runners.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Notice, Works, spawn};
use crate::ambient::Clock;
use crate::crew::{capture, nursery, orphans};
use crate::error::Result;
use crate::event::{Event, Sink};
use crate::model::{LostRun, RunnerId, ShardId, Span, Timestamp};
use crate::presence::bell::{self, Rung};
use crate::presence::{self, Standing};
use crate::refiller::Crowd;
use crate::store::{Claims, Lease};

/// Looks after the claims of one store for one runner.
pub(super) struct Steward {
    pub(super) claims: Arc<dyn Claims>,
    pub(super) shards: u8,
    pub(super) runner: RunnerId,
    /// The store's directory.
    pub(super) store: PathBuf,
    /// Where runners have their locks.
    pub(super) runners: PathBuf,
    pub(super) lease: Span,
    pub(super) crowd: Arc<Crowd>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) sink: Arc<dyn Sink>,
}

impl std::fmt::Debug for Steward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Steward")
            .field("runner", &self.runner)
            .finish_non_exhaustive()
    }
}

impl Steward {
    /// Lets our claims stand for another lease. A shard that cannot be written is left to the next
    /// time: the lease is only asked where the lock cannot be.
    pub(super) fn renew(&self) {
        let lease = Lease {
            runner: self.runner,
            until: self.clock.now() + self.lease,
        };
        renew(self.claims.as_ref(), self.shards, lease);
    }

    /// Counts the live runners, and which of them this one is.
    pub(super) fn count(&self) {
        let alive: Vec<RunnerId> = presence::all(&self.runners)
            .unwrap_or_default()
            .into_iter()
            .filter(|id| {
                *id == self.runner
                    || matches!(presence::standing(&self.runners, *id), Ok(Standing::Alive))
            })
            .collect();
        let mine = alive.iter().position(|id| *id == self.runner).unwrap_or(0);
        let number = |count: usize| u32::try_from(count).unwrap_or(0);
        self.crowd.set(number(mine), number(alive.len()));
    }

    /// Takes back the steps of dead runners and removes what they left. Returns the shards where
    /// steps became due.
    ///
    /// Who is dead is asked once, before anything else: one that dies meanwhile is left to the next
    /// time. It may still have claimed since we looked at a shard, and its steps' processes have not
    /// been ended.
    pub(super) fn recover(&self) -> BTreeSet<ShardId> {
        let dead = self.the_dead();
        for id in &dead {
            let dir = presence::dir_of(&self.runners, *id);
            // No step is given away while it runs.
            let clock = self.clock.as_ref();
            orphans::end_of(
                &dir.join("journal"),
                &self.store,
                clock,
                |worker, step, fence| {
                    let found = capture::find(&self.store, &dir, worker, step, fence);
                    self.claims.keep(*id, found).is_ok()
                },
            );
        }
        let mut touched = BTreeSet::new();
        let mut unread = false;
        for shard in ShardId::first(self.shards) {
            match self.recover_shard(shard, &dead) {
                Ok(lost) => {
                    for run in lost {
                        touched.insert(shard);
                        self.sink.emit(
                            self.clock.now(),
                            &Event::TakenBack {
                                id: run.id,
                                runner: run.runner,
                                state: run.state,
                            },
                        );
                    }
                }
                // The folder of a dead runner is proof of its death: kept until every shard is seen.
                Err(_) => unread = true,
            }
        }
        if !unread {
            for id in dead {
                // What stays is tried again by the next that looks.
                drop(presence::bury(&self.runners, id));
            }
            for id in presence::all(&self.runners).unwrap_or_default() {
                presence::bury_unborn(&self.runners, id);
            }
        }
        touched
    }

    /// Returns the runners that have a folder and a lock that can be taken.
    fn the_dead(&self) -> BTreeSet<RunnerId> {
        let mut all = presence::all(&self.runners).unwrap_or_default();
        all.retain(|id| {
            *id != self.runner
                && matches!(presence::standing(&self.runners, *id), Ok(Standing::Dead))
        });
        all.into_iter().collect()
    }

    fn recover_shard(&self, shard: ShardId, dead: &BTreeSet<RunnerId>) -> Result<Vec<LostRun>> {
        let who = Who {
            me: self.runner,
            dead,
            standing: &|id| presence::standing(&self.runners, id),
        };
        take_back_on(self.claims.as_ref(), shard, &who, self.clock.now())
    }
}

/// Lets the claims of a runner stand for another lease, on every shard that can be written.
pub(super) fn renew(claims: &(impl Claims + ?Sized), shards: u8, lease: Lease) {
    for shard in ShardId::first(shards) {
        drop(claims.renew(shard, lease));
    }
}

/// Who a runner is and what it knows of the others.
pub(super) struct Who<'w> {
    pub(super) me: RunnerId,
    /// Who was known to be dead before the claims were looked at.
    pub(super) dead: &'w BTreeSet<RunnerId>,
    pub(super) standing: &'w dyn Fn(RunnerId) -> Result<Standing>,
}

/// Takes the steps of one shard back that dead runners hold, and those of runners of whom nobody can
/// ask whether they live, and whose leases are over.
pub(super) fn take_back_on(
    claims: &(impl Claims + ?Sized),
    shard: ShardId,
    who: &Who<'_>,
    now: Timestamp,
) -> Result<Vec<LostRun>> {
    let mut lost = Vec::new();
    for lease in claims.holders(shard)? {
        let is_dead = who.dead.contains(&lease.runner)
            || (lease.runner != who.me
                && lease.until < now
                && (who.standing)(lease.runner)? == Standing::Unknown);
        if is_dead {
            lost.extend(claims.reclaim(shard, lease.runner, now)?);
        }
    }
    Ok(lost)
}

/// Does once what every runner does time and again: ends what steps of dead runners still run, takes
/// the steps back and removes what the runners left. For a process that is no runner. Returns the
/// shards where steps became due; each step that was taken back is told to the sink.
pub fn take_back(
    claims: Arc<dyn Claims>,
    shards: u8,
    store: &Path,
    runners: &Path,
    clock: &Arc<dyn Clock>,
    sink: Arc<dyn Sink>,
) -> BTreeSet<ShardId> {
    let steward = Steward {
        claims,
        shards,
        // Nobody's: ids of runners are drawn, and this one is never entered.
        runner: RunnerId::new(0),
        store: store.to_owned(),
        runners: runners.to_owned(),
        lease: Span::default(),
        crowd: Arc::default(),
        clock: Arc::clone(clock),
        sink,
    };
    steward.recover()
}

/// Starts what listens to the bell and what looks after claims.
pub(super) fn start(
    works: &Works,
    closing: &Arc<Notice>,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<()> {
    let Works {
        with,
        manner,
        stages,
        crowd,
        ..
    } = works;
    let Some(neighbours) = &with.neighbours else {
        return Ok(());
    };
    let steward = Arc::new(Steward {
        claims: Arc::clone(&with.store) as Arc<_>,
        shards: with.store.shard_count(),
        runner: with.runner,
        store: neighbours.store.clone(),
        runners: neighbours.runners.clone(),
        lease: manner.lease,
        crowd: Arc::clone(crowd),
        clock: Arc::clone(&with.clock),
        sink: Arc::clone(&with.sink),
    });
    let bell = Arc::clone(&neighbours.bell);
    let (heard, counting) = (stages.clone(), Arc::clone(&steward));
    threads.push(spawn("bell".to_owned(), move || {
        bell.listen(|rung| match rung {
            Rung::Shard(shard) => heard.ring(shard),
            Rung::Runners => counting.count(),
        });
    })?);
    // Others of us and we of them, before the first step is planned.
    bell::tell_of_runners(&neighbours.runners);
    steward.count();
    steward.recover();
    let stages = stages.clone();
    let closing = Arc::clone(closing);
    let clock = Arc::clone(&with.clock);
    let third: Duration = Duration::from(manner.lease) / 3;
    let heartbeat = manner.pace.heartbeat;
    // Seen here and not in the thread: a run may be over before its threads have begun.
    let open = closing.seen();
    threads.push(spawn("steward".to_owned(), move || {
        let mut renewed = clock.monotonic();
        loop {
            closing.wait(open, heartbeat);
            if closing.seen() != open {
                return;
            }
            nursery::reap_adopted();
            let due = clock.monotonic().saturating_sub(renewed) >= third;
            if due {
                renewed = clock.monotonic();
                steward.renew();
            }
            steward.count();
            // A lock that can be taken tells at once; a runner without one only by its leases.
            if due || !steward.the_dead().is_empty() {
                steward
                    .recover()
                    .into_iter()
                    .for_each(|shard| stages.ring(shard));
            }
        }
    })?);
    Ok(())
}
