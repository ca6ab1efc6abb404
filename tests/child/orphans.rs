//! What a dead runner leaves is ended, and nobody else is.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;

use fairq::ambient::SystemClock;
use fairq::crew::journal::{Journal, Left, Testament};
use fairq::crew::orphans;
use fairq::crew::process::{Birth, ProcessIdentity};
use fairq::model::StepId;

const STORE: &str = "/a/store";

/// A process in a group of its own, as a step of this id would be.
fn step(id: &str) -> Child {
    Command::new("/bin/sleep")
        .arg("600")
        .env("FAIRQ_ID", id)
        .env("FAIRQ_STORE", STORE)
        .process_group(0)
        .spawn()
        .unwrap()
}

fn birth(child: &Child) -> Birth {
    let start = ProcessIdentity::of(child.id()).unwrap().start_ticks;
    Birth {
        pid: child.id(),
        after: start,
        before: start,
    }
}

fn id(text: &str) -> StepId {
    text.parse().unwrap()
}

/// Writes a journal and lets it be acted on.
fn end(write: impl Fn(&Arc<Journal>)) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    write(&Arc::new(Journal::create(&path).unwrap()));
    orphans::end(
        &Testament::read(&path).unwrap(),
        Path::new(STORE),
        &SystemClock::new(),
    )
}

fn lives(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_none()
}

#[test]
fn a_process_that_the_journal_knows_is_ended() {
    let mut child = step("a1");
    let known = birth(&child);
    assert_eq!(
        end(|journal| journal.running(0, id("a1"), 1, known).unwrap()),
        1
    );
    assert!(!child.wait().unwrap().success());
}

/// The runner died between its note and the process's.
#[test]
fn a_process_that_was_just_being_started_is_found_by_what_it_was_told() {
    // Ids of its own: it looks at all processes, those of the tests beside it too.
    let (mut ours, mut other) = (step("b1"), step("b2"));
    assert_eq!(
        end(|journal| journal.about_to_start(0, id("b1"), 1).unwrap()),
        1
    );
    assert!(!ours.wait().unwrap().success());
    assert!(lives(&mut other));
    other.kill().unwrap();
    other.wait().unwrap();
}

/// Numbers are used again: a journal that is old names whoever has the number now.
#[test]
fn a_bystander_with_the_number_of_a_step_is_left_alone() {
    let mut bystander = step("a1");
    let mut before = birth(&bystander);
    before.after -= 10;
    before.before -= 10;
    assert_eq!(
        end(|journal| journal.running(0, id("a1"), 1, before).unwrap()),
        0
    );
    assert!(lives(&mut bystander));
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

/// Whoever leads a group of that number now is none of what was left: its leader was reaped. Neither is
/// a group in which nobody is who was there then, or says that it belongs to the step.
#[test]
fn a_bystander_with_the_number_of_a_group_that_was_left_is_left_alone() {
    let mut bystander = step("d1");
    let identity = ProcessIdentity::of(bystander.id()).unwrap();
    for group in [bystander.id(), bystander.id() + 1] {
        let ended = end(|journal| {
            let left = Left {
                id: id("d2"),
                group,
                member: identity,
            };
            std::mem::forget(journal.note(left).unwrap());
        });
        assert_eq!(ended, 0);
    }
    assert!(lives(&mut bystander));
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[test]
fn a_step_that_is_over_has_nobody_to_end() {
    let mut child = step("a1");
    let known = birth(&child);
    let ended = end(|journal| {
        journal.running(0, id("a1"), 1, known).unwrap();
        journal.clear(0).unwrap();
    });
    assert_eq!(ended, 0);
    assert!(lives(&mut child));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Whoever else has read it would end the step of the one that runs it again by then.
#[test]
fn a_journal_is_acted_on_once_and_again_only_if_that_was_not_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let journal = Journal::create(&path).unwrap();
    let mut child = step("c1");
    journal.running(3, id("c1"), 7, birth(&child)).unwrap();
    let end_of = |answer: bool| {
        let mut told = Vec::new();
        let clock = SystemClock::new();
        orphans::end_of(&path, Path::new(STORE), &clock, |worker, step, fence| {
            told.push((worker, step, fence));
            answer
        });
        told
    };
    let all = [(3, id("c1"), 7)];
    assert_eq!(end_of(false), all);
    assert!(!child.wait().unwrap().success());
    assert_eq!(end_of(true), all);
    assert_eq!(end_of(true), []);
}
