//! What must hold all the time: reports are true, no worse band is served once a better one is known,
//! nobody is idle beside due work, nobody turns for nothing.

use std::collections::BTreeMap;

use fairq::model::{Band, Candidate, ShardId};
use fairq::store::{Store, Want};
use fairq::tally::ShardTally;

use super::fate::Fate;
use super::runner::{Runner, Worker};
use super::sim::{Sim, micros};
use super::spec::Spec;

#[derive(Debug)]
pub(crate) struct Watch {
    bands: Vec<Band>,
    /// For each band the number of the event since which a shard has always had due work at it or a
    /// better one.
    since: BTreeMap<(ShardId, Band), u64>,
    versions: BTreeMap<ShardId, u64>,
    best: BTreeMap<ShardId, Band>,
    /// Since when somebody has been idle beside due work, and how many claims were granted by then.
    idle: Option<(u64, u64)>,
    /// When what went wrong has no more consequences.
    pub(crate) healed: Option<u64>,
}

impl Watch {
    pub(crate) fn new(spec: &Spec) -> Self {
        Self {
            bands: spec.bands.clone(),
            since: BTreeMap::new(),
            versions: BTreeMap::new(),
            best: BTreeMap::new(),
            idle: None,
            healed: None,
        }
    }

    /// A report says what the shard holds at that moment, and each key that it names has a due step.
    pub(crate) fn saw(&self, raw: &dyn Store, shard: ShardId, report: &ShardTally, fate: &Fate) {
        let truth = raw.tally(shard).unwrap();
        assert_eq!(
            *report, truth,
            "what was reported of shard {shard} is not so"
        );
        let Some(band) = report.band() else { return };
        for tally in report.keys() {
            let want = Want {
                key: tally.key.clone(),
                count: 1,
            };
            let found = raw.fetch(shard, band, &[want]).unwrap();
            assert_eq!(
                found[0].len(),
                1,
                "shard {shard} reports {tally:?} and has none"
            );
            let paused = fate.lock().book.is_paused(band, &tally.key);
            assert!(!paused, "shard {shard} reports {tally:?}, which is paused");
        }
    }

    /// A runner takes nothing of a worse band from a shard that has planned since it knew of a better
    /// one.
    ///
    /// Exactly: let a shard have had due work at a better band since before its refiller last looked,
    /// let that look have been reported, and let the taken step's shard have planned after that
    /// report, and pushed. Then what it pushed is of the better band, or nothing; and what is offered
    /// since is held against the same board.
    pub(crate) fn took(&self, runner: &Runner, taken: &Candidate) {
        let board = runner.works.planner().board();
        let Some(pushed) = runner.lanes[taken.id.shard.index()].pushed else {
            return;
        };
        for (&(shard, band), &since) in &self.since {
            let (looked, reported) = runner.lanes[shard.index()].reported;
            let is_known = since <= looked && reported <= pushed && board.get(shard).is_some();
            assert!(
                band >= taken.band || !is_known,
                "{} takes {} of band {} though shard {shard} has had work at {band} since event {since}, \
                 looked at {looked}, reported at {reported}, before what was pushed was planned at {pushed}",
                runner.id,
                taken.id,
                taken.band,
            );
        }
    }
}

impl Sim<'_> {
    /// Looks at what the last event has changed.
    pub(crate) fn observe(&mut self) {
        let writes = std::mem::take(&mut self.fate.lock().writes);
        let event = self.serial;
        if writes > 0 {
            for shard in self.shards() {
                let version = self.raw().version(shard).unwrap();
                if self.watch.versions.insert(shard, version) == Some(version) {
                    continue;
                }
                let best = self.raw().tally(shard).unwrap().band();
                for band in &self.watch.bands {
                    if best.is_some_and(|best| best <= *band) {
                        self.watch.since.entry((shard, *band)).or_insert(event);
                    } else {
                        self.watch.since.remove(&(shard, *band));
                    }
                }
                match best {
                    Some(best) => self.watch.best.insert(shard, best),
                    None => self.watch.best.remove(&shard),
                };
            }
        }
        self.nobody_is_idle_beside_due_work();
    }

    /// How long a worker may be idle while something is due and nothing goes wrong, in microseconds.
    ///
    /// A bell may be lost, so a shard looks at its next heartbeat; its four phases and its gap follow,
    /// and one more turn where the slots of the first went to a shard that could not fill them. A step
    /// that falls to another runner is left to it for one heartbeat. Then a worker looks, reaches,
    /// asks, and hears.
    pub(crate) fn patience(&self) -> u64 {
        let turn = 4 * self.spec.phase + micros(self.spec.pace.min_gap) + 1_000;
        3 * (self.heartbeat() + turn) + turn + 4 * self.spec.phase
    }

    fn nobody_is_idle_beside_due_work(&mut self) {
        let Some(healed) = self.watch.healed else {
            return;
        };
        let now = self.now();
        let grants = self.fate.lock().book.grants;
        let free = self.live().any(|runner| {
            runner.leaving.is_none() && runner.workers.iter().any(|one| matches!(one, Worker::Idle))
        });
        if now < healed || !free || self.watch.best.is_empty() {
            self.watch.idle = None;
            return;
        }
        match self.watch.idle {
            Some((since, then)) if then == grants => {
                let waited = now - since;
                assert!(
                    waited <= self.patience(),
                    "somebody has been idle beside due work ({:?}) for {waited} us",
                    self.watch.best
                );
            }
            _ => self.watch.idle = Some((now, grants)),
        }
    }
}
