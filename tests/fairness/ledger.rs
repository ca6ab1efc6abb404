//! What was promised to whom, and what they got.

use std::collections::{BTreeMap, BTreeSet};

use fairq::model::{Band, FairnessKey, ShardId, StepId, Weight};

/// From this take on deviations count: before, a crew that starts with an empty cache takes what
/// the first shards to turn have put there.
pub(crate) const WARM: u64 = 800;

/// The books of one key at one band.
#[derive(Debug)]
struct Account {
    weight: f64,
    /// How many due steps nobody has taken yet.
    due: u64,
    taken: u64,
    /// How many came.
    arrived: u64,
    /// What it would have had by now if steps could be cut as small as one likes.
    promised: f64,
    /// Takes at the band since its last one, or since it came.
    waited: u64,
    /// The worst of its fair gaps meanwhile.
    gap: f64,
}

/// The worst that was seen in a world, or in many.
#[derive(Clone, Debug, Default)]
pub(crate) struct Worst {
    /// The furthest that what a key got was from what it was promised, in steps.
    pub(crate) deviation: f64,
    /// The longest wait, in takes, less the capacity of the cache, in fair gaps.
    pub(crate) wait: f64,
    /// How many cycles all shards had gone through when a worse band was still served.
    pub(crate) late_cycles: u64,
    /// How many takes a better band was passed over.
    pub(crate) late_takes: u64,
    /// Claims that could only be lost.
    pub(crate) lost: u64,
    /// Takes.
    pub(crate) taken: u64,
    /// How often a worker found nothing while there was due work.
    pub(crate) dry: u64,
    /// Moments at which a worker slept beside due work and nothing was under way to change that.
    pub(crate) stalls: u64,
    /// Cycles of all shards.
    pub(crate) cycles: u64,
}

impl Worst {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.deviation = self.deviation.max(other.deviation);
        self.wait = self.wait.max(other.wait);
        self.late_cycles = self.late_cycles.max(other.late_cycles);
        self.late_takes = self.late_takes.max(other.late_takes);
        self.lost += other.lost;
        self.taken += other.taken;
        self.dry += other.dry;
        self.stalls += other.stalls;
        self.cycles += other.cycles;
    }
}

/// The better band that is being passed over.
#[derive(Debug)]
struct Urgent {
    band: Band,
    /// How many cycles each shard has begun and ended since it became due.
    cycles: Vec<u64>,
    takes: u64,
}

/// All books of a world.
#[derive(Debug)]
pub(crate) struct Ledger {
    accounts: BTreeMap<(Band, FairnessKey), Account>,
    /// The books with due steps.
    active: BTreeSet<(Band, FairnessKey)>,
    gone: BTreeSet<StepId>,
    urgent: Option<Urgent>,
    shards: u8,
    capacity: usize,
    pub(crate) worst: Worst,
    /// The keys in the order of the takes.
    pub(crate) order: Vec<FairnessKey>,
}

impl Ledger {
    pub(crate) fn new(shards: u8, capacity: usize) -> Self {
        Self {
            accounts: BTreeMap::new(),
            active: BTreeSet::new(),
            gone: BTreeSet::new(),
            urgent: None,
            shards,
            capacity,
            worst: Worst::default(),
            order: Vec::new(),
        }
    }

    /// Returns how many steps of a key are due and not taken.
    pub(crate) fn due(&self, band: Band, key: &FairnessKey) -> u64 {
        let account = self.accounts.get(&(band, key.clone()));
        account.map_or(0, |account| account.due)
    }

    pub(crate) fn has_due(&self) -> bool {
        !self.active.is_empty()
    }

    /// Notes that steps of a key have become due.
    pub(crate) fn arrived(&mut self, band: Band, key: &FairnessKey, weight: Weight, count: u64) {
        let at = (band, key.clone());
        let account = self.accounts.entry(at.clone()).or_insert(Account {
            weight: weight.get(),
            due: 0,
            taken: 0,
            arrived: 0,
            promised: 0.0,
            waited: 0,
            gap: 0.0,
        });
        if account.due == 0 {
            account.waited = 0;
            account.gap = 0.0;
        }
        account.due += count;
        account.arrived += count;
        self.active.insert(at);
        self.look_for_urgent();
    }

    /// Notes that a shard has gone through a cycle that began when `begun` was returned by
    /// [`Self::urgent`].
    pub(crate) fn cycled(&mut self, shard: ShardId, begun: Option<Band>) {
        self.worst.cycles += 1;
        if let Some(urgent) = &mut self.urgent
            && begun == Some(urgent.band)
        {
            urgent.cycles[shard.index()] += 1;
        }
    }

    /// Returns the better band that is due now.
    pub(crate) fn urgent(&self) -> Option<Band> {
        self.urgent.as_ref().map(|urgent| urgent.band)
    }

    fn look_for_urgent(&mut self) {
        let best = self.active.first().map(|(band, _)| *band);
        if self.urgent.as_ref().map(|urgent| urgent.band) != best {
            self.urgent = best.map(|band| Urgent {
                band,
                cycles: vec![0; usize::from(self.shards)],
                takes: 0,
            });
        }
    }

    /// Notes a take. Returns whether it gave its worker a step.
    pub(crate) fn took(&mut self, id: StepId, band: Band, key: &FairnessKey) -> bool {
        if !self.gone.insert(id) {
            self.worst.lost += 1;
            return false;
        }
        self.worst.taken += 1;
        self.order.push(key.clone());
        if let Some(urgent) = self.urgent.as_mut().filter(|urgent| urgent.band < band) {
            urgent.takes += 1;
            let cycles = urgent.cycles.iter().copied().min().unwrap_or(0);
            self.worst.late_cycles = self.worst.late_cycles.max(cycles);
            self.worst.late_takes = self.worst.late_takes.max(urgent.takes);
        }
        self.wait(band, key);
        self.promise(band);
        let account = self.accounts.get_mut(&(band, key.clone())).unwrap();
        account.taken += 1;
        account.due -= 1;
        if account.due == 0 {
            self.active.remove(&(band, key.clone()));
        }
        self.look_for_urgent();
        if self.worst.taken >= WARM {
            self.compare(band);
        }
        true
    }

    /// Lets every key with due steps at the band wait one take longer, but the one that has it.
    #[expect(clippy::cast_precision_loss, reason = "counts of a small world")]
    fn wait(&mut self, band: Band, key: &FairnessKey) {
        let at_band = |at: &&(Band, FairnessKey)| at.0 == band;
        let active: Vec<_> = self.active.iter().filter(at_band).collect();
        let sum: f64 = active.iter().map(|at| self.accounts[*at].weight).sum();
        for at in active {
            let account = self.accounts.get_mut(at).unwrap();
            account.gap = account.gap.max(sum / account.weight);
            account.waited += 1;
            // One that has had more than it was promised does not wait: the others follow.
            let is_ahead = account.taken as f64 > account.promised + 1.0;
            if !is_ahead {
                let over = (account.waited as f64 - self.capacity as f64) / account.gap;
                self.worst.wait = self.worst.wait.max(over);
            }
            if is_ahead || at.1 == *key {
                account.waited = 0;
                account.gap = 0.0;
            }
        }
    }

    /// Promises one take to the keys of a band, by weight, to none more than it has brought.
    ///
    /// This is the ideal that weighted fairness is measured by (generalized processor sharing, Parekh
    /// and Gallager 1993). A key that was served early stays in it until its share would have been
    /// enough: otherwise each short visit of a key with one step would count as luck.
    #[expect(clippy::cast_precision_loss, reason = "counts of a small world")]
    fn promise(&mut self, band: Band) {
        let mut left = 1.0;
        while left > 1e-9 {
            let wanting = |account: &Account| account.arrived as f64 - account.promised;
            let mut hungry: Vec<&mut Account> = self
                .accounts
                .iter_mut()
                .filter(|((at, _), account)| *at == band && wanting(account) > 1e-9)
                .map(|(_, account)| account)
                .collect();
            let sum: f64 = hungry.iter().map(|account| account.weight).sum();
            if hungry.is_empty() {
                break;
            }
            let part = left;
            for account in &mut hungry {
                let gets = (part * account.weight / sum).min(wanting(account));
                account.promised += gets;
                left -= gets;
            }
        }
    }

    fn compare(&mut self, band: Band) {
        for ((_, _), account) in self.accounts.iter().filter(|((at, _), _)| *at == band) {
            #[expect(clippy::cast_precision_loss, reason = "counts of a small world")]
            let deviation = (account.taken as f64 - account.promised).abs();
            self.worst.deviation = self.worst.deviation.max(deviation);
        }
    }
}
