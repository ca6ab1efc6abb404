//! Steps that do nothing, through the whole engine: what fairq itself costs, and where that goes.

use std::sync::Arc;
use std::time::Duration;

use fairq::crew::executor::Executor;
use fairq::crew::shell::Shell;
use fairq::event::NoSink;
use fairq::model::RunnerId;
use fairq::store::Store;
use fairq::store::sqlite::Mode;

use super::engine::{Done, Job, Nothing};
use super::kit::{Any, Kit, SHARDS, median, micros, rate};
use super::report::{Goal, Report};
use super::timed::{Stage, Stages, Timed, TimedExecutor, TimedSink};

/// So many keys are due.
const KEYS: u64 = 16;
/// The crew of which most is asked.
const CREW: usize = 64;

pub(crate) fn measure(kit: &Kit, report: &mut Report) -> Any<()> {
    let steps = kit.steps(500, 100_000);
    for workers in [8, CREW, 256] {
        let rates: Vec<f64> = (0..kit.of(1, 3))
            .map(|_| {
                let done = run(kit, steps, workers, None, false)?;
                Ok(rate(done.steps, done.took))
            })
            .collect::<Any<_>>()?;
        let what = format!("{steps} no-op steps, {SHARDS} shards, {workers} workers");
        if workers == CREW {
            let goal = Goal::AtLeast(20_000.0);
            report.judge(what, median(&rates), "steps/s", goal);
        } else {
            report.tell(what, median(&rates), "steps/s");
        }
    }
    anatomy(kit, report, "no-op steps", steps, CREW, false)?;
    let steps = kit.steps(50, 10_000);
    anatomy(kit, report, "true", steps, 2, true)
}

fn run(
    kit: &Kit,
    steps: u64,
    workers: usize,
    stages: Option<&Arc<Stages>>,
    real: bool,
) -> Any<Done> {
    let (place, store) = kit.store(SHARDS, Mode::Serve)?;
    kit.fill(&store, steps, KEYS)?;
    let mut store = store as Arc<dyn Store>;
    let captures = kit.place()?;
    let shell = Arc::new(Shell::new(
        place.path().to_owned(),
        captures.path().to_owned(),
        65_536,
        Arc::clone(&kit.clock),
    )?);
    let mut executor: Arc<dyn Executor> = if real {
        Arc::clone(&shell) as Arc<_>
    } else {
        Nothing::telling(&kit.clock, || ())
    };
    let mut sink: Arc<dyn fairq::event::Sink> = Arc::new(NoSink);
    if let Some(stages) = stages {
        let stages = || Arc::clone(stages);
        store = Arc::new(Timed {
            store,
            stages: stages(),
        });
        executor = Arc::new(TimedExecutor {
            executor,
            stages: stages(),
        });
        sink = Arc::new(TimedSink(stages()));
    }
    let job = Job {
        store,
        executor,
        sink,
        workers,
        runner: RunnerId::new(1),
        neighbours: None,
    };
    let done = job.drain(&kit.clock)?;
    shell.close();
    if done.steps == steps {
        Ok(done)
    } else {
        Err(format!("{} of {steps} steps were run", done.steps).into())
    }
}

/// Tells where the time goes: what each stage takes of the clock, and what each kind of thread takes of
/// the processors. Two runs, since timing costs time.
fn anatomy(
    kit: &Kit,
    report: &mut Report,
    of: &str,
    steps: u64,
    workers: usize,
    real: bool,
) -> Any<()> {
    let stages = Stages::new(&kit.clock);
    run(kit, steps, workers, Some(&stages), real)?;
    let title = format!("By the clock, {steps} {of}, {workers} workers");
    for stage in Stage::ALL {
        let (count, took) = stages.of(stage);
        let each = micros(took) / (count as f64).max(1.0);
        let often = count as f64 / steps as f64;
        report.share(&title, stage.words(), often, each);
    }
    let done = run(kit, steps, workers, None, real)?;
    let title = format!("By the processor, {steps} {of}, {workers} workers");
    let mut all = Duration::ZERO;
    for (kind, spent) in &done.spent {
        all += *spent;
        let what = (kind.as_str(), "all threads of this kind");
        report.share(&title, what, 1.0, micros(*spent) / steps as f64);
    }
    let whole = micros(all) / steps as f64;
    report.share(&title, ("all", "processes of steps left out"), 1.0, whole);
    let clock = micros(done.took) / steps as f64;
    report.share(&title, ("clock", "the whole run by the clock"), 1.0, clock);
    Ok(())
}
