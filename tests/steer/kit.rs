//! What these tests share: chance with a seed, processes of a step, answers.

use std::cell::Cell;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{Runner, Sandbox, until};

/// Chance that can be repeated: it prints its seed when a test fails, and takes it from
/// `FAIRQ_TEST_SEED`.
pub(crate) struct Chance {
    seed: u64,
    state: Cell<u64>,
}

impl Chance {
    pub(crate) fn new() -> Self {
        let given = std::env::var("FAIRQ_TEST_SEED").ok();
        let given = given.map(|text| text.parse().unwrap());
        let seed = given.unwrap_or_else(|| u64::from(std::process::id()));
        Self {
            seed,
            state: Cell::new(seed),
        }
    }

    /// Returns a number below `end` (splitmix64).
    pub(crate) fn below(&self, end: u64) -> u64 {
        let state = self.state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.state.set(state);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// Puts things into another order.
    pub(crate) fn shuffle<T>(&self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            let other = usize::try_from(self.below(last as u64 + 1)).unwrap();
            things.swap(last, other);
        }
    }
}

impl Drop for Chance {
    #[expect(clippy::print_stdout, reason = "how a failure is seen again")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("FAIRQ_TEST_SEED={}", self.seed);
        }
    }
}

/// Returns the live processes that carry a step's id in their environment.
pub(crate) fn processes_of(sandbox: &Sandbox, id: &str) -> Vec<i32> {
    let mark = format!("FAIRQ_ID={id}\0");
    let carries = |pid: &i32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|env| env.windows(mark.len()).any(|part| part == mark.as_bytes()))
    };
    sandbox.processes().into_iter().filter(carries).collect()
}

/// Waits until a step stands there.
#[track_caller]
pub(crate) fn until_it_is(sandbox: &Sandbox, id: &str, state: &str) {
    until(&format!("{id} is {state}"), || {
        sandbox.step(id)["state"] == state
    });
}

/// Waits until so many steps are in a state.
#[track_caller]
pub(crate) fn until_there_are(sandbox: &Sandbox, count: u64, state: &str) {
    until(&format!("{count} are {state}"), || {
        sandbox.count(state) == count
    });
}

/// Returns what a steering command answered for a step.
#[track_caller]
pub(crate) fn answer<'a>(told: &'a Value, id: &str) -> &'a Value {
    let steps = told["steps"].as_array().unwrap();
    let found = steps.iter().find(|step| step["id"] == id);
    found.unwrap_or_else(|| panic!("{id} is not in {told:#}"))
}

/// Makes a file, which lets the steps go that wait for it.
pub(crate) fn touch(path: &Path) {
    fs::write(path, "").unwrap();
}

/// Puts in a step that runs until the file `go` or one of its own name is there, and waits until it
/// runs.
pub(crate) fn running_step(sandbox: &Sandbox, options: &[&str]) -> String {
    let mut args = options.to_vec();
    args.push("until [ -e go ] || [ -e go-$FAIRQ_ID ]; do sleep 0.01; done");
    let id = sandbox.enqueue(args).remove(0);
    until_it_is(sandbox, &id, "running");
    id
}

/// Starts a runner with so many workers.
pub(crate) fn workers(sandbox: &Sandbox, count: usize) -> Runner {
    sandbox.runner(&["--workers", &count.to_string()])
}
