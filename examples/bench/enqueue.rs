//! Putting steps in: many by one command, and one by a command each.

use std::fs::File;
use std::io::{BufWriter, Write as _};

use fairq::store::sqlite::Mode;

use super::kit::{Any, FAIRQ, Kit, ONE_COMMIT, SHARDS, median, millis, named, rate};
use super::one_commit;
use super::report::{Goal, Report};

pub(crate) fn measure(kit: &Kit, report: &mut Report) -> Any<()> {
    many(kit, report)?;
    one(kit, report)
}

fn many(kit: &Kit, report: &mut Report) -> Any<()> {
    let steps = kit.steps(1_000, 200_000);
    let place = kit.place()?;
    let lines = place.path().join("lines");
    let mut file = BufWriter::new(File::create_new(&lines)?);
    (0..steps).try_for_each(|line| writeln!(file, "convert image-{line}.png image-{line}.jpg"))?;
    file.flush()?;
    let mut rates = Vec::new();
    for _ in 0..kit.of(1, 3) {
        let (store, _) = kit.store(SHARDS, Mode::Visit)?;
        let mut command = named(FAIRQ)?;
        command
            .args(["enqueue", "--quiet", "--from", "-"])
            .env("FAIRQ_STORE", store.path())
            .stdin(File::open(&lines)?);
        rates.push(rate(steps, kit.ended_well(&mut command)?));
    }
    let what = format!("{steps} lines into one enqueue");
    report.judge(what, median(&rates), "steps/s", Goal::AtLeast(100_000.0));
    Ok(())
}

fn one(kit: &Kit, report: &mut Report) -> Any<()> {
    let backlog = kit.steps(2_000, 1_000_000);
    let place = kit.place()?;
    let raw = place.path().join("raw.db");
    one_commit::make(&raw)?;
    let (empty, _) = kit.store(SHARDS, Mode::Visit)?;
    let full = kit.filled(SHARDS, backlog, 16)?;
    let (mut least, mut into_empty, mut into_full) = (Vec::new(), Vec::new(), Vec::new());
    let mut nothing = Vec::new();
    // In turns, so that whatever the machine does meanwhile is done to all.
    for _ in 0..kit.of(3, 300) {
        let mut command = named(ONE_COMMIT)?;
        least.push(millis(kit.ended_well(command.arg(&raw))?));
        let args = ["enqueue", "--quiet", "true"];
        into_empty.push(millis(kit.fairq(empty.path(), &args)?));
        into_full.push(millis(kit.fairq(full.path(), &args)?));
        nothing.push(millis(kit.fairq(empty.path(), &["--version"])?));
    }
    report.tell("fairq --version", median(&nothing), "ms");
    report.tell("open, one FULL commit, close", median(&least), "ms");
    report.tell("one enqueue", median(&into_empty), "ms");
    report.judge(
        "one enqueue to open, one FULL commit, close",
        median(&into_empty) / median(&least),
        "×",
        Goal::AtMost(1.3),
    );
    report.judge(
        format!("one enqueue with {backlog} queued to one with none"),
        median(&into_full) / median(&into_empty),
        "×",
        Goal::AtMost(1.1),
    );
    Ok(())
}
