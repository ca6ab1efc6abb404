//! `fairq wait`: until steps have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::pace::Pace;
use super::select::Selector;
use super::{Context, Done, words};
use crate::error::Result;
use crate::model::{Ending, ShardId, Span, StepId, StepState};
use crate::store::sqlite::SqliteStore;
use crate::store::{Filter, Order, Read as _, StepView, Supply as _};

/// Exit code where the time ran out.
const TIMED_OUT: u8 = 124;

/// Wait until steps have ended
///
/// Exits with the step's own code if one step was named (128+n for a signal), with 0 if all of
/// several succeeded, else with 1.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq wait a17; echo $?                     the step's own exit code
  fairq wait a17-a29 --timeout 10m
  fairq wait -k alice --any                   until the first of alice's steps has ended")]
pub(super) struct WaitArgs {
    #[command(flatten)]
    select: Selector,
    /// Until one of them has ended
    #[arg(long)]
    any: bool,
    /// Give up after so long, with exit code 124
    #[arg(long, value_name = "DURATION", value_parser = words::span, allow_hyphen_values = true)]
    timeout: Option<Span>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Told<'w> {
    timed_out: bool,
    steps: &'w [Stand],
}

/// Where a step stood when it was last looked at.
#[derive(Serialize)]
pub(super) struct Stand {
    id: StepId,
    state: StepState,
    /// As a shell would report it; `None` as long as there is none.
    exit_code: Option<i32>,
    /// What a command exits with that waited for this step alone.
    #[serde(skip)]
    code: u8,
}

/// What to wait for.
pub(super) struct Wait {
    /// In any order, each once, at least one.
    ids: Vec<StepId>,
    /// Until one of them has ended, not all.
    any: bool,
    timeout: Option<Span>,
    /// Whether the code is that of the one step.
    own_code: bool,
}

impl Wait {
    /// Waits for all of these, however long it takes. Of one step, its own code counts.
    pub(super) fn for_all(ids: Vec<StepId>) -> Self {
        Self {
            own_code: ids.len() == 1,
            ids,
            any: false,
            timeout: None,
        }
    }
}

/// What waiting came to.
pub(super) struct Waited {
    timed_out: bool,
    own_code: bool,
    steps: Vec<Stand>,
}

impl Waited {
    /// Returns the exit code that this means.
    pub(super) fn code(&self) -> u8 {
        let mut ended = self.steps.iter().filter(|step| step.state.is_final());
        match (self.timed_out, self.own_code, self.steps.as_slice()) {
            (true, ..) => TIMED_OUT,
            (false, true, [one]) => one.code,
            _ => u8::from(!ended.all(|step| step.state == StepState::Succeeded)),
        }
    }
}

pub(super) fn run(args: &WaitArgs, context: &mut Context) -> Result<Done> {
    let store = context.store_with_steps()?;
    let own_code = matches!(args.select.ids.as_slice(), [one] if one.single().is_some());
    let wait = Wait {
        ids: args.select.ids(context, &store)?,
        any: args.any,
        timeout: args.timeout,
        own_code,
    };
    let waited = until_over(&wait, context, &store)?;
    if args.json {
        context.screen.json(&Told {
            timed_out: waited.timed_out,
            steps: &waited.steps,
        })?;
    } else if waited.timed_out {
        let open = waited
            .steps
            .iter()
            .filter(|step| !step.state.is_final())
            .count();
        context.screen.talk(&format!(
            "the time is up and {open} of {} have not ended",
            waited.steps.len()
        ));
    }
    Ok(Done::of(waited.code()))
}

/// Waits until steps are over, or the time is.
///
/// # Errors
///
/// A shard cannot be read; `NotFound` for a step that is not there, or not any more.
pub(super) fn until_over(wait: &Wait, context: &Context, store: &SqliteStore) -> Result<Waited> {
    let until = wait
        .timeout
        .map(|limit| context.clock.monotonic() + Duration::from(limit));
    let pace = Pace::new(&context.clock);
    let mut look = Look {
        store,
        wait,
        over: Vec::new(),
        versions: BTreeMap::new(),
    };
    let mut timed_out = false;
    while !look.is_enough()? {
        let left = until.map(|until| until.saturating_sub(context.clock.monotonic()));
        if left.is_some_and(|left| left.is_zero()) {
            timed_out = true;
            break;
        }
        pace.sleep(left);
    }
    Ok(Waited {
        timed_out,
        own_code: wait.own_code,
        steps: look.all()?,
    })
}

/// Looks at steps that are waited for, and at no more of them than must be: while the first that is
/// open has not ended, the others need not be known.
struct Look<'l> {
    store: &'l SqliteStore,
    wait: &'l Wait,
    /// The first steps, which are over.
    over: Vec<Stand>,
    /// The shards' versions at the last look.
    versions: BTreeMap<ShardId, u64>,
}

impl Look<'_> {
    fn is_enough(&mut self) -> Result<bool> {
        if self.wait.any {
            return self.is_one_over();
        }
        while let Some(id) = self.wait.ids.get(self.over.len()) {
            if !self.has_changed(id.shard)? {
                return Ok(false);
            }
            let stand = self.stand(*id)?;
            if !stand.state.is_final() {
                return Ok(false);
            }
            self.over.push(stand);
            // The shard has to be looked at again: for the next step it counts from the start.
            self.versions.clear();
        }
        Ok(true)
    }

    fn is_one_over(&mut self) -> Result<bool> {
        let shards: BTreeSet<ShardId> = self.wait.ids.iter().map(|id| id.shard).collect();
        let mut changed = false;
        for shard in shards {
            changed |= self.has_changed(shard)?;
        }
        if !changed {
            return Ok(false);
        }
        let over = Filter {
            ids: ranges(&self.wait.ids),
            states: StepState::ALL
                .into_iter()
                .filter(|state| state.is_final())
                .collect(),
            order: Order::Id,
            limit: Some(1),
            ..Filter::default()
        };
        Ok(!self.store.list(&over)?.is_empty())
    }

    /// Asks whether anything was written since the last look, which costs microseconds.
    fn has_changed(&mut self, shard: ShardId) -> Result<bool> {
        let version = self.store.version(shard)?;
        Ok(self.versions.insert(shard, version) != Some(version))
    }

    fn stand(&self, id: StepId) -> Result<Stand> {
        let step = super::show::find(self.store, id)?;
        Ok(Stand {
            id,
            state: step.state,
            exit_code: step.ending.as_ref().map(Ending::shell_code),
            code: step_code(&step),
        })
    }

    /// Returns where all stand, those too that were not looked at.
    fn all(mut self) -> Result<Vec<Stand>> {
        for id in &self.wait.ids[self.over.len()..] {
            let stand = self.stand(*id)?;
            self.over.push(stand);
        }
        Ok(self.over)
    }
}

/// Returns the ids as ranges; those that follow each other are one.
fn ranges(ids: &[StepId]) -> Vec<(ShardId, i64, i64)> {
    let mut ranges: Vec<(ShardId, i64, i64)> = Vec::new();
    for id in ids {
        let number = id.local.get();
        match ranges.last_mut() {
            Some((shard, _, last)) if *shard == id.shard && *last + 1 == number => *last = number,
            _ => ranges.push((id.shard, number, number)),
        }
    }
    ranges
}

/// Returns a step's own exit code.
pub(super) fn step_code(step: &StepView) -> u8 {
    let told = step.ending.as_ref().map_or(0, Ending::shell_code);
    match (step.state, u8::try_from(told)) {
        (StepState::Succeeded, _) => 0,
        // Whatever else it says, a step that did not succeed does not look as if it had.
        (_, Ok(0) | Err(_)) => 1,
        (_, Ok(code)) => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_follow_each_other_are_one_range() {
        let ids: Vec<StepId> = ["a1", "a2", "a3", "a7", "b8", "b9"]
            .map(|id| id.parse().unwrap())
            .to_vec();
        let shard = |number| ShardId::new(number).unwrap();
        let expected = [(shard(0), 1, 3), (shard(0), 7, 7), (shard(1), 8, 9)];
        assert_eq!(ranges(&ids), expected);
    }
}
