//! One conformance suite over three stores, the model-based comparison, and what only real servers and
//! real processes can show.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
#![expect(unreachable_pub, reason = "a test binary has no outside")]

mod actor;
mod coverage;
mod model;
mod postgres;
mod recording;
mod sqlite;
mod suite;
mod world;

/// Runs every body of the suite on every store, each as a test of its own.
macro_rules! conformance {
    ($($group:ident::$name:ident),+ $(,)?) => {
        mod on_memory {
            $(#[tokio::test] async fn $name() { crate::suite::$group::$name(&crate::world::memory()).await; })+
        }
        mod on_sqlite {
            $(#[tokio::test] async fn $name() { crate::suite::$group::$name(&crate::world::sqlite().await).await; })+
        }
        mod on_postgres {
            $(#[tokio::test] async fn $name() { crate::suite::$group::$name(&crate::world::postgres().await).await; })+
        }

        /// The whole suite on one world after another, for the coverage test.
        async fn run_suite_on_postgres(wrap: impl Fn(crate::world::World) -> crate::world::World) {
            $(crate::suite::$group::$name(&wrap(crate::world::postgres().await)).await;)+
        }
    };
}

conformance! {
    accepting::a_new_request_is_accepted_and_queued,
    accepting::a_repeated_request_gets_the_same_transaction,
    accepting::another_payload_under_the_same_id_is_a_mismatch,
    accepting::odd_request_ids_are_kept_to_the_letter,
    accepting::an_unknown_submitter_costs_only_its_item,
    accepting::a_batch_keeps_the_order_it_was_given_in,
    accepting::the_same_request_twice_in_one_batch_is_one_transaction,
    accepting::everything_asked_for_is_read_back,
    leases::the_first_lease_is_an_insert_and_the_next_a_renewal,
    leases::another_node_is_not_owner_until_the_lease_and_its_allowance_are_over,
    leases::an_own_but_expired_lease_gets_a_new_token,
    leases::two_processes_with_one_node_id_are_two_owners,
    leases::renewing_keeps_the_token_and_fails_once_expired_or_taken,
    leases::a_released_lease_is_free_at_once,
    leases::a_lease_from_before_the_clock_stepped_back_may_be_taken,
    leases::raising_the_token_fences_what_was_drafted_before,
    leases::work_without_a_live_lease_is_claimable_and_nothing_else,
    fencing::a_live_lease_writes_and_the_version_rises,
    fencing::a_stale_token_writes_nothing,
    fencing::a_stale_process_of_the_same_node_writes_nothing,
    fencing::an_expired_lease_writes_nothing,
    fencing::a_stale_version_writes_nothing,
    fencing::one_fenced_lane_does_not_touch_the_others_of_its_batch,
    fencing::a_lane_twice_in_one_batch_is_told_to_retry,
    fencing::a_change_that_finds_other_rows_than_planned_is_refused_whole,
    slots::a_transaction_walks_from_queued_to_confirmed,
    slots::a_slot_is_unique,
    slots::a_hash_is_stored_once,
    slots::unbinding_deletes_the_bytes_and_queues_in_the_old_place,
    slots::claims_and_refusals_are_kept_on_the_attempt,
    slots::a_nul_in_a_nodes_text_is_stripped_and_costs_nobody,
    slots::conditions_survive_and_show_the_gravest,
    slots::a_reservation_is_held_marked_and_settled,
    slots::a_late_mark_by_a_former_holder_is_refused,
    slots::a_reservation_times_out_only_after_its_time,
    slots::a_reservation_is_released_by_its_holder_alone,
    slots::foreign_use_is_recorded_with_its_exhibit,
    slots::commands_wait_for_their_lane_and_end_once,
    reading::lists_page_in_order_and_filter_by_state,
    reading::any_attempts_hash_finds_its_transaction,
    reading::a_lane_loads_only_what_it_must_still_watch,
    reading::submitters_are_registered_once_and_listed_by_name,
    reading::queues_are_counted_until_they_are_bound,
    reading::limits_are_answers,
    events::histories_are_numbered_without_a_hole,
    events::the_stream_shows_everything_once_in_pages_of_any_size,
    events::a_cursor_of_another_epoch_is_expired,
    events::a_refused_change_tells_nothing,
    events::a_word_about_new_work_reaches_whoever_waits,
}
