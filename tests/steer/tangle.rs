//! Everything at once, to the same steps, from many processes: each command answers, the runner
//! lives, and no process is left over.

use std::thread;

use crate::common::{Sandbox, until};
use crate::kit::{Chance, workers};

#[test]
fn steering_the_same_steps_from_many_processes_leaves_nothing_behind() {
    let sandbox = Sandbox::with_shards(2);
    let chance = Chance::new();
    let runner = workers(&sandbox, 4);
    let line = "sleep 1000 & wait".to_owned();
    let mut ids = sandbox.enqueue_lines(&["-k", "x", "--grace", "50ms"], &vec![line.clone(); 4]);
    ids.extend(sandbox.enqueue_lines(&["-k", "y", "--grace", "50ms"], &vec![line; 4]));
    let verbs = [
        "cancel", "retry", "clean", "hold", "release", "kill", "retry", "cancel",
    ];
    let plans: Vec<Vec<(&str, String)>> = (0..8)
        .map(|_| {
            let pick = |end: usize| usize::try_from(chance.below(end as u64)).unwrap();
            (0..25)
                .map(|_| (verbs[pick(verbs.len())], ids[pick(ids.len())].clone()))
                .collect()
        })
        .collect();
    thread::scope(|scope| {
        for plan in &plans {
            let sandbox = &sandbox;
            scope.spawn(move || {
                for (verb, id) in plan {
                    let ran = sandbox.fairq([*verb, id]);
                    let fine = [0, 1, 3].contains(&ran.code);
                    assert!(fine, "{verb} {id}: {}: {}", ran.code, ran.err);
                    assert!(!ran.err.contains("panicked"), "{}", ran.err);
                }
            });
        }
    });
    // The runner hears and runs.
    let last = sandbox.enqueue(["-b", "1", "true"]).remove(0);
    if sandbox.count("running") == 4 {
        sandbox.fairq(["cancel", "--state", "running"]);
    }
    sandbox.fairq(["wait", &last]).expect(0);
    let code = sandbox.fairq(["cancel", "--all"]).code;
    assert!([0, 3].contains(&code), "{code}");
    let told = sandbox.json(["status", "--limit", "0"]);
    for step in told["steps"].as_array().unwrap() {
        let state = step["state"].as_str().unwrap();
        assert!(
            ["cancelled", "failed", "succeeded"].contains(&state),
            "{step:#}"
        );
    }
    let (pid, said) = (runner.pid(), runner.said());
    assert!(!said.contains("panicked"), "{said}");
    runner.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(runner.end().0, 0, "pid {pid}");
    until("no process is left", || sandbox.processes().is_empty());
}
