//! The list of promises.

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
                    a_pour_stores_all_that_come_in_their_order
                    a_pour_that_is_cut_off_stores_nothing
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
                    a_look_is_new_when_the_shard_is_or_the_time_has_come
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
                    the_output_of_a_lost_try_is_kept_with_it
                    a_step_whose_runs_are_lost_in_a_row_fails
                    a_step_that_waits_for_a_person_is_lost_as_often_as_they_like
                    a_step_taken_back_keeps_its_place
                }
                settle {
                    a_verdict_ends_the_step
                    a_step_given_back_is_as_it_was
                    a_step_whose_next_try_is_now_is_due_at_once
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
                    ids_are_found_in_their_order_however_many_there_are
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
                steer {
                    each_action_is_for_some_states_only
                    each_step_gets_its_own_answer
                    what_is_cancelled_before_it_runs_never_runs
                    a_runner_sees_whose_end_was_asked_for
                    a_wish_to_end_beats_every_verdict
                    a_wish_ends_with_the_try_that_it_was_for
                    what_is_held_keeps_its_time
                    a_due_step_that_is_held_is_nowhere_to_be_seen
                    a_step_that_is_tried_again_counts_its_tries_anew
                    who_is_tried_again_waits_for_its_parents_as_they_stand_now
                    an_end_that_is_taken_back_is_not_told
                }
                edit {
                    an_edit_changes_what_was_asked_for
                    what_an_edit_leaves_out_stays
                    an_edited_time_decides_where_a_step_waits
                }
                pauses {
                    what_is_paused_does_not_start
                    what_is_resumed_goes_on_as_it_was
                    a_pause_stands_though_another_one_is_taken_back
                    a_band_can_be_tallied_though_it_is_paused
                    what_runs_goes_on_through_a_pause
                    a_pause_is_one_on_every_shard
                }
                unique {
                    a_scope_says_which_steps_count
                    the_latest_step_stands_for_its_key
                    a_unique_key_is_one_over_all_shards
                    the_second_of_a_batch_is_needless
                    a_circle_through_a_needless_step_is_one
                }
                limits {
                    a_step_with_limits_waits_for_its_places
                    a_step_is_due_once_it_has_its_places
                    a_limit_has_as_many_places_as_it_was_set_to
                    places_are_free_when_a_step_neither_runs_nor_is_due
                    a_step_that_left_and_came_back_waits_for_its_places_again
                    all_places_are_given_at_once_or_none
                    who_needs_many_places_is_not_passed_by
                    a_limit_holds_for_all_shards_together
                    what_is_paused_takes_no_places
                    what_is_late_takes_no_places
                    a_freed_step_with_limits_still_waits_for_its_places
                    a_step_with_limits_has_others_told_when_it_ends
                    a_dead_runners_places_are_free
                    edited_limits_are_waited_for_anew
                }
                turns {
                    the_best_band_is_served_first
                    a_due_step_gives_way_to_a_better_band
                    of_equal_bands_the_youngest_gives_way
                    nobody_gives_way_in_vain
                    within_a_key_the_oldest_is_first
                    of_keys_that_had_the_same_who_waits_longest_is_first
                    keys_are_served_by_their_weights
                    nobody_saves_turns_up_by_being_away
                    who_asks_for_one_at_a_time_gets_its_turns
                }
                expire {
                    what_has_not_started_by_then_fails
                    what_is_late_is_not_claimed
                    what_has_started_once_does_not_expire
                    the_dependents_of_what_expires_follow
                    what_expired_can_be_tried_again
                    an_edited_deadline_counts
                }
                clean {
                    no_more_is_forgotten_in_one_go_than_was_said
                    what_is_over_and_old_is_forgotten
                    only_what_is_asked_for_is_forgotten
                    all_that_is_old_is_forgotten_in_portions
                    a_clean_touches_one_shard
                    a_forgotten_number_is_not_used_again
                    the_files_of_what_is_forgotten_are_told
                    what_somebody_waits_for_stays
                    a_forgotten_dependent_is_no_dependent
                    what_was_known_of_a_forgotten_parent_holds
                    the_unique_key_of_what_is_forgotten_is_free
                }
                races {
                    a_retry_and_a_cancel_at_once_have_an_order
                    a_limit_holds_while_runners_die_and_come_back
                }
                random {
                    any_history_leaves_what_a_plain_list_would
                }
                life {
                    any_life_keeps_the_rules_and_ends
                    any_life_is_lived_as_the_reference_would
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
