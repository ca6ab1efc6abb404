//! Steps that are ended while they run.

use crate::common::{Sandbox, until};

/// Puts a line in, waits until it says that it is up, cancels it, and returns what is known of it
/// then.
fn cancelled(sandbox: &Sandbox, options: &[&str], line: &str) -> serde_json::Value {
    let marked = format!("echo >up-$FAIRQ_ID; {line}");
    let id = sandbox
        .enqueue(options.iter().chain(&[marked.as_str()]))
        .remove(0);
    let up = sandbox.work(&format!("up-{id}"));
    until("it runs", || up.exists());
    sandbox.fairq(["cancel", &id]).expect(0);
    // No process is left when the command returns: this is what it waits for.
    let carries = format!("FAIRQ_ID={id}");
    for pid in sandbox.processes() {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let is_its = environ
            .split(|byte| *byte == 0)
            .any(|pair| pair == carries.as_bytes());
        assert!(!is_its, "{pid} is left of {line}");
    }
    sandbox.step(&id)
}

#[test]
fn nobody_of_its_group_is_left_of_a_cancelled_step() {
    let sandbox = Sandbox::with_shards(1);
    let _runner = sandbox.runner(&["--workers", "2"]);
    for line in [
        "sh -c 'sh -c \"sleep 1000; :\"; :'; :",
        "kill -STOP $$; sleep 1000",
        "trap '' TERM; while :; do sleep 0.05; done",
        "sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' & wait",
        "sh -c 'kill -STOP $$; sleep 1000' & wait",
    ] {
        let step = cancelled(&sandbox, &["--grace", "200ms"], line);
        assert_eq!(step["state"], "cancelled", "{line}: {step:#}");
    }
}

#[test]
fn a_cancelled_step_is_asked_by_its_own_signal_and_not_tried_again() {
    let sandbox = Sandbox::with_shards(1);
    let _runner = sandbox.runner(&["--workers", "1"]);
    let options = [
        "--kill-signal",
        "INT",
        "--grace",
        "1h",
        "--retries",
        "9",
        "--backoff",
        "1ms",
    ];
    let line = "mkfifo pipe; trap 'exit 3' INT; trap '' TERM; read x <>pipe";
    let step = cancelled(&sandbox, &options, line);
    assert_eq!(step["state"], "cancelled", "{step:#}");
    let attempts = step["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0]["ending"]["code"], 3, "{step:#}");
}

/// The wish comes around the start of the process, a little earlier or later each time.
#[test]
fn a_step_that_is_cancelled_around_its_start_does_not_go_on() {
    let sandbox = Sandbox::with_shards(1);
    let _runner = sandbox.runner(&["--workers", "4"]);
    for round in 0..40 {
        let id = sandbox.enqueue(["--grace", "1h", "sleep 1000"]).remove(0);
        // From at once to well after the start.
        std::thread::park_timeout(std::time::Duration::from_micros(200 * round));
        sandbox.fairq(["cancel", &id]).expect(0);
        assert_eq!(sandbox.step(&id)["state"], "cancelled", "{id}");
    }
    assert_eq!(sandbox.count("running"), 0);
}
