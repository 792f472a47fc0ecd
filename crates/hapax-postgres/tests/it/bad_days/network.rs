//! Network faults: the connection is lost or goes silent, at every step of a request.

use std::time::Instant;

use hapax::store::StoreError;
use hapax_postgres::{OpenError, Postgres};
use hapax_testkit::{
    assert_matches,
    postgres::Database,
    proxy::{Deed, Direction, Fault, Moment, Proxy},
};

use super::day::{Day, REQUEST_KINDS, RequestKind, SHORT, hasty, order};

/// The statements of a request, by a part of their text.
const CLAIM: &str = "AS locked";
const FIND: &str = "FROM hapax.idempotency_key";
const HANDLER: &str = "INSERT INTO note";
const ANSWER: &str = "INSERT INTO hapax.idempotency_key";
const EVENTS: &str = "INSERT INTO hapax.outbox_event";

const DEEDS: [Deed; 4] = [
    Deed::CutBefore,
    Deed::CutAfter,
    Deed::SwallowBefore,
    Deed::SwallowAfter,
];

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_breaks_or_goes_silent_at_any_step_costs_a_retry_at_most() {
    let day = Day::new().await;
    let moments = [
        Some(CLAIM),
        Some(FIND),
        Some(HANDLER),
        Some(ANSWER),
        Some(EVENTS),
        None,
    ];
    check_steps(&day, RequestKind::Handler, &moments).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_riding_claim_that_breaks_or_goes_silent_at_any_step_costs_a_retry_at_most() {
    let day = Day::new().await;
    let moments = [Some(CLAIM), Some(FIND), Some(HANDLER), Some(ANSWER), None];
    check_steps(&day, RequestKind::Pipelined, &moments).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_optimistic_claim_that_breaks_or_goes_silent_at_any_step_costs_a_retry_at_most() {
    let day = Day::new().await;
    let moments = [Some("BEGIN"), Some(HANDLER), Some(ANSWER), None];
    check_steps(&day, RequestKind::Optimistic, &moments).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_shot_that_breaks_or_goes_silent_at_any_step_costs_a_retry_at_most() {
    let day = Day::new().await;
    check_steps(
        &day,
        RequestKind::PlannedRequest,
        &[Some(ANSWER), Some(HANDLER), Some(EVENTS), None],
    )
    .await;
}

async fn check_steps(day: &Day, way: RequestKind, moments: &[Option<&str>]) {
    for (number, moment) in moments.iter().enumerate() {
        for deed in DEEDS {
            let key = format!("{number} {deed:?}");
            // The connection that breaks has been used before.
            order(&day.node, way, &format!("{key} before"))
                .await
                .unwrap();
            let moment = moment.map_or_else(Moment::commit, Moment::containing);
            let trap = day.proxy.once(moment, deed);
            let start = Instant::now();
            let told = order(&day.node, way, &key).await;
            assert!(start.elapsed() < SHORT * 8, "{key}: {:?}", start.elapsed());
            assert_eq!(trap.count(), 1, "{key}: {told:?}");
            day.proxy.heal().await;
            let fits = matches!(
                told,
                Ok(_)
                    | Err(StoreError::Unavailable { .. }
                        | StoreError::Conflict { .. }
                        | StoreError::NotClaimed)
            );
            assert!(fits, "{key}: {told:?}");
            // A statement whose data was swallowed holds its transaction open until the connection
            // ends.
            day.proxy.reset();
            day.settle(way, &key, told).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_on_connections_that_were_reset_are_refused_once_at_most_each() {
    let day = Day::new().await;
    for way in REQUEST_KINDS {
        order(&day.node, way, "warm").await.unwrap();
        day.proxy.reset();
        let key = format!("{way:?}");
        let outcome = order(&day.node, way, &key).await;
        day.settle(way, &key, outcome).await;
    }
    assert!(day.proxy.tally().reset >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_refuses_connections_is_unavailable_until_it_takes_them() {
    let day = Day::new().await;
    for way in REQUEST_KINDS {
        day.proxy.refuse(true).await;
        day.proxy.reset();
        let key = format!("{way:?}");
        let outcome = order(&day.node, way, &key).await;
        check_unavailable(&outcome);
        let again = order(&day.node, way, &key).await;
        check_unavailable(&again);
        day.proxy.heal().await;
        day.settle(way, &key, outcome).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_goes_silent_is_unavailable_within_the_bounds() {
    let day = Day::new().await;
    for way in REQUEST_KINDS {
        day.proxy.black_hole();
        let key = format!("{way:?}");
        let start = Instant::now();
        let outcome = order(&day.node, way, &key).await;
        check_unavailable(&outcome);
        assert!(start.elapsed() < SHORT * 8, "{:?}", start.elapsed());
        assert!(day.proxy.tally().swallowed > 0);
        day.proxy.heal().await;
        day.proxy.reset();
        day.settle(way, &key, outcome).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_is_not_opened_by_way_of_a_network_that_refuses_or_swallows_or_cuts() {
    let database = Database::fresh().await;
    let proxy = Proxy::to_postgres(database.address());
    let open = async || Postgres::open(hasty(&proxy.url(&database.url()))).await;
    proxy.refuse(true).await;
    check_unopened(&open().await);
    proxy.heal().await;
    proxy.black_hole();
    check_unopened(&open().await);
    proxy.heal().await;
    for bytes in [0, 10, 100, 400] {
        proxy.set(Direction::ToClient, Fault::CutAfter(bytes));
        check_unopened(&open().await);
    }
    proxy.heal().await;
    for deed in DEEDS {
        for partition in ["SET statement_timeout", "pg_is_in_recovery"] {
            let trap = proxy.always(Moment::containing(partition), deed);
            let start = Instant::now();
            check_unopened(&open().await);
            assert!(
                start.elapsed() < SHORT * 8,
                "{partition} {deed:?}: {:?}",
                start.elapsed()
            );
            assert!(trap.count() > 0, "{partition} {deed:?}");
            proxy.heal().await;
        }
    }
    open().await.unwrap();
}

#[track_caller]
fn check_unopened(opened: &Result<Postgres, OpenError>) {
    let fits = matches!(
        opened,
        Err(OpenError::Unavailable { .. } | OpenError::Schema { .. })
    );
    assert!(fits, "{opened:?}");
}

#[track_caller]
fn check_unavailable<T: std::fmt::Debug>(outcome: &Result<T, StoreError>) {
    assert_matches!(outcome, Err(StoreError::Unavailable { .. }));
}
