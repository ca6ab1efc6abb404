//! Who holds steps and does not live, or does not stir.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::ambient::Clock;
use crate::cli::Context;
use crate::cli::render::number;
use crate::crew::journal::Testament;
use crate::crew::orphans;
use crate::engine;
use crate::event::{Event, Sink};
use crate::model::{RunnerId, ShardId, Timestamp};
use crate::presence::{self, Standing};
use crate::store::sqlite::{Finding, SqliteStore, runners_dir};
use crate::store::{Claims as _, Store as _};

const TAKES_BACK: &str = "the next runner takes its steps back, or fairq doctor --repair";

/// What was found out about runners.
pub(super) struct There {
    pub(super) findings: Vec<Finding>,
    /// Whether any lives.
    pub(super) alive: bool,
}

/// Looks at the runners that have a folder, and at those that hold steps.
pub(super) fn check(store: &SqliteStore, clock: &dyn Clock) -> There {
    let runners = runners_dir(store.root());
    let mut there = There {
        findings: Vec::new(),
        alive: false,
    };
    let mut asked: BTreeMap<RunnerId, Option<Timestamp>> = BTreeMap::new();
    match presence::all(&runners) {
        Ok(all) => asked.extend(all.into_iter().map(|id| (id, None))),
        Err(error) => there.findings.push(Finding::of_error(
            "runners",
            runners.display().to_string(),
            &error,
        )),
    }
    for shard in ShardId::first(store.shard_count()) {
        // A shard that cannot be read has a finding of its own.
        for lease in store.holders(shard).unwrap_or_default() {
            let until = asked.entry(lease.runner).or_default();
            *until = (*until).max(Some(lease.until));
        }
    }
    for (id, until) in asked {
        let over = until.is_some_and(|until| until < clock.now());
        let place = format!("runner {id}");
        match presence::standing(&runners, id) {
            Ok(Standing::Alive) => {
                there.alive = true;
                if over {
                    there.findings.push(Finding::warning(
                        "leases",
                        place,
                        "lives and has not renewed its leases: it is stopped, or cannot write",
                        "look at the process: fairq inspect runners",
                    ));
                }
            }
            Ok(Standing::Dead) => there.findings.push(dead(store, id, place)),
            Ok(Standing::Unknown) if over => there.findings.push(Finding::warning(
                "leases",
                place,
                "holds steps, has no lock to ask, and its leases have ended",
                TAKES_BACK,
            )),
            Ok(Standing::Unknown) => {}
            Err(error) => there
                .findings
                .push(Finding::of_error("runners", place, &error)),
        }
    }
    there
}

fn dead(store: &SqliteStore, id: RunnerId, place: String) -> Finding {
    let journal = presence::dir_of(&runners_dir(store.root()), id).join("journal");
    let left = Testament::read(&journal)
        .map_or(0, |testament| orphans::left(&testament, store.root()).len());
    if left == 0 {
        return Finding::warning("runners", place, "died and left its folder", TAKES_BACK);
    }
    Finding::error(
        "runners",
        place,
        format!(
            "died, and {} of its steps still run: nobody watches them",
            number::many(left as u64, "process group")
        ),
        "the next runner ends them and takes its steps back, or fairq doctor --repair",
    )
}

/// Keeps what is told of steps that were taken back.
#[derive(Debug, Default)]
struct Heard(Mutex<Vec<String>>);

impl Sink for Heard {
    fn emit(&self, _: Timestamp, event: &Event) {
        if let Event::TakenBack { id, runner, state } = event {
            let line = format!("{id} taken back from runner {runner}, now {state}");
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(line);
        }
    }
}

/// Takes steps back from dead runners and removes what they left; returns a line for each.
pub(super) fn take_back(store: &Arc<SqliteStore>, context: &Context) -> Vec<String> {
    let runners = runners_dir(store.root());
    let heard = Arc::new(Heard::default());
    let before = presence::all(&runners).unwrap_or_default();
    engine::take_back(
        Arc::clone(store) as Arc<_>,
        store.shard_count(),
        store.root(),
        &runners,
        &context.clock,
        Arc::clone(&heard) as Arc<_>,
    );
    let after = presence::all(&runners).unwrap_or_default();
    let mut lines = std::mem::take(&mut *heard.0.lock().unwrap_or_else(PoisonError::into_inner));
    let gone = before.iter().filter(|id| !after.contains(id));
    lines.extend(gone.map(|id| format!("removed what runner {id} left")));
    lines
}
