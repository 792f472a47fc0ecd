//! Conformance suite of what operators see and do, one named test per requirement.
//!
//! A store's crate implements [`AdminUnderTest`] beside [`StoreUnderTest`](crate::store::StoreUnderTest)
//! and calls [`admin_suite!`](crate::admin_suite). The requirements are documented in
//! [`hapax::admin`]. The tests use the traits of the store and of its operators only: they know no
//! table, and what goes on in a database at the same time is tested with several handles.

#![expect(
    clippy::missing_panics_doc,
    reason = "a conformance test panics when a requirement is violated"
)]

pub mod events;
pub mod traces;
pub mod deliveries;
pub mod dead_letters;
pub mod jobs;
pub mod job_requests;
pub mod job_runs;
pub mod keys;
pub mod purges;
pub mod key_decisions;
pub mod unknown_outcomes;
pub mod inbox;
pub mod sagas;
pub mod decisions;
pub mod destinations;
pub mod starts;
pub mod removals;
pub mod polling;
pub mod polling_endpoints;
pub mod endpoints;
pub mod endpoint_deliveries;
pub mod endpoint_replays;
pub mod endpoint_recovery;
pub mod endpoint_unsent;
pub mod endpoint_overview;
pub mod operational_events;
pub mod event_links;
pub mod destination_index;
pub mod overview;
pub mod stalled;
pub mod timeline;
pub mod audit;
pub mod lists;
pub mod empty;
mod scene;
mod checks;

use std::{sync::Arc, time::Duration};

use hapax::{Clock, Random, admin::Admin, operational::OperationalEvents};

use crate::store::{
    DeliveriesUnderTest, EndpointsUnderTest, OperationalUnderTest, PollUnderTest, SagasUnderTest,
};

/// A store under test with functions for operators.
pub trait AdminUnderTest:
    SagasUnderTest + DeliveriesUnderTest + PollUnderTest + EndpointsUnderTest + OperationalUnderTest
{
    /// Whether the store encrypts responses. The ids of their resources are not stored then.
    const IS_ENCRYPTED: bool = false;

    /// An empty store for this test only, like a fresh one, which emits operational events.
    fn emitting(
        clock: Clock,
        random: Random,
        events: OperationalEvents,
    ) -> impl Future<Output = Self> + Send;

    /// The operators' handle of the store.
    fn admin(&self) -> Arc<dyn Admin>;

    /// The operators' handle of another process, which shares nothing with this one in memory.
    fn beside(&self) -> impl Future<Output = Arc<dyn Admin>> + Send;

    /// Moves what the database's own clock decides, after the clock of the test was moved forward.
    /// Needed only by a store some of whose times are not read from that clock.
    fn time_passed(&self, by: Duration) -> impl Future<Output = ()> + Send {
        let _ = by;
        std::future::ready(())
    }

    /// Makes every write to a table fail with an error that is not about a connection, by any
    /// process, until [`accept_writes`](Self::accept_writes).
    fn refuse_writes(&self, table: Table) -> impl Future<Output = ()> + Send;

    /// Makes the writes to a table succeed again.
    fn accept_writes(&self, table: Table) -> impl Future<Output = ()> + Send;
}

/// A table whose writes a test makes fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Declared destinations.
    Declarations,
    /// Deliveries that have a row.
    Deliveries,
    /// Jobs.
    Jobs,
    /// The audit log.
    AuditLog,
}

/// Runs the conformance suite of what operators see and do: one test per requirement, named after
/// it.
///
/// The argument is the name of a type that implements
/// [`AdminUnderTest`](crate::admin::AdminUnderTest) and is in scope at the macro call.
#[macro_export]
macro_rules! admin_suite {
    ($store:ident) => {
        $crate::suite! { $store, admin,
            events {
                events_are_listed_in_pages_the_newest_first
                every_field_of_the_filter_selects_events
                a_filter_is_tried_on_the_newest_events_first
                the_settings_of_an_endpoint_are_tried_on_events_of_its_tenant
                a_star_is_the_only_special_character_of_a_type_pattern
                attempts_and_errors_do_not_select_events
                only_events_after_a_position_are_listed
                a_hostile_filter_of_events_finds_nothing
                the_most_extreme_times_are_valid_in_a_filter_of_events
                a_listed_event_has_the_fields_of_the_event
                a_single_event_is_read_as_it_was_emitted
                an_event_is_found_by_its_id_even_if_its_clock_was_wrong
                an_operator_of_a_tenant_sees_its_own_events
                a_rare_event_is_found_behind_many_others
            }
            traces {
                a_trace_tells_the_status_of_an_event_at_every_destination
                a_delivered_event_is_traced_with_its_attempts
                a_discarded_delivery_is_traced_with_its_reason
                an_event_is_traced_at_the_partition_of_its_shard
                traces_of_many_events_are_read_at_once
            }
            deliveries {
                deliveries_are_listed_by_destination_and_state
                every_field_of_the_event_filter_selects_deliveries
                a_part_of_the_last_error_selects_deliveries
                a_listed_delivery_has_its_own_fields_and_those_of_its_event
                a_parked_delivery_that_succeeded_is_listed_as_delivered
                a_state_without_rows_is_not_a_filter_of_deliveries
                a_hostile_filter_of_deliveries_finds_nothing
                an_operator_of_a_tenant_sees_deliveries_of_its_own_events
                a_rare_delivery_is_found_behind_many_others
            }
            dead_letters {
                a_replayed_dead_letter_is_due_as_if_never_tried
                a_delivery_that_waits_is_retried_now
                a_discarded_dead_letter_releases_its_order_key
                a_dead_letter_is_discarded_only_with_a_reason
                a_hostile_reason_is_stored
                only_a_dead_letter_is_replayed_edited_or_discarded
                a_hostile_partition_has_no_dead_letters
                an_edited_payload_is_offered_by_its_destination_alone
                an_edit_that_cannot_be_made_changes_nothing
                of_operations_on_one_dead_letter_at_once_one_is_done
                dead_letters_are_counted_by_every_field_of_the_filter
                what_is_not_a_snapshot_is_rejected
                an_operator_of_a_tenant_changes_its_own_dead_letters
            }
            jobs {
                a_job_replays_the_dead_letters_that_match_its_filter
                a_job_discards_dead_letters_with_its_reason
                a_job_processes_what_every_field_of_its_filter_selects
                events_are_offered_again_unless_they_still_wait
                a_later_event_is_not_offered_by_an_earlier_job
                one_event_is_offered_again_by_its_id
                an_event_is_offered_again_by_the_partition_of_its_shard
            }
            job_requests {
                a_job_keeps_to_its_rate
                a_cancelled_job_runs_no_further_batch
                requests_with_one_key_start_one_job
                jobs_are_listed_by_destination_and_state
                a_job_needs_a_destination_that_was_opened
                an_operator_of_a_tenant_has_its_own_jobs
            }
            job_runs {
                a_job_whose_worker_dies_after_each_batch_is_resumed
                an_abandoned_batch_is_done_completely_or_not_at_all
                of_several_workers_one_at_a_time_runs_a_job
                the_job_that_has_been_due_longest_runs_first
                what_dies_between_the_count_and_the_job_is_left_out
                a_snapshot_does_not_depend_on_the_clock
                what_dies_while_a_job_runs_is_left_out
                a_job_that_keeps_failing_is_given_up
                a_job_goes_on_after_a_failed_batch
                a_removal_that_was_given_up_continues_when_it_is_requested_again
            }
            keys {
                keys_are_listed_in_pages_the_newest_claim_first
                every_field_of_the_filter_selects_keys
                a_key_is_found_by_its_short_hash
                a_key_whose_response_was_purged_is_a_tombstone
                a_hostile_filter_of_keys_finds_nothing
                a_key_with_special_characters_is_found_by_its_beginning
                a_completed_key_is_read_with_its_response
                a_key_names_the_resource_of_its_response
                a_key_in_progress_is_read_with_its_recovery_point
                a_key_of_several_tenants_is_read_by_its_tenant
                an_operator_of_a_tenant_sees_its_own_keys
            }
            purges {
                a_purged_key_is_free_again
                a_purge_needs_a_reason_and_a_version
                a_key_in_progress_is_not_purged
                a_key_that_was_used_again_since_it_was_read_is_not_purged
                a_key_that_was_completed_since_it_was_read_is_not_purged
                of_many_purges_of_one_version_at_once_one_is_done
                a_purge_is_announced_to_services
                a_key_is_kept_until_its_saga_has_ended
                an_operator_of_a_tenant_purges_its_own_keys
            }
            key_decisions {
                a_key_that_is_decided_to_have_happened_replays
                a_key_that_is_decided_not_to_have_happened_is_free
                a_key_with_an_owner_or_a_response_is_not_decided
                an_owner_is_fenced_by_a_decision
                a_key_that_was_resumed_since_it_was_read_is_not_decided
                a_decision_about_a_key_is_checked
            }
            unknown_outcomes {
                unknown_outcomes_are_listed_with_their_record
                every_field_of_the_filter_selects_unknown_outcomes
                a_single_unknown_outcome_is_read
                waiting_unknown_outcomes_are_counted
                retries_that_are_refused_do_not_prevent_a_decision
                a_request_that_was_sent_again_is_not_decided
                a_decision_that_is_sent_again_succeeds_and_changes_nothing
                a_decision_that_is_sent_again_does_not_free_the_next_request
                a_decision_about_an_earlier_request_with_the_key_does_not_count
                of_many_decisions_about_an_outcome_at_once_one_is_done
                an_operator_of_a_tenant_decides_about_its_own_outcomes
                a_decision_about_an_outcome_is_checked
            }
            inbox {
                messages_are_listed_in_pages_the_newest_first
                every_field_of_the_filter_selects_messages
                a_hostile_filter_of_messages_finds_nothing
                a_listed_message_has_the_fields_of_the_message
                a_message_keeps_the_result_and_the_time_of_its_effect
                messages_of_many_sources_with_one_id_are_all_listed
                an_operator_of_a_tenant_sees_no_messages
            }
            sagas {
                every_field_of_the_filter_selects_sagas
                a_hostile_filter_of_sagas_finds_nothing
                a_single_saga_is_read_with_its_steps
                the_lease_of_a_saga_is_shown
                an_operator_of_a_tenant_has_its_own_sagas
                the_pages_of_a_tenant_name_no_saga_of_another
            }
            decisions {
                each_decision_has_its_effect
                a_saga_is_compensated_once_no_outcome_is_unknown
                a_decision_that_does_not_fit_changes_nothing
                a_decision_needs_a_reason_and_a_short_result
                a_hostile_reason_of_a_decision_is_stored
                a_saga_that_has_changed_since_it_was_read_is_not_decided_about
                of_many_decisions_at_once_one_is_applied
                a_decision_fences_the_worker_of_the_saga
            }
            destinations {
                a_declaration_reads_back_as_it_was_written
                a_destination_is_paused_and_resumed_once
                a_change_leaves_a_paused_destination_paused
                declarations_are_listed_by_name
                what_cannot_be_declared_is_rejected
                an_odd_specification_belongs_to_one_tenant
                an_unknown_destination_does_not_exist
                of_changes_of_one_version_at_once_one_is_done
                a_change_of_another_version_is_refused
                opened_partitions_are_listed_with_their_state
                an_operator_of_a_tenant_has_its_own_destinations
            }
            starts {
                a_declared_destination_starts_now_unless_it_says_otherwise
                a_destination_that_is_created_again_starts_anew
                a_start_that_was_never_used_is_replaced
                a_destination_that_was_never_opened_is_removed
                a_start_is_checked_and_cannot_be_changed
            }
            removals {
                a_removed_destination_is_deleted_and_its_name_is_free_again
                a_removal_waits_until_relays_know_of_it
                an_owner_from_before_a_removal_is_fenced
                a_destination_of_a_configuration_file_is_paused_and_removed
                no_job_starts_at_a_removed_destination
            }
            polling {
                a_chain_of_pages_has_each_event_of_the_tenant_once
                patterns_and_all_tenants_select_events
                a_rare_event_is_found_in_bounded_pages
                a_commit_survives_a_restart_and_a_fetch_does_not
                a_commit_does_not_go_back_by_mistake
                a_cursor_of_another_endpoint_is_refused
                a_token_opens_its_endpoint_alone
                an_endpoint_starts_and_seeks_as_it_is_asked
                a_consumer_learns_what_was_purged
                a_cursor_of_a_lost_history_is_refused
                a_poll_waits_for_an_event
            }
            polling_endpoints {
                a_rotated_token_is_valid_for_its_overlap
                a_rotation_ends_no_earlier_token
                a_previous_token_belongs_to_its_endpoint
                one_previous_token_too_many_is_refused
                rotations_at_the_same_time_lose_no_token
                operators_create_list_and_remove_endpoints
                an_operator_of_a_tenant_has_its_own_endpoints
                operators_move_the_position_of_an_endpoint
                the_lag_of_an_endpoint_is_counted
            }
            endpoints {
                an_endpoint_is_changed_at_its_version
                a_tenant_has_a_bounded_number_of_endpoints
                endpoints_are_listed_in_pages
                an_endpoint_belongs_to_its_tenant_alone
                a_relay_reads_what_has_changed
            }
            endpoint_deliveries {
                a_delivery_is_claimed_once_and_again_after_its_lease
                a_settlement_of_an_earlier_attempt_changes_nothing
                an_event_is_queued_for_endpoints_of_its_tenant
                a_disabled_endpoint_gets_nothing_until_it_is_enabled
                a_claim_is_shared_among_the_endpoints
                failures_are_counted_until_a_success
                failures_are_counted_for_each_url
                the_oldest_of_too_many_deliveries_have_failed
                attempts_are_listed_with_request_and_response
                the_health_of_an_endpoint_is_that_of_its_attempts
                old_attempts_and_deliveries_are_purged
            }
            endpoint_replays {
                deliveries_are_replayed
                a_late_settlement_does_not_undo_a_replay
                deliveries_that_failed_in_a_time_are_replayed
            }
            endpoint_recovery {
                a_failing_endpoint_is_slowed_until_a_success
                failures_are_spread_over_time_if_they_are_a_span_apart
                an_event_that_cannot_be_sent_is_no_failure_of_its_endpoint
                a_disabled_endpoint_is_probed_until_it_is_enabled
                a_probe_needs_a_delivery
                a_probe_leaves_out_an_event_that_was_postponed
                a_probe_goes_on_with_the_next_event_if_one_cannot_be_sent
                a_replay_is_probed_although_nothing_else_could_be_sent
                a_person_decides_about_probes
                an_endpoint_catches_up_in_the_order_of_the_events
            }
            endpoint_unsent {
                events_from_before_an_endpoint_are_queued_once
                what_was_sent_or_is_not_taken_is_not_queued
                many_unsent_events_are_queued_in_batches
                unsent_events_belong_to_their_tenant
            }
            endpoint_overview {
                endpoints_of_all_tenants_are_listed_with_their_health
                every_field_of_the_filter_selects_endpoints
                what_waits_for_an_endpoint_is_listed
                an_event_is_traced_at_the_endpoints_of_its_tenant
                disabled_endpoints_and_backlogs_need_attention
                an_operator_of_a_tenant_sees_its_own_endpoints
            }
            operational_events {
                an_endpoint_that_is_disabled_is_reported_once
                an_endpoint_that_recovers_is_reported_once
                a_change_that_fails_is_not_reported
                an_exhausted_delivery_to_an_endpoint_is_reported_once
                a_report_that_fails_is_not_reported
                dropped_deliveries_are_reported_with_their_number
                a_dead_letter_is_reported_by_its_settlement
                a_fenced_settlement_is_not_reported
                a_lag_is_reported_when_it_begins_and_when_it_ends
                nothing_is_reported_by_default
            }
            event_links {
                an_event_is_fetched_by_its_id_within_its_tenant
                an_event_is_fetched_with_a_valid_token_only
                an_event_that_was_purged_is_not_found
                an_endpoint_is_thin_if_it_says_so
                an_endpoint_has_a_mapping
            }
            destination_index {
                the_index_lists_each_destination_once
                the_index_of_a_tenant_has_its_own_destinations
                the_progress_of_a_destination_is_counted
                the_events_that_a_destination_has_not_read_are_listed
                a_destination_of_a_tenant_is_offered_its_events
                what_a_setting_pauses_is_reported_and_not_resumed
            }
            overview {
                the_overview_counts_what_there_is
                an_event_that_waits_for_its_time_is_not_late
                delayed_events_do_not_hide_the_lag
                the_partitions_of_a_destination_are_added_up
                a_large_backlog_is_estimated_or_exact_and_says_which
                an_operator_of_a_tenant_sees_its_own_figures
                a_removed_destination_has_no_figures
                the_backlog_of_a_partition_is_read_by_its_name
            }
            stalled {
                nothing_is_stalled_where_everything_is_delivered
                a_partition_without_an_owner_is_distinguished_from_a_silent_owner
                an_owner_that_settles_nothing_is_reported
                paused_and_disabled_destinations_are_reported
                what_blocks_an_order_key_is_reported
                declined_events_are_reported_by_type
                sagas_that_need_an_operator_or_a_worker_are_reported_by_kind
                an_operator_of_a_tenant_sees_its_own_stalled_destinations
            }
            timeline {
                a_request_is_followed_from_its_key_to_its_consumers
                a_saga_and_its_later_events_belong_to_the_request
                the_events_of_all_phases_belong_to_the_request
                an_event_without_a_key_is_shown_with_its_transaction
                the_events_of_a_deleted_key_are_shown_together
                a_key_of_several_operations_is_followed_by_its_operation
                an_operator_of_a_tenant_follows_its_own_requests
                requests_at_once_have_a_timeline_each
            }
            audit {
                every_field_of_the_filter_selects_entries
                an_entry_says_who_did_what
                the_reason_of_an_operator_is_in_the_details
                an_operation_that_changes_nothing_is_recorded
                a_hostile_name_of_an_operator_is_stored
                an_operator_of_a_tenant_sees_its_own_entries
                an_operation_that_fails_leaves_no_entry
                an_operation_whose_entry_cannot_be_written_has_no_effect
            }
            lists {
                every_list_has_each_item_once_whatever_the_length_of_its_pages
                a_limit_is_at_least_one_and_at_most_the_maximum
                a_page_of_events_has_at_most_the_maximum_of_items
                a_page_of_keys_has_at_most_the_maximum_of_items
                a_page_of_messages_has_at_most_the_maximum_of_items
                a_page_of_sagas_has_at_most_the_maximum_of_items
                a_cursor_survives_what_is_added_between_pages
                a_cursor_survives_the_deletion_of_its_item
                a_cursor_is_valid_in_another_process
                text_that_is_not_a_cursor_is_rejected
                a_cursor_of_another_list_does_no_harm
            }
            empty {
                the_lists_of_an_empty_store_are_empty
                nothing_is_found_in_an_empty_store
                the_overview_of_an_empty_store_contains_nothing
            }
        }
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_test_that_is_written_is_on_the_list() {
        crate::conformance::check_list(
            include_str!("mod.rs"),
            &[
                ("events", include_str!("events.rs")),
                ("traces", include_str!("traces.rs")),
                ("deliveries", include_str!("deliveries.rs")),
                ("dead_letters", include_str!("dead_letters.rs")),
                ("jobs", include_str!("jobs.rs")),
                ("job_requests", include_str!("job_requests.rs")),
                ("job_runs", include_str!("job_runs.rs")),
                ("keys", include_str!("keys.rs")),
                ("purges", include_str!("purges.rs")),
                ("key_decisions", include_str!("key_decisions.rs")),
                ("unknown_outcomes", include_str!("unknown_outcomes.rs")),
                ("inbox", include_str!("inbox.rs")),
                ("sagas", include_str!("sagas.rs")),
                ("decisions", include_str!("decisions.rs")),
                ("destinations", include_str!("destinations.rs")),
                ("starts", include_str!("starts.rs")),
                ("removals", include_str!("removals.rs")),
                ("polling", include_str!("polling.rs")),
                ("polling_endpoints", include_str!("polling_endpoints.rs")),
                ("endpoints", include_str!("endpoints.rs")),
                (
                    "endpoint_deliveries",
                    include_str!("endpoint_deliveries.rs"),
                ),
                ("endpoint_replays", include_str!("endpoint_replays.rs")),
                ("endpoint_recovery", include_str!("endpoint_recovery.rs")),
                ("endpoint_unsent", include_str!("endpoint_unsent.rs")),
                ("endpoint_overview", include_str!("endpoint_overview.rs")),
                ("operational_events", include_str!("operational_events.rs")),
                ("event_links", include_str!("event_links.rs")),
                ("destination_index", include_str!("destination_index.rs")),
                ("overview", include_str!("overview.rs")),
                ("stalled", include_str!("stalled.rs")),
                ("timeline", include_str!("timeline.rs")),
                ("audit", include_str!("audit.rs")),
                ("lists", include_str!("lists.rs")),
                ("empty", include_str!("empty.rs")),
            ],
        );
    }
}
