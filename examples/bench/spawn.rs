//! Real commands: fairq beside the limit that the machine sets, and beside `xargs -P`.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::kit::{Any, Kit, SHARDS, median, rate, true_path};
use super::report::{Goal, Report};

/// As many as share the work of the larger comparison.
const KEYS: u64 = 16;

pub(crate) fn measure(kit: &Kit, report: &mut Report) -> Any<()> {
    let steps = kit.steps(50, 10_000);
    for workers in [2_usize, 8] {
        let (mut limit, mut xargs) = (Vec::new(), Vec::new());
        let (mut fairq, mut spread) = (Vec::new(), Vec::new());
        for _ in 0..kit.of(1, 3) {
            limit.push(rate(steps, bare_loop(kit, steps, workers)?));
            xargs.extend(peer(kit, steps, workers)?.map(|took| rate(steps, took)));
            fairq.push(rate(steps, drained(kit, steps, 1, workers)?));
            spread.push(rate(steps, drained(kit, steps, KEYS, workers)?));
        }
        let of = format!("{steps} x true, {workers} workers");
        report.tell(format!("{of}: bare loop"), median(&limit), "steps/s");
        report.tell(format!("{of}: fairq"), median(&fairq), "steps/s");
        let to_limit = median(&of_each(&fairq, &limit));
        let goal = Goal::AtLeast(0.85);
        report.judge(format!("{of}: fairq to bare loop"), to_limit, "×", goal);
        // What is shared fairly over several files costs more, and is another question.
        let what = format!("{of}: fairq with {KEYS} keys on {SHARDS} shards");
        report.tell(
            format!("{what} to bare loop"),
            median(&of_each(&spread, &limit)),
            "×",
        );
        if xargs.is_empty() {
            report.tell(format!("{of}: there is no xargs here"), 0.0, "steps/s");
            continue;
        }
        report.tell(format!("{of}: xargs -P"), median(&xargs), "steps/s");
        let to_xargs = median(&of_each(&fairq, &xargs));
        let goal = Goal::AtLeast(1.2);
        report.judge(format!("{of}: fairq to xargs -P"), to_xargs, "×", goal);
    }
    Ok(())
}

/// Compares what was measured in the same round.
fn of_each(own: &[f64], other: &[f64]) -> Vec<f64> {
    own.iter()
        .zip(other)
        .map(|(own, other)| own / other)
        .collect()
}

/// The least that starting a command, keeping its output and waiting for it can be: threads, each with
/// two files of its own that its children write to.
fn bare_loop(kit: &Kit, steps: u64, workers: usize) -> Any<Duration> {
    let place = kit.place()?;
    let next = AtomicU64::new(0);
    let work = |worker: usize| -> std::io::Result<()> {
        let file = |stream| File::create_new(place.path().join(format!("{worker}.{stream}")));
        let (out, err) = (file("out")?, file("err")?);
        while next.fetch_add(1, Ordering::Relaxed) < steps {
            Command::new(true_path())
                .stdin(Stdio::null())
                .stdout(out.try_clone()?)
                .stderr(err.try_clone()?)
                .status()?;
            out.metadata()?;
            err.metadata()?;
        }
        Ok(())
    };
    let (took, ()) = kit.time(|| {
        std::thread::scope(|scope| {
            let work = &work;
            let all: Vec<_> = (0..workers)
                .map(|worker| scope.spawn(move || work(worker)))
                .collect();
            for one in all {
                one.join()
                    .unwrap_or_else(|_| Err(std::io::Error::other("a worker panicked")))?;
            }
            Ok(())
        })
    })?;
    Ok(took)
}

/// `None` if there is no xargs.
fn peer(kit: &Kit, steps: u64, workers: usize) -> Any<Option<Duration>> {
    let Some(xargs) = ["/usr/bin/xargs", "/bin/xargs"]
        .into_iter()
        .find(|path| Path::new(path).exists())
    else {
        return Ok(None);
    };
    let place = kit.place()?;
    let lines = place.path().join("lines");
    let mut file = File::create_new(&lines)?;
    (0..steps).try_for_each(|line| writeln!(file, "{line}"))?;
    drop(file);
    let mut command = Command::new(xargs);
    command
        .args(["-P", &workers.to_string(), "-I{}", true_path(), "{}"])
        .stdin(File::open(&lines)?)
        .stdout(Stdio::null());
    let took = kit.ended_well(&mut command)?;
    fs::remove_file(lines)?;
    Ok(Some(took))
}

/// The runner's whole life counts, from its start to the last outcome that is recorded. Steps of one
/// key lie on one shard, as those of somebody who names no key.
fn drained(kit: &Kit, steps: u64, keys: u64, workers: usize) -> Any<Duration> {
    let store = kit.filled(SHARDS, steps, keys)?;
    let args = [
        "run",
        "--drain",
        "--quiet",
        "--workers",
        &workers.to_string(),
    ];
    kit.fairq(store.path(), &args)
}
