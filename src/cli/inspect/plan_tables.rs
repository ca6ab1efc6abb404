//! How a plan is shown to people.

use super::picture::{KeyPart, Picture};
use crate::cli::Context;
use crate::cli::render::table::Column;
use crate::cli::render::{Cell, Table, Tone, number, text};
use crate::cli::time::rough;
use crate::error::Result;
use crate::model::{ShardId, Span};

/// Writes a plan under a title.
pub(super) fn print(context: &mut Context, title: &str, plan: &Picture) -> Result<()> {
    let screen = &mut context.screen;
    let at = plan.at.as_ref().map(|at| format!(", looked at {at}"));
    screen.line(&text::shown(format!("{title}{}", at.unwrap_or_default())))?;
    let seed = plan.seed.map(|seed| format!(", seed {seed}"));
    let clock = plan.clock.map(|clock| format!(", virtual time {clock:.3}"));
    let age = plan.tally_age_ms.map(Span::from_millis);
    screen.line(&text::shown(format!(
        "pick {}{}{}, capacity {}{}",
        plan.pick,
        seed.unwrap_or_default(),
        clock.unwrap_or_default(),
        plan.capacity,
        age.map_or_else(String::new, |age| format!(
            ", oldest report {} ago",
            rough(age)
        )),
    )))?;
    screen.line(&match plan.band {
        Some(band) => format!("global band {band}, set by shard {}", list(&plan.set_by)),
        None => "global band none: nothing is due on any shard".to_owned(),
    })?;
    screen.line("")?;
    screen.table(&shard_table(plan))?;
    if !plan.keys.is_empty() {
        screen.line("")?;
        screen.table(&key_table(plan))?;
        screen.line("")?;
        screen.table(&slot_table(plan))?;
    }
    Ok(())
}

fn list(shards: &[ShardId]) -> String {
    let shards: Vec<String> = shards.iter().map(ToString::to_string).collect();
    shards.join(", ")
}

fn shard_table(plan: &Picture) -> Table {
    let mut table = Table::new([
        Column::words("SHARD"),
        Column::numbers("BAND"),
        Column::numbers("DUE"),
        Column::numbers("KEYS"),
        Column::words("TALLIED"),
        Column::words("PART"),
        Column::numbers("SLOTS"),
        Column::words(""),
        Column::text("ERROR"),
    ]);
    for shard in &plan.shards {
        let tallied = shard.tallied_ms_ago.map(Span::from_millis);
        let bad = shard.error.is_some();
        table.row([
            Cell::new(format!("{} ({})", shard.shard, shard.shard.letter())),
            Cell::new(shard.band.map(|band| band.to_string()).unwrap_or_default()),
            Cell::new(number::count(shard.due)),
            Cell::new(shard.keys.to_string()),
            Cell::new(tallied.map_or_else(String::new, |span| format!("{} ago", rough(span)))),
            Cell::new(shard.part.words()).tone(if bad { Tone::Bad } else { Tone::Plain }),
            Cell::new(shard.slots.to_string()),
            Cell::new(number::bar(part_of(shard.slots, plan.slots.len()), 8)),
            Cell::new(shard.error.as_deref().unwrap_or_default()),
        ]);
    }
    table
}

#[expect(clippy::cast_precision_loss, reason = "a bar for people")]
fn part_of(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn key_table(plan: &Picture) -> Table {
    let mut columns = vec![
        Column::words("KEY"),
        Column::numbers("WEIGHT"),
        Column::words("FROM"),
        Column::words("OLDEST"),
        Column::numbers("DUE"),
        Column::text("ON SHARDS"),
        Column::numbers("SHARE"),
        Column::words(""),
        Column::numbers("SLOTS"),
        Column::numbers("OF ALL"),
        Column::numbers("PASS"),
        Column::numbers("FIRST TURN"),
        Column::words("FIRST SLOT ON"),
    ];
    if plan.repeat.is_some() {
        columns.extend([Column::numbers("REPEATED"), Column::words("")]);
    }
    let mut table = Table::new(columns);
    for key in &plan.keys {
        table.row(key_row(key));
    }
    table
}

fn key_row(key: &KeyPart) -> Vec<Cell> {
    let age = key.oldest_age_ms.map(Span::from_millis);
    let turn = |turn: Option<f64>| turn.map(|turn| format!("{turn:.3}")).unwrap_or_default();
    let counts: Vec<String> = key
        .counts
        .iter()
        .map(|(shard, count)| format!("{shard}:{count}"))
        .collect();
    let shard = key.first_slot_on.map(|shard| shard.to_string());
    let mut row = vec![
        Cell::new(&key.key),
        Cell::new(key.weight.to_string()),
        Cell::new(format!("shard {}", key.oldest_on)),
        Cell::new(age.map_or_else(
            || key.oldest_since.clone(),
            |age| format!("{} ago", rough(age)),
        )),
        Cell::new(number::count(key.count)),
        Cell::new(counts.join(" ")),
        Cell::new(number::percent(key.expected_share)),
        Cell::new(number::bar(key.expected_share, 10)),
        Cell::new(key.slots.to_string()),
        Cell::new(number::percent(key.plan_share)),
        Cell::new(turn(key.pass)),
        Cell::new(turn(key.turns.first().copied())),
        Cell::new(shard.unwrap_or_default()),
    ];
    if let Some(share) = key.repeat_share {
        row.extend([
            Cell::new(number::percent(share)),
            Cell::new(number::bar(share, 10)),
        ]);
    }
    row
}

fn slot_table(plan: &Picture) -> Table {
    let mut table = Table::new([
        Column::numbers("SLOT"),
        Column::words("KEY"),
        Column::numbers("TURN"),
        Column::words("SHARD"),
    ]);
    for (number, slot) in plan.slots.iter().enumerate() {
        let shard = slot.shard.map(|shard| shard.to_string());
        table.row([
            Cell::new((number + 1).to_string()),
            Cell::new(&slot.key),
            Cell::new(format!("{:.3}", slot.turn)),
            Cell::new(shard.unwrap_or_else(|| "nobody".to_owned())),
        ]);
    }
    table
}
