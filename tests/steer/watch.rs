//! Looking on: the columns that were asked for, and again as things change.

use std::fs;
use std::process::Stdio;

use crate::common::{Sandbox, until};

#[test]
fn a_table_has_the_columns_that_were_asked_for_in_that_order() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["-n", "x", "--flow", "f", "-t", "u,v", "-w", "3", "true"]);
    let columns = "flow,id,weight,tries,state,tags";
    let out = sandbox
        .fairq(["status", "--columns", columns])
        .expect(0)
        .text();
    let table: Vec<&str> = out.lines().skip_while(|line| !line.is_empty()).collect();
    assert_eq!(
        table,
        [
            "",
            "FLOW\tID\tWEIGHT\tTRIES\tSTATE\tTAGS",
            "f\ta1\t3\t0\tready\tu,v"
        ]
    );
    for bad in ["", "nope", "id,,key", "ID"] {
        let columns = format!("--columns={bad}");
        sandbox.fairq(["status", &columns]).expect(2);
    }
    sandbox.fairq(["status", "--watch", "--json"]).expect(2);
}

/// In a pipe nothing is moved about: one picture follows the other.
#[test]
fn a_watched_status_is_shown_again_when_something_has_changed() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["-n", "first", "true"]);
    let path = sandbox.work("seen");
    let mut watch = sandbox
        .command(["status", "--watch"])
        .stdout(fs::File::create(&path).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let seen = || fs::read_to_string(&path).unwrap();
    until("the first picture is there", || seen().contains("first"));
    assert!(!seen().contains("second"));
    sandbox.enqueue(["-n", "second", "true"]);
    until("the second picture is there", || seen().contains("second"));
    assert!(!seen().contains('\x1b'), "{}", seen());
    watch.kill().unwrap();
    watch.wait().unwrap();
}
