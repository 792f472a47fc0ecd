//! Settling events that were read in a lost history, by the owner that both servers know.

use std::time::Duration;

use bytes::Bytes;
use hapax::{
    Timestamp,
    delivery::{
        Arrived, Attempt, AttemptOutcome, Checkpoint, Frontier, Park, ParkedState, Settlement,
    },
    store::{Settlements, StoreError},
};
use hapax_postgres::{Postgres, Schema};
use hapax_testkit::{assert_matches, postgres::connect};
use tokio_postgres::Client;

use super::{Parted, at, read, settlement};
use crate::fixture::settings;

/// Counts all rows that a settlement may have written.
const WRITTEN: &str = "
    SELECT (SELECT count(*) FROM hapax.arrival) + (SELECT count(*) FROM hapax.attempt)
         + (SELECT count(*) FROM hapax.delivery)
         + (SELECT count(*) FROM hapax.destination WHERE disabled_at IS NOT NULL)";

#[tokio::test]
async fn a_checkpoint_of_a_lost_history_is_fenced_and_nothing_is_written_with_it() {
    for parted in [Parted::by_failover().await, Parted::by_restore().await] {
        let lost = parted.lost().await.frontier;
        let settlement = everything(parted.epoch, Some(at(&lost)));
        check_fenced(&parted.new, settlement).await;
        check_untouched(&parted.on_new).await;
        parted.goes_on().await;
    }
}

/// The result of its commit was lost, and the commit itself is lost with the history. When it is
/// sent again to the new server, it is not written.
#[tokio::test]
async fn a_settlement_in_doubt_whose_commit_was_lost_too_is_fenced() {
    for parted in [Parted::by_failover().await, Parted::by_restore().await] {
        let lost = parted.lost().await.frontier;
        let doubtful = Settlement {
            number: 1,
            ..everything(parted.epoch, Some(at(&lost)))
        };
        for _ in ["unheard", "again"] {
            parted.old.settle(doubtful.clone()).await.unwrap();
        }
        check_fenced(&parted.new, doubtful).await;
        check_untouched(&parted.on_new).await;
        parted.goes_on().await;
    }
}

/// The frontier exists in both histories, but the events that are settled beyond it were read in
/// the lost one.
#[tokio::test]
async fn a_standing_frontier_excuses_nothing_that_was_read_beyond_it() {
    let parted = Parted::by_failover().await;
    let lost = parted.lost().await.frontier;
    for checkpoint in [
        Checkpoint {
            offered: [2, 3, 4].into(),
            ..parted.stands.clone()
        },
        Checkpoint {
            settled: [2].into(),
            ..parted.stands.clone()
        },
    ] {
        for read in [vec![lost.clone()], vec![]] {
            let settlement = Settlement {
                read,
                ..settlement(parted.epoch, Some(checkpoint.clone()))
            };
            check_fenced(&parted.new, settlement).await;
        }
    }
    parted.goes_on().await;
}

#[tokio::test]
async fn without_a_checkpoint_it_is_what_was_read_that_counts() {
    let parted = Parted::by_failover().await;
    let lost = parted.lost().await.frontier;
    let kept = read(&parted.new, &parted.stands.frontier).await.frontier;
    // One lost frontier is sufficient.
    for read in [vec![lost.clone()], vec![kept, lost]] {
        let settlement = Settlement {
            read,
            ..everything(parted.epoch, None)
        };
        check_fenced(&parted.new, settlement).await;
    }
    check_untouched(&parted.on_new).await;
    parted.goes_on().await;
}

/// If an owner had settled everything that it had read, the failover does not affect it.
#[tokio::test]
async fn what_stands_may_be_said_again_and_parked_deliveries_go_on() {
    let parted = Parted::by_failover().await;
    let read = || vec![parted.stands.frontier.clone()];
    let again = Settlement {
        read: read(),
        ..settlement(parted.epoch, Some(parted.stands.clone()))
    };
    parted.new.settle(again).await.unwrap();
    let waiting = Settlement {
        read: read(),
        park: vec![park()],
        ..settlement(parted.epoch, None)
    };
    parted.new.settle(waiting).await.unwrap();
    assert_eq!(
        parted
            .on_new
            .query("SELECT FROM hapax.delivery", &[])
            .await
            .unwrap()
            .len(),
        1
    );
    parted.lost().await;
    parted.goes_on().await;
}

#[tokio::test]
async fn on_one_timeline_every_settlement_passes() {
    let parted = Parted::by_failover().await;
    let lost = parted.lost().await.frontier;
    let both = vec![parted.stands.frontier.clone(), lost.clone()];
    // The old primary continues and does not know of another history.
    for checkpoint in [
        Checkpoint {
            offered: [2, 3, 4].into(),
            ..parted.stands.clone()
        },
        Checkpoint {
            settled: [3].into(),
            ..parted.stands.clone()
        },
        at(&lost),
    ] {
        let settlement = Settlement {
            read: both.clone(),
            ..everything(parted.epoch, Some(checkpoint))
        };
        parted.old.settle(settlement).await.unwrap();
    }
    // A frontier without the name of a cluster and a timeline is accepted everywhere.
    let unnamed = Frontier {
        high: 9,
        snapshot: Some("7:9: 0 - = - - 0@0".into()),
    };
    let settlement = settlement(parted.epoch, Some(at(&unnamed)));
    parted.old.settle(settlement).await.unwrap();
}

/// A role that may not read the cluster's identifier relies on the timeline.
#[tokio::test]
async fn a_role_that_may_not_ask_which_cluster_it_is_is_fenced_all_the_same() {
    let mut parted = Parted::by_failover().await;
    for plain in [&parted.on_old, &parted.on_new] {
        plain.batch_execute(CURIOUS).await.unwrap();
    }
    for store in [&mut parted.old, &mut parted.new] {
        let mut settings = settings(&store.settings().url.replace("postgres@", "dull@"));
        settings.schema = Schema::Check;
        connect(&settings.url)
            .await
            .query("SELECT FROM pg_control_system()", &[])
            .await
            .unwrap_err();
        *store = Postgres::open(settings).await.unwrap();
    }
    let lost = parted.lost().await.frontier;
    check_fenced(&parted.new, everything(parted.epoch, Some(at(&lost)))).await;
    check_untouched(&parted.on_new).await;
    parted.goes_on().await;
}

const CURIOUS: &str = "
    REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC;
    DO $$ BEGIN CREATE ROLE dull LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
    GRANT USAGE ON SCHEMA hapax TO dull;
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA hapax TO dull;
    GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA hapax TO dull";

/// A settlement with one entry of every kind.
fn everything(epoch: i64, checkpoint: Option<Checkpoint>) -> Settlement {
    Settlement {
        park: vec![park()],
        delivered: vec![3],
        attempts: vec![Attempt {
            position: 3,
            number: 1,
            started_at: Timestamp::from_millis(1),
            duration: Duration::ZERO,
            outcome: AttemptOutcome::Delivered,
            status: None,
            error: None,
            response_head: Bytes::new(),
        }],
        arrived: vec![Arrived {
            positions: [2, 4].into(),
            started_at: Timestamp::from_millis(1),
            duration: Duration::ZERO,
            status: None,
        }],
        disable: Some("gone".to_owned()),
        ..settlement(epoch, checkpoint)
    }
}

fn park() -> Park {
    Park {
        position: 3,
        state: ParkedState::Retrying,
        attempt: 1,
        next_at: Timestamp::from_millis(1),
        order_key: None,
        last_error: None,
    }
}

async fn check_fenced(store: &Postgres, settlement: Settlement) {
    let outcome = store.settle(settlement).await;
    assert_matches!(outcome, Err(StoreError::Fenced));
}

async fn check_untouched(plain: &Client) {
    let row = plain.query_one(WRITTEN, &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 0);
    let moved = "SELECT FROM hapax.position WHERE frontier <> 1 OR settled <> '' OR offered <> ''";
    assert_eq!(plain.query(moved, &[]).await.unwrap().len(), 0);
}
