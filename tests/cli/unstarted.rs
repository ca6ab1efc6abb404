//! The logs of steps that never started say so, and why.

use crate::common::Sandbox;

#[test]
fn the_logs_of_a_step_that_never_started_say_why() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["exit 1"]);
    sandbox.enqueue(["--after", "a1", "true"]);
    sandbox.enqueue(["--hold", "true"]);
    sandbox.enqueue(["--expire", "1ms", "--delay", "1h", "true"]);
    sandbox.enqueue(["--argv", "/no/such/program"]);
    sandbox.enqueue(["--hold", "echo later"]);
    sandbox.fairq(["cancel", "a3"]).expect(0);
    sandbox.drain(1).expect(1);
    let why = [
        ("a2", "a2 never started: a1 failed"),
        ("a3", "a3 never started: it was cancelled before"),
        ("a4", "a4 never started: it had expired before"),
        (
            "a5",
            "a5 never started: cannot run /no/such/program: No such file or directory",
        ),
    ];
    for (id, said) in why {
        for args in [&["logs", id][..], &["logs", "-f", id]] {
            let ran = sandbox.fairq(args).expect(0);
            assert_eq!(
                (ran.text().as_str(), ran.err.trim_end()),
                ("", said),
                "{args:?}"
            );
        }
    }
    let ran = sandbox.fairq(["logs", "a6"]).expect(0);
    assert_eq!(ran.err, "a6 is held and has written nothing yet\n");
    // It ran: there is nothing to be said of it.
    assert_eq!(sandbox.fairq(["logs", "a1"]).expect(0).err, "");
}
