//! Conformance suite for stores, one named test per requirement.
//!
//! A store's crate implements [`StoreUnderTest`] and calls [`store_suite!`](crate::store_suite).
//! Every test then runs with a fresh store. The requirements are documented in [`hapax::store`] and
//! the related modules, so that all stores behave alike.
//!
//! A test never holds two open transactions in one task, because a store with a single writer may
//! make the second one wait for the first.

#![expect(
    clippy::missing_panics_doc,
    reason = "a conformance test panics when a requirement is violated"
)]

pub mod keys;
pub mod conflicts;
pub mod retention;
pub mod transaction;
pub mod phases;
pub mod recovery_points;
pub mod takeovers;
pub mod optimistic;
pub mod single_shot;
pub mod outbox;
pub mod inbox;
pub mod sagas;
pub mod signals;
pub mod decisions;
pub(crate) mod saga_steps;
pub mod starts;
pub mod leases;
pub mod deliveries;
pub mod arrivals;
pub mod parked;
pub mod recovery;
pub mod dead_letters;
pub(crate) mod fixture;
pub(crate) mod steps;

use hapax::{
    Clock, Random,
    endpoint::EndpointStore,
    operational::OperationalStore,
    poll::PollStore,
    store::{Deliveries, Keys, Outbox, Phases, Sagas, Source},
};

/// The transaction of a store under test.
pub type Tx<S> = <<S as StoreUnderTest>::Store as Keys>::Tx;
/// The single-shot statement of a store under test.
pub type Statement<S> = <<S as StoreUnderTest>::Store as Keys>::Statement;

/// A store for the suite: fresh, with a table for business rows, and with restarts.
pub trait StoreUnderTest: Images + Sized + 'static {
    /// The store.
    type Store: Keys + Source;

    /// An empty store for this test only, with its schema and an empty table for rows.
    fn fresh(clock: Clock, random: Random) -> impl Future<Output = Self> + Send;

    /// The same store after a restart. Everything that was committed exists, and nothing else.
    fn reopen(self) -> impl Future<Output = Self> + Send;

    /// The store.
    fn store(&self) -> &Self::Store;

    /// Writes a business row in an open transaction.
    fn write_row(tx: &mut Tx<Self>, value: &str) -> impl Future<Output = ()> + Send;

    /// A statement that writes a business row.
    fn row_statement(value: &str) -> Statement<Self>;

    /// A statement that the database refuses when it runs.
    fn failing_statement() -> Statement<Self>;

    /// The committed business rows, in any order.
    fn rows(&self) -> impl Future<Output = Vec<String>> + Send;
}

/// A store under test from which a relay delivers.
pub trait DeliveriesUnderTest: StoreUnderTest<Store: Outbox + Deliveries> {}

impl<S: StoreUnderTest<Store: Outbox + Deliveries>> DeliveriesUnderTest for S {}

/// A store under test that has keys of phased mode.
pub trait PhasesUnderTest: StoreUnderTest<Store: Phases> {}

impl<S: StoreUnderTest<Store: Phases>> PhasesUnderTest for S {}

/// A store under test that has sagas.
pub trait SagasUnderTest: StoreUnderTest<Store: Phases + Sagas> {}

impl<S: StoreUnderTest<Store: Phases + Sagas>> SagasUnderTest for S {}

/// A store under test whose outbox can be polled.
pub trait PollUnderTest: StoreUnderTest<Store: PollStore> {}

impl<S: StoreUnderTest<Store: PollStore>> PollUnderTest for S {}

/// A store under test that has endpoints.
pub trait EndpointsUnderTest: StoreUnderTest<Store: EndpointStore> {}

impl<S: StoreUnderTest<Store: EndpointStore>> EndpointsUnderTest for S {}

/// A store under test that emits operational events.
pub trait OperationalUnderTest: StoreUnderTest<Store: OperationalStore> {}

impl<S: StoreUnderTest<Store: OperationalStore>> OperationalUnderTest for S {}

/// Images of a store: what a backup is, to the tests.
pub trait Images: Send + Sync {
    /// Saves everything that the store has stored.
    fn keep_image(&self) -> impl Future<Output = ()> + Send;

    /// Replaces the content of the open store with what was saved, like a backup that is restored
    /// over it.
    fn set_back(&self) -> impl Future<Output = ()> + Send;
}

/// Runs the conformance suite for a store: one test per requirement, named after it.
///
/// The argument is the name of a type that implements
/// [`StoreUnderTest`](crate::store::StoreUnderTest) and is in scope at the macro call. With a second
/// argument, only the tests of a part of the traits run: `keys` (keys and transactions), `deliveries`
/// (outbox, inbox and deliveries), `core` (both), `phases` or `sagas`.
#[macro_export]
macro_rules! store_suite {
    ($store:ident) => {
        $crate::store_suite!($store, core);
        $crate::store_suite!($store, phases);
        $crate::store_suite!($store, sagas);
    };
    ($store:ident, core) => {
        $crate::store_suite!($store, keys);
        $crate::store_suite!($store, deliveries);
    };
    ($store:ident, keys) => {
        $crate::suite! { $store, store,
            keys {
                a_completed_answer_replays_byte_for_byte
                the_largest_answer_replays_byte_for_byte
                an_answer_survives_a_restart
                a_replay_says_how_long_the_answer_still_stands
                another_fingerprint_is_a_mismatch_and_runs_nothing
                a_key_is_free_in_another_tenant_and_for_another_operation
                scopes_whose_parts_join_alike_stay_apart
                keys_that_differ_in_case_or_space_stay_apart
                of_many_claims_at_once_one_runs_and_the_others_replay
                claims_of_different_keys_at_once_all_run
                a_rolled_back_claim_lets_its_key_go
                a_dropped_claim_lets_its_key_go
                a_commit_without_an_answer_keeps_the_rows_and_releases_the_key
                a_dropped_effect_keeps_the_answer_alone
                a_claim_cut_off_by_a_restart_leaves_nothing
                nothing_is_stored_of_a_key_before_its_transaction_commits
                a_stored_key_can_be_looked_up
                a_forgotten_key_runs_again
                keys_are_derived_under_a_secret_of_the_store
                forgotten_keys_are_listed_after_a_mark
                more_forgotten_keys_than_are_kept_are_said_to_be_unknown
                keys_that_are_forgotten_at_once_are_all_listed
            }
            conflicts {
                another_payload_is_a_mismatch_while_the_first_request_runs
                many_other_payloads_at_once_are_mismatches
                the_same_payload_is_no_mismatch_while_the_first_request_runs
                after_a_rollback_another_payload_runs
                another_payload_is_a_mismatch_after_the_first_statement_of_a_pipelined_claim
                a_plan_with_another_payload_is_a_mismatch_while_the_first_request_runs
                another_key_is_no_conflict
            }
            retention {
                an_expired_key_runs_as_new
                an_expired_key_is_gone_where_that_is_asked
                an_answer_stands_up_to_its_last_moment
                no_answer_is_kept_longer_than_the_bound
                a_purge_deletes_expired_keys_and_counts_them_by_operation
                a_purge_never_touches_an_unexpired_key
                usage_is_of_what_stands_tenant_by_tenant
                a_purge_deletes_many_keys_batch_by_batch
                a_purged_key_leaves_a_tombstone_where_that_is_asked
                a_tombstone_goes_after_its_time
                a_tombstone_does_not_stop_a_claim_that_takes_it_as_new
            }
            transaction {
                a_commit_keeps_rows_events_and_acceptances
                a_rollback_keeps_nothing
                a_dropped_transaction_keeps_nothing
                an_answer_without_a_key_only_keeps_the_effect
                a_dropped_effect_without_a_key_keeps_nothing
                a_refused_event_leaves_the_transaction_usable
                a_transaction_carries_no_more_events_than_the_bound
                transactions_at_once_keep_exactly_what_they_commit
                a_caller_that_leaves_while_it_waits_delays_no_other
                an_abandoned_completion_is_whole_or_nothing
                whoever_sees_a_row_finds_its_event_and_its_answer
            }
            optimistic {
                an_optimistic_claim_commits_rows_events_and_response
                an_optimistic_claim_commits_several_events_or_none
                an_optimistic_claim_of_a_taken_key_commits_nothing
                an_expired_key_runs_as_new_after_an_optimistic_claim
                an_optimistic_refusal_keeps_the_response_alone
                an_optimistic_refusal_of_a_taken_key_is_not_stored
                an_optimistic_claim_without_a_statement_keeps_its_response
                an_optimistic_claim_that_stores_no_response_leaves_its_key_free
                of_many_optimistic_claims_at_once_one_commits
                every_claim_of_one_key_at_once_runs_once
            }
            single_shot {
                a_single_shot_commits_rows_events_and_answer
                a_single_shot_without_statements_keeps_its_answer
                a_single_shot_of_a_taken_key_runs_nothing
                a_single_shot_of_an_expired_key_runs
                of_many_single_shots_of_one_key_one_runs
                a_single_shot_and_a_claim_of_one_key_run_once
                hundreds_of_single_shots_at_once_all_commit
                a_failing_statement_leaves_nothing_and_harms_no_neighbour
                a_refused_event_leaves_nothing_and_harms_no_neighbour
                an_abandoned_single_shot_is_whole_or_nothing
            }
        }
    };
    ($store:ident, deliveries) => {
        $crate::suite! { $store, store,
            outbox {
                an_event_reads_back_as_it_was_emitted
                a_binary_payload_reads_back_byte_for_byte
                the_largest_payload_reads_back_byte_for_byte
                an_event_carries_its_requests_tenant_context_and_key_hash
                an_event_without_a_key_carries_its_tenant_and_context
                events_are_read_in_order_page_by_page
                a_frontier_stays_good_across_a_restart
                a_reader_among_writers_loses_and_repeats_nothing
                a_read_of_large_events_ends_early
                a_read_of_large_headers_ends_early
                no_event_goes_that_a_destination_has_not_passed
                no_event_goes_before_its_retention
                a_purge_deletes_many_events_batch_by_batch
                no_event_goes_that_is_parked_or_dead
                a_position_is_never_given_twice
            }
            inbox {
                a_message_is_first_once
                a_message_is_first_once_in_one_transaction
                a_known_id_with_another_payload_is_a_mismatch
                each_consumer_takes_each_message
                each_consumer_knows_its_own_messages
                each_source_has_ids_of_its_own
                two_sources_with_one_id_have_an_effect_each
                a_message_that_was_rolled_back_is_first_again
                a_keyed_transaction_takes_messages_too
                of_many_that_take_one_message_one_commits
                a_commit_accepts_a_message_with_its_effect_or_not_at_all
                of_many_that_accept_one_message_at_the_commit_one_commits
                a_message_is_known_for_its_retention
            }
            starts {
                a_destination_that_starts_now_receives_what_commits_afterwards
                in_an_empty_outbox_now_is_the_beginning
                a_destination_that_starts_at_the_beginning_receives_everything
                a_destination_that_starts_at_a_time_receives_what_was_created_since
                a_start_among_writers_skips_nothing_that_commits_afterwards
                partitions_start_at_one_position_across_a_crash
                a_start_is_recorded_once
                a_destination_that_was_opened_has_started
                a_destination_that_was_not_opened_lags_from_its_start_on
            }
            leases {
                a_living_nodes_partition_is_not_taken
                a_silent_nodes_partition_is_taken_after_its_lease
                a_node_says_what_it_knows
                a_partition_that_is_given_up_is_free_at_once
                a_node_takes_its_own_partition_again
                an_attempt_that_its_node_outlived_is_reported
                a_fenced_owner_changes_nothing
                of_many_that_take_at_once_one_gets_it
                attendance_lists_the_living_and_what_they_hold
                a_node_that_leaves_lets_everything_go
                opening_takes_a_partition_from_its_owner
                a_lease_outlives_a_restart
                partitions_of_one_destination_are_separate
            }
            deliveries {
                a_new_destination_starts_at_the_first_event
                opening_again_fences_the_owner_before
                a_settlement_of_an_unopened_destination_is_fenced
                an_epoch_is_never_given_twice
                destinations_are_apart
                a_checkpoint_comes_back_as_it_was_written
                a_settlement_is_seen_whole_or_not_at_all
                a_settlement_that_comes_again_undoes_nothing
                a_settlement_follows_the_newest_checkpoint
                a_store_that_was_set_back_refuses_its_owner
                a_settlement_follows_no_checkpoint_but_the_newest
                of_a_store_that_was_set_back_every_later_event_is_read
                a_standing_says_how_far_behind_a_destination_is
                an_event_is_late_from_the_time_when_it_is_due
                delayed_events_do_not_hide_one_that_is_due
                a_disabled_destination_is_enabled_by_opening_it
            }
            arrivals {
                a_first_attempt_that_arrived_is_in_the_log
                arrivals_that_are_written_again_are_there_once
                arrivals_far_apart_are_all_found
                attempts_are_listed_in_order
            }
            parked {
                a_parked_delivery_falls_due_at_its_moment
                what_is_blocked_falls_due_without_its_key_where_none_is_kept
                the_longest_due_comes_first
                the_next_due_moment_is_the_earliest
                what_is_read_for_all_is_what_is_read_for_each
                a_parked_delivery_is_parked_again_or_arrives
                blocked_deliveries_are_released_one_by_one_in_order
                what_waits_behind_a_due_delivery_comes_with_it
                a_blocked_delivery_that_is_begun_has_its_turn
                a_release_lets_nothing_pass_an_unfinished_delivery
                a_delivery_blocked_by_nothing_is_due_at_once
                a_settlement_happens_in_the_order_of_its_fields
                an_opened_destination_says_which_keys_are_blocked
                blocked_keys_are_asked_for_in_pages_and_one_by_one
            }
            recovery {
                an_offer_cut_off_is_due_at_once_with_its_attempt_counted
                an_offer_cut_off_holds_its_order_key_up
                an_offer_that_was_settled_is_not_offered_again
                a_retry_cut_off_is_due_at_once_with_its_attempt_counted
                a_retry_that_was_settled_was_not_cut_off
                an_attempt_cut_off_is_counted_once
                opening_a_destination_cuts_off_no_other
            }
            dead_letters {
                a_dead_letter_keeps_its_event_and_its_whole_log
                a_dead_letter_never_falls_due
                dead_letters_are_listed_page_by_page
                a_replayed_dead_letter_is_due_as_if_never_tried
                the_log_goes_on_after_a_replay
                a_discarded_dead_letter_is_gone_permanently
                discarding_lets_the_order_key_go
                only_a_dead_letter_is_replayed_or_discarded
            }
        }
    };
    ($store:ident, phases) => {
        $crate::suite! { $store, store,
            phases {
                an_entered_key_is_in_progress
                an_entry_beside_a_running_claim_compares_payloads
                an_entry_outlives_a_crash
                a_phase_commits_rows_events_and_its_recovery_point
                the_last_phase_stores_the_answer
                a_phase_without_rows_advances_its_key
                a_refusal_keeps_the_phases_before_it
                a_phase_that_is_rolled_back_leaves_the_key_as_it_was
                a_fenced_owner_changes_nothing
                a_finished_key_fences_its_owner
                a_renewed_lease_does_not_lapse
                an_expired_lease_is_still_its_owners_without_a_successor
                a_key_given_back_is_resumed_at_once
                a_released_key_is_free
                a_forgotten_key_fences_its_owner
                an_expired_key_is_entered_again
                a_purge_never_touches_a_key_in_progress
                of_many_entries_at_once_one_owns
                every_mode_at_once_runs_once
            }
            recovery_points {
                a_key_is_entered_at_a_recovery_point
                a_resumed_key_keeps_its_recovery_point
                a_key_that_starts_again_is_at_its_new_recovery_point
                a_recovery_point_that_is_no_name_of_a_phase_is_refused
                a_key_is_advanced_without_a_transaction
                a_response_is_stored_without_a_transaction
                keys_are_entered_and_finished_at_once
            }
            takeovers {
                a_lapsed_key_is_taken_over_after_its_grace
                a_take_over_leaves_what_it_cannot_resume
                the_longest_lapsed_key_is_taken_over_first
                each_lapsed_key_is_taken_over_once
                each_owner_doubles_the_grace
                the_largest_request_is_kept_byte_for_byte
            }
        }
    };
    ($store:ident, sagas) => {
        $crate::suite! { $store, store,
            sagas {
                a_saga_exists_exactly_when_its_transaction_commits
                an_id_is_started_once
                a_saga_reads_back_as_it_was_started
                a_saga_carries_the_context_of_its_request
                a_saga_that_is_too_large_is_refused
                each_due_saga_is_taken_once
                a_held_saga_is_taken_again_after_its_lease
                a_turn_renews_the_lease
                the_longest_due_saga_comes_first
                only_known_kinds_are_taken
                a_turn_commits_rows_events_and_its_step
                a_turn_that_is_rolled_back_leaves_nothing
                steps_read_back_in_the_order_in_which_they_began
                a_fenced_worker_writes_nothing
                a_seized_saga_fences_its_worker
                a_saga_given_back_falls_due_after_its_pause
                the_next_saga_is_the_first_to_fall_due
                sagas_are_listed_page_by_page
                a_purge_deletes_only_what_ended_long_ago
                a_key_of_a_live_saga_does_not_expire_in_any_mode
                a_saga_of_a_phase_keeps_the_key_of_its_request
            }
            signals {
                a_signal_wakes_a_saga_and_stands_once
                a_signal_that_crosses_a_worker_is_not_lost
                a_locked_saga_shows_how_many_signals_it_received
                a_saga_that_has_ended_is_left_alone
                a_saga_that_needs_attention_waits_for_a_word
                a_word_before_a_saga_is_given_back_outlives_its_worker
                a_word_that_is_too_large_is_refused
                sagas_that_need_attention_are_counted_by_name
            }
            decisions {
                a_key_stands_until_the_saga_that_began_under_it_has_ended
            }
        }
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_law_that_is_written_is_on_the_list() {
        crate::conformance::check_list(
            include_str!("mod.rs"),
            &[
                ("keys", include_str!("keys.rs")),
                ("conflicts", include_str!("conflicts.rs")),
                ("retention", include_str!("retention.rs")),
                ("transaction", include_str!("transaction.rs")),
                ("phases", include_str!("phases.rs")),
                ("recovery_points", include_str!("recovery_points.rs")),
                ("takeovers", include_str!("takeovers.rs")),
                ("optimistic", include_str!("optimistic.rs")),
                ("single_shot", include_str!("single_shot.rs")),
                ("outbox", include_str!("outbox.rs")),
                ("inbox", include_str!("inbox.rs")),
                ("sagas", include_str!("sagas.rs")),
                ("signals", include_str!("signals.rs")),
                ("decisions", include_str!("decisions.rs")),
                ("starts", include_str!("starts.rs")),
                ("leases", include_str!("leases.rs")),
                ("deliveries", include_str!("deliveries.rs")),
                ("arrivals", include_str!("arrivals.rs")),
                ("parked", include_str!("parked.rs")),
                ("recovery", include_str!("recovery.rs")),
                ("dead_letters", include_str!("dead_letters.rs")),
            ],
        );
    }
}
