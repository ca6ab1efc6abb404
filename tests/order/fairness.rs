//! Fairness between keys of one band, by what was run.

use std::collections::BTreeMap;

use crate::common::{Sandbox, lines};

/// Returns a key that lies on the shard with this letter.
fn key_on(sandbox: &Sandbox, letter: &str, prefix: &str) -> String {
    (0..)
        .map(|number| format!("{prefix}{number}"))
        .find(|key| {
            let args = ["enqueue", "--json", "--dry-run", "-k", key, "true"];
            let standing = sandbox.fairq(args).expect(0).json();
            let shard = standing["shard"].as_u64().unwrap();
            ["a", "b"][usize::try_from(shard).unwrap()] == letter
        })
        .unwrap()
}

fn enqueue(sandbox: &Sandbox, key: &str, weight: &str, count: usize) {
    let step = format!("echo {key} >>order");
    sandbox.enqueue_lines(&["-k", key, "-w", weight], &vec![step; count]);
}

/// Returns how many steps of each key are among these.
fn count(order: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for key in order {
        *counts.entry(key.as_str()).or_default() += 1;
    }
    counts
}

/// Returns the shards of the many and the few, with the names of the pairs.
const PLACES: [(&str, &str); 2] = [("a", "a"), ("a", "b")];

#[test]
fn a_key_with_few_steps_alternates_with_one_that_has_thousands() {
    for (of_many, of_few) in PLACES {
        let sandbox = Sandbox::with_shards(2);
        let (many, few) = (
            key_on(&sandbox, of_many, "many"),
            key_on(&sandbox, of_few, "few"),
        );
        enqueue(&sandbox, &many, "1", 3_000);
        enqueue(&sandbox, &few, "1", 20);
        let runner = sandbox.runner(&["--workers", "1"]);
        let order = sandbox.work("order");
        crate::common::until("60 steps were run", || lines(&order).len() >= 60);
        drop(runner);
        let order = lines(&order);
        let last = order.iter().rposition(|key| *key == few).unwrap();
        assert_eq!(count(&order)[few.as_str()], 20, "{order:?}");
        // Turn by turn: after n steps of the few there were n of the many, one more or less.
        for (at, _) in order[..=last].iter().enumerate() {
            let counts = count(&order[..=at]);
            let of = |key: &String| *counts.get(key.as_str()).unwrap_or(&0);
            assert!(
                of(&many).abs_diff(of(&few)) <= 2,
                "shards {of_many}{of_few}, after {at}: {order:?}"
            );
        }
    }
}

#[test]
fn weights_of_keys_on_different_shards_are_the_shares_of_what_is_run() {
    let sandbox = Sandbox::with_shards(2);
    let heavy = key_on(&sandbox, "a", "heavy");
    let light = key_on(&sandbox, "b", "light");
    enqueue(&sandbox, &light, "1", 300);
    enqueue(&sandbox, &heavy, "3", 300);
    sandbox.drain(1).expect(0);
    let order = lines(&sandbox.work("order"));
    assert_eq!(order.len(), 600);
    let of_light = count(&order[..200])[light.as_str()];
    assert!(
        of_light.abs_diff(50) <= 4,
        "{of_light} of 200 instead of a quarter"
    );
}

/// With several workers the order of starting is that of the plan but for what is under way.
#[test]
fn shares_hold_within_what_is_under_way_with_many_workers() {
    const WORKERS: usize = 8;
    let sandbox = Sandbox::with_shards(2);
    let heavy = key_on(&sandbox, "a", "heavy");
    let light = key_on(&sandbox, "b", "light");
    enqueue(&sandbox, &light, "1", 300);
    enqueue(&sandbox, &heavy, "3", 300);
    let capacity = 2 * WORKERS;
    sandbox.drain(WORKERS).expect(0);
    let order = lines(&sandbox.work("order"));
    assert_eq!(order.len(), 600);
    let of_light = count(&order[..200])[light.as_str()];
    assert!(
        of_light.abs_diff(50) <= capacity,
        "{of_light} of 200 instead of a quarter"
    );
}
