//! One plan, as a runner makes it: a shard reports something new, all reports are merged, slots are
//! given. `cargo bench --bench pure` has the other sizes.

use std::hint::black_box;
use std::sync::Arc;

use fairq::model::{Band, ShardId, Weight};
use fairq::planner::{Pick, Planner};
use fairq::tally::{ShardTally, Tally};

use super::kit::{Any, Kit, SHARDS, median, millis};
use super::report::{Goal, Report};

const SLOTS: usize = 256;

pub(crate) fn measure(kit: &Kit, report: &mut Report) -> Any<()> {
    let now = kit.clock.now();
    for keys in [1_000_u32, 10_000] {
        let tallies: Vec<Tally> = (0..keys)
            .map(|number| {
                Ok(Tally {
                    key: format!("key-{number:05}").parse()?,
                    count: 1_000,
                    since: now,
                    weight: Weight::ONE,
                })
            })
            .collect::<Any<_>>()?;
        let planner = Planner::new(Pick::Stride, 1);
        // Each key on one shard, as stores are made if nobody says otherwise.
        let mut reports = Vec::new();
        for (shard, part) in ShardId::first(SHARDS).zip(tallies.chunks(keys as usize / 4)) {
            planner.tally(shard, ShardTally::new(Band::DEFAULT, part.to_vec()), now);
            reports.push((shard, part));
        }
        let (mut same, mut news) = (Vec::new(), Vec::new());
        for turn in 0..kit.of(5, 500) {
            let (shard, part) = reports[turn % reports.len()];
            let report = Arc::new(ShardTally::new(Band::DEFAULT, part.to_vec()));
            let (took, _) = kit.time(|| {
                planner.tally(shard, report, now);
                Ok(black_box(planner.plan(shard, SLOTS)))
            })?;
            news.push(millis(took));
            let (took, _) = kit.time(|| Ok(black_box(planner.plan(shard, SLOTS))))?;
            same.push(millis(took));
        }
        let of = format!("{keys} keys x {SLOTS} slots");
        if keys == 1_000 {
            let what = format!("plan, {of}");
            report.judge(what, median(&same), "ms", Goal::AtMost(0.1));
        } else {
            report.tell(format!("plan, {of}"), median(&same), "ms");
        }
        report.tell(format!("report, merge and plan, {of}"), median(&news), "ms");
    }
    Ok(())
}
