//! `fairq run`: run steps.

mod summary;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Args;

use super::answers::{self, Answers};
use super::ears::Ears;
use super::eventlog::EventLog;
use super::kept;
use super::render::{number, text};
use super::runlog::{RunLog, Voice};
use super::{Context, Done, words};
use crate::ambient::Dice;
use crate::config::Pick;
use crate::crew::executor::Force;
use crate::crew::process::BootId;
use crate::crew::shell::Shell;
use crate::decisions::DecisionLog;
use crate::engine::drain::{self, Action, Phase};
use crate::engine::{Engine, Manner, Neighbours, Notice, With};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{FairnessKey, RunnerId, Span};
use crate::presence::bell::Bell;
use crate::presence::control::Control;
use crate::presence::{self, Card, Presence};
use crate::refiller::Pace;
use crate::store::sqlite::{Mode, SqliteStore, decisions_dir, events_dir, runners_dir};
use crate::store::{Only, Store};

/// How long a claim stands where the runner's lock cannot be asked.
const LEASE: Span = Span::from_millis(60_000);
/// How long outcomes may take to be recorded at the end.
const FLUSH: Duration = Duration::from_secs(30);
/// How often a terminal's live line is drawn.
const FRAME: Duration = Duration::from_millis(200);
/// While steps run, what ends within so short a time is told together: a thread that wakes for each of
/// thousands a second takes the processor from them. Not once none runs, so nobody waits for it.
const BREATH: Duration = Duration::from_millis(4);

/// Run steps
///
/// Without --drain it serves until it is told to stop. The first INT, TERM or HUP lets running steps
/// finish and takes no new ones; the second asks them to end, kills them after their grace and puts
/// them back; the third kills at once.
///
/// With --key or --band it runs only steps of these keys and bands. Better bands then come first among
/// what it runs; others wait for another runner.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq run                                   as many at once as there are CPUs
  fairq run --workers 4 --drain               until nothing is due; exit 1 if a step failed
  fairq run --drain --max-fail 3              give up when three have failed
  fairq run --key alice --for 8h              only alice's steps, until the evening
  fairq run --json >>events.ndjson            a JSON object an event")]
pub(super) struct RunArgs {
    /// How many steps to run at once [default: the number of CPUs]
    #[arg(short = 'j', long, value_name = "N")]
    pub(super) workers: Option<String>,
    /// Stop when nothing is due, runs or will be tried again
    #[arg(long)]
    drain: bool,
    /// Take no more steps once so many have failed for good, and exit with 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_fail: Option<u64>,
    /// Take no more steps after so long
    #[arg(
        long = "for",
        value_name = "DURATION",
        value_parser = words::span,
        allow_hyphen_values = true
    )]
    serve_for: Option<Span>,
    /// Run only steps of this key (repeatable)
    #[arg(short, long, value_name = "KEY")]
    key: Vec<FairnessKey>,
    /// Run only steps of this band, by number or name (repeatable)
    #[arg(short, long, value_name = "BAND", allow_hyphen_values = true)]
    band: Vec<String>,
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
    // What we were left open by whoever started us is not for steps: a lock or a pipe that they
    // inherit would outlive us. Closing it could let go of a lock that is meant to hold.
    close_fds::set_fds_cloexec(3, &[]);
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
    let served = served(args, context, &store)?;
    kept::announce(&store, context);
    let with = With {
        store: Arc::clone(&served),
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
    summary::summarise(voice, context, &engine, ran_for)?;
    if args.drain && !args.quiet && !args.json {
        summary::tell_left(context, &*served);
    }
    drop(presence);
    ending
}

/// Returns the store as this runner sees it: only what it is to serve.
fn served(args: &RunArgs, context: &Context, store: &Arc<SqliteStore>) -> Result<Arc<dyn Store>> {
    let store = Arc::clone(store) as Arc<dyn Store>;
    if args.band.is_empty() && args.key.is_empty() {
        return Ok(store);
    }
    let bands = args.band.iter();
    let bands = bands
        .map(|band| words::band(band, &context.settings))
        .collect::<Result<_>>()?;
    let keys = args.key.iter().cloned().collect();
    Ok(Arc::new(Only::new(store, bands, keys)))
}

/// Returns what this process says of itself as a runner.
fn card(context: &Context) -> Result<Card> {
    Ok(Card {
        pid: std::process::id(),
        workers: context.settings.workers() as usize,
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
        workers: settings.workers() as usize,
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
        keep: settings.keep,
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
        let nobody = Notice::default();
        loop {
            let looked = self.context.clock.monotonic();
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
                Phase::Serving if self.is_enough()? => {
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
                Phase::Serving => self.left().map_or(heartbeat, |left| left.min(heartbeat)),
                Phase::Draining | Phase::Ending | Phase::Killing => FRAME,
            };
            self.engine.notice().wait(seen, pause);
            let since = self.context.clock.monotonic().saturating_sub(looked);
            if since < BREATH && self.engine.running() > 0 {
                nobody.wait(nobody.seen(), BREATH.saturating_sub(since));
            }
        }
    }

    /// Returns whether nothing more is to be begun, though nobody has said so.
    fn is_enough(&self) -> Result<bool> {
        if self.failed_enough() || self.left() == Some(Duration::ZERO) {
            return Ok(true);
        }
        Ok(self.args.drain && self.engine.is_drained()?)
    }

    fn failed_enough(&self) -> bool {
        // Asked first: the tally is copied, and it has a row for every key.
        self.args
            .max_fail
            .is_some_and(|most| self.engine.tally().failed >= most)
    }

    /// Returns how long it is still to serve, if that was said.
    fn left(&self) -> Option<Duration> {
        let until = self.began + Duration::from(self.args.serve_for?);
        Some(until.saturating_sub(self.context.clock.monotonic()))
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

    /// Returns the exit code: 1 where so many failed that it stopped, and where a run that drains saw
    /// a step fail; 0 where it was told to stop.
    fn ending(&self, signals: usize) -> Done {
        let failed = self.args.drain && signals == 0 && self.engine.tally().failed > 0;
        Done::of(u8::from(failed || self.failed_enough()))
    }
}
