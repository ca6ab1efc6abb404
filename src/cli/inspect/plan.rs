//! `fairq inspect plan`: whose turn it would be now.
//!
//! Computed by the planner's own code from a fresh look at all shards; it reads and changes nothing.

use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use crate::cli::render::table::Column;
use crate::cli::render::{Cell, Table, number};
use crate::cli::{Context, Done};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Band, FairnessKey, ShardId, Span, Timestamp, Turn, Weight};
use crate::planner::{Decision, Merged, Pick, Standing, dice};
use crate::presence;
use crate::store::sqlite::{SqliteStore, runners_dir};
use crate::store::{Read as _, Store as _, Supply as _};
use crate::tally::TallyBoard;

/// Show whose turn it would be now
///
/// What a runner that has just started would plan: the shards are looked at, the plan is computed by
/// the planner itself, nothing is changed. A lottery is replayed exactly by its seed.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq inspect plan
  fairq inspect plan --capacity 32 --json
  fairq inspect plan --pick lottery --seed 7  the same draw each time")]
pub(super) struct PlanArgs {
    /// How many slots [default: twice the number of workers of a run]
    #[arg(long, value_name = "N")]
    capacity: Option<usize>,
    /// How slots are picked: stride or lottery [default: as configured]
    #[arg(long, value_name = "HOW", value_parser = pick)]
    pick: Option<Pick>,
    /// The lottery's seed [default: a fresh one]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn pick(word: &str) -> Result<Pick, String> {
    match word {
        "stride" => Ok(Pick::Stride),
        "lottery" => Ok(Pick::Lottery),
        _ => Err("it is stride or lottery".to_owned()),
    }
}

#[derive(Serialize)]
struct PlanJson {
    at: String,
    pick: &'static str,
    seed: Option<u64>,
    capacity: usize,
    /// The best band with due work on any shard.
    band: Option<Band>,
    /// The shards that set it.
    set_by: Vec<ShardId>,
    live_runners: usize,
    shards: Vec<ShardJson>,
    keys: Vec<KeyJson>,
    slots: Vec<SlotJson>,
}

#[derive(Serialize)]
struct ShardJson {
    shard: ShardId,
    band: Option<Band>,
    /// Due steps at its own best band.
    due: u64,
    keys: usize,
    delayed: u64,
    next_due: Option<String>,
    part: Part,
    slots: usize,
    error: Option<String>,
}

/// What a shard's part in the plan is.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum Part {
    /// It has slots.
    Serves,
    /// It has work at the band, but others have all slots.
    OutSlotted,
    /// Its work is in a worse band.
    WorseBand,
    /// It has nothing due.
    NothingDue,
    /// It could not be looked at.
    Cleared,
}

impl Part {
    const fn words(self) -> &'static str {
        match self {
            Self::Serves => "serves",
            Self::OutSlotted => "out-slotted",
            Self::WorseBand => "worse band",
            Self::NothingDue => "nothing due",
            Self::Cleared => "cleared",
        }
    }
}

#[derive(Serialize)]
struct KeyJson {
    key: FairnessKey,
    weight: Weight,
    /// The shard whose oldest step decides weight and age, and which has the first slot.
    oldest_on: ShardId,
    oldest_age_ms: u64,
    count: u64,
    counts: Vec<(ShardId, u32)>,
    /// The part of the slots that it should have, from 0 to 1.
    expected_share: f64,
    slots: usize,
    /// Its slots' part of all slots of this plan.
    plan_share: f64,
    turns: Vec<Turn>,
}

#[derive(Serialize)]
struct SlotJson {
    key: FairnessKey,
    turn: Turn,
    shard: Option<ShardId>,
}

pub(super) fn run(args: &PlanArgs, context: &mut Context) -> Result<Done> {
    let pick = args.pick.unwrap_or(match context.settings.pick {
        crate::config::Pick::Stride => Pick::Stride,
        crate::config::Pick::Lottery => Pick::Lottery,
    });
    if args.seed.is_some() && pick == Pick::Stride {
        return Err(
            Error::new(ErrorKind::Usage, "stride draws no lots, so it has no seed")
                .hint("say --pick lottery as well"),
        );
    }
    let workers = context.settings.workers as usize;
    let capacity = args.capacity.unwrap_or((2 * workers).max(1));
    let seed = args
        .seed
        .unwrap_or_else(|| crate::ambient::Dice::fresh().bits());
    let store = context.store_with_steps()?;
    let now = context.clock.now();
    let mut board = TallyBoard::default();
    let mut shards = Vec::new();
    for shard in ShardId::first(store.shard_count()) {
        shards.push(look(&store, shard, &mut board, now));
    }
    let merged = Arc::new(Merged::of(&board));
    let decision = match pick {
        Pick::Stride => Decision::by_stride(merged, &Standing::default(), capacity),
        Pick::Lottery => Decision::by_lottery(merged, capacity, seed, dice(seed)),
    };
    let plan = describe(pick, capacity, &decision, shards, &store, now);
    if args.json {
        context.screen.json(&plan)?;
    } else {
        print(context, &plan)?;
    }
    Ok(Done::Well)
}

/// Looks at one shard as a refiller does, and enters what it saw.
fn look(store: &SqliteStore, shard: ShardId, board: &mut TallyBoard, now: Timestamp) -> ShardJson {
    let mut seen = ShardJson {
        shard,
        band: None,
        due: 0,
        keys: 0,
        delayed: 0,
        next_due: None,
        part: Part::NothingDue,
        slots: 0,
        error: None,
    };
    let looked = store
        .tally(shard)
        .and_then(|tally| Ok((tally, store.counts(shard)?)));
    match looked {
        Ok((tally, counts)) => {
            seen.band = tally.band();
            seen.due = tally.keys().iter().map(|key| u64::from(key.count)).sum();
            seen.keys = tally.keys().len();
            let delayed = counts.states.get(&crate::model::StepState::Delayed);
            seen.delayed = delayed.copied().unwrap_or(0);
            seen.next_due = counts.next_due.map(|due| due.to_string());
            board.report(shard, Arc::new(tally), now);
        }
        Err(error) => {
            seen.part = Part::Cleared;
            seen.error = Some(error.to_string());
        }
    }
    seen
}

fn describe(
    pick: Pick,
    capacity: usize,
    decision: &Decision,
    mut shards: Vec<ShardJson>,
    store: &SqliteStore,
    now: Timestamp,
) -> PlanJson {
    let merged = &decision.merged;
    let band = merged.band();
    for shard in &mut shards {
        shard.slots = decision
            .owners
            .iter()
            .filter(|owner| **owner == Some(shard.shard))
            .count();
        if shard.error.is_none() {
            shard.part = match shard.band {
                None => Part::NothingDue,
                own if own != band => Part::WorseBand,
                Some(_) if shard.slots == 0 => Part::OutSlotted,
                Some(_) => Part::Serves,
            };
        }
    }
    let all: f64 = merged.keys().iter().map(|key| key.weight.get()).sum();
    let keys = merged.keys().iter().enumerate().map(|(at, key)| {
        let turns: Vec<Turn> = decision
            .order
            .iter()
            .filter(|drawn| drawn.key == at)
            .map(|drawn| drawn.turn)
            .collect();
        #[expect(clippy::cast_precision_loss, reason = "a share for people")]
        let plan_share = turns.len() as f64 / decision.order.len().max(1) as f64;
        KeyJson {
            key: key.key.clone(),
            weight: key.weight,
            oldest_on: key.oldest,
            oldest_age_ms: now.since(key.since).millis(),
            count: key.count,
            counts: merged
                .holders(key)
                .iter()
                .map(|held| (held.shard, held.count))
                .collect(),
            expected_share: key.weight.get() / all,
            slots: turns.len(),
            plan_share,
            turns,
        }
    });
    let slots = decision
        .order
        .iter()
        .zip(&decision.owners)
        .map(|(drawn, shard)| SlotJson {
            key: merged.keys()[drawn.key].key.clone(),
            turn: drawn.turn,
            shard: *shard,
        });
    PlanJson {
        at: now.to_string(),
        pick: match pick {
            Pick::Stride => "stride",
            Pick::Lottery => "lottery",
        },
        seed: decision.seed,
        capacity,
        band,
        set_by: shards
            .iter()
            .filter(|shard| band.is_some() && shard.band == band)
            .map(|shard| shard.shard)
            .collect(),
        live_runners: presence::alive(&runners_dir(store.root())).map_or(0, |all| all.len()),
        keys: keys.collect(),
        slots: slots.collect(),
        shards,
    }
}

fn print(context: &mut Context, plan: &PlanJson) -> Result<()> {
    let screen = &mut context.screen;
    let none = || "none".to_owned();
    let set_by: Vec<String> = plan
        .set_by
        .iter()
        .map(|shard| format!("shard {shard}"))
        .collect();
    screen.line(&format!(
        "what a runner that has just started would plan at {}, from a fresh look at all shards",
        plan.at
    ))?;
    screen.line(&format!(
        "pick {}{}, capacity {}, {} live runners",
        plan.pick,
        plan.seed
            .map_or_else(String::new, |seed| format!(", seed {seed}")),
        plan.capacity,
        plan.live_runners
    ))?;
    screen.line(&format!(
        "global band {}, set by {}",
        plan.band.map_or_else(none, |band| band.to_string()),
        if set_by.is_empty() {
            none()
        } else {
            set_by.join(", ")
        }
    ))?;
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

fn shard_table(plan: &PlanJson) -> Table {
    let mut table = Table::new([
        Column::words("SHARD"),
        Column::numbers("BAND"),
        Column::numbers("DUE"),
        Column::numbers("KEYS"),
        Column::numbers("DELAYED"),
        Column::numbers("SLOTS"),
        Column::words("PART"),
        Column::text("ERROR"),
    ]);
    for shard in &plan.shards {
        table.row([
            Cell::new(format!("{} ({})", shard.shard, shard.shard.letter())),
            Cell::new(shard.band.map(|band| band.to_string()).unwrap_or_default()),
            Cell::new(number::count(shard.due)),
            Cell::new(shard.keys.to_string()),
            Cell::new(number::count(shard.delayed)),
            Cell::new(shard.slots.to_string()),
            Cell::new(shard.part.words()),
            Cell::new(shard.error.as_deref().unwrap_or_default()),
        ]);
    }
    table
}

fn key_table(plan: &PlanJson) -> Table {
    let mut table = Table::new([
        Column::words("KEY"),
        Column::numbers("WEIGHT"),
        Column::numbers("DUE"),
        Column::words("OLDEST"),
        Column::words("ON"),
        Column::numbers("SHARE"),
        Column::words(""),
        Column::numbers("SLOTS"),
        Column::words("FIRST TURN"),
    ]);
    for key in &plan.keys {
        table.row([
            Cell::new(key.key.as_str()),
            Cell::new(key.weight.to_string()),
            Cell::new(number::count(key.count)),
            Cell::new(Span::from_millis(key.oldest_age_ms).to_string()),
            Cell::new(key.oldest_on.to_string()),
            Cell::new(number::percent(key.expected_share)),
            Cell::new(number::bar(key.expected_share, 20)),
            Cell::new(key.slots.to_string()),
            Cell::new(
                key.turns
                    .first()
                    .map(ToString::to_string)
                    .unwrap_or_default(),
            ),
        ]);
    }
    table
}

fn slot_table(plan: &PlanJson) -> Table {
    let mut table = Table::new([
        Column::numbers("SLOT"),
        Column::words("KEY"),
        Column::words("TURN"),
        Column::words("SHARD"),
    ]);
    for (number, slot) in plan.slots.iter().enumerate() {
        table.row([
            Cell::new((number + 1).to_string()),
            Cell::new(slot.key.as_str()),
            Cell::new(slot.turn.to_string()),
            Cell::new(
                slot.shard
                    .map_or_else(|| "nobody".to_owned(), |shard| shard.to_string()),
            ),
        ]);
    }
    table
}
