//! What happens to one runner: its refillers' turns, its workers' steps, its courier's rounds.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fairq::crew::executor::{Outcome, Process};
use fairq::model::{Captured, Claim, Ending, RunnerId, ShardId};
use fairq::presence::Standing;

use super::chance::Fault;
use super::runner::{Phase, Proc, Runner, Work, Worker};
use super::sim::{Next, Sim, micros};

impl Sim<'_> {
    /// Returns how long a shard's answer takes.
    fn answer(&self, shard: ShardId, most: u64) -> u64 {
        let is_slow = self.fate.lock().slow.contains(&shard);
        if is_slow {
            self.fate.count(Fault::Slow);
            return 50_000 + self.fate.below(500_000);
        }
        self.fate.below(most)
    }

    /// Lets a refiller go one phase on.
    pub(crate) fn phase(&mut self, of: usize, shard: ShardId) {
        let (now, event) = (self.clock_now(), self.serial);
        let Some(mut runner) = self.runners[of].take() else {
            return;
        };
        self.maybe_die_inside(&runner.life);
        let depth = runner.depth(shard);
        let lane = &mut runner.lanes[shard.index()];
        let next = match std::mem::replace(&mut lane.phase, Phase::Asleep) {
            Phase::Asleep | Phase::Closed => unreachable!("a turn that goes on has begun"),
            Phase::Look => {
                lane.looked = event;
                if let Some(report) = lane.refiller.look() {
                    self.watch.saw(self.raw(), shard, &report, &self.fate);
                    Some(Phase::Plan(report))
                } else {
                    let is_out = runner.works.planner().board().get(shard).is_none();
                    assert!(
                        is_out,
                        "shard {shard} could not be looked at and takes part"
                    );
                    assert_eq!(
                        depth,
                        runner.depth(shard),
                        "a blind turn took candidates away"
                    );
                    None
                }
            }
            Phase::Plan(report) => {
                lane.planned = event;
                lane.reported = (lane.looked, event);
                Some(Phase::Fetch(lane.refiller.plan(report)))
            }
            Phase::Fetch(plan) => {
                let found = lane.refiller.fetch(&plan);
                found.map(|found| Phase::Push(plan, found))
            }
            Phase::Push(plan, found) => {
                let outcome = lane.refiller.push(&plan, found);
                lane.pushed = Some(lane.planned);
                self.fate
                    .note(format_args!("{} pushes {shard}: {outcome:?}", runner.id));
                None
            }
        };
        let lane = &mut runner.lanes[shard.index()];
        if let Some(next) = next {
            lane.phase = next;
            self.runners[of] = Some(runner);
            let delay = self.answer(shard, self.spec.phase);
            self.after(delay, Next::Phase(of, shard));
        } else {
            lane.refiller.rest();
            lane.until = now + lane.refiller.pause();
            self.runners[of] = Some(runner);
        }
    }

    fn clock_now(&self) -> std::time::Duration {
        std::time::Duration::from_micros(self.now())
    }

    fn runner(&mut self, of: usize) -> &mut Runner {
        self.runners[of]
            .as_mut()
            .expect("events of the dead are dropped")
    }

    pub(crate) fn look(&mut self, of: usize, worker: usize) {
        let runner = self.runner(of);
        let next = runner.works.cache().peek_shard();
        if let Some(shard) = next {
            let view = runner.works.cache().snapshot();
            let floor = |of: ShardId| {
                let mut all = view.partitions.iter();
                all.find(|one| one.shard == of).and_then(|one| one.floor)
            };
            let best = view.partitions.iter().filter_map(|one| one.floor).min();
            assert_eq!(floor(shard), best, "a worker was sent to a worse band");
            self.within(20, Next::Reach(of, worker, shard));
        } else {
            runner.workers[worker] = Worker::Idle;
        }
    }

    pub(crate) fn reach(&mut self, of: usize, worker: usize, shard: ShardId) {
        let hint = self.runner(of).works.crew().reach(shard);
        let Some(hint) = hint else {
            self.runner(of).workers[worker] = Worker::Idle;
            return;
        };
        let runner = self.runners[of].as_ref().expect("it is there");
        self.watch.took(runner, hint.candidate());
        self.fate
            .note(format_args!("{} takes {}", runner.id, hint.candidate().id));
        self.runner(of).workers[worker] = Worker::Holding(hint);
        let delay = self.answer(shard, 2 * self.spec.phase);
        self.after(delay, Next::Ask(of, worker));
    }

    pub(crate) fn ask(&mut self, of: usize, worker: usize) {
        let life = Arc::clone(&self.runner(of).life);
        self.maybe_die_inside(&life);
        let slot = std::mem::replace(&mut self.runner(of).workers[worker], Worker::Idle);
        let Worker::Holding(hint) = slot else {
            unreachable!("only what was taken is asked for")
        };
        let decided = hint.ask();
        let shard = hint.candidate().id.shard;
        self.runner(of).workers[worker] = Worker::Asked(hint, Box::new(decided));
        let delay = self.answer(shard, self.spec.phase);
        self.after(delay, Next::Hear(of, worker));
    }

    pub(crate) fn hear(&mut self, of: usize, worker: usize) {
        let slot = std::mem::replace(&mut self.runner(of).workers[worker], Worker::Idle);
        let Worker::Asked(hint, decided) = slot else {
            unreachable!("only who has asked is answered")
        };
        let seat = u32::try_from(worker).expect("small");
        let Some(claim) = hint.hear(seat, *decided) else {
            self.runner(of).works.crew().rest();
            return;
        };
        let crew = Arc::clone(self.runner(of).works.crew());
        if let Some(outcome) = crew.barred(seat) {
            crew.over(seat, &claim, outcome);
            crew.rest();
            return;
        }
        self.fate.lock().book.begins(claim.id, claim.fence);
        let process = Arc::<Proc>::default();
        crew.started(seat, &(Arc::clone(&process) as Arc<dyn Process>));
        let (ending, runs) = self.fortune(&claim);
        self.after(runs, Next::End(of, worker, self.serial + 1));
        let work = Work {
            started: self.fate.now(),
            process,
            seen: 0,
            ending,
            serial: self.serial,
            claim,
        };
        self.runner(of).workers[worker] = Worker::Working(Box::new(work));
    }

    /// Draws how a step's work will end if nobody ends it, and after how long.
    fn fortune(&self, claim: &Claim) -> (Ending, u64) {
        let runs = self.fate.below(self.spec.run);
        let exited = |code| Ending::Exited { code };
        match self.fate.below(20) {
            0 | 1 => (exited(1), runs),
            2 => (exited(75), runs),
            3 => (Ending::Signalled { signal: 9 }, runs),
            4 => {
                let reason = "there is no such command".to_owned();
                (Ending::Unstarted { reason }, runs / 100)
            }
            // It hangs, if that will be cut short.
            5 | 6 if claim.policy.timeout.is_some() => (exited(0), 60_000_000),
            _ => (exited(0), runs),
        }
    }

    /// Lets processes hear that they are to end.
    pub(crate) fn ask_processes(&mut self, of: usize) {
        let Some(runner) = &mut self.runners[of] else {
            return;
        };
        let mut told = Vec::new();
        for (worker, slot) in runner.workers.iter_mut().enumerate() {
            let Worker::Working(work) = slot else {
                continue;
            };
            let how = work.process.told.load(Ordering::Relaxed);
            if how > work.seen {
                work.seen = how;
                told.push((worker, how));
            }
        }
        for (worker, how) in told {
            // Some do not care for being asked; nobody survives being killed.
            if how == 1 && self.fate.below(3) == 0 {
                continue;
            }
            let delay = self.fate.below(if how == 1 { 300_000 } else { 1_000 });
            self.after(delay, Next::End(of, worker, self.serial + 1));
            let serial = self.serial;
            if let Worker::Working(work) = &mut self.runner(of).workers[worker] {
                work.serial = serial;
                work.ending = match (how, work.ending.clone()) {
                    (1, Ending::Exited { .. }) if serial.is_multiple_of(4) => {
                        Ending::Exited { code: 0 }
                    }
                    (1, _) => Ending::Signalled { signal: 15 },
                    _ => Ending::Signalled { signal: 9 },
                };
            }
        }
    }

    pub(crate) fn end(&mut self, of: usize, worker: usize, serial: u64) {
        let slot = &mut self.runner(of).workers[worker];
        if !matches!(slot, Worker::Working(work) if work.serial == serial) {
            return;
        }
        let Worker::Working(work) = std::mem::replace(slot, Worker::Idle) else {
            unreachable!("it was looked at just now")
        };
        work.process.over.store(true, Ordering::Relaxed);
        let is_started = !matches!(work.ending, Ending::Unstarted { .. });
        let outcome = Outcome {
            started: is_started.then_some(work.started),
            ended: self.fate.now().max(work.started),
            ending: work.ending,
            stdout: Captured::Empty,
            stderr: Captured::Empty,
        };
        let life = Arc::clone(&self.runner(of).life);
        self.maybe_die_inside(&life);
        let crew = Arc::clone(self.runner(of).works.crew());
        crew.over(u32::try_from(worker).expect("small"), &work.claim, outcome);
        crew.rest();
    }

    pub(crate) fn courier(&mut self, of: usize) {
        let now = self.now();
        let Some(mut runner) = self.runners[of].take() else {
            return;
        };
        if runner.courier.is_some_and(|at| at <= now)
            && let Some(mut rounds) = runner.rounds.take()
        {
            runner.courier = None;
            self.maybe_die_inside(&runner.life);
            runner.works.go_round(&mut rounds);
            runner.rounds = Some(rounds);
            runner.rested = now;
        }
        self.runners[of] = Some(runner);
    }

    pub(crate) fn again(&mut self, of: usize) {
        let now = self.now();
        let runner = self.runner(of);
        let next = runner.works.completer().write_again().map(micros);
        runner.again = next;
        if let Some(at) = next {
            self.after(at - now, Next::Again(of));
        }
    }

    /// Looks after claims, as the engine's steward does each heartbeat.
    pub(crate) fn steward(&mut self, of: usize) {
        let now = self.clock_now();
        let Some(mut runner) = self.runners[of].take() else {
            return;
        };
        self.maybe_die_inside(&runner.life);
        let third = std::time::Duration::from(self.spec.lease) / 3;
        let due = now.saturating_sub(runner.renewed) >= third;
        if due {
            runner.renewed = now;
            runner.works.renew();
        }
        let alive: Vec<RunnerId> = {
            let inner = self.fate.lock();
            let all = inner.book.runners.iter();
            all.filter(|(id, known)| known.alive && (known.has_lock || **id == runner.id))
                .map(|(id, _)| *id)
                .collect()
        };
        let mine = alive.iter().position(|id| *id == runner.id).unwrap_or(0);
        let number = |count: usize| u32::try_from(count).expect("small");
        runner.works.crowd().set(number(mine), number(alive.len()));
        if due || !self.the_dead().is_empty() {
            self.recover(&mut runner);
        }
        self.runners[of] = Some(runner);
        self.after(self.heartbeat(), Next::Steward(of));
    }

    /// Returns the runners whose locks can be taken.
    fn the_dead(&self) -> BTreeSet<RunnerId> {
        let inner = self.fate.lock();
        let all = inner.book.runners.iter();
        all.filter(|(_, known)| !known.alive && known.has_lock && !known.buried)
            .map(|(id, _)| *id)
            .collect()
    }

    /// Takes back what the dead hold, and tidies up after them once every shard was seen.
    pub(crate) fn recover(&self, runner: &mut Runner) {
        let dead = self.the_dead();
        let fate = Arc::clone(&self.fate);
        let standing = move |id: RunnerId| {
            let inner = fate.lock();
            let known = inner.book.runners.get(&id);
            Ok(match known {
                Some(known) if known.has_lock && !known.buried && known.alive => Standing::Alive,
                Some(known) if known.has_lock && !known.buried => Standing::Dead,
                Some(_) | None => Standing::Unknown,
            })
        };
        let mut is_unread = false;
        for shard in self.shards() {
            is_unread |= runner.works.take_back_on(shard, &dead, &standing).is_err();
        }
        if !is_unread {
            let mut inner = self.fate.lock();
            for id in dead {
                if let Some(known) = inner.book.runners.get_mut(&id) {
                    known.buried = true;
                }
            }
        }
    }
}
