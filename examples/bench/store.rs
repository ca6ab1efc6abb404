//! The store's own calls, on one shard: what a refiller reads and what a worker writes, with few and
//! many steps and keys.

use std::sync::{Arc, mpsc};

use fairq::model::{
    Band, Candidate, Captured, Claim, Ending, FairnessKey, Finished, RunnerId, Settlement, ShardId,
    StepId, Turn, Verdict,
};
use fairq::store::sqlite::{Mode, SqliteStore};
use fairq::store::{Claims as _, Lease, Settle as _, Supply as _, Want};

use super::kit::{Any, Kit, median, micros, millis};
use super::report::{Goal, Report};

/// How many steps a batch has.
const BATCH: usize = 100;

/// What was measured on one store.
struct Measured {
    tally: f64,
    fetch: f64,
    claim: f64,
    settle: f64,
    claim_batch: f64,
    settle_batch: f64,
}

pub(crate) fn measure(kit: &Kit, report: &mut Report) -> Any<()> {
    let least = kit.steps(1_000, 10_000);
    let mut sizes = vec![
        least,
        kit.steps(5_000, 1_000_000),
        kit.steps(5_000, 10_000_000),
    ];
    sizes.dedup();
    for keys in [1, kit.of(100, 1_000), kit.of(1_000, 10_000)] {
        let mut first = None;
        for steps in &sizes {
            let found = one_store(kit, *steps, keys)?;
            let of = format!("{steps} steps x {keys} keys");
            let goal = match keys {
                1_000 => Some(0.5),
                10_000 => Some(6.0),
                _ => None,
            };
            match goal {
                Some(most) => {
                    report.judge(
                        format!("tally, {of}"),
                        found.tally,
                        "ms",
                        Goal::AtMost(most),
                    );
                }
                None => report.tell(format!("tally, {of}"), found.tally, "ms"),
            }
            report.tell(format!("fetch of 16 keys x 16, {of}"), found.fetch, "ms");
            report.tell(format!("claim one, {of}"), found.claim, "µs");
            report.tell(format!("settle one, {of}"), found.settle, "µs");
            let each = format!("of {BATCH} at once, {of}");
            report.tell(format!("claim each {each}"), found.claim_batch, "µs");
            report.tell(format!("settle each {each}"), found.settle_batch, "µs");
            let first = *first.get_or_insert(found.tally);
            if *steps > least {
                let what = format!("tally of {steps} steps to that of {least}, {keys} keys");
                report.judge(what, found.tally / first, "×", Goal::AtMost(1.3));
            }
        }
    }
    Ok(())
}

fn one_store(kit: &Kit, steps: u64, keys: u64) -> Any<Measured> {
    let (place, store) = kit.store(1, Mode::Serve)?;
    kit.fill(&store, steps, keys)?;
    let shard = ShardId::new(0).ok_or("no shard")?;
    let times = kit.of(3, 100);
    let mut tally = Vec::new();
    let mut fetch = Vec::new();
    for _ in 0..times {
        let (took, seen) = kit.time(|| Ok(store.tally(shard)?))?;
        tally.push(millis(took));
        let wants: Vec<Want> = seen
            .keys()
            .iter()
            .take(16)
            .map(|tally| Want {
                key: tally.key.clone(),
                count: 16,
            })
            .collect();
        let (took, _) = kit.time(|| Ok(store.fetch(shard, Band::DEFAULT, &wants)?))?;
        fetch.push(millis(took));
    }
    let (claim, settle) = cycles(kit, &store, 1, times)?;
    let (claim_batch, settle_batch) = cycles(kit, &store, BATCH, times.min(30))?;
    drop(store);
    drop(place);
    Ok(Measured {
        tally: median(&tally),
        fetch: median(&fetch),
        claim,
        settle,
        claim_batch,
        settle_batch,
    })
}

/// Claims and settles batches of steps of the shard `a`; returns what one step took of each.
fn cycles(kit: &Kit, store: &Arc<SqliteStore>, batch: usize, times: usize) -> Any<(f64, f64)> {
    let (mut claim, mut settle) = (Vec::new(), Vec::new());
    for _ in 0..times {
        let due = due(store, batch)?;
        let (took, claims) = kit.time(|| claimed(kit, store, &due))?;
        claim.push(micros(took) / batch as f64);
        let (took, ()) = kit.time(|| settled(kit, store, &claims))?;
        settle.push(micros(took) / batch as f64);
    }
    Ok((median(&claim), median(&settle)))
}

/// Returns the next due steps of a store's first shard, of as many keys as it takes.
fn due(store: &SqliteStore, count: usize) -> Any<Vec<Candidate>> {
    let shard = ShardId::new(0).ok_or("no shard")?;
    due_on(store, shard, count)
}

/// Returns the next due steps of a shard, at most so many.
fn due_on(store: &SqliteStore, shard: ShardId, count: usize) -> Any<Vec<Candidate>> {
    let seen = store.tally(shard)?;
    let Some(band) = seen.band() else {
        return Ok(Vec::new());
    };
    let wants: Vec<Want> = seen
        .keys()
        .iter()
        .take(count)
        .map(|tally| Want {
            key: tally.key.clone(),
            count: u32::try_from(count).unwrap_or(u32::MAX),
        })
        .collect();
    let keys: Vec<FairnessKey> = wants.iter().map(|want| want.key.clone()).collect();
    let found = store.fetch(shard, band, &wants)?;
    let steps = keys.into_iter().zip(found);
    let steps = steps.flat_map(|(key, ids)| ids.into_iter().map(move |id| (key.clone(), id)));
    Ok(steps
        .take(count)
        .map(|(key, local)| Candidate {
            id: StepId::new(shard, local),
            band,
            key,
            turn: Turn::ZERO,
        })
        .collect())
}

/// Claims steps, all of which must be there to be had.
fn claimed(kit: &Kit, store: &SqliteStore, due: &[Candidate]) -> Any<Vec<Claim>> {
    let Some(first) = due.first() else {
        return Ok(Vec::new());
    };
    let now = kit.clock.now();
    let lease = Lease {
        runner: RunnerId::new(1),
        until: now,
    };
    let claims = store.claim(first.id.shard, due, lease, now)?;
    let claims: Option<Vec<Claim>> = claims.into_iter().collect();
    Ok(claims.ok_or("a step was claimed by nobody else and lost")?)
}

/// Records that claimed steps of one shard have ended well.
fn settled(kit: &Kit, store: &SqliteStore, claims: &[Claim]) -> Any<()> {
    let Some(first) = claims.first() else {
        return Ok(());
    };
    let now = kit.clock.now();
    let settlements: Arc<[Settlement]> = claims
        .iter()
        .map(|claim| Settlement {
            finished: Finished {
                id: claim.id,
                runner: claim.runner,
                fence: claim.fence,
                attempt: claim.attempt,
                ending: Ending::Exited { code: 0 },
                started: Some(now),
                ended: now,
                worker: 0,
                stdout: Captured::Empty,
                stderr: Captured::Empty,
            },
            verdict: Verdict::Succeeded,
        })
        .collect();
    let (tell, told) = mpsc::channel();
    let after = move |outcome| drop(tell.send(outcome));
    store.settle(first.id.shard, settlements, Box::new(after));
    told.recv()??;
    Ok(())
}

/// Lets half of the steps of a store end well, without running anything.
pub(crate) fn finish_half(kit: &Kit, store: &SqliteStore, steps: u64) -> Any<()> {
    let mut left = usize::try_from(steps / 2)?;
    while left > 0 {
        let before = left;
        for shard in ShardId::first(super::kit::SHARDS) {
            let due = due_on(store, shard, left.min(1_000))?;
            left -= due.len();
            settled(kit, store, &claimed(kit, store, &due)?)?;
        }
        if left == before {
            return Err("there are too few steps".into());
        }
    }
    Ok(())
}
