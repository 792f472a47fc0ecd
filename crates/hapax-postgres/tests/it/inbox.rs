//! The inbox if two transactions accept one message at the same time.

use hapax::{
    event::Headers,
    inbox::Acceptance,
    store::{Keys, Transaction},
};
use hapax_testkit::{events::message, wait::eventually};

use crate::fixture::{Fixture, PATIENCE};

#[tokio::test]
async fn the_second_to_take_a_message_waits_for_the_first() {
    for first_commits in [true, false] {
        let fixture = Fixture::new().await;
        let beside = fixture.beside().await;
        let hello = message("mailer", "m1", "hello");
        let mut first = fixture.store.begin(None, Headers::new()).await.unwrap();
        assert_eq!(first.accept(&hello).await.unwrap(), Acceptance::First);
        let taking = tokio::spawn(async move {
            let mut second = beside.store.begin(None, Headers::new()).await.unwrap();
            let accepted = second.accept(&hello).await.unwrap();
            second.commit().await.unwrap();
            accepted
        });
        let waiting = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        eventually(PATIENCE, async || fixture.count(waiting).await == 1).await;
        let outcome = if first_commits {
            first.commit().await.unwrap();
            Acceptance::Duplicate
        } else {
            first.rollback().await;
            Acceptance::First
        };
        assert_eq!(taking.await.unwrap(), outcome);
        let taken = fixture.count("SELECT count(*) FROM hapax.inbox_message");
        assert_eq!(taken.await, 1);
    }
}
