//! What many of these tests ask.

use crate::common::{Ran, Sandbox};

/// Returns what a step has written so far, or at last.
pub(crate) fn log(sandbox: &Sandbox, id: &str) -> String {
    sandbox.fairq(["logs", id]).expect(0).text()
}

/// Returns where a step stands.
pub(crate) fn state(sandbox: &Sandbox, id: &str) -> String {
    let step = sandbox.step(id);
    step["state"].as_str().unwrap().to_owned()
}

/// Fails unless `enqueue` refuses these arguments in one error with these words, with this on its
/// standard input, and makes no store for it.
#[track_caller]
pub(crate) fn refused(args: &[&str], input: &str, said: &[&str]) -> Ran {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.work("file"), input).unwrap();
    let args = [&["enqueue"], args].concat();
    let ran = sandbox.fairq_with(&args, input.as_bytes()).expect(2);
    assert_eq!(ran.text(), "", "{args:?}");
    let errors = ran.err.lines().filter(|line| line.starts_with("error:"));
    assert_eq!(errors.count(), 1, "{args:?}: {}", ran.err);
    for part in said {
        assert!(
            ran.err.contains(part),
            "{args:?}: no {part:?} in {}",
            ran.err
        );
    }
    assert!(!sandbox.store().exists(), "{args:?} made a store");
    ran
}
