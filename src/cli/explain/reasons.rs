//! Why a step has not run: every reason that holds, from what was seen around it.

use serde::Serialize;
use serde_json::{Value, json};

use super::scene::{Live, Place, Rival, Scene};
use super::waits;
use crate::cli::render::number;
use crate::model::{Ending, OnLost, ShardId, StepId, StepState, Timestamp};
use crate::store::{Attempt, StepView};

/// One reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Reason {
    /// A word that stays the same.
    pub(super) code: &'static str,
    /// What is so.
    pub(super) sentence: String,
    /// What would have to come about for this to hold no longer.
    pub(super) changes: String,
    /// The facts, as fields.
    pub(super) evidence: Value,
}

impl Reason {
    pub(super) fn new(
        code: &'static str,
        sentence: String,
        changes: impl Into<String>,
        evidence: Value,
    ) -> Self {
        Self {
            code,
            sentence,
            changes: changes.into(),
            evidence,
        }
    }
}

/// Returns all reasons that hold, those that lie in the step itself first.
pub(super) fn all(
    step: &StepView,
    attempts: &[Attempt],
    scene: &Scene,
    time: impl Fn(Timestamp) -> String,
) -> Vec<Reason> {
    let mut reasons = Vec::new();
    match step.state {
        StepState::Held => reasons.push(held(step, attempts)),
        StepState::Delayed => reasons.push(delayed(step, attempts, scene.now, &time)),
        StepState::Blocked => reasons.push(waits::blocked(scene)),
        StepState::Limited => reasons.extend(waits::limited(step, scene)),
        StepState::Ready => {
            if !scene.rivals.is_empty() {
                reasons.push(outranked(step, &scene.rivals));
            }
            if let Some(place) = &scene.place {
                reasons.extend(behind(step, place));
            }
        }
        StepState::Running | StepState::Succeeded | StepState::Failed | StepState::Cancelled => {}
    }
    reasons.extend(waits::paused(scene, &time));
    // Another shard that cannot be read is none of its reasons, though it may hide some.
    let unreadable = scene
        .unreadable
        .iter()
        .filter(|(shard, _)| *shard == step.id.shard);
    reasons.extend(unreadable.map(|(shard, error)| unread(*shard, error)));
    reasons.extend(runners(step, &scene.runners));
    if reasons.is_empty() {
        reasons.push(Reason::new(
            "next",
            "nothing stands before it: a live runner has a worker free".to_owned(),
            "it is taken, within moments",
            json!({}),
        ));
    }
    reasons
}

fn held(step: &StepView, attempts: &[Attempt]) -> Reason {
    let lost = attempts.last().filter(|last| last.ending == Ending::Lost);
    let lost = lost.filter(|_| step.policy.on_lost == OnLost::Hold);
    let why = match lost {
        Some(last) => format!("it is held because runner {} was lost with it", last.runner),
        None => "it is held, by its enqueue or by fairq hold".to_owned(),
    };
    Reason::new(
        "held",
        why,
        format!("somebody releases it: fairq release {}", step.id),
        json!({ "lost_with": lost.map(|last| last.runner) }),
    )
}

fn delayed(
    step: &StepView,
    attempts: &[Attempt],
    now: Timestamp,
    time: &impl Fn(Timestamp) -> String,
) -> Reason {
    let due = time(step.at);
    let failed = attempts.last().filter(|_| step.attempt > 0);
    let evidence = json!({ "due": step.at.to_string(), "left_ms": step.at.since(now).millis(),
                           "tries": step.attempt, "retries": step.policy.retries,
                           "last": failed.map(|last| &last.ending) });
    if step.at > now {
        let left = step.at.since(now);
        let mut sentence = format!("it is not due before {due}, which is in {left}");
        if let Some(last) = failed {
            let (next, most) = (step.attempt + 1, step.policy.retries + 1);
            let ending = &last.ending;
            sentence = format!("{sentence}: try {next} of {most}, as the last one ended: {ending}");
        }
        Reason::new("delayed", sentence, "the time comes", evidence)
    } else {
        let sentence = format!("it fell due at {due}, and no runner has looked since");
        Reason::new("delayed", sentence, "a runner looks at its shard", evidence)
    }
}

/// Joins parts as people do: `a`, `a and b`, `a, b and c`.
pub(in crate::cli) fn joined(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

fn outranked(step: &StepView, rivals: &[Rival]) -> Reason {
    let bands: Vec<String> = rivals
        .iter()
        .map(|rival| {
            let shards = rival.shards.iter();
            let shards: Vec<String> = shards
                .map(|(shard, due)| format!("{} on shard {shard}", number::count(*due)))
                .collect();
            format!("band {} has {}", rival.band, joined(&shards))
        })
        .collect();
    let due = rivals.iter().map(|rival| rival.due).sum();
    Reason::new(
        "outranked",
        format!(
            "{} before all of band {}: {}",
            if due == 1 {
                "1 due step of a better band goes".to_owned()
            } else {
                format!("{} due steps of better bands go", number::count(due))
            },
            step.band,
            joined(&bands)
        ),
        "no better band has a due step on any shard",
        json!({ "band": step.band, "due": due, "bands": rivals }),
    )
}

fn behind(step: &StepView, place: &Place) -> impl Iterator<Item = Reason> {
    let own = (place.ahead > 0).then(|| {
        let cut = place.ahead >= place.counted_to;
        let before = number::count(u64::from(place.ahead));
        let position = number::count(u64::from(place.ahead) + 1);
        let of = number::count(place.on_shard);
        let sentence = if cut {
            format!(
                "{before} or more older steps of {} are due on shard {}, of {of} that it has there",
                step.key, step.id.shard
            )
        } else {
            format!(
                "it is number {position} of {of} due steps of {} on shard {}",
                step.key, step.id.shard
            )
        };
        Reason::new(
            "behind_in_key",
            sentence,
            "those before it have been taken",
            json!({ "ahead": place.ahead, "at_least": cut, "of": place.on_shard,
                    "in_all": place.in_all, "shard": step.id.shard, "key": step.key }),
        )
    });
    let others = (place.keys > 1).then(|| {
        Reason::new(
            "keys_take_turns",
            format!(
                "{} keys of band {} take turns: {} has weight {} of {}, by its oldest step, on shard {}, and so {} of the starts",
                place.keys,
                step.band,
                step.key,
                place.weight,
                place.weights,
                place.oldest_on,
                number::percent(place.share),
            ),
            "other keys have nothing due, or the oldest step of its key has more weight",
            json!({ "band": step.band, "key": step.key, "keys": place.keys,
                    "weight": place.weight, "weights": place.weights,
                    "oldest_on": place.oldest_on, "share": place.share }),
        )
    });
    own.into_iter().chain(others)
}

/// Says that a shard cannot be read by us.
pub(super) fn unread(shard: ShardId, error: &str) -> Reason {
    Reason::new(
        "shard_unreadable",
        format!("shard {shard} cannot be read from here: {error}"),
        "its file can be read again",
        json!({ "shard": shard, "error": error }),
    )
}

/// Says what of the runners keeps a step waiting.
pub(super) fn runners(step: &StepView, all: &[Live]) -> Vec<Reason> {
    runners_for(step.id, step.state == StepState::Ready, all)
}

/// As [`runners`], for a step of which only the id may be known; `due` if it waits for a worker.
pub(super) fn runners_for(step: StepId, due: bool, all: &[Live]) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if all.is_empty() {
        let sentence = "no runner is alive".to_owned();
        return vec![Reason::new(
            "no_runner",
            sentence,
            "one is started: fairq run",
            json!({}),
        )];
    }
    for live in all {
        let runner = live.runner;
        if let Some(error) = &live.error {
            reasons.push(Reason::new(
                "runner_silent",
                format!("runner {runner} is alive and cannot be asked: {error}"),
                "it answers; it may run steps in the meantime",
                json!({ "runner": runner, "pid": live.pid, "error": error }),
            ));
        }
        if live.crew.as_ref().is_some_and(|crew| crew.draining) {
            reasons.push(Reason::new(
                "runner_stopping",
                format!("runner {runner} is stopping and takes no new steps"),
                "another one is started: fairq run",
                json!({ "runner": runner, "pid": live.pid }),
            ));
        } else if live.withdrawn.contains(&step.shard) {
            reasons.push(Reason::new(
                "shard_withdrawn",
                format!(
                    "runner {runner} plans without shard {}: it has not been able to read it",
                    step.shard
                ),
                "it can read the shard, which it tries at each heartbeat",
                json!({ "runner": runner, "pid": live.pid, "shard": step.shard }),
            ));
        }
    }
    if due {
        reasons.extend(busy(all));
    }
    reasons
}

/// Says that no worker is free, if that is known of all runners that take steps.
fn busy(all: &[Live]) -> Option<Reason> {
    let mut steps = Vec::new();
    let mut workers = 0;
    let mut evidence = Vec::new();
    for live in all {
        let crew = live.crew.as_ref()?;
        if crew.draining {
            continue;
        }
        if crew.running.len() < crew.workers {
            return None;
        }
        workers += crew.workers;
        for busy in &crew.running {
            steps.push(format!("{} ({})", busy.id, busy.key));
            evidence.push(
                json!({ "runner": live.runner, "worker": busy.worker, "step": busy.id,
                                  "band": busy.band, "key": busy.key, "pid": busy.pid,
                                  "since": busy.claimed.to_string() }),
            );
        }
    }
    if workers == 0 {
        return None;
    }
    let more = steps.len().saturating_sub(8);
    steps.truncate(8);
    if more > 0 {
        steps.push(format!("{} more", number::count(more as u64)));
    }
    let who = if workers == 1 {
        "the only worker is busy".to_owned()
    } else {
        format!("all {} workers are busy", number::count(workers as u64))
    };
    Some(Reason::new(
        "workers_busy",
        format!("{who}, with {}", joined(&steps)),
        "one of these ends, or another runner is started",
        json!({ "workers": workers, "running": evidence }),
    ))
}
