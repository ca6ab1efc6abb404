//! What goes wrong with the machine and with whole runners, and how it heals.

use std::sync::Arc;

use fairq::crew::executor::Force;
use fairq::model::{ShardId, Timestamp};

use super::chance::Fault;
use super::sim::{Next, START, Sim};
use super::spec::index;

impl Sim<'_> {
    /// Something goes wrong, now and then.
    pub(crate) fn trouble(&mut self) {
        if self.fate.lock().calm {
            return;
        }
        self.within(700_000, Next::Trouble);
        let of = self.pick_runner();
        if let Some(of) = of
            && self.fate.strikes(Fault::Crash)
        {
            self.lose(of, false);
        }
        let shard = ShardId::new(
            u8::try_from(self.fate.below(u64::from(self.spec.shards))).expect("small"),
        );
        let shard = shard.expect("it is a shard");
        if self.fate.strikes(Fault::Outage) {
            self.fate.lock().down.insert(shard);
            self.home.block(shard);
            let pause = 1 + self.fate.below(3_000_000);
            self.after(pause, Next::Back(shard));
        }
        if self.fate.strikes(Fault::Slow) {
            self.fate.lock().slow.insert(shard);
            self.within(4_000_000, Next::Fast(shard));
        }
        if let Some(of) = self.pick_runner()
            && let Some(runner) = self.runners[of].as_mut().filter(|one| !one.asleep)
            && self.fate.strikes(Fault::Sleep)
        {
            runner.asleep = true;
            self.fate.note(format_args!("{} stands still", runner.id));
            let pause = self.fate.below(2_500_000 * 4);
            self.after(pause, Next::Wake(of));
        }
        if let Some(of) = self.pick_runner()
            && self.fate.strikes(Fault::Leave)
        {
            self.leave(of);
        }
        if self.fate.strikes(Fault::Jump) {
            // It goes wrong by so much at most, in either direction, however often it is set.
            let by = i64::try_from(self.fate.below(20_000)).expect("small") - 10_000;
            let right = START.millis() + i64::try_from(self.now() / 1_000).expect("small");
            self.fate.lock().book.jumped = true;
            let to = Timestamp::from_millis(right + by);
            self.clock.set_wall(to);
        }
        if !self.fate.lock().late.is_empty() {
            self.within(1_000_000, Next::Land);
        }
    }

    pub(crate) fn pick_runner(&self) -> Option<usize> {
        let of = index(self.fate.below(self.runners.len() as u64));
        self.runners.get(of)?.as_ref().map(|_| of)
    }

    /// Lets a runner take no new work and end what it runs.
    fn leave(&mut self, of: usize) {
        let now = self.now();
        let Some(runner) = self.runners[of]
            .as_mut()
            .filter(|one| one.leaving.is_none())
        else {
            return;
        };
        self.fate.note(format_args!("{} leaves", runner.id));
        runner.leaving = Some(now);
        runner.works.crew().drain();
        runner.works.progress().close();
        runner.works.crew().end_steps(Force::Ask);
    }

    /// Lets a runner go that has nothing left to do, or has waited for that too long.
    pub(crate) fn let_go(&mut self, of: usize) {
        let now = self.now();
        let Some(runner) = &self.runners[of] else {
            return;
        };
        let Some(since) = runner.leaving else { return };
        let open = runner.works.completer().open();
        let is_done = runner.is_idle() && open == 0;
        if is_done || (runner.is_idle() && now - since > 5_000_000) {
            let id = runner.id;
            self.fate
                .note(format_args!("{id} has left, {open} outcomes open"));
            self.lose(of, open == 0);
            if let Some(known) = self.fate.lock().book.runners.get_mut(&id) {
                known.buried = true;
            }
        }
    }

    pub(crate) fn back(&mut self, shard: ShardId) {
        if self.fate.lock().down.remove(&shard) {
            self.home.unblock(shard);
            self.fate.note(format_args!("shard {shard} is back"));
        }
    }

    /// Writes an outcome that was on its way, or all if it is calm.
    pub(crate) fn land(&mut self) {
        let late = {
            let mut inner = self.fate.lock();
            if inner.late.is_empty() {
                return;
            }
            inner.late.remove(0)
        };
        let frail = self
            .live()
            .find(|runner| runner.id == late.runner)
            .map(|runner| Arc::clone(&runner.frail));
        let frail = frail.expect("what the dead have not written is forgotten");
        if self.fate.lock().down.contains(&late.shard) {
            (late.after)(Err(super::frail::gone("the shard is down")));
        } else {
            frail.land(late.shard, late.settlements, late.after);
        }
    }

    /// Heals everything.
    pub(crate) fn calm(&mut self) {
        self.fate.note(format_args!("calm"));
        self.fate.lock().calm = true;
        for shard in self.shards() {
            self.back(shard);
        }
        self.fate.lock().slow.clear();
        self.live().for_each(|runner| runner.life.ends_after(0));
        while !self.fate.lock().late.is_empty() {
            self.land();
        }
        for of in 0..self.runners.len() {
            self.wake(of);
        }
        if self.live().all(|runner| runner.leaving.is_some()) {
            self.birth();
            // There may be as many as there are to be, all on their way out.
            if self.live().all(|runner| runner.leaving.is_some()) {
                self.lose_all();
                self.birth();
            }
        }
        self.settle_down();
    }

    fn lose_all(&mut self) {
        for of in 0..self.runners.len() {
            self.lose(of, false);
        }
    }
}
