//! Strict bands.

use crate::common::{Sandbox, lines, until};
use crate::steps;

#[test]
fn better_bands_go_first_whatever_the_order_in_which_they_came() {
    let sandbox = Sandbox::with_shards(2);
    // Put in worst first; keys spread them over both shards.
    for band in ["200", "7", "100", "0"] {
        for key in ["a", "b", "c", "d", "e"] {
            let step = format!("echo {band} >>order");
            sandbox.enqueue(["-b", band, "-k", key, "--", "sh", "-c", &step]);
        }
    }
    let of_band = |band: &str| {
        let steps = sandbox.json(["status", "-b", band])["steps"].take();
        let steps = steps.as_array().unwrap();
        steps
            .iter()
            .map(|step| step["id"].as_str().unwrap()[..1].to_owned())
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(of_band("7").len(), 2, "the keys lie on both shards");
    sandbox.drain(1).expect(0);
    let order = lines(&sandbox.work("order"));
    let strict: Vec<&str> = ["0", "7", "100", "200"]
        .into_iter()
        .flat_map(|band| [band; 5])
        .collect();
    assert_eq!(order, strict);
}

/// A busy store holds many due steps of band 100. What is put in at band 0 by another process has to
/// pass the steps that the workers have claimed already and that have not written their line, one a
/// worker, and what is still taken from the old plan until the refiller that the bell wakes has read
/// its tally and planned anew: two cycles, and in each a worker takes at most one, as a step outlasts
/// a cycle. The length of the queue must not matter.
#[test]
fn an_urgent_step_passes_a_long_queue_within_two_refill_cycles() {
    const WORKERS: usize = 2;
    let sandbox = Sandbox::with_shards(2);
    let step = "echo usual >>order; sleep 0.02".to_owned();
    for key in ["a", "b", "c", "d"] {
        sandbox.enqueue_lines(&["-k", key], &vec![step.clone(); steps(2_000) / 4]);
    }
    let runner = sandbox.runner(&["--workers", &WORKERS.to_string()]);
    let order = sandbox.work("order");
    for round in 0..5 {
        let so_far = lines(&order).len();
        until("the queue moves", || lines(&order).len() > so_far + 10);
        let urgent = format!("echo urgent-{round} >>order");
        // Of a key that waits itself: a new one would go first by fairness alone.
        sandbox.enqueue(["-b", "0", "-k", "a", &urgent]);
        let acknowledged = lines(&order).len();
        let at = || {
            let mark = format!("urgent-{round}");
            lines(&order).iter().position(|line| *line == mark)
        };
        until("the urgent step starts", || at().is_some());
        let passed = at().unwrap().saturating_sub(acknowledged);
        assert!(
            passed <= 3 * WORKERS,
            "round {round}: {passed} steps of a worse band were started before it"
        );
    }
    assert!(
        sandbox.count("ready") > 0,
        "the queue was too short to show anything"
    );
    drop(runner);
}
