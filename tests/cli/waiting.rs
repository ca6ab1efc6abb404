//! Waiting for steps, and the codes it ends with.

use crate::common::{Sandbox, until};

#[test]
fn waiting_for_one_gives_its_code_and_for_many_whether_all_succeeded() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["-k", "good", "true"]);
    sandbox.enqueue(["-k", "bad", "exit 9"]);
    sandbox.enqueue(["-k", "good", "-t", "x", "true"]);
    let runner = sandbox.runner(&["--workers", "1"]);
    for (args, code) in [
        (&["wait", "a1"][..], 0),
        (&["wait", "a2"], 9),
        (&["wait", "a1", "a2"], 1),
        (&["wait", "a1", "a3"], 0),
        (&["wait", "a1-a3"], 1),
        (&["wait", "--all"], 1),
        (&["wait", "-k", "good"], 0),
        (&["wait", "-t", "x"], 0),
        (&["wait", "-k", "bad"], 1),
        (&["wait", "--any", "a1", "a3"], 0),
    ] {
        let ran = sandbox.fairq(args).expect(code);
        assert_eq!(
            (ran.text().as_str(), ran.err.as_str()),
            ("", ""),
            "{args:?}"
        );
    }
    let told = sandbox
        .fairq(["wait", "a1", "a2", "--json"])
        .expect(1)
        .json();
    let steps = serde_json::json!([
        {"id": "a1", "state": "succeeded", "exit_code": 0},
        {"id": "a2", "state": "failed", "exit_code": 9},
    ]);
    assert_eq!(told["steps"], steps);
    assert_eq!(told["timed_out"], false);
    drop(runner);
}

#[test]
fn waiting_too_long_is_a_code_of_its_own() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    for limit in ["0", "50ms"] {
        let ran = sandbox
            .fairq(["wait", "a1", "--timeout", limit])
            .expect(124);
        assert_eq!(ran.text(), "");
        assert!(ran.err.contains("the time is up"), "{}", ran.err);
    }
    let told = sandbox.fairq(["wait", "a1", "--timeout", "0", "--json"]);
    assert_eq!(told.expect(124).json()["timed_out"], true);
}

#[test]
fn many_wait_for_what_is_run_later() {
    let sandbox = Sandbox::with_shards(2);
    let id = &sandbox.enqueue(["until test -e go; do sleep 0.01; done; exit 4"])[0];
    let mut waiting: Vec<_> = (0..8)
        .map(|_| sandbox.command(["wait", id]).spawn().unwrap())
        .collect();
    let runner = sandbox.runner(&["--workers", "1"]);
    until("it runs", || sandbox.count("running") == 1);
    for one in &mut waiting {
        assert_eq!(one.try_wait().unwrap(), None);
    }
    std::fs::write(sandbox.work("go"), "").unwrap();
    for mut one in waiting {
        assert_eq!(one.wait().unwrap().code(), Some(4));
    }
    drop(runner);
}
