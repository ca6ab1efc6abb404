use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::model::{Command, Environment, RunnerId, Span};

/// What was sent to it; takes nothing once it has ended.
#[derive(Default)]
struct Fake {
    over: AtomicBool,
    got: Mutex<Vec<String>>,
}

impl Fake {
    fn take(&self, what: String) -> bool {
        let there = !self.over.load(Ordering::SeqCst);
        if there {
            self.got.lock().unwrap().push(what);
        }
        there
    }

    fn got(&self) -> Vec<String> {
        self.got.lock().unwrap().clone()
    }
}

impl Process for Fake {
    fn end(&self, force: Force) -> bool {
        self.take(format!("{force:?}"))
    }
    fn signal(&self, number: i32) -> bool {
        self.take(number.to_string())
    }
    fn trim(&self) {
        self.take("trim".to_owned());
    }
    fn pid(&self) -> u32 {
        7
    }
}

const fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn claim(id: &str, fence: u32, policy: Policy) -> Claim {
    Claim {
        id: id.parse().unwrap(),
        runner: RunnerId::new(1),
        fence,
        attempt: 1,
        band: Band::DEFAULT,
        key: FairnessKey::default(),
        name: None,
        command: Command::Shell("true".into()),
        cwd: "/".into(),
        env: Arc::new(Environment::default()),
        policy,
        since: Timestamp::default(),
        claimed: Timestamp::default(),
    }
}

fn policy(timeout: u64, grace: u64) -> Policy {
    Policy {
        timeout: Some(Span::from_millis(timeout)),
        grace: Span::from_millis(grace),
        ..Policy::default()
    }
}

/// Lets a worker run a step from this moment on.
fn run(roster: &Roster, worker: u32, claim: &Claim, now: Duration) -> Arc<Fake> {
    roster.enter(worker, claim);
    start(roster, worker, now)
}

fn start(roster: &Roster, worker: u32, now: Duration) -> Arc<Fake> {
    let fake = Arc::new(Fake::default());
    let process: Arc<dyn Process> = Arc::clone(&fake) as Arc<_>;
    roster.started(worker, &process, now);
    fake
}

fn ended(why: Why, killed: bool) -> Option<End> {
    Some(End { why, killed })
}

fn wishes(claim: &Claim) -> Vec<(LocalId, u32)> {
    vec![(claim.id.local, claim.fence)]
}

#[test]
fn a_step_is_asked_when_its_time_is_over_and_killed_when_its_grace_is() {
    let roster = Roster::default();
    let claim = claim("a1", 1, policy(100, 50));
    let fake = run(&roster, 0, &claim, at(1_000));
    assert_eq!(roster.next_alarm(), Some(at(1_100)));
    assert_eq!(roster.ring(at(1_099)), []);
    assert_eq!(
        roster.ring(at(1_120)),
        [(claim.id, 1, Deed::Asked(Why::TimeOver))]
    );
    // From when it was asked, not from when that was due.
    assert_eq!(roster.next_alarm(), Some(at(1_170)));
    assert_eq!(roster.ring(at(1_170)), [(claim.id, 1, Deed::Killed)]);
    assert_eq!(roster.next_alarm(), None);
    assert_eq!(fake.got(), ["Ask", "Kill"]);
    assert_eq!(roster.over(0), ended(Why::TimeOver, true));
}

#[test]
fn a_step_that_has_ended_by_itself_was_in_time() {
    let roster = Roster::default();
    let fake = run(&roster, 0, &claim("a1", 1, policy(100, 50)), at(0));
    fake.over.store(true, Ordering::SeqCst);
    assert_eq!(roster.ring(at(500)), []);
    assert_eq!(roster.end_all(Force::Ask, at(501)), []);
    assert_eq!(roster.end_all(Force::Kill, at(502)), []);
    assert_eq!(roster.over(0), None);
}

#[test]
fn alarms_leave_with_their_step() {
    let roster = Roster::default();
    let limited = Policy {
        max_output: Some(1),
        ..policy(100, 50)
    };
    run(&roster, 0, &claim("a1", 1, limited), at(0));
    assert!(roster.next_alarm().is_some());
    roster.over(0);
    roster.leave(0);
    assert_eq!(roster.next_alarm(), None);
    let next = run(&roster, 0, &claim("a2", 1, Policy::default()), at(0));
    assert_eq!(roster.next_alarm(), None);
    assert_eq!(roster.ring(at(1_000_000)), []);
    assert_eq!(next.got(), [""; 0]);
}

#[test]
fn what_a_limited_step_has_written_is_looked_at_again_and_again() {
    let roster = Roster::default();
    let limited = Policy {
        max_output: Some(1),
        ..Policy::default()
    };
    let fake = run(&roster, 0, &claim("a1", 1, limited), at(0));
    for _ in 0..3 {
        let next = roster.next_alarm().unwrap();
        assert_eq!(roster.ring(next), []);
    }
    assert_eq!(fake.got(), ["trim", "trim", "trim"]);
}

#[test]
fn the_first_reason_counts_and_the_grace_runs_once() {
    let roster = Roster::default();
    let claim = claim("a1", 1, policy(100, 50));
    let fake = run(&roster, 0, &claim, at(0));
    assert_eq!(roster.end_all(Force::Ask, at(90)).len(), 1);
    // Its time would be over now, and its end is wished as well: it is being ended.
    assert_eq!(roster.ring(at(110)), []);
    assert_eq!(roster.wish(claim.id.shard, wishes(&claim), at(120)), []);
    assert_eq!(roster.next_alarm(), Some(at(140)));
    assert_eq!(roster.ring(at(140)), [(claim.id, 1, Deed::Killed)]);
    assert_eq!(fake.got(), ["Ask", "Kill"]);
    assert_eq!(roster.over(0), ended(Why::Leaving, true));
}

#[test]
fn a_wish_is_for_one_claim_of_one_shard() {
    let roster = Roster::default();
    let [old, new] = [1, 2].map(|fence| claim("a1", fence, Policy::default()));
    let other = claim("b1", 2, Policy::default());
    let mine = run(&roster, 0, &new, at(0));
    let theirs = run(&roster, 1, &other, at(0));
    assert_eq!(roster.wish(old.id.shard, wishes(&old), at(1)), []);
    assert_eq!(
        roster.wish(new.id.shard, wishes(&new), at(2)),
        [(new.id, 2, Deed::Asked(Why::Wished))]
    );
    assert_eq!((mine.got().len(), theirs.got().len()), (1, 0));
    // Told again, it is not asked again.
    assert_eq!(roster.wish(new.id.shard, wishes(&new), at(3)), []);
    assert_eq!(roster.over(0), ended(Why::Wished, false));
    assert_eq!(roster.over(1), None);
}

/// The store knows of a claim before the roster does.
#[test]
fn a_wish_that_is_seen_before_its_step_is_entered_is_not_lost() {
    let roster = Roster::default();
    let claim = claim("a1", 3, Policy::default());
    let shard = claim.id.shard;
    roster.wish(shard, wishes(&claim), at(0));
    roster.enter(0, &claim);
    assert_eq!(roster.end_of(0), ended(Why::Wished, false));
    roster.over(0);
    roster.leave(0);
    // Once the store says no more of it, it is forgotten.
    roster.wish(shard, Vec::new(), at(1));
    roster.enter(0, &claim);
    assert_eq!(roster.end_of(0), None);
}

#[test]
fn a_wish_between_entry_and_start_is_met_at_the_start() {
    let roster = Roster::default();
    let claim = claim("a1", 3, policy(1_000, 50));
    roster.enter(0, &claim);
    assert_eq!(roster.wish(claim.id.shard, wishes(&claim), at(0)), []);
    assert_eq!(roster.end_of(0), ended(Why::Wished, false));
    let fake = start(&roster, 0, at(10));
    assert_eq!(fake.got(), ["Ask"]);
    assert_eq!(roster.next_alarm(), Some(at(60)));
    assert_eq!(roster.over(0), ended(Why::Wished, false));
}

#[test]
fn who_starts_while_the_runner_leaves_is_ended_with_the_others_force() {
    let roster = Roster::default();
    roster.end_all(Force::Ask, at(0));
    roster.enter(0, &claim("a1", 1, Policy::default()));
    assert_eq!(roster.end_of(0), ended(Why::Leaving, false));
    assert_eq!(start(&roster, 0, at(1)).got(), ["Ask"]);
    roster.enter(1, &claim("a2", 1, Policy::default()));
    roster.end_all(Force::Kill, at(2));
    assert_eq!(start(&roster, 1, at(3)).got(), ["Kill"]);
    assert_eq!(roster.over(1), ended(Why::Leaving, true));
    assert_eq!(roster.over(0), ended(Why::Leaving, true));
}

#[test]
fn a_signal_goes_to_the_claims_it_is_for_and_changes_nothing_else() {
    let roster = Roster::default();
    let [one, two] = ["a1", "a2"].map(|id| claim(id, 1, Policy::default()));
    let first = run(&roster, 0, &one, at(0));
    let second = run(&roster, 1, &two, at(0));
    assert_eq!(roster.signal(&[(one.id, 1), (two.id, 9)], 10), [one.id]);
    assert_eq!(
        (first.got(), second.got().len()),
        (vec!["10".to_owned()], 0)
    );
    assert_eq!(roster.over(0), None);
}
