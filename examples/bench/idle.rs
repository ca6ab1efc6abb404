//! What a runner costs that has nothing to do.

use std::time::Duration;

use fairq::store::sqlite::Mode;

use super::kit::{Any, Kit, SHARDS};
use super::report::{Goal, Report};
use super::runner::Serving;

pub(crate) fn measure(kit: &Kit, report: &mut Report) -> Any<()> {
    let (place, _) = kit.store(SHARDS, Mode::Visit)?;
    let serving = Serving::start(kit, place.path())?;
    // What it does at its start is not what it does all night.
    kit.rest(kit.of(Duration::from_millis(100), Duration::from_secs(3)));
    let watched = kit.of(Duration::from_millis(500), Duration::from_secs(30));
    let before = serving.spent()?;
    kit.rest(watched);
    let spent = serving.spent()?.saturating_sub(before);
    serving.end()?;
    let part = spent.as_secs_f64() / watched.as_secs_f64() * 100.0;
    let what = "an idle runner, of one core";
    report.judge(what, part, "%", Goal::AtMost(0.1));
    Ok(())
}
