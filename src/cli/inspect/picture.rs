//! A decision as people and programs see it: described once, whoever made it.
//!
//! A runner describes its last decision and sends it as JSON; `inspect plan` describes its own in the
//! same way. So both are shown alike.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::{Band, ShardId, Timestamp, Turn};
use crate::planner::{Made, Merged, MergedKey, Pick};

/// Everything about one decision.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::cli) struct Picture {
    /// Who made it, if a runner did.
    pub(in crate::cli) runner: Option<String>,
    /// That runner's process.
    pub(in crate::cli) pid: Option<u32>,
    /// When it was looked at. As all that depends on the time of looking, null where a seed is
    /// replayed: a replay is the same each time.
    pub(super) at: Option<String>,
    pub(super) pick: String,
    pub(super) seed: Option<u64>,
    /// The band's virtual time, for stride.
    pub(super) clock: Option<f64>,
    pub(super) capacity: usize,
    /// The best band with due work on any shard.
    pub(super) band: Option<Band>,
    /// The shards that set it.
    pub(super) set_by: Vec<ShardId>,
    /// The age of the oldest report that it was decided on.
    pub(super) tally_age_ms: Option<u64>,
    pub(super) shards: Vec<ShardPart>,
    pub(super) keys: Vec<KeyPart>,
    pub(super) slots: Vec<SlotPart>,
    /// How many plans were run forward, if any.
    pub(super) repeat: Option<u64>,
}

/// One shard's part.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ShardPart {
    pub(super) shard: ShardId,
    /// Its own best band.
    pub(super) band: Option<Band>,
    /// Due steps at its own best band.
    pub(super) due: u64,
    pub(super) keys: usize,
    pub(super) part: Part,
    pub(super) slots: usize,
    /// How long ago it reported, if it takes part.
    pub(super) tallied_ms_ago: Option<u64>,
    /// Why it does not.
    pub(super) error: Option<String>,
}

/// What a shard's part in the plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Part {
    /// It has slots.
    Serves,
    /// It has work at the band, but others have all slots.
    OutSlotted,
    /// Its work is in a worse band.
    WorseBand,
    /// It has nothing due.
    NothingDue,
    /// It could not be looked at, or has not been yet.
    Cleared,
}

/// One key's part.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeyPart {
    pub(super) key: String,
    pub(super) weight: f64,
    /// The shard with its oldest step, which decides weight and age and has the first slot.
    pub(super) oldest_on: ShardId,
    pub(super) oldest_since: String,
    pub(super) oldest_age_ms: Option<u64>,
    pub(super) count: u64,
    /// How many of them each shard has told of.
    pub(super) counts: Vec<(ShardId, u32)>,
    /// The part of the slots that it should have while it has work, from 0 to 1.
    pub(super) expected_share: f64,
    /// How far it has come in virtual time, for stride.
    pub(super) pass: Option<f64>,
    pub(super) slots: usize,
    /// Its slots' part of all slots of this plan.
    pub(super) plan_share: f64,
    pub(super) turns: Vec<f64>,
    /// Who fills its first slot.
    pub(super) first_slot_on: Option<ShardId>,
    /// How often it was first in the plans that were run forward, and that part of them.
    pub(super) repeat_first: Option<u64>,
    pub(super) repeat_share: Option<f64>,
}

/// One place in the order.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SlotPart {
    pub(super) key: String,
    pub(super) turn: f64,
    pub(super) shard: Option<ShardId>,
}

impl Picture {
    /// Describes a decision. `errors` says of each shard, in their order, why it is out of planning.
    pub(in crate::cli) fn of(
        pick: Pick,
        made: &Made,
        errors: impl Iterator<Item = Option<String>>,
        now: Timestamp,
    ) -> Self {
        let (decision, merged) = (&made.decision, &made.decision.merged);
        let band = merged.band();
        let shards: Vec<ShardPart> = ShardId::first(ShardId::MAX_SHARDS)
            .zip(errors)
            .map(|(shard, error)| ShardPart::of(made, shard, error, now))
            .collect();
        let at_band = |shard: &&ShardPart| band.is_some() && shard.band == band;
        Self {
            runner: None,
            pid: None,
            at: Some(now.to_string()),
            pick: pick.word().to_owned(),
            seed: decision.seed,
            clock: (pick == Pick::Stride).then(|| made.standing.clock().as_f64()),
            capacity: made.capacity,
            band,
            set_by: shards.iter().filter(at_band).map(|s| s.shard).collect(),
            tally_age_ms: Some(made.board.age(now).millis()),
            shards,
            keys: keys(pick, made, now),
            slots: decision
                .order
                .iter()
                .zip(&decision.owners)
                .map(|(drawn, shard)| SlotPart {
                    key: merged.keys()[drawn.key].key.to_string(),
                    turn: drawn.turn.as_f64(),
                    shard: *shard,
                })
                .collect(),
            repeat: None,
        }
    }

    /// Leaves out what is another at each look.
    pub(super) fn without_time(&mut self) {
        self.at = None;
        self.tally_age_ms = None;
        for shard in &mut self.shards {
            shard.tallied_ms_ago = None;
        }
        for key in &mut self.keys {
            key.oldest_age_ms = None;
        }
    }

    /// Adds how often each key was first, in the order of the keys.
    pub(super) fn add_repeat(&mut self, firsts: &[u64]) {
        let all = firsts.iter().sum();
        self.repeat = Some(all);
        for (key, first) in self.keys.iter_mut().zip(firsts) {
            key.repeat_first = Some(*first);
            key.repeat_share = Some(share(*first, all));
        }
    }
}

impl ShardPart {
    fn of(made: &Made, shard: ShardId, error: Option<String>, now: Timestamp) -> Self {
        let (decision, report) = (&made.decision, made.board.get(shard));
        let own = report.and_then(|report| report.band());
        let keys = report.map_or(&[][..], |report| report.keys());
        let mine = |owner: &&Option<ShardId>| **owner == Some(shard);
        let slots = decision.owners.iter().filter(mine).count();
        Self {
            shard,
            band: own,
            due: keys.iter().map(|key| u64::from(key.count)).sum(),
            keys: keys.len(),
            part: match own {
                _ if report.is_none() => Part::Cleared,
                None => Part::NothingDue,
                own if own != decision.merged.band() => Part::WorseBand,
                Some(_) if slots == 0 => Part::OutSlotted,
                Some(_) => Part::Serves,
            },
            slots,
            tallied_ms_ago: made
                .board
                .age_of(shard, now)
                .map(crate::model::Span::millis),
            error,
        }
    }
}

impl Part {
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Serves => "serves",
            Self::OutSlotted => "out-slotted",
            Self::WorseBand => "worse band",
            Self::NothingDue => "nothing due",
            Self::Cleared => "cleared",
        }
    }
}

fn keys(pick: Pick, made: &Made, now: Timestamp) -> Vec<KeyPart> {
    let (decision, merged) = (&made.decision, &made.decision.merged);
    let passes: BTreeMap<_, Turn> = made.standing.passes().collect();
    // Relative to the greatest: the weights themselves may add up to more than a number holds.
    let greatest = merged.keys().iter().map(|key| key.weight.get());
    let greatest = greatest.fold(f64::MIN_POSITIVE, f64::max);
    let part = |key: &MergedKey| key.weight.get() / greatest;
    let all: f64 = merged.keys().iter().map(part).sum();
    let mut won: Vec<Vec<usize>> = vec![Vec::new(); merged.keys().len()];
    for (place, drawn) in decision.order.iter().enumerate() {
        won[drawn.key].push(place);
    }
    let slots = decision.order.len() as u64;
    let describe = |(key, won): (&MergedKey, Vec<usize>)| KeyPart {
        key: key.key.to_string(),
        weight: key.weight.get(),
        oldest_on: key.oldest,
        oldest_since: key.since.to_string(),
        oldest_age_ms: Some(now.since(key.since).millis()),
        count: key.count,
        counts: counts(merged, key),
        expected_share: part(key) / all,
        pass: (pick == Pick::Stride).then(|| {
            let pass = passes.get(&key.key).copied();
            pass.unwrap_or(made.standing.clock()).as_f64()
        }),
        slots: won.len(),
        plan_share: share(won.len() as u64, slots),
        turns: won
            .iter()
            .map(|place| decision.order[*place].turn.as_f64())
            .collect(),
        first_slot_on: won.first().and_then(|place| decision.owners[*place]),
        repeat_first: None,
        repeat_share: None,
    };
    merged.keys().iter().zip(won).map(describe).collect()
}

fn counts(merged: &Merged, key: &MergedKey) -> Vec<(ShardId, u32)> {
    let holders = merged.holders(key).iter();
    holders.map(|held| (held.shard, held.count)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a share for people")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
