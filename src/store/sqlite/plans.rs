//! Holds the hot statements to their promise: a search of one key range each, and no sorting.

use rusqlite::Connection;

use super::{read, row, supply};

fn plan(sql: &str) -> Vec<String> {
    let connection = Connection::open_in_memory().unwrap();
    connection
        .execute_batch(include_str!("../../../schema.sql"))
        .unwrap();
    let mut explain = connection
        .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
        .unwrap();
    let nulls = vec![rusqlite::types::Null; explain.parameter_count()];
    explain
        .query_map(rusqlite::params_from_iter(nulls), |row| row.get(3))
        .unwrap()
        .collect::<rusqlite::Result<_>>()
        .unwrap()
}

/// A scan or a sort here costs O(backlog) in every cycle, and no test would notice on a small store.
#[test]
fn the_hot_statements_search_and_sort_nothing() {
    for (sql, searches) in [
        (supply::TALLY, 2),
        (supply::FETCH, 1),
        (supply::COME_DUE, 2),
        (row::SELECT_STEP, 1),
        (
            "DELETE FROM ready WHERE band = ?1 AND key = ?2 AND id = ?3",
            1,
        ),
        (
            "SELECT attempt, since, claimed, wish, limits FROM running
              WHERE id = ?1 AND runner = ?2 AND fence = ?3",
            1,
        ),
        (
            "SELECT id, since, weight FROM ready WHERE band = ?1 AND key = ?2 ORDER BY id LIMIT 1",
            1,
        ),
        ("SELECT id FROM envs WHERE hash = ?1 AND vars = ?2", 1),
        ("UPDATE counters SET value = value + ?2 WHERE name = ?1", 1),
    ] {
        let plan = plan(sql);
        let found = plan
            .iter()
            .filter(|line| line.starts_with("SEARCH"))
            .count();
        assert_eq!(found, searches, "{sql}\n{plan:#?}");
        assert!(
            !plan
                .iter()
                .any(|line| line.starts_with("SCAN") || line.contains("TEMP B-TREE")),
            "{sql}\n{plan:#?}"
        );
    }
}

/// The first row of an index that is ordered by it: read, not searched for.
#[test]
fn the_next_due_time_is_the_first_entry_of_its_index() {
    assert_eq!(
        plan(supply::NEXT_DUE),
        ["SCAN delayed USING COVERING INDEX delayed_by_due"]
    );
}

/// A drain asks this whenever a worker falls idle.
#[test]
fn what_is_to_be_tried_again_is_counted_by_its_index() {
    let plan = plan(read::RETRYING);
    assert!(
        plan[0].contains("USING COVERING INDEX retrying"),
        "{plan:#?}"
    );
    assert_eq!(plan.len(), 1, "{plan:#?}");
}

/// Steps with dependents are few: those of an end are searched for, not walked.
#[test]
fn who_is_told_of_an_end_is_searched_for() {
    for sql in [super::links::CHILDREN, supply::NEXT_EXPIRY] {
        let plan = plan(sql);
        assert!(
            plan.iter()
                .all(|line| line.contains("INDEX") || line.contains("PRIMARY KEY")),
            "{plan:#?}"
        );
    }
}

/// `done` is large and nearly all of it succeeded: dead letters have an index of their own.
#[test]
fn dead_letters_are_listed_by_their_index() {
    let sql = format!(
        "{} WHERE e.state = 1 AND e.state <> 0 ORDER BY e.id DESC LIMIT 20",
        read::all_of(crate::model::StepState::Failed)
    );
    let plan = plan(&sql);
    assert!(plan[0].contains("dead_letters"), "{plan:#?}");
    assert!(
        !plan.iter().any(|line| line.contains("TEMP B-TREE")),
        "{plan:#?}"
    );
}

/// A key may have a million due steps: those before one of them are counted in one range of the
/// clustered key, up to the limit.
#[test]
fn what_stands_ahead_is_counted_in_one_range() {
    let plan = plan(read::AHEAD);
    let searched = "SEARCH ready USING PRIMARY KEY (band=? AND key=? AND id<?)";
    assert!(plan.iter().any(|line| line == searched), "{plan:#?}");
    let sorts = |line: &String| line.contains("TEMP B-TREE") || line.contains("SCAN ready");
    assert!(!plan.iter().any(sorts), "{plan:#?}");
}

/// A million finished steps are bisected, not walked, to find those of the last hour.
#[test]
fn arrivals_are_searched_by_their_numbers() {
    for sql in [super::history::AT, super::history::ARRIVALS] {
        let plan = plan(sql);
        assert_eq!(
            plan,
            ["SEARCH steps USING INTEGER PRIMARY KEY (rowid>?)"],
            "{sql}"
        );
    }
}

/// The wide rows of steps are read for the window's tries only.
#[test]
fn tries_are_read_from_the_narrow_tables() {
    for sql in [super::history::SINCE, super::history::LAST] {
        let plan = plan(sql);
        let steps: Vec<_> = plan.iter().filter(|line| line.contains(" s ")).collect();
        assert!(!steps.is_empty());
        for line in steps {
            assert!(
                line.starts_with("SEARCH s USING INTEGER PRIMARY KEY"),
                "{plan:#?}"
            );
        }
    }
}
