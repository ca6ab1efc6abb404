//! Reasons that lie in what people asked for: other steps, pauses, limits, and an end.

use serde_json::json;

use super::reasons::{Reason, joined};
use super::scene::{Queue, Scene};
use crate::cli::render::number;
use crate::cli::steer::{limit, pause};
use crate::model::{Ending, Need, StepState, Timestamp};
use crate::store::{Link, StepView};

/// Says for which steps one waits, and where they stand.
pub(super) fn blocked(scene: &Scene) -> Reason {
    let open: Vec<&Link> = scene.parents.iter().filter(|link| !link.met).collect();
    let evidence = json!({ "parents": scene.parents });
    if open.is_empty() {
        let sentence = if scene.parents.is_empty() {
            "it waits for steps that cannot be read from here"
        } else {
            "all that it waits for has come about, and it has not been told yet"
        };
        let changes = "a runner looks, which it does at its start and at each heartbeat";
        return Reason::new("blocked", sentence.to_owned(), changes, evidence);
    }
    let waits: Vec<String> = open.iter().map(|link| waits_for(link)).collect();
    let ends: Vec<String> = open.iter().map(|link| ends_when(link)).collect();
    let sentence = format!("it waits for {}", joined(&waits));
    Reason::new("blocked", sentence, joined(&ends), evidence)
}

fn waits_for(link: &Link) -> String {
    let parent = link.parent;
    let need = match link.need {
        Need::Success => "succeed",
        Need::End => "end",
        Need::Failure => "fail",
    };
    match link.state {
        Some(state) => format!("{parent} to {need}, which is {state}"),
        None => format!("{parent} to {need}, which is not kept any more"),
    }
}

fn ends_when(link: &Link) -> String {
    let parent = link.parent;
    match (link.need, link.state) {
        // It is about to be told that this never comes about.
        (_, Some(state)) if state.is_final() => {
            format!("a runner looks: {parent} will not do so unless it is retried")
        }
        (Need::Success, _) => format!("{parent} has succeeded"),
        (Need::End, _) => format!("{parent} has ended"),
        (Need::Failure, _) => format!("{parent} has failed"),
    }
}

/// Says which pauses cover a step, and how each is taken back.
pub(super) fn paused<'s>(
    scene: &'s Scene,
    time: &'s impl Fn(Timestamp) -> String,
) -> impl Iterator<Item = Reason> + 's {
    scene.pauses.iter().map(|paused| {
        let name = pause::name(&paused.what);
        let sentence = format!("{name} has been paused since {}", time(paused.since));
        let changes = format!("it is resumed: {}", pause::undo(&paused.what));
        let evidence = json!({ "band": paused.what.band, "key": paused.what.key,
                               "since": paused.since.to_string() });
        Reason::new("paused", sentence, changes, evidence)
    })
}

/// Says of each limit that has too few places left who holds them, and who waits before the step.
pub(super) fn limited(step: &StepView, scene: &Scene) -> Vec<Reason> {
    let full = scene.limits.iter().filter_map(|(limit, queue)| {
        let needs = *step.policy.limits.get(&limit.name)?;
        let (name, places, taken) = (&limit.name, limit.places, limit.taken());
        if taken.saturating_add(needs) <= places {
            return None;
        }
        let held = match taken {
            0 => "and none is taken".to_owned(),
            1 => format!("and 1 is taken, by {}", limit::holders(limit)),
            _ => {
                let taken = number::count(u64::from(taken));
                format!("and {taken} are taken, by {}", limit::holders(limit))
            }
        };
        let places_word = number::many(u64::from(places), "place");
        let before = waiting_before(step, queue);
        let needs_word = number::count(u64::from(needs));
        let sentence =
            format!("limit {name} has {places_word} {held}; it needs {needs_word}{before}");
        let changes = if needs > places {
            format!("the limit is raised: fairq limit set {name} {needs}")
        } else {
            let more = taken.saturating_add(needs);
            format!(
                "enough of its places become free and it is its turn, or the limit is raised: fairq limit set {name} {more}"
            )
        };
        let evidence = json!({ "limit": name, "places": places, "set": limit.is_set,
                               "needs": needs, "taken": taken, "holders": limit.holders,
                               "waiting": limit.waiting, "before": queue.before,
                               "at_least": queue.cut });
        Some(Reason::new("limited", sentence, changes, evidence))
    });
    let mut reasons: Vec<Reason> = full.collect();
    if reasons.is_empty() {
        let names: Vec<String> = step.policy.limits.keys().map(ToString::to_string).collect();
        reasons.push(Reason::new(
            "limited",
            format!(
                "there is room within {}, and it has not been given a place yet",
                joined(&names)
            ),
            "a runner looks, and it is its turn",
            json!({ "limits": names }),
        ));
    }
    reasons
}

/// Says how many steps are given places before one: those of better bands, and the older ones of its
/// key; among the keys of its band places go round.
fn waiting_before(step: &StepView, queue: &Queue) -> String {
    let at_least = if queue.cut { " at least" } else { "" };
    let parts: Vec<String> = queue
        .before
        .iter()
        .map(|(band, count)| {
            let count = number::count(*count);
            if *band == step.band {
                format!("{count} of {} in band {band}", step.key)
            } else {
                format!("{count} of band {band}")
            }
        })
        .collect();
    if parts.is_empty() {
        return String::new();
    }
    format!("; before it wait{at_least} {}", joined(&parts))
}

/// Says why a step that is over never ran, or was ended.
pub(super) fn over(step: &StepView, scene: &Scene) -> Option<Reason> {
    let id = step.id;
    let retried = format!("it is retried: fairq retry {id}");
    match (step.state, &step.ending) {
        (_, Some(Ending::Skipped { reason })) => {
            let open = scene.parents.iter().filter(|link| !link.met);
            let mut retry: Vec<String> = open.map(|link| link.parent.to_string()).collect();
            retry.push(id.to_string());
            Some(Reason::new(
                "skipped",
                format!("it never ran: {reason}, and it was to run only if that went otherwise"),
                format!("both are retried: fairq retry {}", retry.join(" ")),
                json!({ "reason": reason, "parents": scene.parents }),
            ))
        }
        (_, Some(Ending::Expired)) => Some(Reason::new(
            "expired",
            "it never ran: it was not to be started any more when its turn came".to_owned(),
            "it is put in anew, with more time",
            json!({ "expire": step.policy.expire.map(|at| at.to_string()) }),
        )),
        (_, Some(Ending::Cancelled)) => Some(Reason::new(
            "cancelled",
            "it never ran: somebody asked for its end before; who that was is not recorded"
                .to_owned(),
            retried,
            json!({ "ran": false }),
        )),
        (StepState::Cancelled, _) => Some(Reason::new(
            "cancelled",
            "somebody asked for its end; who that was is not recorded".to_owned(),
            retried,
            json!({ "ran": true }),
        )),
        _ => None,
    }
}
