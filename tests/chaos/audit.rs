//! The books after a storm: what the store says, what the steps wrote down, and what callers were
//! told must be one story.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use fairq::ambient::{Clock, SystemClock};
use fairq::model::{Ending, Policy, ShardId, StepState, Stream};
use fairq::store::sqlite::{Durability, Mode, SqliteStore};
use fairq::store::{Attempt, Filter, Order, Output, Read as _, StepView, Store as _};
use rusqlite::Connection;

use crate::common::{Sandbox, lines};
use crate::storm::{Asked, Seen};

/// What one step wrote down, with the number of the line.
#[derive(Debug, Default)]
struct Lines {
    starts: Vec<usize>,
    /// With the code.
    ends: Vec<(usize, i32)>,
}

impl Lines {
    fn ended_with(&self, code: i32) -> usize {
        self.ends.iter().filter(|end| end.1 == code).count()
    }
}

type Journal = BTreeMap<String, Lines>;

fn journal(sandbox: &Sandbox) -> Journal {
    let mut journal = Journal::new();
    let mut overlaps = Vec::new();
    for (number, line) in lines(&sandbox.work("journal")).iter().enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, id, _attempt, last] = words[..] else {
            panic!("torn: {line}");
        };
        let of = journal.entry(id.to_owned()).or_default();
        match what {
            "start" => of.starts.push(number),
            "end" => of.ends.push((number, last.parse().unwrap())),
            "overlap" => overlaps.push(id.to_owned()),
            "crowded" => panic!("{id} ran though all places of {last} were taken"),
            _ => panic!("torn: {line}"),
        }
    }
    if let Some(id) = overlaps.first() {
        let said = sandbox.fairq(["show", id]).text();
        let written: Vec<String> = lines(&sandbox.work("journal"));
        let of = format!(" {id} ");
        let written = written.iter().filter(|line| line.contains(&of));
        panic!(
            "two tries of {id} ran at a time: {:#?}\n{said}",
            written.collect::<Vec<_>>()
        );
    }
    journal
}

/// Fails unless everything adds up; tells how much of what there was.
pub(crate) fn balance(sandbox: &Sandbox, seen: &Seen) -> String {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = SqliteStore::open(&sandbox.store(), Mode::Visit, Durability::Normal, &clock);
    let store = store.unwrap().unwrap();
    let journal = journal(sandbox);
    let by_id = Filter {
        order: Order::Id,
        ..Filter::default()
    };
    let steps = store.list(&by_id).unwrap();
    files_are_whole(sandbox, &store);
    counts_add_up(&store, &steps);
    for limit in store.limits().unwrap() {
        let held = (limit.holders.len(), limit.waiting);
        assert_eq!(held, (0, 0), "places of {} are still taken", limit.name);
    }
    for call in &seen.calls {
        let there = steps.iter().filter(|step| step.tags.contains(&call.tag));
        let there = there.count();
        assert!(
            there == 0 || there == call.steps,
            "{}: {there} of {} are stored",
            call.tag,
            call.steps
        );
    }
    let by_name: BTreeMap<String, &StepView> = steps
        .iter()
        .map(|step| (step.id.to_string(), step))
        .collect();
    let (mut tries, mut lost) = (0, 0);
    for (id, step) in &by_name {
        let attempts = store.attempts(step.id).unwrap();
        let nothing = Lines::default();
        let written = journal.get(id).unwrap_or(&nothing);
        tries += attempts.len();
        lost += attempts
            .iter()
            .filter(|one| one.ending == Ending::Lost)
            .count();
        each_try_is_recorded_once(step, &attempts, written);
        if step.state == StepState::Succeeded {
            let output = store.output(step.id, step.fence, Stream::Stdout).unwrap();
            let Some(Output::Bytes(bytes)) = output else {
                panic!("{id} has lost its output");
            };
            assert_eq!(String::from_utf8_lossy(&bytes), format!("{id} says so\n"));
        }
    }
    for id in journal.keys() {
        assert!(by_name.contains_key(id), "{id} ran and is not there");
    }
    for (id, asked) in &seen.told {
        let step = by_name
            .get(id)
            .unwrap_or_else(|| panic!("{id} was told of and is not there"));
        let attempts = store.attempts(step.id).unwrap();
        waited_for_its_parents(id, asked, &journal);
        if !seen.cancelled.contains(id) && !seen.retried.contains(id) {
            ended_as_asked(step, asked, &attempts);
        }
    }
    format!(
        "{} steps, {} told of, {tries} tries, {lost} of them lost",
        steps.len(),
        seen.told.len()
    )
}

fn files_are_whole(sandbox: &Sandbox, store: &SqliteStore) {
    for shard in ShardId::first(store.shard_count()) {
        let path = sandbox.store().join(format!("shard-{}.db", shard.number()));
        let file = Connection::open(path).unwrap();
        let said: String = file
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(said, "ok", "shard {shard}");
    }
    let runners = fs::read_dir(sandbox.store().join("runners")).unwrap();
    assert_eq!(runners.count(), 0, "what dead runners left is tidied up");
}

fn counts_add_up(store: &SqliteStore, steps: &[StepView]) {
    let mut listed: BTreeMap<(ShardId, StepState), u64> = BTreeMap::new();
    for step in steps {
        assert!(step.state.is_final(), "{} is {}", step.id, step.state);
        *listed.entry((step.id.shard, step.state)).or_default() += 1;
    }
    for shard in ShardId::first(store.shard_count()) {
        for (state, count) in store.counts(shard).unwrap().states {
            assert_eq!(
                count,
                listed.remove(&(shard, state)).unwrap_or(0),
                "{state}"
            );
        }
    }
    assert!(listed.is_empty(), "{listed:?}");
}

/// Every claim came to one record, and the records agree with what the steps themselves wrote.
fn each_try_is_recorded_once(step: &StepView, attempts: &[Attempt], written: &Lines) {
    let id = step.id;
    let fences: Vec<u32> = attempts.iter().map(|one| one.fence).collect();
    assert_eq!(fences, (1..=step.fence).collect::<Vec<u32>>(), "{id}");
    assert!(
        written.starts.len() <= attempts.len(),
        "{id}: {written:?} {attempts:#?}"
    );
    let mut unknown = 0;
    let mut exited: BTreeMap<i32, usize> = BTreeMap::new();
    for one in attempts {
        if let Ending::Exited { code } = one.ending {
            *exited.entry(code).or_default() += 1;
        } else {
            unknown += 1;
        }
    }
    let known: usize = exited.values().sum();
    assert!(
        written.starts.len() >= known,
        "{id}: {written:?} {attempts:#?}"
    );
    let mut unheard = 0;
    for code in [0, 1, 3] {
        let (written, known) = (written.ended_with(code), exited.remove(&code).unwrap_or(0));
        assert!(
            written >= known,
            "{id}: {known} tries ended with {code}, {written} wrote so"
        );
        unheard += written - known;
    }
    assert!(exited.is_empty(), "{id}: {exited:?}");
    assert!(
        unheard <= unknown,
        "{id}: {unheard} ends were never recorded"
    );
}

/// A parent had succeeded before the step started the first time.
fn waited_for_its_parents(id: &str, asked: &Asked, journal: &Journal) {
    let Some(first) = journal.get(id).and_then(|lines| lines.starts.first()) else {
        return;
    };
    for parent in &asked.parents {
        let ends = journal.get(parent).map_or(&[][..], |lines| &lines.ends);
        let before = ends.iter().any(|(at, code)| at < first && *code == 0);
        assert!(before, "{id} started before {parent} had succeeded");
    }
}

/// A step that nobody touched did what it was to do, unless it was lost too often or what it waited
/// for came to nothing.
fn ended_as_asked(step: &StepView, asked: &Asked, attempts: &[Attempt]) {
    let id = step.id;
    let exits = |code: i32| {
        let exited = Ending::Exited { code };
        attempts.iter().filter(|one| one.ending == exited).count()
    };
    match &step.ending {
        Some(Ending::Skipped { .. }) => {
            assert!(!asked.parents.is_empty(), "{id}: {step:#?}");
            return;
        }
        Some(Ending::Lost) => {
            let last = attempts.iter().rev().take(Policy::MAX_LOST as usize);
            let all = last.filter(|one| one.ending == Ending::Lost).count();
            assert_eq!(all, Policy::MAX_LOST as usize, "{id}: {attempts:#?}");
            return;
        }
        _ => {}
    }
    let succeeds = match asked.code {
        "0" => true,
        "flaky" => asked.retries > 0,
        _ => false,
    };
    let expected = if succeeds {
        StepState::Succeeded
    } else {
        StepState::Failed
    };
    assert_eq!(step.state, expected, "{id}: {asked:?} {attempts:#?}");
    assert_eq!(exits(0), usize::from(succeeds), "{id}: {attempts:#?}");
    let failures = match asked.code {
        "0" => 0,
        "flaky" => 1,
        _ => asked.retries + 1,
    };
    assert_eq!(
        exits(1) + exits(3),
        failures,
        "{id}: {asked:?} {attempts:#?}"
    );
}
