//! Several runners on one store.

use std::collections::BTreeSet;

use crate::common::{Sandbox, lines, until};
use crate::steps;

#[test]
fn three_runners_share_all_steps_and_run_none_twice() {
    let sandbox = Sandbox::with_shards(2);
    let count = steps(2_000);
    for key in ["a", "b", "c", "d"] {
        sandbox.enqueue_lines(
            &["-k", key],
            &vec!["echo $FAIRQ_ID >>order".to_owned(); count / 4],
        );
    }
    let runners: Vec<_> = (0..3)
        .map(|_| sandbox.runner_unseen(&["--workers", "2", "--drain", "--json"]))
        .collect();
    let mut claimed = Vec::new();
    for runner in runners {
        let (code, said) = runner.end();
        assert_eq!(code, 0, "{said}");
        let summary: serde_json::Value =
            serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert_eq!(summary["event"], "summary");
        claimed.push(summary["succeeded"].as_u64().unwrap());
    }
    let order = lines(&sandbox.work("order"));
    let ids: BTreeSet<&String> = order.iter().collect();
    assert_eq!((order.len(), ids.len()), (count, count));
    assert_eq!(sandbox.count("succeeded"), count as u64);
    assert_eq!(claimed.iter().sum::<u64>(), count as u64);
    assert!(claimed.iter().all(|steps| *steps > 0), "{claimed:?}");
}

#[test]
fn a_drain_waits_for_what_another_runner_runs() {
    let sandbox = Sandbox::with_shards(1);
    let id = &sandbox.enqueue(["until test -e go; do sleep 0.01; done"])[0];
    let runner = sandbox.runner(&["--workers", "1"]);
    until("the step runs", || sandbox.count("running") == 1);
    let mut draining = sandbox.command(["run", "--drain"]).spawn().unwrap();
    sandbox.enqueue(["-b", "0", "touch sign"]);
    until("the other one works", || sandbox.work("sign").exists());
    assert_eq!(draining.try_wait().unwrap(), None);
    std::fs::write(sandbox.work("go"), "").unwrap();
    assert!(draining.wait().unwrap().success());
    assert_eq!(sandbox.step(id)["state"], "succeeded");
    drop(runner);
}

/// With a heartbeat of an hour only the bell can have told.
#[test]
fn a_runner_hears_of_one_that_came_later_and_leaves_it_its_part() {
    let sandbox = Sandbox::with_shards(1);
    let config = sandbox.work("../home/config/fairq");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("config.toml"), "heartbeat_ms = 3600000\n").unwrap();
    let wait = |gate: &str| format!("until test -e {gate}; do sleep 0.01; done");
    sandbox.enqueue([wait("one")]);
    let first = sandbox.runner(&["--workers", "1"]);
    until("the first works", || sandbox.count("running") == 1);
    sandbox.enqueue([wait("two")]);
    let second = sandbox.runner(&["--workers", "1"]);
    until("the second works", || sandbox.count("running") == 2);
    std::fs::write(sandbox.work("one"), "").unwrap();
    let mut seen = 0;
    until(
        "one runner leaves a part to the other for as long as it has its own",
        || {
            sandbox.enqueue_lines(&[], &vec!["echo $FAIRQ_ID >>order".to_owned(); 10]);
            until("they are over", || {
                sandbox.count("ready") == 0 && sandbox.count("running") == 1
            });
            let order = lines(&sandbox.work("order"));
            let numbers: Vec<u64> = order[seen..]
                .iter()
                .map(|id| id[1..].parse().unwrap())
                .collect();
            seen = order.len();
            // Alone it takes them in their order.
            !numbers.is_sorted()
        },
    );
    std::fs::write(sandbox.work("two"), "").unwrap();
    drop((first, second));
}
