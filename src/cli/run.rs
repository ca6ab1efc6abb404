//! `fairq run`: run steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::answers::{self, Answers};
use super::ears::Ears;
use super::eventlog::EventLog;
use super::render::table::Column;
use super::render::{Cell, Table, number, text};
use super::runlog::{RunLog, Voice};
use super::{Context, Done};
use crate::ambient::Dice;
use crate::config::Pick;
use crate::crew::executor::Force;
use crate::crew::process::BootId;
use crate::crew::shell::Shell;
use crate::decisions::DecisionLog;
use crate::engine::drain::{self, Action, Phase};
use crate::engine::{Engine, Manner, Neighbours, Notice, With};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{RunnerId, ShardId, Span, StepState};
use crate::presence::bell::Bell;
use crate::presence::control::Control;
use crate::presence::{self, Card, Presence};
use crate::refiller::Pace;
use crate::store::sqlite::{Mode, SqliteStore, decisions_dir, events_dir, runners_dir};
use crate::store::{Read as _, Store as _};

/// How long a claim stands where the runner's lock cannot be asked.
const LEASE: Span = Span::from_millis(60_000);
/// How long outcomes may take to be recorded at the end.
const FLUSH: Duration = Duration::from_secs(30);
/// How often a terminal's live line is drawn.
const FRAME: Duration = Duration::from_millis(200);

/// Run steps
///
/// Without --drain it serves until it is told to stop. The first INT, TERM or HUP lets running steps
/// finish and takes no new ones; the second asks them to end, kills them after their grace and puts
/// them back; the third kills at once.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq run                                   as many at once as there are CPUs
  fairq run --workers 4 --drain               until nothing is due; exit 1 if a step failed
  fairq run --json >>events.ndjson            a JSON object an event")]
pub(super) struct RunArgs {
    /// How many steps to run at once [default: the number of CPUs]
    #[arg(short = 'j', long, value_name = "N")]
    pub(super) workers: Option<String>,
    /// Stop when nothing is due, runs or will be tried again
    #[arg(long)]
    drain: bool,
    /// Say only what someone must know of
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Print events and the summary as JSON
    #[arg(long)]
    json: bool,
}

/// How many times this process was told to stop.
static SIGNALS: AtomicUsize = AtomicUsize::new(0);

pub(super) fn run(args: &RunArgs, context: &mut Context) -> Result<Done> {
    let store = Arc::new(context.store(Mode::Serve)?);
    let runners = runners_dir(store.root());
    let runner = RunnerId::new(Dice::fresh().bits().cast_signed());
    let clock = Arc::clone(&context.clock);
    let card = card(context)?;
    let presence = Presence::enter(&runners, runner, &card)?;
    // As early as can be: who asks a runner that is still starting waits for its answer.
    let control = Arc::new(Control::open(presence.dir(), Arc::clone(&clock))?);
    let voice = match (args.quiet, args.json, context.screen.is_terminal()) {
        (true, ..) => Voice::Quiet,
        (_, true, _) => Voice::Json,
        (_, _, true) => Voice::Live,
        (false, false, false) => Voice::Lines,
    };
    let log = Arc::new(RunLog::new(voice));
    let decisions = Arc::new(DecisionLog::begin(&decisions_dir(store.root()), runner)?);
    let kept = keep_events(&store, runner, context);
    let bell = Arc::new(Bell::hang(presence.dir())?);
    let shell = Arc::new(Shell::new(
        store.root().to_owned(),
        presence.dir().to_owned(),
        context.settings.inline_output_bytes,
        Arc::clone(&clock),
    )?);
    let with = With {
        store: Arc::clone(&store) as Arc<_>,
        executor: Arc::clone(&shell) as Arc<_>,
        runner,
        neighbours: Some(Neighbours {
            store: store.root().to_owned(),
            runners,
            bell,
        }),
        clock: Arc::clone(&clock),
        sink: Arc::new(Ears {
            log: Arc::clone(&log),
            events: kept.clone(),
            decisions: Arc::clone(&decisions),
        }),
    };
    let engine = Arc::new(Engine::start(with, manner(context))?);
    catch_signals(engine.notice())?;
    let answering = answers::serve(
        &control,
        Answers::new(runner, card, &engine, &store, &clock),
    )?;
    let began = clock.monotonic();
    let ending = Turn {
        args,
        context,
        engine: &engine,
        log: &log,
        began,
    }
    .serve();
    let open = engine.finish(FLUSH);
    shell.close();
    decisions.close();
    if let Some(kept) = &kept {
        kept.close();
    }
    control.close();
    // The thread ends with the socket; one that panicked has been heard of.
    drop(answering.join());
    log.wipe();
    log.flush();
    if open > 0 {
        context.screen.talk(&format!(
            "warning: {} could not be recorded; what has none will be run again",
            number::many(open as u64, "outcome")
        ));
    }
    let ran_for = clock.monotonic() - began;
    summarise(args, context, &engine, ran_for)?;
    if args.drain && !args.quiet && !args.json {
        tell_left(context, &store);
    }
    drop(presence);
    ending
}

/// Returns what this process says of itself as a runner.
fn card(context: &Context) -> Result<Card> {
    Ok(Card {
        pid: std::process::id(),
        workers: context.settings.workers as usize,
        started: context.clock.now(),
        boot: format!("{:032x}", BootId::current()?.get()),
    })
}

/// Starts this runner's log of events. One that cannot be kept is no reason not to run.
fn keep_events(
    store: &SqliteStore,
    runner: RunnerId,
    context: &mut Context,
) -> Option<Arc<EventLog>> {
    let alive: Result<Vec<RunnerId>> = presence::alive(&runners_dir(store.root()))
        .map(|alive| alive.into_iter().map(|(runner, _)| runner).collect());
    let log = alive.and_then(|alive| EventLog::start(&events_dir(store.root()), runner, &alive));
    match log {
        Ok(log) => Some(Arc::new(log)),
        Err(error) => {
            context
                .screen
                .talk(&format!("warning: {}", text::shown(error.to_string())));
            None
        }
    }
}

fn manner(context: &Context) -> Manner {
    let settings = &context.settings;
    Manner {
        workers: settings.workers as usize,
        pick: match settings.pick {
            Pick::Stride => crate::planner::Pick::Stride,
            Pick::Lottery => crate::planner::Pick::Lottery,
        },
        seed: Dice::fresh().bits(),
        pace: Pace {
            heartbeat: settings.heartbeat.into(),
            min_gap: settings.min_gap.into(),
        },
        lease: LEASE,
    }
}

fn catch_signals(notice: &Arc<Notice>) -> Result<()> {
    let notice = Arc::clone(notice);
    ctrlc::set_handler(move || {
        SIGNALS.fetch_add(1, Ordering::SeqCst);
        notice.tell();
    })
    .map_err(|error| Error::new(ErrorKind::Internal, "cannot listen for signals").caused_by(&error))
}

/// One run, from its start to the end of its last step.
struct Turn<'r> {
    args: &'r RunArgs,
    context: &'r mut Context,
    engine: &'r Engine,
    log: &'r RunLog,
    began: Duration,
}

impl Turn<'_> {
    /// Serves until it is told to stop or, if it drains, until nothing is left to do.
    fn serve(&mut self) -> Result<Done> {
        let heartbeat: Duration = self.context.settings.heartbeat.into();
        let mut phase = Phase::Serving;
        loop {
            let seen = self.engine.notice().seen();
            self.log.flush();
            self.draw();
            let signals = SIGNALS.load(Ordering::SeqCst);
            let (after, action) = drain::next(phase, signals);
            phase = after;
            if let Some(action) = action {
                self.act(action);
                continue;
            }
            match phase {
                Phase::Serving if self.args.drain && self.engine.is_drained()? => {
                    self.engine.drain();
                    phase = Phase::Draining;
                    continue;
                }
                Phase::Serving => {}
                Phase::Draining | Phase::Ending | Phase::Killing => {
                    if self.engine.wait(Duration::ZERO) {
                        return Ok(self.ending(signals));
                    }
                }
            }
            let pause = match phase {
                Phase::Serving if self.context.screen.is_terminal() => FRAME,
                Phase::Serving => heartbeat,
                Phase::Draining | Phase::Ending | Phase::Killing => FRAME,
            };
            self.engine.notice().wait(seen, pause);
        }
    }

    fn act(&mut self, action: Action) {
        let running = self.engine.running();
        match action {
            Action::Drain => {
                self.engine.drain();
                self.log.wipe();
                if running > 0 {
                    self.context.screen.talk(&format!(
                        "stopping: {} may finish; once more to end them",
                        number::many(running as u64, "running step")
                    ));
                }
            }
            Action::Ask => {
                let told = self.engine.end_steps(Force::Ask);
                self.context.screen.talk(&format!(
                    "ending {}, to be put back; once more to kill",
                    number::many(told as u64, "running step")
                ));
            }
            Action::Kill => {
                self.engine.end_steps(Force::Kill);
            }
        }
    }

    fn draw(&self) {
        if self.context.screen.is_terminal() {
            let due = self.engine.due();
            let since = self.context.clock.monotonic() - self.began;
            self.log.draw(self.engine.running(), due, since);
        }
    }

    /// Returns the exit code: of a run that was told to stop, 0; of one that drained, whether all
    /// steps went well.
    fn ending(&self, signals: usize) -> Done {
        let failed = self.engine.tally().failed > 0;
        if self.args.drain && signals == 0 && failed {
            Done::Code(1)
        } else {
            Done::Well
        }
    }
}

/// Says what a drained store still holds, for it looks empty and is not.
fn tell_left(context: &mut Context, store: &SqliteStore) {
    let mut left = std::collections::BTreeMap::new();
    for shard in ShardId::first(store.shard_count()) {
        // One that cannot be read has said so while it was served.
        let counts = store.counts(shard).unwrap_or_default();
        let waiting = [
            StepState::Delayed,
            StepState::Blocked,
            StepState::Limited,
            StepState::Held,
        ];
        for state in waiting {
            let count = counts.states.get(&state).copied().unwrap_or(0);
            *left.entry(state.word()).or_insert(0) += count;
        }
        *left.entry("paused").or_insert(0) += counts.paused;
    }
    let parts: Vec<String> = left
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(state, count)| format!("{} {state}", number::count(count)))
        .collect();
    if !parts.is_empty() {
        context
            .screen
            .talk(&format!("left in the store: {}", parts.join(", ")));
    }
}

#[derive(Serialize)]
struct Summary {
    event: &'static str,
    succeeded: u64,
    failed: u64,
    put_back: u64,
    seconds: f64,
    steps_per_second: f64,
    wait_ms: Quantiles,
    run_ms: Quantiles,
    keys: Vec<KeyShare>,
}

#[derive(Serialize)]
struct Quantiles {
    p50: Option<u64>,
    p99: Option<u64>,
}

#[derive(Serialize)]
struct KeyShare {
    band: crate::model::Band,
    key: crate::model::FairnessKey,
    steps: u64,
    share: f64,
}

fn summarise(
    args: &RunArgs,
    context: &mut Context,
    engine: &Engine,
    ran_for: Duration,
) -> Result<()> {
    let tally = engine.tally();
    let all: u64 = tally.claimed.values().sum();
    let seconds = ran_for.as_secs_f64();
    let quantiles = |of: &crate::model::Durations| Quantiles {
        p50: of.quantile(0.5),
        p99: of.quantile(0.99),
    };
    #[expect(clippy::cast_precision_loss, reason = "rates and shares for people")]
    let summary = Summary {
        event: "summary",
        succeeded: tally.succeeded,
        failed: tally.failed,
        put_back: tally.put_back,
        seconds,
        steps_per_second: (tally.succeeded + tally.failed) as f64 / seconds.max(1e-6),
        wait_ms: quantiles(&tally.waited),
        run_ms: quantiles(&tally.ran),
        keys: tally
            .claimed
            .iter()
            .map(|((band, key), steps)| KeyShare {
                band: *band,
                key: key.clone(),
                steps: *steps,
                share: *steps as f64 / all.max(1) as f64,
            })
            .collect(),
    };
    if args.json {
        return context.screen.json_line(&summary);
    }
    if args.quiet {
        return Ok(());
    }
    let told = |millis: Option<u64>| {
        millis.map_or_else(
            || "-".to_owned(),
            |millis| Span::from_millis(millis).to_string(),
        )
    };
    context.screen.talk(&format!(
        "{} succeeded, {} failed{} in {}, {}; waited {} (p99 {}), ran {} (p99 {})",
        number::count(summary.succeeded),
        number::count(summary.failed),
        if summary.put_back > 0 {
            format!(", {} put back", number::count(summary.put_back))
        } else {
            String::new()
        },
        Span::from(ran_for),
        number::rate(summary.steps_per_second),
        told(summary.wait_ms.p50),
        told(summary.wait_ms.p99),
        told(summary.run_ms.p50),
        told(summary.run_ms.p99),
    ));
    if summary.keys.len() > 1 && context.screen.is_terminal() {
        let mut table = Table::new([
            Column::numbers("BAND"),
            Column::words("KEY"),
            Column::numbers("STEPS"),
            Column::numbers("SHARE"),
            Column::words(""),
        ]);
        for key in &summary.keys {
            table.row([
                Cell::new(key.band.to_string()),
                Cell::new(key.key.as_str()),
                Cell::new(number::count(key.steps)),
                Cell::new(number::percent(key.share)),
                Cell::new(number::bar(key.share, 20)),
            ]);
        }
        context.screen.table(&table)?;
    }
    Ok(())
}
