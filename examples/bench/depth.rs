//! Whether a long queue costs anything: throughput and memory with ten million steps queued beside
//! those with ten thousand and none.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairq::event::NoSink;
use fairq::model::RunnerId;
use fairq::store::sqlite::Mode;

use super::engine::{Job, Nothing};
use super::kit::{Any, Kit, SHARDS, median, rate};
use super::report::{Goal, Report};
use super::runner::Serving;

const WORKERS: usize = 64;
const ROUNDS: u64 = 5;

pub(crate) fn measure(kit: &Kit, report: &mut Report) -> Any<()> {
    let many = kit.steps(5_000, 10_000_000);
    // Each round takes half as many of the deep one.
    let few = kit.steps(1_000, 10_000).min(many / ROUNDS);
    let deep = kit.filled(SHARDS, many, 16)?;
    let (mut shallow_rates, mut deep_rates) = (Vec::new(), Vec::new());
    for _ in 0..kit.of(1, ROUNDS) {
        let shallow = kit.filled(SHARDS, few, 16)?;
        shallow_rates.push(throughput(kit, shallow.path(), few / 2)?);
        deep_rates.push(throughput(kit, deep.path(), few / 2)?);
    }
    let told = |queued| format!("no-op steps with {queued} queued, {WORKERS} workers");
    report.tell(told(few), median(&shallow_rates), "steps/s");
    report.tell(told(many), median(&deep_rates), "steps/s");
    report.judge(
        format!("throughput with {many} queued to that with {few}"),
        median(&deep_rates) / median(&shallow_rates),
        "×",
        Goal::AtLeast(0.9),
    );
    let (empty, _) = kit.store(SHARDS, Mode::Visit)?;
    let none = memory(kit, empty.path())?;
    let some = memory(kit, deep.path())?;
    report.tell("peak memory of a runner with nothing queued", none, "MiB");
    report.judge(
        format!("peak memory of a runner with {many} queued, above that"),
        some - none,
        "MiB",
        Goal::AtMost(64.0),
    );
    Ok(())
}

/// Runs so many no-op steps of a store and leaves the others.
fn throughput(kit: &Kit, store: &Path, steps: u64) -> Any<f64> {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let job = Job {
        store: kit.open(store, Mode::Serve)?,
        executor: Nothing::telling(&kit.clock, move || {
            counted.fetch_add(1, Ordering::Relaxed);
        }),
        sink: Arc::new(NoSink),
        workers: WORKERS,
        runner: RunnerId::new(1),
        neighbours: None,
    };
    let done = job.upto(&kit.clock, &count, steps)?;
    Ok(rate(steps, done.took))
}

/// Returns the most memory that `fairq run` takes while it runs commands of a store for a while.
fn memory(kit: &Kit, store: &Path) -> Any<f64> {
    let serving = Serving::start(kit, store)?;
    kit.rest(kit.of(Duration::from_millis(200), Duration::from_secs(5)));
    let peak = serving.peak_mib()?;
    serving.end()?;
    Ok(peak)
}
