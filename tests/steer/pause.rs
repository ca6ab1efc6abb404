//! Pauses last, cover what they name and nothing else, and are named wherever they matter.

use serde_json::json;

use crate::common::{Sandbox, lines};
use crate::kit::{running_step, touch, until_it_is, workers};

#[test]
fn a_pause_outlives_every_runner_and_ends_when_it_is_taken_back() {
    let sandbox = Sandbox::with_shards(2);
    sandbox.fairq(["pause", "-k", "quiet"]).expect(0);
    let quiet = sandbox
        .enqueue(["-k", "quiet", "echo quiet >>order"])
        .remove(0);
    for ending in ["kill", "term"] {
        let runner = workers(&sandbox, 1);
        // That this one ran shows that the runner has looked at everything.
        let loud = sandbox
            .enqueue(["-k", "loud", "-b", "200", "true"])
            .remove(0);
        sandbox.fairq(["wait", &loud]).expect(0);
        assert_eq!(sandbox.step(&quiet)["state"], "ready", "{ending}");
        let told = sandbox.json(["status"]);
        assert_eq!(told["pauses"][0]["key"], "quiet", "{told:#}");
        assert_eq!(told["pauses"][0]["band"], json!(null), "{told:#}");
        assert_eq!(told["paused"], 1, "{told:#}");
        if ending == "kill" {
            runner.kill_hard();
        } else {
            runner.signal(nix::sys::signal::Signal::SIGTERM);
            assert_eq!(runner.end().0, 0);
        }
    }
    let runner = workers(&sandbox, 1);
    let told = sandbox.json(["resume", "-k", "quiet"]);
    assert_eq!(told["resumed"][0]["key"], "quiet", "{told:#}");
    assert_eq!(told["paused"], json!([]), "{told:#}");
    sandbox.fairq(["wait", &quiet]).expect(0);
    assert_eq!(lines(&sandbox.work("order")), ["quiet"]);
    sandbox.fairq(["resume", "-k", "quiet"]).expect(3);
    drop(runner);
}

#[test]
fn cancelling_pauses_nothing_and_enqueue_names_the_pause_that_it_meets() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["-k", "g", "true"]);
    sandbox.fairq(["cancel", "-k", "g"]).expect(0);
    let ran = sandbox.fairq(["enqueue", "-k", "g", "true"]).expect(0);
    assert_eq!(ran.err, "");
    sandbox.drain(1).expect(0);
    assert_eq!(sandbox.step("a2")["state"], "succeeded");
    sandbox.fairq(["pause", "-k", "g"]).expect(0);
    let ran = sandbox.fairq(["enqueue", "-k", "g", "true"]).expect(0);
    assert_eq!(ran.text(), "a3\n", "only the id goes to standard output");
    assert!(ran.err.starts_with("paused: key g, since "), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    assert!(ran.err.contains("fairq resume --key g"), "{}", ran.err);
    let ran = sandbox.fairq(["enqueue", "-k", "other", "true"]).expect(0);
    assert_eq!(ran.err, "");
    let ran = sandbox
        .fairq(["enqueue", "-q", "-k", "g", "true"])
        .expect(0);
    assert_eq!(ran.err, "");
    let ran = sandbox.fairq(["status"]).expect(0);
    assert!(ran.err.contains("paused: key g, since "), "{}", ran.err);
    assert!(!ran.text().contains("resume"), "{}", ran.text());
    let told = sandbox.fairq(["status", "--json"]).expect(0);
    assert_eq!(told.err, "", "JSON has a field for it");
    assert_eq!(told.json()["paused"], 2);
}

#[test]
fn each_pause_covers_what_it_names() {
    for (pause, paused) in [
        (&["-k", "x"][..], &["x1", "x2"][..]),
        (&["-b", "1"], &["x1", "y1"]),
        (&["-k", "x", "-b", "1"], &["x1"]),
        (&["--all"], &["x1", "x2", "y1", "y2"]),
    ] {
        let sandbox = Sandbox::with_shards(2);
        let command = [&["pause"], pause].concat();
        sandbox.fairq(&command).expect(0);
        // Pausing again changes nothing, and one resume takes it back.
        sandbox.fairq(&command).expect(0);
        for (key, band) in [("x", "1"), ("x", "2"), ("y", "1"), ("y", "2")] {
            let line = format!("echo {key}{band} >>order");
            sandbox.enqueue(["-q", "-k", key, "-b", band, &line]);
        }
        sandbox.drain(1).expect(0);
        let all = ["x1", "x2", "y1", "y2"];
        let mut ran = lines(&sandbox.work("order"));
        ran.sort();
        let free: Vec<&str> = all.into_iter().filter(|it| !paused.contains(it)).collect();
        assert_eq!(ran, free, "{pause:?}");
        sandbox.fairq([&["resume"], pause].concat()).expect(0);
        sandbox.drain(1).expect(0);
        assert_eq!(lines(&sandbox.work("order")).len(), 4, "{pause:?}");
    }
}

#[test]
fn a_resume_takes_back_its_own_pause_and_names_the_others() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.fairq(["pause", "-k", "x"]).expect(0);
    sandbox.fairq(["pause", "-b", "7"]).expect(0);
    sandbox.fairq(["pause", "--all"]).expect(0);
    let ran = sandbox.fairq(["resume", "-k", "x"]).expect(0);
    assert!(ran.err.starts_with("resumed: key x\n"), "{}", ran.err);
    assert!(ran.err.contains("paused: band 7, "), "{}", ran.err);
    assert!(ran.err.contains("paused: everything, "), "{}", ran.err);
    let told = sandbox.json(["resume", "--all"]);
    assert_eq!(told["resumed"].as_array().unwrap().len(), 2, "{told:#}");
    assert_eq!(sandbox.json(["status"])["pauses"], json!([]));
    sandbox.fairq(["resume", "--all"]).expect(3);
    sandbox.fairq(["pause"]).expect(2);
    sandbox.fairq(["pause", "--all", "-k", "x"]).expect(2);
}

#[test]
fn what_runs_goes_on_and_what_is_paused_is_in_nobodys_way() {
    let sandbox = Sandbox::with_shards(1);
    let runner = workers(&sandbox, 1);
    let first = running_step(&sandbox, &["-k", "x", "-b", "1"]);
    sandbox.fairq(["pause", "-k", "x"]).expect(0);
    let better = sandbox.enqueue(["-q", "-k", "x", "-b", "1", "true"]);
    assert_eq!(better, Vec::<String>::new());
    let worse = sandbox.enqueue(["-k", "y", "-b", "200", "true"]).remove(0);
    let told = sandbox.json(["explain", &worse]);
    let codes: Vec<&str> = told["reasons"]
        .as_array()
        .unwrap()
        .iter()
        .map(|reason| reason["code"].as_str().unwrap())
        .collect();
    assert_eq!(codes, ["workers_busy"], "{told:#}");
    touch(&sandbox.work("go"));
    until_it_is(&sandbox, &first, "succeeded");
    sandbox.fairq(["wait", &worse]).expect(0);
    assert_eq!(sandbox.count("ready"), 1);
    drop(runner);
}
