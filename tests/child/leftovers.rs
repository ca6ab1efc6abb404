//! What it leaves in its process group.

use std::fs;
use std::sync::Arc;

use fairq::ambient::SystemClock;
use fairq::crew::leftovers::Leftovers;
use fairq::model::Span;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::*;

const STAYS: &str = "sh -c 'trap \"\" TERM; echo $$ >left; while :; do sleep 0.05; done' & until test -s left; do sleep 0.01; done";
const LONG: Span = Span::from_millis(3_600_000);

fn sweeper() -> Leftovers {
    Leftovers::new(Arc::new(SystemClock::new()))
}

#[test]
fn a_step_without_any_leaves_none() {
    let mut bench = Bench::new();
    assert!(bench.run(sh("sleep 0.01 & wait")).ended.leftover.is_none());
}

#[test]
fn what_heeds_the_request_is_gone_without_the_grace() {
    let mut bench = Bench::new();
    let leftovers = sweeper();
    let ran = bench.run(sh("sleep 1000 & echo $! >left"));
    let left = bench.pid_in("left");
    if let Some(leftover) = ran.ended.leftover {
        leftovers.end(leftover, LONG, None);
    }
    until("it is gone", || !exists(left));
    until("the sweeper knows", || leftovers.is_empty());
}

#[test]
fn what_does_not_heed_it_is_killed_after_the_grace() {
    let mut bench = Bench::new();
    let leftovers = sweeper();
    for round in 0..2 {
        let ran = bench.run(sh(STAYS));
        assert_eq!(ran.code(), Some(0));
        let left = bench.pid_in("left");
        leftovers.end(ran.ended.leftover.unwrap(), Span::from_millis(150), None);
        assert!(!leftovers.is_empty() || !exists(left));
        until("it is gone", || !exists(left));
        until("the sweeper has ended", || leftovers.is_empty());
        fs::remove_file(bench.work().join("left")).unwrap();
        // The second round needs a sweeper again after the first one has ended.
        assert!(round < 2);
    }
}

#[test]
fn closing_kills_at_once_and_so_does_coming_too_late() {
    let mut bench = Bench::new();
    let leftovers = sweeper();
    let ran = bench.run(sh(STAYS));
    let left = bench.pid_in("left");
    leftovers.end(ran.ended.leftover.unwrap(), LONG, None);
    assert!(exists(left));
    leftovers.close();
    until("it is gone", || !exists(left));

    fs::remove_file(bench.work().join("left")).unwrap();
    let ran = bench.run(sh(STAYS));
    let left = bench.pid_in("left");
    leftovers.end(ran.ended.leftover.unwrap(), LONG, None);
    until("it is gone", || !exists(left));
}

#[test]
fn a_group_that_may_live_gets_no_signal() {
    let mut bench = Bench::new();
    bench.claim.policy.leave_group = true;
    let ran = bench.run(sh("sh -c 'trap \"echo got >signal\" TERM HUP; echo $$ >left; while :; do sleep 0.01; done' & until test -s left; do sleep 0.01; done"));
    let left = bench.pid_in("left");
    assert!(ran.ended.leftover.is_some());
    // It goes on, and would write if it had got anything before this.
    kill(Pid::from_raw(left.cast_signed()), Signal::SIGCONT).unwrap();
    for _ in 0..5 {
        bench.run(sh("sleep 0.02"));
    }
    assert!(exists(left));
    assert!(!bench.work().join("signal").exists());
    kill(Pid::from_raw(left.cast_signed()), Signal::SIGKILL).unwrap();
    until("it is gone", || !exists(left));
}
