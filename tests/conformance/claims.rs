//! What [`fairq::store::Claims`] promises.

use std::sync::atomic::{AtomicUsize, Ordering};

use fairq::model::{
    Band, Candidate, Captured, Ending, Found, LocalId, LostRun, Need, NewStep, OnLost, Policy,
    Span, StepId, StepState, Stream,
};
use fairq::store::{Action, Attempt, Lease, Output};

use super::{
    ONLY, Open, START, World, at, band, following, give_back, key, lease, lost_step, over, runner,
    step, success,
};

const LATER: i64 = START.millis() + 5_000;

pub(crate) fn a_claim_tells_all_that_is_needed_to_run(open: Open) {
    let world = World::new(open, 1);
    let asked = NewStep {
        name: Some("build".to_owned()),
        band: band(9),
        policy: Policy {
            grace: Span::from_millis(77),
            ..Policy::default()
        },
        ..step("a")
    };
    let id = world.put_one(asked.clone());
    let claim = world.claim(id, 42, at(LATER)).unwrap();
    assert_eq!(claim.id, id);
    assert_eq!(claim.runner, runner(42));
    assert_eq!((claim.fence, claim.attempt), (1, 1));
    assert_eq!((claim.band, claim.key), (asked.band, asked.key));
    assert_eq!((claim.name, claim.command), (asked.name, asked.command));
    assert_eq!((claim.cwd, claim.env), (asked.cwd, asked.env));
    assert_eq!(claim.policy, asked.policy);
    assert_eq!((claim.since, claim.claimed), (START, at(LATER)));
    let view = world.view(id);
    assert_eq!(view.state, StepState::Running);
    assert_eq!((view.runner, view.at), (Some(runner(42)), at(LATER)));
    assert_eq!((view.fence, view.attempt), (1, 1));
}

pub(crate) fn a_step_is_claimed_once(open: Open) {
    let world = World::new(open, 1);
    let id = world.put_one(step("a"));
    let twice = [world.candidate(id), world.candidate(id)];
    let claims = world.store.claim(ONLY, &twice, lease(1), at(LATER));
    let won: Vec<bool> = claims.unwrap().iter().map(Option::is_some).collect();
    assert_eq!(won, [true, false]);
    assert!(world.claim(id, 2, at(LATER)).is_none());
    assert!(world.claim(id, 1, at(LATER)).is_none());
    assert_eq!(world.view(id).fence, 1);
}

pub(crate) fn a_candidate_that_is_not_there_is_a_lost_claim(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&[lost_step(OnLost::Hold), step("a"), step("a")]);
    world.take(ids[0]);
    world.store.reclaim(ONLY, runner(1), at(LATER)).unwrap();
    let done = world.take(ids[1]);
    world.settle(success(&done));
    let right = world.candidate(ids[2]);
    let candidates = [
        world.candidate(ids[0]),
        world.candidate(ids[1]),
        Candidate {
            band: band(1),
            ..right.clone()
        },
        Candidate {
            key: key("b"),
            ..right.clone()
        },
        Candidate {
            id: StepId::new(ONLY, LocalId::new(99)),
            ..right.clone()
        },
        right,
    ];
    let claims = world.store.claim(ONLY, &candidates, lease(2), at(LATER));
    let claims = claims.unwrap();
    let won: Vec<Option<StepId>> = claims
        .iter()
        .map(|claim| claim.as_ref().map(|claim| claim.id))
        .collect();
    assert_eq!(won, [None, None, None, None, None, Some(ids[2])]);
    let none = world.store.claim(ONLY, &[], lease(2), at(LATER)).unwrap();
    assert!(none.is_empty());
}

pub(crate) fn the_fence_rises_with_each_claim_and_the_attempt_is_given_back(open: Open) {
    let world = World::new(open, 1);
    let id = world.put_one(step("a"));
    for fence in 1..=5 {
        let claim = world.take(id);
        assert_eq!((claim.fence, claim.attempt), (fence, 1));
        if fence % 2 == 0 {
            world.store.reclaim(ONLY, runner(1), at(LATER)).unwrap();
        } else {
            world.settle(give_back(&claim));
        }
        let view = world.view(id);
        assert_eq!((view.fence, view.attempt), (fence, 0));
    }
}

pub(crate) fn threads_that_claim_at_once_have_one_winner_each(open: Open) {
    const STEPS: usize = 200;
    let world = World::new(open, 1);
    let ids = world.put(&vec![step("a"); STEPS]);
    let candidates: Vec<Candidate> = ids.iter().map(|id| world.candidate(*id)).collect();
    let wins: Vec<AtomicUsize> = ids.iter().map(|_| AtomicUsize::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (world, candidates, wins) = (&world, &candidates, &wins);
            scope.spawn(move || {
                for few in candidates.chunks(3) {
                    let claims = world.store.claim(ONLY, few, lease(thread), at(LATER));
                    for claim in claims.unwrap().into_iter().flatten() {
                        assert_eq!(claim.runner, runner(thread));
                        let index = usize::try_from(claim.id.local.get()).unwrap() - 1;
                        wins[index].fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    assert!(wins.iter().all(|wins| wins.load(Ordering::SeqCst) == 1));
    assert!(ids.iter().all(|id| world.view(*id).fence == 1));
}

pub(crate) fn holders_are_the_runners_with_running_steps(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&vec![step("a"); 4]);
    assert_eq!(world.store.holders(ONLY).unwrap(), []);
    let claims: Vec<_> = [7, 3, 7, 5]
        .iter()
        .zip(&ids)
        .map(|(by, id)| world.claim(*id, *by, at(LATER)).unwrap())
        .collect();
    let holders = || {
        let held = world.store.holders(ONLY).unwrap();
        let mut runners: Vec<_> = held.into_iter().map(|lease| lease.runner).collect();
        runners.sort();
        runners
    };
    assert_eq!(holders(), [runner(3), runner(5), runner(7)]);
    world.settle(success(&claims[1]));
    world.settle(give_back(&claims[0]));
    assert_eq!(holders(), [runner(5), runner(7)]);
    world.store.reclaim(ONLY, runner(5), at(LATER)).unwrap();
    assert_eq!(holders(), [runner(7)]);
}

pub(crate) fn a_renewed_lease_stands_longer_and_never_shorter(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&vec![step("a"); 2]);
    world.claim(ids[0], 1, at(LATER)).unwrap();
    world.claim(ids[1], 2, at(LATER)).unwrap();
    let held = |by, until| Lease {
        runner: runner(by),
        until: at(until),
    };
    let longer = held(1, lease(1).until.millis() + 5);
    world.store.renew(ONLY, longer).unwrap();
    world.store.renew(ONLY, held(1, LATER)).unwrap();
    world.store.renew(ONLY, held(9, LATER)).unwrap();
    let mut holders = world.store.holders(ONLY).unwrap();
    holders.sort_by_key(|held| held.runner);
    assert_eq!(holders, [longer, lease(2)]);
}

pub(crate) fn a_dead_runners_steps_go_where_their_policies_say(open: Open) {
    let world = World::new(open, 1);
    let fates = [
        (OnLost::Hold, StepState::Held, 1),
        (OnLost::Retry, StepState::Ready, 0),
        (OnLost::Fail, StepState::Failed, 1),
    ];
    let ids = world.put(&fates.map(|(on_lost, ..)| lost_step(on_lost)));
    for id in &ids {
        world.take(*id);
    }
    let mut lost = world.store.reclaim(ONLY, runner(1), at(LATER)).unwrap();
    lost.sort_by_key(|lost| lost.id);
    for ((id, lost), (_, state, attempt)) in ids.iter().zip(lost).zip(fates) {
        let expected = LostRun {
            id: *id,
            runner: runner(1),
            state,
        };
        assert_eq!(lost, expected);
        let view = world.view(*id);
        assert_eq!((view.state, view.attempt), (state, attempt));
        assert_eq!((view.fence, view.runner), (1, None));
        let failed = state == StepState::Failed;
        assert_eq!(view.ending, failed.then_some(Ending::Lost));
        assert_eq!(view.started, None);
        assert_eq!(view.at, if failed { at(LATER) } else { START });
    }
    let again = world.store.reclaim(ONLY, runner(1), at(LATER)).unwrap();
    assert_eq!(again, []);
}

pub(crate) fn a_reclaim_touches_one_runner_on_one_shard(open: Open) {
    let world = World::new(open, 2);
    let steps: Vec<NewStep> = (0..20).map(|number| step(&number.to_string())).collect();
    let ids = world.put(&steps);
    for (number, id) in (0..).zip(&ids) {
        world.claim(*id, number % 2, at(LATER)).unwrap();
    }
    let lost = world.store.reclaim(ONLY, runner(1), at(LATER)).unwrap();
    assert!(!lost.is_empty());
    for (number, id) in ids.iter().enumerate() {
        let taken = id.shard == ONLY && number % 2 == 1;
        assert_eq!(world.state(*id) == StepState::Ready, taken, "{id}");
        assert_eq!(lost.iter().any(|lost| lost.id == *id), taken, "{id}");
    }
}

pub(crate) fn a_lost_try_is_recorded(open: Open) {
    let world = World::new(open, 1);
    for on_lost in [OnLost::Retry, OnLost::Fail, OnLost::Hold] {
        let id = world.put_one(lost_step(on_lost));
        world.claim(id, 1, at(LATER)).unwrap();
        world.store.reclaim(ONLY, runner(1), at(LATER + 9)).unwrap();
        let lost = Attempt {
            fence: 1,
            attempt: 1,
            runner: runner(1),
            worker: 0,
            since: START,
            claimed: at(LATER),
            started: None,
            ended: at(LATER + 9),
            ending: Ending::Lost,
        };
        assert_eq!(world.store.attempts(id).unwrap(), [lost]);
    }
}

pub(crate) fn the_output_of_a_lost_try_is_kept_with_it(open: Open) {
    let world = World::new(open, 1);
    let id = world.put_one(step("a"));
    world.claim(id, 1, at(LATER)).unwrap();
    let found = |fence: u32, text: &str| Found {
        id,
        fence,
        stdout: Captured::Inline(text.as_bytes().to_vec()),
        stderr: Captured::Empty,
    };
    // Of another claim, or of another's, nothing is kept; of this the last.
    for (by, fence, text) in [
        (1, 1, "old"),
        (1, 1, "new"),
        (1, 2, "late"),
        (2, 1, "other"),
    ] {
        world.store.keep(runner(by), found(fence, text)).unwrap();
    }
    world.store.reclaim(ONLY, runner(1), at(LATER)).unwrap();
    world.store.keep(runner(1), found(1, "too late")).unwrap();
    let kept = |fence, stream| match world.store.output(id, fence, stream).unwrap() {
        Some(Output::Bytes(bytes)) => Some(String::from_utf8(bytes).unwrap()),
        Some(Output::File(_)) | None => None,
    };
    assert_eq!(kept(1, Stream::Stdout).as_deref(), Some("new"));
    assert_eq!(
        (kept(1, Stream::Stderr), kept(2, Stream::Stdout)),
        (None, None)
    );
}

/// Else it would kill one runner after the other for ever.
pub(crate) fn a_step_whose_runs_are_lost_in_a_row_fails(open: Open) {
    let world = World::new(open, 2);
    let id = world.put_one(step("a"));
    let waits = following(step("b"), id, Need::Success);
    let dependent = world.put_one(waits);
    let mut time = LATER;
    let mut lose = || {
        time += 1;
        world.claim(id, 1, at(time)).unwrap();
        let lost = world.store.reclaim(id.shard, runner(1), at(time)).unwrap();
        assert_eq!(lost.len(), 1);
        lost[0].state
    };
    let [ready, failed] = [StepState::Ready, StepState::Failed];
    assert_eq!([lose(), lose()], [ready; 2]);
    // A run that ends in any other way begins the count anew.
    let claim = world.claim(id, 2, at(LATER)).unwrap();
    let interrupted = over(&claim, Ending::Interrupted, fairq::model::Verdict::GiveBack);
    world.settle(interrupted);
    assert_eq!([lose(), lose(), lose()], [ready, ready, failed]);
    let view = world.view(id);
    assert_eq!((view.attempt, view.ending), (1, Some(Ending::Lost)));
    world.store.deliver(id.shard, at(LATER + 9)).unwrap();
    assert_eq!(world.state(dependent), StepState::Cancelled);
    // Who tries it again grants it as many.
    let asked = world.store.steer(&[id], &Action::Retry, at(LATER)).unwrap();
    assert_eq!(asked.len(), 1);
    assert_eq!([lose(), lose(), lose()], [ready, ready, failed]);
}

pub(crate) fn a_step_that_waits_for_a_person_is_lost_as_often_as_they_like(open: Open) {
    let world = World::new(open, 1);
    let id = world.put_one(lost_step(OnLost::Hold));
    for _ in 0..2 * Policy::MAX_LOST {
        world.claim(id, 1, at(LATER)).unwrap();
        world.store.reclaim(ONLY, runner(1), at(LATER)).unwrap();
        assert_eq!(world.state(id), StepState::Held);
        world
            .store
            .steer(&[id], &Action::Release, at(LATER))
            .unwrap();
    }
}

pub(crate) fn a_step_taken_back_keeps_its_place(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&vec![step("a"); 3]);
    let all: Vec<LocalId> = ids.iter().map(|id| id.local).collect();
    world.take(ids[1]);
    let first = world.claim(ids[0], 2, at(LATER)).unwrap();
    assert_eq!(world.due("a"), all[2..]);
    world.store.reclaim(ONLY, runner(1), at(LATER)).unwrap();
    assert_eq!(world.due("a"), all[1..]);
    let interrupted = over(&first, Ending::Interrupted, fairq::model::Verdict::GiveBack);
    world.settle(interrupted);
    assert_eq!(world.due("a"), all);
    assert!(ids.iter().all(|id| world.view(*id).at == START));
    assert_eq!(world.view(ids[0]).band, Band::DEFAULT);
}
