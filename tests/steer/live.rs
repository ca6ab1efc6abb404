//! Steering what runs: signals, and how many run at once.

use serde_json::json;

use crate::common::{Sandbox, until};
use crate::kit::{answer, running_step, touch, until_it_is, until_there_are, workers};

#[test]
fn a_signal_reaches_the_whole_group_of_a_running_step_and_no_other() {
    let sandbox = Sandbox::with_shards(1);
    let runner = workers(&sandbox, 2);
    let line = "trap 'echo $FAIRQ_ID >>caught' USR1; (trap 'echo child >>caught' USR1; \
                until [ -e go ]; do sleep 0.01; done) & : >up-$FAIRQ_ID; \
                until [ -e go ]; do sleep 0.01; done; wait";
    let ids = [line, line].map(|line| sandbox.enqueue(["--leave-group", line]).remove(0));
    until("both have set their traps", || {
        let up = |id: &String| sandbox.work(&format!("up-{id}")).exists();
        ids.iter().all(up)
    });
    for name in ["USR1", "SIGUSR1", "10"] {
        let told = sandbox.json(["kill", "-s", name, &ids[0]]);
        assert_eq!(answer(&told, &ids[0])["result"], "done", "{told:#}");
    }
    let caught = || std::fs::read_to_string(sandbox.work("caught")).unwrap_or_default();
    until("parent and child have caught it", || {
        caught().contains(&ids[0]) && caught().contains("child")
    });
    assert!(!caught().contains(&ids[1]), "{}", caught());
    touch(&sandbox.work("go"));
    sandbox.fairq(["wait", &ids[0], &ids[1]]).expect(0);
    drop(runner);
}

#[test]
fn a_step_that_a_signal_ended_has_failed_by_it() {
    let sandbox = Sandbox::with_shards(1);
    let runner = workers(&sandbox, 1);
    let id = running_step(&sandbox, &[]);
    sandbox.fairq(["kill", &id]).expect(0);
    sandbox.fairq(["wait", &id]).expect(143);
    assert_eq!(sandbox.step(&id)["state"], "failed");
    drop(runner);
}

#[test]
fn what_does_not_run_gets_no_signal() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    let told = sandbox
        .fairq(["kill", "a1", "a2", "--json"])
        .expect(1)
        .json();
    assert_eq!(answer(&told, "a1")["result"], "refused", "{told:#}");
    assert_eq!(answer(&told, "a2")["result"], "missing", "{told:#}");
    sandbox.fairq(["kill", "a2"]).expect(3);
    sandbox.fairq(["kill", "--all"]).expect(3);
    for bad in ["", "0", "NOPE", "-9", "9.0", "999"] {
        let signal = format!("--signal={bad}");
        sandbox.fairq(["kill", &signal, "a1"]).expect(2);
    }
}

#[test]
fn the_number_of_workers_changes_while_steps_run() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.fairq(["workers", "2"]).expect(3);
    let runner = workers(&sandbox, 1);
    let line = "until [ -e go ]; do sleep 0.01; done".to_owned();
    sandbox.enqueue_lines(&[], &vec![line; 20]);
    until_there_are(&sandbox, 1, "running");
    let told = sandbox.json(["workers", "6"]);
    assert_eq!(told["runners"][0]["workers"], 6, "{told:#}");
    until_there_are(&sandbox, 6, "running");
    let status = sandbox.json(["status"]);
    assert_eq!(status["runners"][0]["workers"], 6, "{status:#}");
    let who = status["runners"][0]["runner"].as_str().unwrap();
    sandbox.fairq(["workers", "2", "--runner", who]).expect(0);
    assert_eq!(sandbox.count("running"), 6, "fewer workers end nothing");
    sandbox
        .fairq(["workers", "2", "--runner", "00000077"])
        .expect(3);
    for bad in ["0", "-1", "1.5", "99999", "x"] {
        let code = sandbox.fairq(["workers", "--", bad]).code;
        assert!([1, 2].contains(&code), "{bad}: {code}");
    }
    touch(&sandbox.work("go"));
    until_there_are(&sandbox, 20, "succeeded");
    drop(runner);
}

#[test]
fn steps_are_selected_by_their_flow_as_by_all_else() {
    let sandbox = Sandbox::with_shards(2);
    let mine = sandbox.enqueue(["--flow", "f", "true"]).remove(0);
    let other = sandbox.enqueue(["--flow", "g", "true"]).remove(0);
    let told = sandbox.json(["hold", "--flow", "f"]);
    assert_eq!(told["steps"].as_array().unwrap().len(), 1);
    until_it_is(&sandbox, &mine, "held");
    let listed = sandbox.json(["status", "--flow", "g"]);
    assert_eq!(listed["steps"][0]["id"], json!(other));
    assert_eq!(listed["steps"].as_array().unwrap().len(), 1);
    sandbox.fairq(["hold", "--flow", "h"]).expect(3);
}
