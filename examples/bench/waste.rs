//! Work for nothing: hints that a refill threw away again, and claims that came too late.

use super::kit::{Any, Kit, SHARDS};
use super::report::{Goal, Report};
use super::runner::{NoopRunner, Told};

/// How many steps each runner runs at once.
const WORKERS: usize = 4;

pub(crate) fn measure(kit: &Kit, report: &mut Report) -> Any<()> {
    for (real, of) in [(false, "no-op steps"), (true, "true")] {
        for runners in [1, 3] {
            let steps = kit.steps(200, if real { 6_000 } else { 60_000 });
            let told = race(kit, runners, steps, real)?;
            let of = format!("{steps} x {of}, {runners} runners of {WORKERS} workers");
            let percent = |part: u64, all: u64| part as f64 / all.max(1) as f64 * 100.0;
            let thrown = percent(told.discarded, told.selected);
            let what = format!("hints thrown away, {of}");
            report.judge(what, thrown, "%", Goal::AtMost(5.0));
            let lost = percent(told.lost, told.won + told.lost);
            let most = if runners == 1 { 0.5 } else { 2.0 };
            report.judge(format!("claims lost, {of}"), lost, "%", Goal::AtMost(most));
        }
    }
    Ok(())
}

/// Lets runners run all steps of a store, and returns what they have done together.
fn race(kit: &Kit, runners: usize, steps: u64, real: bool) -> Any<Told> {
    let store = kit.filled(SHARDS, steps, 16)?;
    let mut all: Vec<NoopRunner> = (0..runners)
        .map(|_| NoopRunner::start(store.path(), WORKERS, real))
        .collect::<Any<_>>()?;
    // What they say has to be read, or they would wait for us: each by a thread of its own.
    all.iter_mut().for_each(NoopRunner::let_go);
    let ends: Vec<Result<Told, String>> = std::thread::scope(|scope| {
        let waiting: Vec<_> = all
            .into_iter()
            .map(|runner| scope.spawn(|| runner.end().map_err(|error| error.to_string())))
            .collect();
        waiting
            .into_iter()
            .map(|one| {
                one.join()
                    .unwrap_or_else(|_| Err("a thread panicked".to_owned()))
            })
            .collect()
    });
    let mut sum = Told::default();
    for end in ends {
        let told = end?;
        sum.steps += told.steps;
        sum.selected += told.selected;
        sum.discarded += told.discarded;
        sum.won += told.won;
        sum.lost += told.lost;
    }
    if sum.steps == steps {
        Ok(sum)
    } else {
        Err(format!("{} of {steps} steps were run", sum.steps).into())
    }
}
