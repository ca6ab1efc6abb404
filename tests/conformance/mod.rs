//! The list of promises, and the small world in which each is asked for.

pub(crate) mod claims;
pub(crate) mod intake;
pub(crate) mod links;
pub(crate) mod random;
pub(crate) mod read;
pub(crate) mod settle;
pub(crate) mod supply;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use fairq::error::Result;
use fairq::model::{
    Band, Candidate, Captured, Claim, Command, Dependency, Due, Ending, Environment, FairnessKey,
    Finished, LocalId, Need, NewStep, OnLost, Parent, Policy, Recorded, Released, RunnerId,
    Settled, Settlement, ShardId, StepId, StepState, Timestamp, Turn, Verdict, Weight,
};
use fairq::store::placement::Placement;
use fairq::store::{Action, Lease, Steered, StepView, Store, Want};

/// Makes one test of each promise for each backend. A promise that is missing here is dead code,
/// which the compiler reports.
macro_rules! every_promise {
    ($($backend:ident = $open:expr;)+) => {$(
        mod $backend {
            use super::*;

            const OPEN: conformance::Open = $open;

            conformance::every_promise! { @tests
                intake {
                    ids_come_back_in_the_order_of_the_steps
                    ids_rise_from_one_on_each_shard
                    what_was_asked_for_is_kept_byte_for_byte
                    nothing_in_makes_nothing
                    a_step_goes_where_its_key_is_placed
                    spread_steps_fill_the_shards_evenly
                    threads_that_enqueue_at_once_never_share_an_id
                }
                supply {
                    what_is_not_due_is_nowhere_to_be_seen
                    what_is_due_already_need_not_wait_for_a_promotion
                    promotion_makes_due_exactly_what_is_due
                    the_tally_knows_only_the_best_band
                    the_tally_takes_age_and_weight_from_the_head
                    a_shard_without_due_steps_reports_nothing
                    a_fetch_returns_the_oldest_of_each_key_in_the_order_of_the_wants
                    a_fetch_knows_only_the_band_that_it_is_asked_for
                    the_version_tells_every_change
                    an_unknown_shard_is_an_error
                }
                claims {
                    a_claim_tells_all_that_is_needed_to_run
                    a_step_is_claimed_once
                    a_candidate_that_is_not_there_is_a_lost_claim
                    the_fence_rises_with_each_claim_and_the_attempt_is_given_back
                    threads_that_claim_at_once_have_one_winner_each
                    holders_are_the_runners_with_running_steps
                    a_renewed_lease_stands_longer_and_never_shorter
                    a_dead_runners_steps_go_where_their_policies_say
                    a_reclaim_touches_one_runner_on_one_shard
                    a_lost_try_is_recorded
                    a_step_taken_back_keeps_its_place
                }
                settle {
                    a_verdict_ends_the_step
                    a_step_given_back_is_as_it_was
                    a_second_settlement_is_fenced
                    a_late_settlement_changes_nothing
                    a_settlement_of_another_runner_is_fenced
                    each_of_a_batch_gets_its_own_answer
                    every_try_is_kept
                    outputs_are_kept_for_each_try
                    a_large_output_is_read_from_its_file
                }
                read {
                    a_step_that_is_not_there_is_none
                    states_show_when_they_began
                    each_part_of_a_filter_selects
                    ranges_of_ids_select_within_their_shard
                    the_order_is_as_asked
                    a_limit_keeps_the_first
                    counts_tell_states_bands_and_the_next_due_time
                    the_due_steps_of_a_key_before_one_are_counted_up_to_a_limit
                    a_running_step_still_tells_since_when_it_had_been_due
                    the_dispatches_of_a_window_are_all_tries_that_were_claimed_in_it
                    arrivals_follow_their_numbers_from_an_instant_on
                }
                links {
                    a_step_waits_until_its_parent_has_succeeded
                    each_end_meets_its_needs_and_rules_out_the_others
                    what_an_end_rules_out_ends_what_waits_for_it_in_turn
                    a_step_waits_for_all_its_parents
                    two_needs_of_one_parent_are_two
                    nothing_on_another_shard_changes_before_it_is_told
                    what_follows_on_other_shards_is_told_in_one_go
                    a_parent_may_stand_behind_its_dependents
                    what_can_never_run_is_over_as_soon_as_it_is_put_in
                    a_circle_is_refused_and_named
                    a_parent_that_is_not_there_is_refused
                    parents_and_dependents_are_told
                    a_held_step_follows_its_parents
                    a_blocked_step_keeps_its_time
                    a_parent_that_is_tried_again_frees_nobody
                    a_lost_parent_counts_as_its_policy_says
                    mending_sets_right_what_was_never_told
                    a_long_chain_falls_in_one_go
                }
                random {
                    any_history_leaves_what_a_plain_list_would
                }
            }
        }
    )+};
    (@tests $($role:ident { $($promise:ident)+ })+) => {$(
        mod $role {
            $(
                #[test]
                fn $promise() {
                    crate::conformance::$role::$promise(super::OPEN);
                }
            )+
        }
    )+};
}
pub(crate) use every_promise;

/// Makes an empty store of so many shards in an empty directory, below which large outputs lie.
pub(crate) type Open = fn(&Path, u8, Placement) -> Box<dyn Store>;

/// An empty store and the directory that it lives in.
pub(crate) struct World {
    pub(crate) store: Box<dyn Store>,
    pub(crate) root: tempfile::TempDir,
}

/// The instant at which the tests begin.
pub(crate) const START: Timestamp = at(1_000_000);
/// Where all steps of a store with one shard are.
pub(crate) const ONLY: ShardId = ShardId::new(0).unwrap();

pub(crate) const fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// Returns the instant so long after the start.
pub(crate) const fn after(millis: i64) -> Timestamp {
    at(START.millis() + millis)
}

pub(crate) const fn band(number: u32) -> Band {
    Band::new(number).unwrap()
}

pub(crate) const fn runner(number: i64) -> RunnerId {
    RunnerId::new(number)
}

/// Returns a runner's lease of the length that the tests take as long.
pub(crate) const fn lease(number: i64) -> Lease {
    Lease {
        runner: runner(number),
        until: at(90_000_000),
    }
}

pub(crate) fn key(text: &str) -> FairnessKey {
    text.parse().unwrap()
}

/// Returns a plain step of this key, due at once.
pub(crate) fn step(of: &str) -> NewStep {
    NewStep {
        command: Command::Shell("true".into()),
        cwd: "/".into(),
        env: Arc::new(Environment::default()),
        band: Band::DEFAULT,
        key: key(of),
        weight: Weight::ONE,
        name: None,
        tags: Vec::new(),
        flow: None,
        due: Due::Now,
        after: Vec::new(),
        unique: None,
        policy: Policy::default(),
    }
}

/// Returns the step, waiting for others of its batch.
pub(crate) fn waiting(step: NewStep, parents: &[usize], need: Need) -> NewStep {
    let of = |parent: &usize| Dependency {
        parent: Parent::InBatch(*parent),
        need,
    };
    NewStep {
        after: parents.iter().map(of).collect(),
        ..step
    }
}

/// Returns the step, waiting for one that is stored.
pub(crate) fn following(step: NewStep, parent: StepId, need: Need) -> NewStep {
    let parent = Parent::Step(parent);
    NewStep {
        after: vec![Dependency { parent, need }],
        ..step
    }
}

/// Returns a step that is treated like this when its runner dies.
pub(crate) fn lost_step(on_lost: OnLost) -> NewStep {
    NewStep {
        policy: Policy {
            on_lost,
            ..Policy::default()
        },
        ..step("a")
    }
}

/// Returns what a crew would report of a claim: some time after it, from worker 7, no output.
pub(crate) fn over(claim: &Claim, ending: Ending, verdict: Verdict) -> Settlement {
    Settlement {
        finished: Finished {
            id: claim.id,
            runner: claim.runner,
            fence: claim.fence,
            attempt: claim.attempt,
            ending,
            started: Some(at(claim.claimed.millis() + 1)),
            ended: at(claim.claimed.millis() + 10),
            worker: 7,
            stdout: Captured::Empty,
            stderr: Captured::Empty,
        },
        verdict,
    }
}

pub(crate) fn success(claim: &Claim) -> Settlement {
    over(claim, Ending::Exited { code: 0 }, Verdict::Succeeded)
}

pub(crate) fn failure(claim: &Claim) -> Settlement {
    over(claim, Ending::Exited { code: 1 }, Verdict::Failed)
}

pub(crate) fn give_back(claim: &Claim) -> Settlement {
    over(claim, Ending::Interrupted, Verdict::GiveBack)
}

/// Returns what is answered to a verdict of which nothing else follows.
pub(crate) const fn recorded(state: StepState) -> Settled {
    Settled::Recorded(Recorded {
        state,
        released: Vec::new(),
        tell: false,
    })
}

impl World {
    pub(crate) fn new(open: Open, shards: u8) -> Self {
        Self::placed(open, shards, Placement::Key)
    }

    pub(crate) fn placed(open: Open, shards: u8, placement: Placement) -> Self {
        let root = tempfile::tempdir().unwrap();
        let store = open(root.path(), shards, placement);
        assert_eq!(store.shard_count(), shards);
        Self { store, root }
    }

    pub(crate) fn shards(&self) -> impl Iterator<Item = ShardId> + use<> {
        ShardId::first(self.store.shard_count())
    }

    /// Enqueues steps at the start.
    pub(crate) fn put(&self, steps: &[NewStep]) -> Vec<StepId> {
        self.store.enqueue(steps, START).unwrap()
    }

    /// Enqueues one step at the start.
    pub(crate) fn put_one(&self, step: NewStep) -> StepId {
        self.put(&[step])[0]
    }

    pub(crate) fn view(&self, id: StepId) -> StepView {
        self.store.get(id).unwrap().unwrap()
    }

    pub(crate) fn state(&self, id: StepId) -> StepState {
        self.view(id).state
    }

    /// Returns all due steps of a key in the only shard at the default band.
    pub(crate) fn due(&self, of: &str) -> Vec<LocalId> {
        self.due_at(ONLY, Band::DEFAULT, &key(of))
    }

    pub(crate) fn due_at(&self, shard: ShardId, band: Band, key: &FairnessKey) -> Vec<LocalId> {
        let want = Want {
            key: key.clone(),
            count: u32::MAX,
        };
        let mut found = self.store.fetch(shard, band, &[want]).unwrap();
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    pub(crate) fn candidate(&self, id: StepId) -> Candidate {
        let view = self.view(id);
        Candidate {
            id,
            band: view.band,
            key: view.key,
            turn: Turn::ZERO,
        }
    }

    /// Tries to claim one step for a runner at an instant.
    pub(crate) fn claim(&self, id: StepId, by: i64, now: Timestamp) -> Option<Claim> {
        let claims = self
            .store
            .claim(id.shard, &[self.candidate(id)], lease(by), now);
        let mut claims = claims.unwrap();
        assert_eq!(claims.len(), 1);
        claims.remove(0)
    }

    /// Claims a due step for runner 1, a second after the start.
    pub(crate) fn take(&self, id: StepId) -> Claim {
        self.claim(id, 1, at(START.millis() + 1_000)).unwrap()
    }

    /// Claims a due step and settles it like that.
    pub(crate) fn run(&self, id: StepId, settlement: fn(&Claim) -> Settlement) -> Recorded {
        let Settled::Recorded(recorded) = self.settle(settlement(&self.take(id))) else {
            panic!("a claim of {id} was fenced");
        };
        recorded
    }

    pub(crate) fn steer(&self, id: StepId, action: &Action, now: Timestamp) -> Steered {
        let steered = self.store.steer(&[id], action, now).unwrap();
        assert_eq!(steered.len(), 1);
        steered[0]
    }

    /// Gives places of limits out, and returns which steps became due.
    pub(crate) fn grant(&self, now: Timestamp) -> Vec<StepId> {
        let released = self.store.grant(now).unwrap();
        released.into_iter().map(|released| released.id).collect()
    }

    /// Returns a key whose steps go to that shard.
    pub(crate) fn key_on(&self, shard: ShardId) -> String {
        let mut keys = (0..10_000).map(|number| format!("k{number}"));
        keys.find(|text| self.store.place(&key(text)) == shard)
            .unwrap()
    }

    /// Returns what is told of a step that became due.
    pub(crate) fn released(&self, id: StepId) -> Released {
        let view = self.view(id);
        Released {
            id,
            band: view.band,
            key: view.key,
        }
    }

    /// Hands settlements in and waits for the answer.
    pub(crate) fn try_settle(
        &self,
        shard: ShardId,
        settlements: impl Into<Arc<[Settlement]>>,
    ) -> Result<Vec<Settled>> {
        let (answer, answered) = channel();
        let after = move |settled| answer.send(settled).unwrap();
        self.store
            .settle(shard, settlements.into(), Box::new(after));
        // The limit only turns a backend that never answers into a failure.
        answered.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    /// Settles one try and returns what it came to.
    pub(crate) fn settle(&self, settlement: Settlement) -> Settled {
        let mut settled = self
            .try_settle(settlement.finished.id.shard, [settlement])
            .unwrap();
        assert_eq!(settled.len(), 1);
        settled.remove(0)
    }
}
