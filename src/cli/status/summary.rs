//! What `fairq status` says before it comes to single steps.

use super::{RunnerJson, Sums};
use crate::cli::Context;
use crate::cli::render::{number, text};
use crate::cli::time::ago;
use crate::error::Result;
use crate::model::StepState;
use crate::presence;
use crate::store::sqlite::{SqliteStore, runners_dir};

/// Writes counts and runners.
pub(super) fn write(
    context: &mut Context,
    store: &SqliteStore,
    sums: &Sums,
    runners: &[RunnerJson],
) -> Result<()> {
    let now = context.clock.now();
    let mut lines = vec![format!(
        "store    {}",
        text::shown(store.root().display().to_string())
    )];
    let counts: Vec<String> = StepState::ALL
        .iter()
        .filter_map(|state| {
            sums.states
                .get(state)
                .map(|count| format!("{state} {}", number::count(*count)))
        })
        .collect();
    let none = || "nothing".to_owned();
    lines.push(format!(
        "steps    {}",
        if counts.is_empty() {
            none()
        } else {
            counts.join(", ")
        }
    ));
    if !sums.bands.is_empty() {
        let bands: Vec<String> = sums
            .bands
            .iter()
            .map(|(band, count)| format!("{band}: {} due", number::count(*count)))
            .collect();
        lines.push(format!("bands    {}", bands.join(", ")));
    }
    if sums.paused > 0 {
        lines.push(format!("paused   {} due", number::count(sums.paused)));
    }
    if let Some(due) = sums.next_due {
        lines.push(format!("next due {}", context.zone.show(due)));
    }
    if runners.is_empty() {
        lines.push("runners  none: start one with fairq run".to_owned());
    }
    for runner in runners {
        let told = |value: Option<String>| value.unwrap_or_else(|| "?".to_owned());
        let since = presence::card(&runners_dir(store.root()), runner.runner)
            .map_or_else(String::new, |card| {
                format!(", started {}", ago(card.started, now))
            });
        lines.push(format!(
            "runner   {} pid {} with {} workers{since}",
            runner.runner,
            told(runner.pid.map(|pid| pid.to_string())),
            told(runner.workers.map(|workers| workers.to_string())),
        ));
    }
    for shard in &sums.unreadable {
        lines.push(format!("warning: {}", text::shown(&shard.error)));
    }
    for line in lines {
        context.screen.line(&line)?;
    }
    Ok(())
}
