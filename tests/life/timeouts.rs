//! A step whose time is over, and all that belongs to it.

use crate::common::{Sandbox, lines};

/// Puts a line in with these options, runs it to its end, and returns what is known of it.
fn ran(sandbox: &Sandbox, options: &[&str], line: &str) -> serde_json::Value {
    let id = sandbox.enqueue(options.iter().chain(&[line])).remove(0);
    sandbox.drain(2).expect(1);
    assert!(
        sandbox.processes().is_empty(),
        "something was left of {line}"
    );
    sandbox.step(&id)
}

#[test]
fn a_step_that_ignores_its_end_is_killed_after_its_grace() {
    let sandbox = Sandbox::with_shards(1);
    let options = ["--timeout", "1s", "--grace", "300ms"];
    let deaf = "trap '' TERM; while :; do sleep 0.05; done";
    let step = ran(&sandbox, &options, deaf);
    assert_eq!(step["state"], "failed", "{step:#}");
    let ending = &step["attempts"][0]["ending"];
    assert_eq!(
        (&ending["how"], &ending["killed"]),
        (&"timed_out".into(), &true.into())
    );
    let id = step["id"].as_str().unwrap();
    sandbox.fairq(["wait", id]).expect(124);
}

#[test]
fn a_stopped_step_and_grandchildren_are_gone_with_it() {
    let sandbox = Sandbox::with_shards(1);
    for line in [
        "kill -STOP $$; sleep 1000",
        "sh -c 'sh -c \"sleep 1000; :\"; :'; :",
        "sh -c 'kill -STOP $$; sleep 1000' & wait",
    ] {
        let step = ran(&sandbox, &["--timeout", "1s", "--grace", "1h"], line);
        let ending = &step["attempts"][0]["ending"];
        assert_eq!(
            (&ending["how"], &ending["killed"]),
            (&"timed_out".into(), &false.into())
        );
    }
}

#[test]
fn a_step_that_wants_to_end_in_its_own_way_is_asked_by_its_own_signal() {
    let sandbox = Sandbox::with_shards(1);
    let options = ["--timeout", "1s", "--grace", "1h", "--kill-signal", "USR1"];
    let line = "mkfifo pipe; trap '' TERM; trap 'echo tidy >>tidied; exit 0' USR1; read x <>pipe";
    let step = ran(&sandbox, &options, line);
    assert_eq!(
        step["attempts"][0]["ending"]["how"], "timed_out",
        "{step:#}"
    );
    assert_eq!(lines(&sandbox.work("tidied")), ["tidy"]);
}

/// Two tries at a time would do the step's work over each other.
#[test]
fn a_try_begins_when_nobody_is_left_of_the_one_before() {
    let sandbox = Sandbox::with_shards(1);
    let options = [
        "--timeout",
        "1s",
        "--grace",
        "100ms",
        "--retries",
        "2",
        "--backoff",
        "1ms",
    ];
    let line = "for pid in $(cat pids 2>/dev/null); do \
            grep -qs ') [^ZX]' /proc/$pid/stat && echo $pid >>overlaps; done; \
        echo $FAIRQ_ATTEMPT $FAIRQ_DEADLINE >>starts; echo $$ >>pids; \
        sh -c 'trap \"\" TERM; echo $$ >>pids; while :; do sleep 0.01; done' & wait";
    let step = ran(&sandbox, &options, line);
    assert_eq!(step["attempts"].as_array().unwrap().len(), 3, "{step:#}");
    assert_eq!(lines(&sandbox.work("overlaps")), [""; 0]);
    let starts = lines(&sandbox.work("starts"));
    let told: Vec<(&str, &str)> = starts
        .iter()
        .map(|line| line.split_once(' ').unwrap())
        .collect();
    assert_eq!([told[0].0, told[1].0, told[2].0], ["1", "2", "3"]);
    // Each try has a time of its own.
    assert!(told[0].1 < told[1].1 && told[1].1 < told[2].1, "{told:?}");
    assert!(
        told.iter().all(|(_, deadline)| deadline.ends_with('Z')),
        "{told:?}"
    );
}

#[test]
fn a_step_that_ends_in_time_is_none_the_worse() {
    let sandbox = Sandbox::with_shards(1);
    let id = sandbox.enqueue(["--timeout", "1h", "exit 0"]).remove(0);
    sandbox.drain(1).expect(0);
    assert_eq!(sandbox.step(&id)["state"], "succeeded");
}
