//! Pages whose examples are run as they are written.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::common::{Ran, Sandbox};

/// Returns the parts of a page that are marked with this word, in order.
pub(crate) fn parts(page: &str, mark: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let page = fs::read_to_string(page).unwrap();
    let mark = format!("<!-- {mark} -->\n```sh\n");
    page.split(&mark)
        .skip(1)
        .map(|part| part.split_once("```").unwrap().0.to_owned())
        .collect()
}

/// Runs a part as a shell would, and finds the promised lines in what it prints, in their order.
pub(crate) fn run(sandbox: &Sandbox, part: &str) -> String {
    let pinned = sandbox.command([""; 0]);
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", part]).env_clear();
    for (name, value) in pinned.get_envs() {
        shell.env(name, value.unwrap());
    }
    let beside = Path::new(env!("CARGO_BIN_EXE_fairq")).parent().unwrap();
    let path = format!("{}:/usr/bin:/bin", beside.display());
    shell.env("PATH", path).current_dir(sandbox.work(""));
    let out = Ran::of(&mut shell).expect(0).text();
    let mut printed = out.lines();
    for promised in part.lines().filter_map(|line| line.strip_prefix("#> ")) {
        let is_it = |line: &str| match promised.strip_suffix('…') {
            Some(begins) => line.starts_with(begins),
            None => line == promised,
        };
        let found = printed.any(is_it);
        assert!(
            found,
            "{promised:?} is not in, or not in this order:\n{out}"
        );
    }
    out
}
