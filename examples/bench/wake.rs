//! From an enqueue in one process to the start of the step in another that was asleep.

use std::time::Duration;

use fairq::ambient::Dice;
use fairq::presence::bell;
use fairq::store::Intake as _;
use fairq::store::sqlite::{Mode, runners_dir};

use super::kit::{Any, Kit, SHARDS, millis, quantile, step};
use super::report::{Goal, Report};
use super::runner::NoopRunner;

pub(crate) fn measure(kit: &Kit, report: &mut Report) -> Any<()> {
    let (place, store) = kit.store(SHARDS, Mode::Visit)?;
    let runners = runners_dir(place.path());
    let mut runner = NoopRunner::start(place.path(), 2, false)?;
    let mut took = Vec::new();
    let mut dice = Dice::seeded(1);
    for _ in 0..kit.of(10, 1_000) {
        // Long enough to fall asleep, and never in step with anything that turns regularly.
        kit.rest(Duration::from_micros(5_000 + dice.below(10_000)));
        let ids = store.enqueue(&[step()], kit.clock.now())?;
        let shards: Vec<_> = ids.iter().map(|id| id.shard).collect();
        let (waited, ()) = kit.time(|| {
            bell::ring(&runners, &shards);
            runner.step()
        })?;
        took.push(millis(waited));
    }
    runner.end()?;
    let what = "from the end of an enqueue to the claimed step in another process";
    let (middle, late) = (quantile(&took, 0.5), quantile(&took, 0.99));
    report.judge(format!("{what}, median"), middle, "ms", Goal::AtMost(3.0));
    report.judge(format!("{what}, p99"), late, "ms", Goal::AtMost(10.0));
    Ok(())
}
