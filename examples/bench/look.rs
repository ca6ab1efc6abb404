//! Looking at a million steps, half of which are over.

use fairq::store::sqlite::Mode;

use super::kit::{Any, Kit, SHARDS, median, millis};
use super::report::{Goal, Report};
use super::store::finish_half;

pub(crate) fn measure(kit: &Kit, report: &mut Report) -> Any<()> {
    let steps = kit.steps(2_000, 1_000_000);
    let (place, store) = kit.store(SHARDS, Mode::Serve)?;
    kit.fill(&store, steps, 16)?;
    finish_half(kit, &store, steps)?;
    let over = a_step(&store, true)?;
    let due = a_step(&store, false)?;
    drop(store);
    let looks: [(&str, &[&str], f64); 3] = [
        ("status", &["status"], 100.0),
        ("explain of a step that is due", &["explain", &due], 50.0),
        ("explain of a step that is over", &["explain", &over], 50.0),
    ];
    let mut took = [const { Vec::new() }; 3];
    for _ in 0..kit.of(2, 30) {
        for ((_, args, _), took) in looks.iter().zip(&mut took) {
            took.push(millis(kit.fairq(place.path(), args)?));
        }
    }
    for ((what, _, most), took) in looks.iter().zip(&took) {
        let what = format!("{what}, {steps} steps, half of them over");
        report.judge(what, median(took), "ms", Goal::AtMost(*most));
    }
    Ok(())
}

/// Returns a step that is over, or one that is due.
fn a_step(store: &fairq::store::sqlite::SqliteStore, is_over: bool) -> Any<String> {
    use fairq::model::StepState;
    use fairq::store::{Filter, Order, Read as _};
    let filter = Filter {
        states: vec![if is_over {
            StepState::Succeeded
        } else {
            StepState::Ready
        }],
        order: Order::Newest,
        limit: Some(1),
        ..Filter::default()
    };
    let found = store.list(&filter)?;
    let step = found.first().ok_or("no such step")?;
    Ok(step.id.to_string())
}
