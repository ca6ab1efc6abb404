//! What a journal tells, and what of it is believed.

use std::fs;

use super::*;

const BIRTH: Birth = Birth {
    pid: 4711,
    after: 99,
    before: 101,
};

fn id(text: &str) -> StepId {
    text.parse().unwrap()
}

fn written() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let journal = Arc::new(Journal::create(&path).unwrap());
    std::mem::forget(journal.note(LEFT_BEHIND()).unwrap());
    journal.about_to_start(3, id("b7"), 2).unwrap();
    journal.about_to_start(0, id("a1"), 9).unwrap();
    journal.running(0, id("a1"), 9, BIRTH).unwrap();
    journal.running(1, id("a2"), 1, BIRTH).unwrap();
    journal.clear(1).unwrap();
    (dir, path)
}

const RUNS: fn() -> SlotState = || SlotState::Running {
    id: id("a1"),
    fence: 9,
    birth: BIRTH,
};

const LEFT_BEHIND: fn() -> Left = || Left {
    id: id("c4"),
    group: 4712,
    member: ProcessIdentity {
        pid: 4713,
        start_ticks: 102,
    },
};

#[test]
fn a_journal_tells_who_wrote_it_and_what_each_worker_was_at() {
    let (_dir, path) = written();
    let testament = Testament::read(&path).unwrap();
    let ourselves = ProcessIdentity::of(std::process::id()).unwrap();
    let boot = BootId::current().unwrap();
    assert_eq!(testament.runner, Some((boot, ourselves)));
    let starts = SlotState::AboutToStart {
        id: id("b7"),
        fence: 2,
    };
    assert_eq!(
        testament.slots,
        [RUNS(), SlotState::Idle, SlotState::Idle, starts]
    );
    assert_eq!(testament.left, [LEFT_BEHIND()]);
}

#[test]
fn a_journal_that_is_there_is_not_written_over() {
    let (_dir, path) = written();
    assert!(Journal::create(&path).is_err());
    assert_eq!(Testament::read(&path).unwrap().slots[0], RUNS());
}

#[test]
fn no_single_wrong_byte_is_believed() {
    let (_dir, path) = written();
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        let testament = Testament::parse(&bytes);
        match at / RECORD {
            0 => assert_eq!(testament.runner, None, "byte {at}"),
            odd if odd % 2 == 1 => {
                assert_eq!(testament.slots[odd / 2], SlotState::Damaged, "byte {at}");
            }
            2 => assert!(testament.left.is_empty(), "byte {at}"),
            // Nothing was there.
            _ => assert_eq!(testament.left, [LEFT_BEHIND()], "byte {at}"),
        }
    }
}

#[test]
fn a_journal_that_was_cut_off_gives_what_is_whole() {
    let (_dir, path) = written();
    let whole = fs::read(&path).unwrap();
    let all = Testament::parse(&whole);
    for length in 0..whole.len() {
        let cut = Testament::parse(&whole[..length]);
        assert_eq!(cut.runner.is_some(), length >= RECORD, "{length} bytes");
        assert_eq!(
            cut.left.len(),
            usize::from(length >= 3 * RECORD),
            "{length}"
        );
        for (worker, state) in cut.slots.iter().enumerate() {
            let is_whole = length >= (2 * worker + 2) * RECORD;
            let may_be = *state == all.slots[worker] || *state == SlotState::Damaged;
            assert!(
                may_be && (!is_whole || *state == all.slots[worker]),
                "{length} bytes"
            );
        }
    }
}

#[test]
fn a_record_in_the_wrong_place_is_not_believed() {
    let (_dir, path) = written();
    let mut bytes = fs::read(&path).unwrap();
    let first = bytes[RECORD..2 * RECORD].to_vec();
    for place in [2, 3] {
        bytes[place * RECORD..][..RECORD].copy_from_slice(&first);
    }
    let testament = Testament::parse(&bytes);
    assert_eq!(testament.slots[1], SlotState::Damaged);
    assert!(testament.left.is_empty());
}

#[test]
fn what_was_left_behind_is_told_until_it_is_gone_whatever_else_comes_and_goes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let journal = Arc::new(Journal::create(&path).unwrap());
    let left = |group| Left {
        group,
        ..LEFT_BEHIND()
    };
    let told = || {
        let testament = Testament::read(&path).unwrap();
        let groups = testament.left.iter().map(|left| left.group);
        groups.collect::<Vec<_>>()
    };
    let [first, second, third] = [1, 2, 3].map(|group| journal.note(left(group)).unwrap());
    journal.about_to_start(0, id("a1"), 1).unwrap();
    journal.clear(0).unwrap();
    assert_eq!(told(), [1, 2, 3]);
    drop(second);
    assert_eq!(told(), [1, 3]);
    let size = path.metadata().unwrap().len();
    let second = journal.note(left(4)).unwrap();
    assert_eq!(told(), [1, 4, 3]);
    assert_eq!(
        path.metadata().unwrap().len(),
        size,
        "the place is used again"
    );
    drop((first, second, third));
    assert_eq!(told(), [0; 0]);
}

/// What is believed of a journal that somebody has written over is what was written, where it was.
#[test]
fn whatever_becomes_of_a_journal_only_what_was_written_is_believed() {
    let (_dir, path) = written();
    let bytes = fs::read(&path).unwrap();
    let whole = Testament::parse(&bytes);
    let records: Vec<&[u8]> = bytes.chunks(RECORD).chain([bytes.as_slice()]).collect();
    let make = |dice: &mut crate::ambient::Dice| {
        let mut bytes = bytes.clone();
        for _ in 0..dice.below(3) {
            crate::fuzz::change(dice, &mut bytes, &records, &records);
        }
        bytes
    };
    crate::fuzz::each("a journal", 4_000, make, |bytes| {
        let found = Testament::parse(bytes);
        let records = bytes.len().div_ceil(RECORD).saturating_sub(1);
        assert_eq!(found.slots.len(), records.div_ceil(2));
        assert!(found.runner.is_none() || found.runner == whole.runner);
        for (worker, slot) in found.slots.iter().enumerate() {
            let known = matches!(slot, SlotState::Idle | SlotState::Damaged);
            assert!(
                known || whole.slots.get(worker) == Some(slot),
                "{worker}: {slot:?}"
            );
        }
        assert!(found.left.iter().all(|left| whole.left.contains(left)));
        found == whole
    });
}
