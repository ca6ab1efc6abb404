//! Why one step ran before another, or that it did not.

use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use super::ran::{Planned, Try, planned_until};
use crate::decisions::Pick;
use crate::error::Result;
use crate::model::{StepId, StepState, Timestamp};
use crate::store::StepView;

/// A step and its tries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told<'t> {
    pub(super) step: &'t StepView,
    pub(super) tries: &'t [Try],
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Verdict {
    /// Which of the two was claimed first; `None` if neither was, or nobody can tell.
    pub(super) first: Option<StepId>,
    /// What was so.
    pub(super) sentence: String,
    /// Why, as far as it is known: everything that holds.
    pub(super) grounds: Vec<Ground>,
}

/// One thing that made it so.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Ground {
    /// A word that stays the same.
    pub(super) code: &'static str,
    pub(super) sentence: String,
    pub(super) evidence: Value,
}

const fn ground(code: &'static str, sentence: String, evidence: Value) -> Ground {
    Ground {
        code,
        sentence,
        evidence,
    }
}

impl Told<'_> {
    fn id(self) -> StepId {
        self.step.id
    }

    fn claimed(self) -> Option<Timestamp> {
        self.tries.first().map(|first| first.claimed)
    }

    /// Since when it was due, as far as it ever was.
    fn due(self) -> Option<Timestamp> {
        let first = self.tries.first().map(|first| first.due_since);
        first.or(self.step.since)
    }
}

/// Compares two steps by their first claims.
pub(super) fn verdict(a: Told<'_>, b: Told<'_>, dir: &Path) -> Result<Verdict> {
    let (first, second) = match (a.claimed(), b.claimed()) {
        (None, None) => return Ok(neither(a, b)),
        (Some(of_a), Some(of_b)) if of_b < of_a => (b, a),
        (None, Some(_)) => (b, a),
        (Some(_), _) => (a, b),
    };
    let claimed = first.claimed().unwrap_or_default();
    let grounds = grounds(first, claimed, second, dir)?;
    let (a_id, b_id) = (a.id(), b.id());
    let sentence = match second.claimed() {
        Some(later) if later == claimed => {
            return Ok(Verdict {
                first: None,
                sentence: format!(
                    "{a_id} and {b_id} were claimed in the same millisecond, {claimed}: at once, as far as is known"
                ),
                grounds,
            });
        }
        Some(later) => {
            let how = format!(
                "{} was claimed at {claimed}, {} only {} later",
                first.id(),
                second.id(),
                later.since(claimed)
            );
            if first.id() == a_id {
                format!("{a_id} ran before {b_id}: {how}")
            } else {
                format!("{a_id} did not run before {b_id}: {how}")
            }
        }
        None if first.id() == a_id => {
            format!("{a_id} ran before {b_id}, which has not run: {a_id} was claimed at {claimed}")
        }
        None => {
            format!(
                "{a_id} did not run before {b_id}: it has not run, and {b_id} was claimed at {claimed}"
            )
        }
    };
    Ok(Verdict {
        first: Some(first.id()),
        sentence,
        grounds,
    })
}

fn neither(a: Told<'_>, b: Told<'_>) -> Verdict {
    let mut grounds = Vec::new();
    for step in [a.step, b.step] {
        if step.state != StepState::Ready {
            let sentence = format!("{} is {}", step.id, step.state);
            let evidence = json!({ "step": step.id, "state": step.state });
            grounds.push(ground("not_due", sentence, evidence));
        }
    }
    if grounds.is_empty() {
        let (first, second) = if (b.step.band, b.id()) < (a.step.band, a.id()) {
            (b.step, a.step)
        } else {
            (a.step, b.step)
        };
        if first.band < second.band {
            grounds.push(better_band(first, second));
        } else if first.key == second.key && first.id.shard == second.id.shard {
            grounds.push(oldest_first(first, second));
        } else {
            let sentence = format!(
                "both are in band {}: whose turn comes first is for the plan to tell (fairq inspect plan)",
                first.band
            );
            grounds.push(ground("turn", sentence, json!({ "band": first.band })));
        }
    }
    Verdict {
        first: None,
        sentence: format!("neither {} nor {} has run", a.id(), b.id()),
        grounds,
    }
}

fn better_band(first: &StepView, second: &StepView) -> Ground {
    ground(
        "band",
        format!(
            "{} is in band {}, {} in band {}: a better band goes strictly first",
            first.id, first.band, second.id, second.band
        ),
        json!({ "bands": [first.band, second.band] }),
    )
}

fn oldest_first(first: &StepView, second: &StepView) -> Ground {
    ground(
        "same_key",
        format!(
            "both are of {} on shard {}, where the older one goes first",
            first.key, first.id.shard
        ),
        json!({ "key": first.key, "shard": first.id.shard, "order": [first.id, second.id] }),
    )
}

/// Gathers all that made `first`, which was claimed at `claimed`, the first.
fn grounds(
    first: Told<'_>,
    claimed: Timestamp,
    second: Told<'_>,
    dir: &Path,
) -> Result<Vec<Ground>> {
    let (one, other) = (first.step, second.step);
    let mut grounds = Vec::new();
    match second.due() {
        Some(due) if due <= claimed => {}
        Some(due) => {
            let evidence = json!({ "step": other.id, "due": due.to_string(), "first_claimed": claimed.to_string() });
            let sentence = format!(
                "{} was not due when {} was claimed, but only {} later, at {due}",
                other.id,
                one.id,
                due.since(claimed)
            );
            return Ok(vec![ground("not_due", sentence, evidence)]);
        }
        None => {
            let sentence = format!("{} has not been due: it is {}", other.id, other.state);
            let evidence = json!({ "step": other.id, "state": other.state });
            return Ok(vec![ground("not_due", sentence, evidence)]);
        }
    }
    if one.band < other.band {
        grounds.push(better_band(one, other));
    }
    if one.band == other.band
        && one.key == other.key
        && one.id.shard == other.id.shard
        && one.id < other.id
    {
        grounds.push(oldest_first(one, other));
    }
    let by = first.tries.first();
    if let (Some(by), Some(others)) = (by, second.tries.first())
        && by.runner != others.runner
    {
        let sentence = format!(
            "{} was run by runner {}, {} by runner {}: each gives turns by itself",
            one.id, by.runner, other.id, others.runner
        );
        let evidence = json!({ "runners": [by.runner, others.runner] });
        grounds.push(ground("runners", sentence, evidence));
    }
    if let Some(by) = by {
        grounds.push(planned(first, by, second, dir)?);
    }
    Ok(grounds)
}

/// Compares what the first one's runner had planned of both when it was claimed.
fn planned(first: Told<'_>, by: &Try, second: Told<'_>, dir: &Path) -> Result<Ground> {
    let (one, other) = (first.id(), second.id());
    let Some(mine) = &by.taken_from else {
        let sentence = by.log_from.map_or_else(
            || format!("what runner {} planned is not known any more", by.runner),
            |from| {
                format!(
                    "by which plan {one} was taken is not known any more: the log of runner {} goes back to {from}",
                    by.runner
                )
            },
        );
        let evidence =
            json!({ "runner": by.runner, "log_from": by.log_from.map(|from| from.to_string()) });
        return Ok(ground("not_known", sentence, evidence));
    };
    let theirs = planned_until(dir, by.runner, other, by.claimed)?;
    let Some(theirs) = theirs else {
        let then = second
            .tries
            .first()
            .and_then(|other| other.planned.as_ref());
        let sentence = format!(
            "{one} stood in cycle {} of shard {}, at {}; {other} had no slot in any plan that is known by then{}",
            mine.cycle,
            mine.shard,
            mine.at,
            then.map_or_else(String::new, |then| format!(
                ", and got its first in cycle {} of shard {}, at {}{}",
                then.cycle,
                then.shard,
                then.at,
                later_turn(mine, then)
            ))
        );
        let evidence = json!({ "first": mine, "second": null, "second_planned": then,
            "log_from": by.log_from.map(|from| from.to_string()) });
        return Ok(ground("no_slot", sentence, evidence));
    };
    Ok(compared(one, mine, other, &theirs))
}

/// Tells the turns where they can be compared: one runner's, in one band, the later one higher.
fn later_turn(mine: &Planned, then: &Planned) -> String {
    let of_one_lane = mine.runner == then.runner && mine.band == then.band;
    if of_one_lane && mine.pick == Pick::Stride && then.turn > mine.turn {
        format!(", with turn {:.3} after {:.3}", then.turn, mine.turn)
    } else {
        String::new()
    }
}

fn compared(one: StepId, mine: &Planned, other: StepId, theirs: &Planned) -> Ground {
    let evidence = json!({ "first": mine, "second": theirs });
    if (mine.shard, mine.cycle) == (theirs.shard, theirs.cycle) {
        let places = format!(
            "cycle {} of shard {} had {one} at place {} and {other} at place {}",
            mine.cycle, mine.shard, mine.place, theirs.place
        );
        return if mine.place < theirs.place {
            let turns = match mine.pick {
                Pick::Stride => format!(", by their turns {:.3} and {:.3}", mine.turn, theirs.turn),
                Pick::Lottery => ", as the lots fell".to_owned(),
            };
            ground("place", format!("{places}{turns}"), evidence)
        } else {
            at_once(&places, evidence)
        };
    }
    let turns = format!(
        "{one} had turn {:.3} on shard {}, {other} turn {:.3} on shard {}",
        mine.turn, mine.shard, theirs.turn, theirs.shard
    );
    if mine.band != theirs.band {
        let sentence = format!(
            "{other} was last planned in band {} at {}, {one} in band {} at {}",
            theirs.band, theirs.at, mine.band, mine.at
        );
        return ground("planned", sentence, evidence);
    }
    match mine.pick {
        Pick::Lottery => {
            let sentence = format!(
                "the lots of cycle {} of shard {} gave {one} place {}, those of cycle {} of shard {} gave {other} place {}",
                mine.cycle, mine.shard, mine.place, theirs.cycle, theirs.shard, theirs.place
            );
            ground("lots", sentence, evidence)
        }
        Pick::Stride if mine.turn < theirs.turn => ground(
            "turn",
            format!("{turns}: the lower turn goes first"),
            evidence,
        ),
        Pick::Stride if mine.turn > theirs.turn => at_once(&turns, evidence),
        Pick::Stride => {
            let sentence = format!("{turns}: of equal turns either may go first");
            ground("equal_turns", sentence, evidence)
        }
    }
}

/// Says that the plan had it the other way round.
fn at_once(plan: &str, evidence: Value) -> Ground {
    let sentence = format!(
        "{plan}, the other way round: workers that take at the same time claim in any order"
    );
    ground("other_way_round", sentence, evidence)
}
