//! What all parts of a world share: chance, the trace, who is down, and the book.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairq::ambient::{Clock as _, Dice, ManualClock};
use fairq::model::{RunnerId, Settlement, ShardId, Timestamp};
use fairq::store::AfterSettle;

use super::book::Book;
use super::chance::{Fault, Rates, Struck};
use super::spec::Spec;
use super::trace::Trace;

/// An outcome that is on its way for a long time.
pub(crate) struct Late {
    pub(crate) runner: RunnerId,
    pub(crate) shard: ShardId,
    pub(crate) settlements: Arc<[Settlement]>,
    pub(crate) after: AfterSettle,
}

impl fmt::Debug for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Late").finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) dice: Dice,
    pub(crate) rates: Rates,
    pub(crate) calm: bool,
    pub(crate) struck: Struck,
    pub(crate) trace: Trace,
    pub(crate) book: Book,
    /// Shards that do not answer.
    pub(crate) down: BTreeSet<ShardId>,
    /// Shards that answer late.
    pub(crate) slow: BTreeSet<ShardId>,
    /// How many calls runners have made to the store.
    pub(crate) calls: u64,
    /// How many calls may have changed it, by anybody.
    pub(crate) writes: u64,
    pub(crate) late: Vec<Late>,
}

/// One world's fate.
#[derive(Debug)]
pub(crate) struct Fate {
    inner: Mutex<Inner>,
    clock: Arc<ManualClock>,
}

impl Fate {
    pub(crate) fn new(spec: &Spec, rates: Rates, clock: Arc<ManualClock>, loud: bool) -> Self {
        Self {
            inner: Mutex::new(Inner {
                dice: Dice::seeded(spec.seed),
                rates,
                calm: false,
                struck: BTreeMap::new(),
                trace: Trace::new(loud),
                book: Book::default(),
                down: BTreeSet::new(),
                slow: BTreeSet::new(),
                calls: 0,
                writes: 0,
                late: Vec::new(),
            }),
            clock,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn micros(&self) -> u64 {
        u64::try_from(self.clock.monotonic().as_micros()).expect("a world is short")
    }

    pub(crate) fn note(&self, line: fmt::Arguments<'_>) {
        let micros = self.micros();
        self.lock().trace.note(micros, line);
    }

    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.lock().dice.below(bound)
    }

    /// Returns whether something of so many in a thousand happens.
    pub(crate) fn happens(&self, permille: u64) -> bool {
        permille > 0 && self.below(1000) < permille
    }

    /// Lets a fault strike or not, and counts it.
    pub(crate) fn strikes(&self, fault: Fault) -> bool {
        let rate = {
            let inner = self.lock();
            if inner.calm {
                return false;
            }
            inner.rates.of(fault)
        };
        let strikes = self.happens(rate);
        if strikes {
            self.count(fault);
        }
        strikes
    }

    pub(crate) fn count(&self, fault: Fault) {
        *self.lock().struck.entry(fault).or_default() += 1;
        self.note(format_args!("! {fault:?}"));
    }
}
