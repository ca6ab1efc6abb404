//! Steps that fail and are tried again.

use nix::sys::signal::Signal;

use crate::common::{Sandbox, lines, until};

const TRIES: &str = "echo $FAIRQ_ATTEMPT >>tries-$FAIRQ_ID";

#[test]
fn a_step_is_tried_until_it_succeeds() {
    let sandbox = Sandbox::with_shards(2);
    let line = format!("{TRIES}; test $FAIRQ_ATTEMPT = 3");
    let id = sandbox
        .enqueue(["--retries", "5", "--backoff", "1ms", &line])
        .remove(0);
    sandbox.drain(1).expect(0);
    let step = sandbox.step(&id);
    assert_eq!(step["state"], "succeeded");
    assert_eq!(
        lines(&sandbox.work(&format!("tries-{id}"))),
        ["1", "2", "3"]
    );
    let codes: Vec<i64> = step["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| attempt["ending"]["code"].as_i64().unwrap())
        .collect();
    assert_eq!(codes, [1, 1, 0]);
}

/// A wait that wraps would be negative, and the step tried in a hot loop.
#[test]
fn a_wait_grows_to_its_cap_and_stays_there() {
    let sandbox = Sandbox::with_shards(1);
    let line = format!("{TRIES}; exit 1");
    let id = sandbox
        .enqueue(["--retries", "200", "--backoff", "1ms,1000000,2ms", &line])
        .remove(0);
    sandbox.drain(1).expect(1);
    let tries = lines(&sandbox.work(&format!("tries-{id}")));
    assert_eq!(tries.len(), 201);
    let step = sandbox.step(&id);
    let attempts = step["attempts"].as_array().unwrap();
    for pair in attempts.windows(2) {
        let [ended, since] = [&pair[0]["ended"], &pair[1]["since"]].map(|at| at.as_str().unwrap());
        assert!(ended < since, "{ended} {since}");
    }
}

#[test]
fn codes_say_what_is_worth_another_try() {
    let sandbox = Sandbox::with_shards(1);
    let cases: [(&[&str], &str, usize); 7] = [
        (&[], "exit 9", 2),
        (&[], "kill -9 $$", 2),
        (&["--retry-on", "9"], "exit 9", 2),
        (&["--retry-on", "9"], "exit 8", 1),
        (&["--retry-on", "137"], "kill -9 $$", 2),
        (&["--no-retry-on", "9"], "exit 9", 1),
        (
            &["--timeout", "200ms", "--no-retry-on", "124"],
            "sleep 1000",
            1,
        ),
    ];
    let ids = cases.map(|(options, line, _)| {
        let always = ["--retries", "1", "--backoff", "1ms"];
        sandbox
            .enqueue(always.iter().chain(options).chain(&[line]))
            .remove(0)
    });
    sandbox.drain(4).expect(1);
    for (id, (options, line, tries)) in ids.iter().zip(cases) {
        let step = sandbox.step(id);
        let attempts = step["attempts"].as_array().unwrap().len();
        assert_eq!(attempts, tries, "{line} {options:?}: {step:#}");
        assert_eq!(step["state"], "failed");
    }
}

#[test]
fn what_can_never_start_is_tried_again_only_if_that_was_asked_for() {
    let sandbox = Sandbox::with_shards(1);
    let always = ["--retries", "1", "--backoff", "1ms"];
    let nothing = ["--argv", "no-such-program"];
    let once = sandbox.enqueue(always.iter().chain(&nothing)).remove(0);
    let asked = ["--retry-on", "127"];
    let twice = sandbox
        .enqueue(always.iter().chain(&asked).chain(&nothing))
        .remove(0);
    sandbox.drain(1).expect(1);
    let tries = |id: &str| sandbox.step(id)["attempts"].as_array().unwrap().len();
    assert_eq!((tries(&once), tries(&twice)), (1, 2));
}

/// The planned time is the store's, not the runner's.
#[test]
fn a_runner_that_dies_does_not_bring_a_try_forward() {
    let sandbox = Sandbox::with_shards(1);
    let line = format!("{TRIES}; exit 1");
    let id = sandbox
        .enqueue(["--retries", "1", "--backoff", "1h,1,1h", &line])
        .remove(0);
    for hard in [true, false] {
        let runner = sandbox.runner(&["--workers", "1"]);
        until("it waits for its second try", || {
            sandbox.count("delayed") == 1
        });
        if hard {
            runner.kill_hard();
        } else {
            runner.signal(Signal::SIGTERM);
            assert_eq!(runner.end().0, 0);
        }
    }
    let step = sandbox.step(&id);
    assert_eq!(
        (&step["state"], &step["attempt"]),
        (&"delayed".into(), &1.into())
    );
    assert_eq!(lines(&sandbox.work(&format!("tries-{id}"))), ["1"]);
}

/// A parent that will be tried again has not ended.
#[test]
fn a_dependent_waits_for_the_last_try() {
    let sandbox = Sandbox::with_shards(3);
    let line = "echo a$FAIRQ_ATTEMPT >>order; test $FAIRQ_ATTEMPT = 3";
    let parent = sandbox
        .enqueue(["-k", "x", "--retries", "2", "--backoff", "1ms", line])
        .remove(0);
    for key in ["x", "y", "z"] {
        sandbox.enqueue(["-k", key, "--after", &parent, "echo b >>order"]);
    }
    sandbox.drain(2).expect(0);
    let order = lines(&sandbox.work("order"));
    assert_eq!(order, ["a1", "a2", "a3", "b", "b", "b"]);
}
