//! What the log keeps, and what it lets go.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::event::Decided;
use crate::model::{Candidate, LocalId, Turn, Weight};

const RUNNER: RunnerId = RunnerId::new(7);

fn shard(number: u8) -> ShardId {
    ShardId::new(number).unwrap()
}

fn id(number: i64) -> StepId {
    StepId::new(shard(0), LocalId::new(number))
}

fn candidate(number: i64) -> Candidate {
    Candidate {
        id: id(number),
        band: Band::DEFAULT,
        key: "it's \"a1\"".parse().unwrap(),
        turn: Turn::stride(Weight::ONE),
    }
}

fn note(log: &DecisionLog, at: i64, slots: &[Candidate]) {
    let decided = Decided {
        shard: shard(0),
        band: Band::DEFAULT,
        seed: None,
        capacity: 8,
        slots,
    };
    log.note(Timestamp::from_millis(at), &decided);
}

#[test]
fn what_was_noted_is_read_back_once_the_log_is_dropped() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("decisions");
    let log = DecisionLog::begin(&dir, RUNNER).unwrap();
    note(&log, 1, &[candidate(2), candidate(1)]);
    note(&log, 2, &[candidate(2), candidate(1)]);
    note(&log, 3, &[candidate(2), candidate(12)]);
    drop(log);
    let known = read(&dir, RUNNER, &[id(2)]).unwrap();
    assert_eq!(known.from, Some(Timestamp::from_millis(1)));
    // The second push was the same as the first.
    let cycles: Vec<u64> = known.records.iter().map(|record| record.cycle).collect();
    assert_eq!(cycles, [1, 3]);
    let key = candidate(2).key;
    let slots = [Slot(key.clone(), 1.0, id(2)), Slot(key, 1.0, id(1))];
    assert_eq!(known.records[0].slots, slots);
    // A step is not found by a longer number, nor by a key of its name.
    assert_eq!(read(&dir, RUNNER, &[id(1)]).unwrap().records.len(), 1);
    let other = read(&dir, RunnerId::new(8), &[id(1)]).unwrap();
    assert_eq!(other, Known::default());
}

#[test]
fn only_the_owner_may_look() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("decisions");
    let log = DecisionLog::begin(&dir, RUNNER).unwrap();
    note(&log, 1, &[candidate(1)]);
    drop(log);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    assert_eq!(mode(&path(&dir, RUNNER, ENDINGS[0])), 0o600);
}

#[test]
fn what_is_too_much_is_left_out_and_counted() {
    let root = tempfile::tempdir().unwrap();
    let log = DecisionLog::begin(root.path(), RUNNER).unwrap();
    let many: Vec<Candidate> = (1..=8_193).map(candidate).collect();
    note(&log, 1, &many);
    note(&log, 2, &many);
    note(&log, 3, &many[..2]);
    drop(log);
    let known = read(root.path(), RUNNER, &[id(1)]).unwrap();
    assert_eq!(known.records.len(), 1);
    assert_eq!((known.records[0].cycle, known.records[0].left_out), (3, 2));
}

#[test]
fn a_full_log_becomes_the_predecessor_and_both_are_read() {
    let root = tempfile::tempdir().unwrap();
    for round in 0..6 {
        let log = DecisionLog::begin(root.path(), RUNNER).unwrap();
        let many: Vec<Candidate> = (1..=8_000).map(|n| candidate(n + round)).collect();
        note(&log, round, &many);
        drop(log);
    }
    let known = read(root.path(), RUNNER, &[id(4_000)]).unwrap();
    let size = |ending| fs::metadata(path(root.path(), RUNNER, ending)).map_or(0, |it| it.len());
    assert!(size(ENDINGS[1]) >= 1 << 20, "{}", size(ENDINGS[1]));
    assert!(size(ENDINGS[0]) < 1 << 20, "{}", size(ENDINGS[0]));
    assert!(!known.records.is_empty());
    assert_eq!(known.from, known.records.first().map(|record| record.at));
}

#[test]
fn half_a_line_hides_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    let log = DecisionLog::begin(root.path(), RUNNER).unwrap();
    note(&log, 1, &[candidate(1)]);
    drop(log);
    let path = path(root.path(), RUNNER, ENDINGS[0]);
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{}\n\u{0}\n{whole}", &whole[..20])).unwrap();
    assert_eq!(
        read(root.path(), RUNNER, &[id(1)]).unwrap().records.len(),
        1
    );
}

#[test]
fn a_runner_that_starts_leaves_logs_of_fifteen_others() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("not a log"), "").unwrap();
    for number in 1..=20 {
        let path = path(root.path(), RunnerId::new(number), ENDINGS[0]);
        let when = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number.unsigned_abs());
        File::create(path).unwrap().set_modified(when).unwrap();
    }
    drop(DecisionLog::begin(root.path(), RunnerId::new(99)).unwrap());
    let left = |number| path(root.path(), RunnerId::new(number), ENDINGS[0]).exists();
    let kept: Vec<i64> = (1..=20).filter(|number| left(*number)).collect();
    assert_eq!(kept, (6..=20).collect::<Vec<_>>());
    assert!(root.path().join("not a log").exists());
}
