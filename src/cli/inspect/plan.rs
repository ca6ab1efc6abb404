//! `fairq inspect plan`: whose turn it would be now, and why.
//!
//! Computed by the planner's own code from a fresh look at all shards, or told by the live runners.
//! It changes nothing.

use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use super::live::ask_all;
use super::picture::Picture;
use super::plan_tables;
use crate::ambient::Dice;
use crate::cli::{Context, Done};
use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::model::{ShardId, Timestamp};
use crate::planner::{Decision, Made, Merged, Pick, Planner, Standing, dice};
use crate::presence;
use crate::presence::control::Question;
use crate::store::sqlite::{SqliteStore, runners_dir};
use crate::store::{Read as _, Store as _, Supply as _};
use crate::tally::TallyBoard;

/// Show whose turn it would be now, and why
///
/// What a runner that has just started would plan: the shards are looked at, the plan is computed by
/// the planner itself, nothing is changed. With --live, what the live runners planned last.
///
/// All shards serve the best band with due work on any of them. A key's weight and age are those of
/// its oldest step, and the shard with that step has the key's first slot. A lottery is replayed by
/// its seed, to the byte; the times that differ at each look are then left out.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq inspect plan
  fairq inspect plan --capacity 32 --json
  fairq inspect plan --pick lottery --seed 7  the same draw each time
  fairq inspect plan --repeat 1000            are the shares as promised?
  fairq inspect plan --live                   what the runners planned last")]
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
    /// Run so many plans forward in memory, each time with the first slot's step taken, as if no
    /// key ever ran dry; show how often each key was first
    #[arg(long, value_name = "N")]
    repeat: Option<u32>,
    /// Show what each live runner planned last; exit with 3 if there is none
    #[arg(long, conflicts_with_all = ["capacity", "pick", "seed", "repeat"])]
    live: bool,
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
struct PlanJson<'p> {
    live_runners: usize,
    #[serde(flatten)]
    plan: &'p Picture,
}

#[derive(Serialize)]
struct LiveJson {
    runners: Vec<Picture>,
}

pub(super) fn run(args: &PlanArgs, context: &mut Context) -> Result<Done> {
    if args.live {
        return live(args, context);
    }
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
    let workers = context.settings.workers() as usize;
    let capacity = args.capacity.unwrap_or((2 * workers).max(1));
    let seed = args.seed.unwrap_or_else(|| Dice::fresh().bits());
    let store = context.store_with_steps()?;
    let now = context.clock.now();
    let look = look(&store, now);
    let made = make(pick, seed, capacity, look.board);
    let mut plan = Picture::of(pick, &made, look.errors.into_iter(), now);
    if let Some(plans) = args.repeat {
        plan.add_repeat(&repeat(pick, seed, plans, &made));
    }
    if args.seed.is_some() {
        plan.without_time();
    }
    let live_runners = presence::alive(&runners_dir(store.root())).map_or(0, |all| all.len());
    if args.json {
        context.screen.json(&PlanJson {
            live_runners,
            plan: &plan,
        })?;
    } else {
        let title = "what a runner that has just started would plan";
        plan_tables::print(context, title, &plan)?;
    }
    if !look.overdue.is_empty() {
        let shards: Vec<String> = look.overdue.iter().map(ToString::to_string).collect();
        context.screen.talk(&format!(
            "note: delayed steps have fallen due on shard {}; a runner takes them in first",
            shards.join(", ")
        ));
    }
    if live_runners > 0 && !args.json {
        context.screen.talk(&format!(
            "note: what {} planned last, with the turns so far: fairq inspect plan --live",
            crate::cli::render::number::many(live_runners as u64, "live runner")
        ));
    }
    Ok(Done::Well)
}

/// What a look at all shards came to.
#[derive(Default)]
struct Look {
    board: TallyBoard,
    /// Why a shard could not be looked at, in the order of the shards.
    errors: Vec<Option<String>>,
    /// The shards with delayed steps whose time has come.
    overdue: Vec<ShardId>,
}

/// Looks at all shards as their refillers do, but makes nothing due.
fn look(store: &SqliteStore, now: Timestamp) -> Look {
    let mut look = Look::default();
    for shard in ShardId::first(store.shard_count()) {
        let looked = store
            .tally(shard)
            .and_then(|tally| Ok((tally, store.counts(shard)?.next_due)));
        let error = match looked {
            Ok((tally, next_due)) => {
                look.board.report(shard, Arc::new(tally), now);
                if next_due.is_some_and(|due| due <= now) {
                    look.overdue.push(shard);
                }
                None
            }
            Err(error) => Some(error.to_string()),
        };
        look.errors.push(error);
    }
    look
}

fn make(pick: Pick, seed: u64, capacity: usize, board: TallyBoard) -> Made {
    let merged = Arc::new(Merged::of(&board));
    let standing = Standing::default();
    let decision = match pick {
        Pick::Stride => Decision::by_stride(merged, &standing, capacity),
        Pick::Lottery => Decision::by_lottery(merged, capacity, seed, dice(seed)),
    };
    Made {
        decision,
        board,
        standing,
        capacity,
    }
}

/// Runs plans forward and returns how often each key was first. The first lottery draws with the
/// seed itself, each further one with the next number that follows from it.
fn repeat(pick: Pick, seed: u64, plans: u32, made: &Made) -> Vec<u64> {
    let merged = &made.decision.merged;
    let mut firsts = vec![0; merged.keys().len()];
    let planner = Planner::new(pick, seed);
    for (shard, report) in made.board.reports() {
        planner.tally(shard, Arc::clone(report), Timestamp::default());
    }
    let mut seeds = Dice::seeded(seed);
    let mut next = seed;
    for _ in 0..plans {
        // The first slot is the same whatever the capacity.
        let decision = match pick {
            Pick::Stride => planner.decide(1),
            Pick::Lottery => Decision::by_lottery(Arc::clone(merged), 1, next, dice(next)),
        };
        next = seeds.bits();
        let (Some(first), Some(band)) = (decision.order.first(), merged.band()) else {
            break;
        };
        firsts[first.key] += 1;
        planner.took(band, &merged.keys()[first.key].key, first.turn);
    }
    firsts
}

fn live(args: &PlanArgs, context: &mut Context) -> Result<Done> {
    let answered = ask_all(context, &Question::Plan)?;
    let mut plans = Vec::new();
    for one in answered {
        let plan: Picture =
            serde_json::from_value(one.answer.clone()).or_fail(ErrorKind::General, || {
                format!(
                    "{} answers in words that this fairq does not know",
                    one.name()
                )
            })?;
        plans.push((one.name(), plan));
    }
    if args.json {
        let runners = plans.into_iter().map(|(_, plan)| plan).collect();
        context.screen.json(&LiveJson { runners })?;
        return Ok(Done::Well);
    }
    for (place, (name, plan)) in plans.iter().enumerate() {
        if place > 0 {
            context.screen.line("")?;
        }
        plan_tables::print(context, &format!("what {name} planned last"), plan)?;
    }
    Ok(Done::Well)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Band, Weight};
    use crate::tally::{ShardTally, Tally};

    fn board(keys: &[(&str, f64)]) -> TallyBoard {
        let tally = |(key, weight): &(&str, f64)| Tally {
            key: key.parse().unwrap(),
            count: 2,
            since: Timestamp::default(),
            weight: Weight::new(*weight).unwrap(),
        };
        let report = ShardTally::new(Band::DEFAULT, keys.iter().map(tally).collect());
        let mut board = TallyBoard::default();
        let shard = ShardId::new(0).unwrap();
        board.report(shard, Arc::new(report), Timestamp::default());
        board
    }

    /// Backlogs of two steps, and still the shares are those of the weights.
    #[test]
    fn plans_run_forward_give_each_key_its_share() {
        let board = board(&[("a", 3.0), ("b", 1.0)]);
        let made = make(Pick::Stride, 0, 4, board.clone());
        assert_eq!(repeat(Pick::Stride, 0, 400, &made), [300, 100]);
        let made = make(Pick::Lottery, 7, 4, board);
        let drawn = repeat(Pick::Lottery, 7, 4_000, &made);
        assert_eq!(drawn.iter().sum::<u64>(), 4_000);
        // Five standard deviations of 27.
        assert!((2_863..=3_137).contains(&drawn[0]), "{drawn:?}");
        assert_eq!(drawn, repeat(Pick::Lottery, 7, 4_000, &made));
        assert_ne!(drawn, repeat(Pick::Lottery, 8, 4_000, &made));
    }

    #[test]
    fn the_first_plan_run_forward_is_the_one_shown() {
        for seed in 0..50 {
            let made = make(Pick::Lottery, seed, 2, board(&[("a", 1.0), ("b", 1.0)]));
            let firsts = repeat(Pick::Lottery, seed, 1, &made);
            assert_eq!(firsts[made.decision.order[0].key], 1, "seed {seed}");
        }
    }

    #[test]
    fn shares_of_huge_weights_are_still_shares() {
        let made = make(
            Pick::Stride,
            0,
            4,
            board(&[("a", f64::MAX), ("b", f64::MAX)]),
        );
        let plan = Picture::of(
            Pick::Stride,
            &made,
            [None].into_iter(),
            Timestamp::default(),
        );
        let shares: Vec<String> = plan
            .keys
            .iter()
            .map(|key| format!("{:.2}", key.expected_share))
            .collect();
        assert_eq!(shares, ["0.50", "0.50"]);
    }
}
