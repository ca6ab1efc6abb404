//! What goes wrong, how often, and that it did.

use std::collections::BTreeMap;

use fairq::ambient::Dice;

/// Something that goes wrong in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// A shard cannot be looked at.
    Blind,
    /// The planned steps cannot be fetched.
    Unfetched,
    /// A claim is refused by an error and did not happen.
    ClaimBefore,
    /// A claim happened, and its answer is lost.
    ClaimAfter,
    /// An outcome cannot be written.
    SettleBefore,
    /// An outcome was written, and the answer is lost.
    SettleAfter,
    /// An outcome is written long after it was handed over.
    SettleLate,
    /// An outcome is refused: its step was taken over meanwhile.
    StaleFence,
    /// Letters cannot be delivered, places not be granted, what is torn not be mended.
    Errand,
    /// The same, with one half done.
    HalfErrand,
    /// Leases cannot be renewed, holders not be read, steps not be taken back.
    Steward,
    /// A shard answers late.
    Slow,
    /// A shard does not answer at all for a while.
    Outage,
    /// A runner dies between two events.
    Crash,
    /// A runner dies between two calls of one errand, cycle or claim.
    CrashInside,
    /// A runner stands still, and wakes later.
    Sleep,
    /// Steps of a runner that stands still were taken over.
    TakenOver,
    /// A runner is asked to leave, and puts its steps back.
    Leave,
    /// The wall clock is set.
    Jump,
    /// Nobody hears that something was written.
    LostBell,
}

impl Fault {
    pub(crate) const ALL: [Self; 20] = [
        Self::Blind,
        Self::Unfetched,
        Self::ClaimBefore,
        Self::ClaimAfter,
        Self::SettleBefore,
        Self::SettleAfter,
        Self::SettleLate,
        Self::StaleFence,
        Self::Errand,
        Self::HalfErrand,
        Self::Steward,
        Self::Slow,
        Self::Outage,
        Self::Crash,
        Self::CrashInside,
        Self::Sleep,
        Self::TakenOver,
        Self::Leave,
        Self::Jump,
        Self::LostBell,
    ];
}

impl Fault {
    /// Returns how often it strikes at most, in thousandths of its occasions.
    const fn most(self) -> u64 {
        match self {
            Self::Sleep | Self::Crash | Self::Outage | Self::Slow => 400,
            Self::Leave | Self::Jump => 200,
            Self::CrashInside => 12,
            Self::LostBell => 700,
            Self::Blind
            | Self::Unfetched
            | Self::ClaimBefore
            | Self::ClaimAfter
            | Self::SettleBefore
            | Self::SettleAfter
            | Self::SettleLate
            | Self::StaleFence
            | Self::Errand
            | Self::HalfErrand
            | Self::Steward
            | Self::TakenOver => 150,
        }
    }
}

/// How often each thing went wrong.
pub(crate) type Struck = BTreeMap<Fault, u64>;

/// The probability of each fault, in thousandths of the occasions that it has.
#[derive(Debug, Default)]
pub(crate) struct Rates(BTreeMap<Fault, u64>);

impl Rates {
    /// Draws them: some worlds are calm, most have several faults, each fault is sometimes frequent.
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        if dice.below(12) == 0 {
            return Self::default();
        }
        let mut rate = |fault: Fault| {
            let happens = dice.below(2) == 0;
            let rate = 1 + dice.below(fault.most());
            (fault, if happens { rate } else { 0 })
        };
        Self(Fault::ALL.into_iter().map(&mut rate).collect())
    }

    pub(crate) fn of(&self, fault: Fault) -> u64 {
        self.0.get(&fault).copied().unwrap_or(0)
    }
}
