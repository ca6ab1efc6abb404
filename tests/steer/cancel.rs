//! Cancelling: what had not started never starts, and what ran has no process left.

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::common::{Sandbox, lines, until};
use crate::kit::{
    Chance, answer, processes_of, running_step, touch, until_it_is, until_there_are, workers,
};

#[test]
fn what_waits_is_over_at_once_and_leaves_no_try() {
    let sandbox = Sandbox::with_shards(2);
    let ids = [
        sandbox.enqueue(["-k", "a", "touch marker"]).remove(0),
        sandbox
            .enqueue(["-k", "b", "--delay", "1h", "true"])
            .remove(0),
        sandbox.enqueue(["-k", "c", "--hold", "true"]).remove(0),
    ];
    let ran = sandbox
        .fairq(["cancel", &ids[0], &ids[1], &ids[2]])
        .expect(0);
    assert_eq!(ran.text(), "", "talk goes to standard error");
    let mut said: Vec<&str> = ran.err.lines().collect();
    said.sort_unstable();
    let mut expected = [
        format!("{} cancelled: ready, now cancelled", ids[0]),
        format!("{} cancelled: delayed, now cancelled", ids[1]),
        format!("{} cancelled: held, now cancelled", ids[2]),
    ];
    expected.sort_unstable();
    assert_eq!(said, expected);
    for id in &ids {
        let step = sandbox.step(id);
        assert_eq!(step["state"], "cancelled", "{step:#}");
        assert_eq!(step["ending"]["how"], "cancelled", "{step:#}");
        assert_eq!(step["attempts"], json!([]), "{step:#}");
    }
    sandbox.drain(1).expect(0);
    assert!(!sandbox.work("marker").exists());
    sandbox.fairq(["wait", &ids[0]]).expect(125);
}

#[test]
fn what_is_over_is_refused_and_what_is_cancelled_already_is_not() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    sandbox.enqueue(["exit 3"]);
    sandbox.drain(1).expect(1);
    sandbox.enqueue(["true"]);
    sandbox.fairq(["cancel", "a3"]).expect(0);
    sandbox.fairq(["cancel", "a3"]).expect(0);
    let told = sandbox.fairq(["cancel", "a1-a3", "a9", "--json"]).expect(1);
    let expected = json!([
        {"id": "a1", "result": "refused", "from": "succeeded", "to": "succeeded", "runner": null},
        {"id": "a2", "result": "refused", "from": "failed", "to": "failed", "runner": null},
        {"id": "a3", "result": "unchanged", "from": "cancelled", "to": "cancelled", "runner": null},
        {"id": "a9", "result": "missing", "from": null, "to": null, "runner": null},
    ]);
    assert_eq!(told.json(), json!({"schema": 1, "steps": expected}));
    assert!(told.err.contains("a1 cannot be cancelled: it is succeeded"));
    assert!(told.err.contains("there is no such step"), "{}", told.err);
    // Nothing is there to be cancelled, and nothing was named: that is no success either.
    sandbox.fairq(["cancel", "--all"]).expect(3);
    sandbox.fairq(["cancel", "a9"]).expect(3);
    sandbox.fairq(["cancel"]).expect(2);
    assert_eq!(sandbox.step("a1")["state"], "succeeded");
    assert_eq!(sandbox.step("a2")["state"], "failed");
}

/// Whoever cancels a key's steps means those that are not over.
#[test]
fn a_condition_means_what_can_still_be_cancelled() {
    let sandbox = Sandbox::with_shards(2);
    sandbox.enqueue(["-k", "x", "true"]);
    sandbox.drain(1).expect(0);
    let (x, y) = (
        sandbox.enqueue(["-k", "x", "true"]).remove(0),
        sandbox.enqueue(["-k", "y", "true"]).remove(0),
    );
    let told = sandbox.json(["cancel", "-k", "x"]);
    assert_eq!(told["steps"].as_array().unwrap().len(), 1, "{told:#}");
    assert_eq!(answer(&told, &x)["result"], "done");
    assert_eq!(sandbox.step(&y)["state"], "ready");
}

/// A cancel that says that a step had not started must be right, whatever runs at the same time.
#[test]
fn a_step_that_was_cancelled_before_its_start_never_starts() {
    let sandbox = Sandbox::with_shards(2);
    let chance = Chance::new();
    let lines = vec![": >marker-$FAIRQ_ID".to_owned(); 240];
    let mut ids = sandbox.enqueue_lines(&[], &lines);
    chance.shuffle(&mut ids);
    let runner = workers(&sandbox, 2);
    let cancelled: Vec<String> = thread::scope(|scope| {
        let threads: Vec<_> = ids
            .chunks(80)
            .map(|ids| scope.spawn(|| cancel_each(&sandbox, ids)))
            .collect();
        let answers = threads.into_iter().map(|thread| thread.join().unwrap());
        answers.flatten().collect()
    });
    sandbox.fairq(["wait", "--all"]).expect(1);
    for id in &cancelled {
        let marker = sandbox.work(&format!("marker-{id}"));
        assert!(!marker.exists(), "{id} ran though it was cancelled before");
        assert_eq!(sandbox.step(id)["attempts"], json!([]), "{id}");
    }
    let succeeded = usize::try_from(sandbox.count("succeeded")).unwrap();
    assert!(!cancelled.is_empty(), "nothing was cancelled in time");
    assert!(cancelled.len() + succeeded <= ids.len());
    drop(runner);
}

/// Returns those of the steps of which it was said that they had not started.
fn cancel_each(sandbox: &Sandbox, ids: &[String]) -> Vec<String> {
    let mut before = Vec::new();
    for id in ids {
        let ran = sandbox.fairq(["cancel", id, "--json"]);
        assert!([0, 1].contains(&ran.code), "{}", ran.err);
        let told = ran.json();
        let answer = answer(&told, id);
        if answer["result"] == "done" && answer["from"] != "running" {
            before.push(id.clone());
        }
    }
    before
}

/// Some end when asked, some have to be killed, some leave a child behind, some have hardly begun.
#[test]
fn nothing_of_a_step_is_left_when_its_cancel_returns() {
    let sandbox = Sandbox::with_shards(1);
    let chance = Chance::new();
    let runner = workers(&sandbox, 2);
    let kinds = [
        "sleep 1000",
        "trap '' TERM; while :; do sleep 0.05; done",
        "sleep 1000 & sleep 1000",
        "sh -c 'trap \"\" TERM; sleep 1000' & wait",
        "true",
    ];
    for round in 0..40 {
        let kind = kinds[round % kinds.len()];
        let id = sandbox.enqueue(["--grace", "50ms", kind]).remove(0);
        thread::park_timeout(Duration::from_millis(chance.below(50)));
        let ran = sandbox.fairq(["cancel", &id, "--json"]);
        let left = processes_of(&sandbox, &id);
        assert_eq!(left, Vec::<i32>::new(), "{kind}: {}", ran.text());
        let step = sandbox.step(&id);
        match ran.code {
            0 => assert_eq!(step["state"], "cancelled", "{kind}: {step:#}"),
            // It was over before.
            code => assert_eq!((code, &step["state"]), (1, &json!("succeeded")), "{kind}"),
        }
    }
    drop(runner);
}

#[test]
fn a_step_whose_end_is_on_its_way_is_shown_to_be_cancelling() {
    let sandbox = Sandbox::with_shards(1);
    let runner = workers(&sandbox, 1);
    let stubborn = "trap '' TERM; : >up; until [ -e go ]; do sleep 0.01; done";
    let id = &sandbox.enqueue(["--grace", "1h", stubborn])[0];
    until("it has set its trap", || sandbox.work("up").exists());
    let told = sandbox.json(["cancel", id, "--no-wait"]);
    assert_eq!(answer(&told, id)["result"], "asked", "{told:#}");
    assert_eq!(answer(&told, id)["to"], "running", "{told:#}");
    let step = sandbox.step(id);
    assert_eq!(
        (&step["state"], &step["cancelling"]),
        (&json!("running"), &json!(true))
    );
    let table = sandbox.fairq(["status"]).expect(0).text();
    assert!(table.contains(&format!("\n{id}\tcancelling\t")), "{table}");
    let why = sandbox.fairq(["explain", id]).expect(0).text();
    assert!(why.contains("its end has been asked for"), "{why}");
    touch(&sandbox.work("go"));
    until_it_is(&sandbox, id, "cancelled");
    assert_eq!(sandbox.step(id)["cancelling"], false);
    drop(runner);
}

/// It is the runner that ends what runs; where none is left, cancel says so instead of waiting.
#[test]
fn a_step_of_a_dead_runner_is_cancelled_by_the_next_one() {
    let sandbox = Sandbox::with_shards(1);
    let runner = workers(&sandbox, 1);
    let id = running_step(&sandbox, &[]);
    runner.kill_hard();
    let ran = sandbox.fairq(["cancel", &id]).expect(1);
    assert!(ran.err.contains("has died"), "{}", ran.err);
    let next = workers(&sandbox, 1);
    until_it_is(&sandbox, &id, "cancelled");
    assert_eq!(processes_of(&sandbox, &id), Vec::<i32>::new());
    drop(next);
}

/// Cancelled steps give back what they hold and stand in nobody's way.
#[test]
fn the_place_of_a_cancelled_step_goes_to_the_next() {
    let sandbox = Sandbox::with_shards(2);
    let runner = workers(&sandbox, 2);
    let first = running_step(&sandbox, &["--limit", "one"]);
    let line = "echo $FAIRQ_ID >>order".to_owned();
    let queued = sandbox.enqueue_lines(&["--limit", "one"], &vec![line; 100]);
    let last = sandbox
        .enqueue(["-b", "200", "--limit", "one", "echo $FAIRQ_ID >>order"])
        .remove(0);
    let mut args = vec!["cancel"];
    args.extend(queued.iter().map(String::as_str));
    sandbox.fairq(args).expect(0);
    sandbox.fairq(["cancel", &first]).expect(0);
    sandbox.fairq(["wait", &last]).expect(0);
    assert_eq!(lines(&sandbox.work("order")), [last]);
    assert_eq!(sandbox.count("cancelled"), 101);
    drop(runner);
}

#[test]
fn very_many_steps_are_cancelled_by_one_word_and_counted() {
    let sandbox = Sandbox::with_shards(3);
    let lines = vec!["true".to_owned(); 12_000];
    sandbox.enqueue_lines(&["-k", "many"], &lines);
    let kept = sandbox.enqueue(["-k", "few", "true"]).remove(0);
    let ran = sandbox.fairq(["cancel", "-k", "many"]).expect(0);
    assert_eq!(ran.err, "12,000 cancelled\n");
    until_there_are(&sandbox, 12_000, "cancelled");
    assert_eq!(sandbox.step(&kept)["state"], "ready");
    let told = sandbox.json(["retry", "-k", "many", "--state", "cancelled"]);
    assert_eq!(told["steps"].as_array().unwrap().len(), 12_000);
    assert_eq!(sandbox.count("ready"), 12_001);
}

/// Wherever it is cut off, the same command does the rest and nothing is counted twice.
#[test]
fn a_cancel_that_was_cut_off_is_finished_by_the_same_command() {
    let sandbox = Sandbox::with_shards(4);
    let chance = Chance::new();
    let lines = vec!["true".to_owned(); 5_000];
    for key in ["a", "b", "c", "d"] {
        sandbox.enqueue_lines(&["-k", key], &lines);
    }
    for _ in 0..3 {
        let mut cut = sandbox.command(["cancel", "--all"]).spawn().unwrap();
        thread::park_timeout(Duration::from_millis(chance.below(150)));
        // It may have come to its end.
        cut.kill().unwrap();
        cut.wait().unwrap();
        assert_eq!(sandbox.count("ready") + sandbox.count("cancelled"), 20_000);
        // Counts are what they count, wherever it was cut off.
        sandbox.fairq(["doctor"]).expect(0);
    }
    let code = sandbox.fairq(["cancel", "--all"]).code;
    assert!([0, 3].contains(&code), "{code}");
    assert_eq!(sandbox.count("cancelled"), 20_000);
    sandbox.drain(1).expect(0);
    assert_eq!(sandbox.count("succeeded"), 0);
}
