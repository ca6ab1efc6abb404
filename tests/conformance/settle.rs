//! What [`fairq::store::Settle`] promises, and that what was settled can be read.

use std::io::Read as _;
use std::path::PathBuf;

use fairq::model::Stream;
use fairq::model::{
    Captured, Claim, Ending, OnLost, Settled, Settlement, StepId, StepState, Verdict,
};
use fairq::store::{Attempt, Output};

use super::{
    ONLY, Open, START, World, at, failure, give_back, lost_step, over, recorded, runner, step,
    success,
};

/// Everything about a step that a settlement could change, to be compared whole.
fn picture(world: &World, id: StepId) -> String {
    let store = &world.store;
    let outputs = (1..=3).map(|fence| (bytes(world, id, fence, Stream::Stdout), fence));
    let outputs: Vec<_> = outputs.collect();
    let (view, attempts) = (world.view(id), store.attempts(id).unwrap());
    format!("{view:?} {attempts:?} {outputs:?} {:?}", world.due("a"))
}

fn bytes(world: &World, id: StepId, fence: u32, stream: Stream) -> Option<Vec<u8>> {
    match world.store.output(id, fence, stream).unwrap()? {
        Output::Bytes(bytes) => Some(bytes),
        Output::File(mut file) => {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            Some(bytes)
        }
    }
}

fn saying(mut settlement: Settlement, stdout: Captured, stderr: Captured) -> Settlement {
    settlement.finished.stdout = stdout;
    settlement.finished.stderr = stderr;
    settlement
}

fn record(claim: &Claim, ending: Ending) -> Attempt {
    Attempt {
        fence: claim.fence,
        attempt: claim.attempt,
        runner: claim.runner,
        worker: 7,
        since: claim.since,
        claimed: claim.claimed,
        started: Some(at(claim.claimed.millis() + 1)),
        ended: at(claim.claimed.millis() + 10),
        ending,
    }
}

pub(crate) fn a_verdict_ends_the_step(open: Open) {
    let world = World::new(open, 1);
    let reason = "no such file: /bin/\u{fffd}".to_owned();
    for (ending, verdict, state) in [
        (
            Ending::Exited { code: 0 },
            Verdict::Succeeded,
            StepState::Succeeded,
        ),
        (
            Ending::Exited { code: 255 },
            Verdict::Failed,
            StepState::Failed,
        ),
        (
            Ending::Signalled { signal: 9 },
            Verdict::Failed,
            StepState::Failed,
        ),
        (
            Ending::Unstarted { reason },
            Verdict::Failed,
            StepState::Failed,
        ),
    ] {
        let id = world.put_one(step("a"));
        let claim = world.take(id);
        let settled = world.settle(over(&claim, ending.clone(), verdict));
        assert_eq!(settled, recorded(state));
        let view = world.view(id);
        assert_eq!((view.state, view.ending), (state, Some(ending)));
        assert_eq!((view.attempt, view.fence, view.runner), (1, 1, None));
        assert_eq!(view.started, Some(at(claim.claimed.millis() + 1)));
        assert_eq!(view.at, at(claim.claimed.millis() + 10));
        assert_eq!(view.created, START);
        assert_eq!(world.due("a"), []);
        assert!(world.claim(id, 2, claim.claimed).is_none());
    }
}

pub(crate) fn a_step_given_back_is_as_it_was(open: Open) {
    let world = World::new(open, 1);
    let id = world.put_one(step("a"));
    let claim = world.take(id);
    assert_eq!(world.settle(give_back(&claim)), recorded(StepState::Ready));
    let view = world.view(id);
    assert_eq!((view.state, view.at), (StepState::Ready, START));
    assert_eq!((view.attempt, view.fence, view.runner), (0, 1, None));
    assert_eq!((view.ending, view.started), (None, None));
    let again = world.take(id);
    assert_eq!((again.fence, again.attempt, again.since), (2, 1, START));
}

pub(crate) fn a_step_whose_next_try_is_now_is_due_at_once(open: Open) {
    let world = World::new(open, 1);
    let id = world.put_one(step("a"));
    let first = world.take(id);
    let mut failed = failure(&first);
    let at = failed.finished.ended;
    failed.verdict = Verdict::Retry { at };
    assert_eq!(world.settle(failed), recorded(StepState::Ready));
    let again = world.take(id);
    assert_eq!((again.fence, again.attempt, again.since), (2, 2, at));
}

pub(crate) fn a_second_settlement_is_fenced(open: Open) {
    let world = World::new(open, 1);
    let firsts = [
        (success as fn(&Claim) -> Settlement, StepState::Succeeded),
        (give_back, StepState::Ready),
    ];
    for (first, state) in firsts {
        let id = world.put_one(step("a"));
        let claim = world.take(id);
        assert_eq!(world.settle(first(&claim)), recorded(state));
        let before = picture(&world, id);
        for second in [success, give_back] {
            assert_eq!(world.settle(second(&claim)), Settled::Fenced);
        }
        assert_eq!(picture(&world, id), before);
    }
}

pub(crate) fn a_late_settlement_changes_nothing(open: Open) {
    let world = World::new(open, 1);
    for on_lost in [OnLost::Retry, OnLost::Fail, OnLost::Hold] {
        let id = world.put_one(lost_step(on_lost));
        let late = world.take(id);
        world.store.reclaim(ONLY, runner(1), late.claimed).unwrap();
        let mut before = picture(&world, id);
        let words = || Captured::Inline(b"late".to_vec());
        let settle_late = || world.settle(saying(success(&late), words(), words()));
        assert_eq!(settle_late(), Settled::Fenced);
        assert_eq!(picture(&world, id), before);
        if on_lost == OnLost::Retry {
            // The same runner has the step again: only the fence tells the two tries apart.
            let current = world.take(id);
            before = picture(&world, id);
            assert_eq!(settle_late(), Settled::Fenced);
            assert_eq!(picture(&world, id), before);
            assert_eq!(
                world.settle(success(&current)),
                recorded(StepState::Succeeded)
            );
        }
    }
}

pub(crate) fn a_settlement_of_another_runner_is_fenced(open: Open) {
    let world = World::new(open, 1);
    let id = world.put_one(step("a"));
    let claim = world.take(id);
    let before = picture(&world, id);
    let mut stranger = claim.clone();
    stranger.runner = runner(2);
    assert_eq!(world.settle(success(&stranger)), Settled::Fenced);
    let mut ahead = claim.clone();
    ahead.fence += 1;
    assert_eq!(world.settle(success(&ahead)), Settled::Fenced);
    let mut unknown = claim.clone();
    unknown.id.local = fairq::model::LocalId::new(99);
    assert_eq!(world.settle(success(&unknown)), Settled::Fenced);
    assert_eq!(picture(&world, id), before);
    assert_eq!(
        world.settle(success(&claim)),
        recorded(StepState::Succeeded)
    );
}

pub(crate) fn each_of_a_batch_gets_its_own_answer(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&vec![step("a"); 3]);
    let claims: Vec<Claim> = ids.iter().map(|id| world.take(*id)).collect();
    world.settle(success(&claims[1]));
    let batch = [
        success(&claims[0]),
        success(&claims[1]),
        give_back(&claims[2]),
        success(&claims[0]),
    ];
    let settled = world.try_settle(ONLY, batch).unwrap();
    let answers = [
        recorded(StepState::Succeeded),
        Settled::Fenced,
        recorded(StepState::Ready),
        Settled::Fenced,
    ];
    assert_eq!(settled, answers);
    let states: Vec<StepState> = ids.iter().map(|id| world.state(*id)).collect();
    let expected = [StepState::Succeeded, StepState::Succeeded, StepState::Ready];
    assert_eq!(states, expected);
    assert_eq!(world.try_settle(ONLY, []).unwrap(), []);
}

pub(crate) fn every_try_is_kept(open: Open) {
    let world = World::new(open, 1);
    let id = world.put_one(step("a"));
    assert_eq!(world.store.attempts(id).unwrap(), []);
    let given_back = world.claim(id, 1, at(START.millis() + 100)).unwrap();
    assert_eq!(world.store.attempts(id).unwrap(), []);
    world.settle(give_back(&given_back));
    let failed = world.claim(id, 2, at(START.millis() + 200)).unwrap();
    let ending = Ending::Signalled { signal: 15 };
    world.settle(over(&failed, ending.clone(), Verdict::Failed));
    let records = [
        record(&given_back, Ending::Interrupted),
        record(&failed, ending),
    ];
    assert_eq!(world.store.attempts(id).unwrap(), records);
    let mut unstarted = success(&world.take(world.put_one(step("a"))));
    unstarted.finished.started = None;
    let id = unstarted.finished.id;
    world.settle(unstarted);
    assert_eq!(world.store.attempts(id).unwrap()[0].started, None);
    assert_eq!(world.view(id).started, None);
}

pub(crate) fn outputs_are_kept_for_each_try(open: Open) {
    let world = World::new(open, 1);
    let id = world.put_one(step("a"));
    let inline = |bytes: &[u8]| Captured::Inline(bytes.to_vec());
    let first = give_back(&world.take(id));
    world.settle(saying(first, inline(b"one\xff\0\n"), inline(b"err")));
    let second = success(&world.take(id));
    world.settle(saying(second, Captured::Empty, inline(b"two")));
    let kept = |fence, stream| bytes(&world, id, fence, stream);
    assert_eq!(kept(1, Stream::Stdout).unwrap(), b"one\xff\0\n");
    assert_eq!(kept(1, Stream::Stderr).unwrap(), b"err");
    assert_eq!(kept(2, Stream::Stdout), None);
    assert_eq!(kept(2, Stream::Stderr).unwrap(), b"two");
    assert_eq!(kept(3, Stream::Stderr), None);
    let unknown = StepId::new(ONLY, fairq::model::LocalId::new(99));
    assert_eq!(bytes(&world, unknown, 1, Stream::Stdout), None);
}

pub(crate) fn a_large_output_is_read_from_its_file(open: Open) {
    let world = World::new(open, 1);
    let id = world.put_one(step("a"));
    let path = PathBuf::from("output/here/a1.out");
    let place = world.root.path().join(&path);
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    std::fs::write(&place, b"very long").unwrap();
    let large = Captured::File {
        path: path.clone(),
        size: 9,
    };
    let missing = Captured::File {
        path: "output/missing".into(),
        size: 1,
    };
    world.settle(saying(success(&world.take(id)), large, missing));
    assert!(matches!(
        world.store.output(id, 1, Stream::Stdout).unwrap(),
        Some(Output::File(_))
    ));
    assert_eq!(bytes(&world, id, 1, Stream::Stdout).unwrap(), b"very long");
    let error = world.store.output(id, 1, Stream::Stderr).unwrap_err();
    assert!(error.to_string().contains("output/missing"), "{error}");
}
