//! What a runner answers to those who ask it through its control socket.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use nix::sys::signal::Signal;
use serde::Serialize;
use serde_json::Value;

use super::inspect::picture::Picture;
use crate::ambient::Clock;
use crate::config::MAX_WORKERS;
use crate::crew::{CrewView, RunningStep};
use crate::engine::{Engine, Tally};
use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::model::{Durations, RunnerId, ShardId, StepId, Timestamp};
use crate::presence::Card;
use crate::presence::control::{Answerer, Control, Question};
use crate::refiller::ShardStatus;
use crate::store::sqlite::{PoolStats, SqliteStore, WriterStats};

/// Where the answers come from.
///
/// The engine and the store are held loosely: who asks late must not keep either alive.
pub(super) struct Answers {
    runner: RunnerId,
    card: Card,
    engine: Weak<Engine>,
    store: Weak<SqliteStore>,
    clock: Arc<dyn Clock>,
}

#[derive(Serialize)]
struct PoolJson {
    shard: ShardId,
    #[serde(flatten)]
    pool: PoolStats,
}

#[derive(Serialize)]
struct RunnerJson {
    runner: RunnerId,
    pid: u32,
    started: String,
    uptime_ms: u64,
    pick: &'static str,
    crew: CrewJson,
    steps: Tally,
    wait_ms: Durations,
    run_ms: Durations,
    shards: Vec<ShardJson>,
}

#[derive(Serialize)]
struct CrewJson {
    workers: usize,
    resident: usize,
    idle: usize,
    claims_won: u64,
    claims_lost: u64,
    claims_failed: u64,
    running: Vec<RunningJson>,
}

#[derive(Serialize)]
struct RunningJson {
    id: StepId,
    key: String,
    band: u32,
    worker: u32,
    pid: Option<u32>,
    fence: u32,
    claimed: String,
    running_ms: u64,
}

#[derive(Serialize)]
struct ShardJson {
    shard: ShardId,
    tallied_ms_ago: Option<u64>,
    #[serde(flatten)]
    status: ShardStatus,
    writer: WriterStats,
}

/// Answers through a runner's socket until it is closed.
pub(super) fn serve(control: &Arc<Control>, answers: Answers) -> Result<JoinHandle<()>> {
    let serving = Arc::clone(control);
    let answer: Answerer = Arc::new(move |question| answers.to(question));
    std::thread::Builder::new()
        .name("control-socket".to_owned())
        .spawn(move || serving.serve(&answer))
        .or_fail(ErrorKind::Unavailable, || {
            "cannot start a thread".to_owned()
        })
}

impl Answers {
    pub(super) fn new(
        runner: RunnerId,
        card: Card,
        engine: &Arc<Engine>,
        store: &Arc<SqliteStore>,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        Self {
            runner,
            card,
            engine: Arc::downgrade(engine),
            store: Arc::downgrade(store),
            clock: Arc::clone(clock),
        }
    }

    fn to(&self, question: &Question) -> Result<Value> {
        let leaving = || Error::new(ErrorKind::Unavailable, "this runner is about to leave");
        let engine = self.engine.upgrade().ok_or_else(leaving)?;
        let store = self.store.upgrade().ok_or_else(leaving)?;
        match question {
            Question::Cache => json(&engine.cache()),
            Question::Crew => json(&engine.crew()),
            Question::Plan => json(&self.plan(&engine)),
            Question::Pool => json(&pools(&store)),
            Question::Runner => json(&self.runner(&engine, &store)),
            Question::Resize { workers } => {
                if !(1..=MAX_WORKERS as usize).contains(workers) {
                    return Err(Error::new(
                        ErrorKind::Usage,
                        format!("a runner has 1 to {MAX_WORKERS} workers"),
                    ));
                }
                engine.resize(*workers);
                json(&serde_json::json!({ "workers": workers }))
            }
            Question::Signal { steps, signal } => {
                if Signal::try_from(*signal).is_err() {
                    let text = format!("{signal} is not a signal");
                    return Err(Error::new(ErrorKind::Usage, text));
                }
                let signalled = engine.signal(steps, *signal);
                json(&serde_json::json!({ "signalled": signalled }))
            }
        }
    }

    fn plan(&self, engine: &Engine) -> Picture {
        let planner = engine.planner();
        let made = planner.last_made().unwrap_or_default();
        let errors = engine.shards().into_iter().map(|shard| shard.error);
        let mut picture = Picture::of(planner.pick(), &made, errors, self.clock.now());
        picture.runner = Some(self.runner.to_string());
        picture.pid = Some(self.card.pid);
        picture
    }

    fn runner(&self, engine: &Engine, store: &SqliteStore) -> RunnerJson {
        let now = self.clock.now();
        let tally = engine.tally();
        let board = engine.planner().board();
        let shards = ShardId::first(ShardId::MAX_SHARDS)
            .zip(engine.shards())
            .zip(store.writers())
            .map(|((shard, status), writer)| ShardJson {
                shard,
                tallied_ms_ago: board.age_of(shard, now).map(crate::model::Span::millis),
                status,
                writer,
            });
        RunnerJson {
            runner: self.runner,
            pid: self.card.pid,
            started: self.card.started.to_string(),
            uptime_ms: now.since(self.card.started).millis(),
            pick: engine.planner().pick().word(),
            crew: CrewJson::of(engine.crew(), now),
            wait_ms: tally.waited.clone(),
            run_ms: tally.ran.clone(),
            steps: tally,
            shards: shards.collect(),
        }
    }
}

impl CrewJson {
    fn of(crew: CrewView, now: Timestamp) -> Self {
        let running = |step: RunningStep| RunningJson {
            id: step.id,
            key: step.key.to_string(),
            band: step.band.get(),
            worker: step.worker,
            pid: step.pid,
            fence: step.fence,
            claimed: step.claimed.to_string(),
            running_ms: now.since(step.claimed).millis(),
        };
        Self {
            workers: crew.workers,
            resident: crew.resident,
            idle: crew.idle,
            claims_won: crew.claims_won,
            claims_lost: crew.claims_lost,
            claims_failed: crew.claims_failed,
            running: crew.running.into_iter().map(running).collect(),
        }
    }
}

fn pools(store: &SqliteStore) -> Vec<PoolJson> {
    ShardId::first(ShardId::MAX_SHARDS)
        .zip(store.pools())
        .map(|(shard, pool)| PoolJson { shard, pool })
        .collect()
}

fn json(value: &impl Serialize) -> Result<Value> {
    serde_json::to_value(value).or_fail(ErrorKind::Internal, || "cannot write JSON".to_owned())
}
