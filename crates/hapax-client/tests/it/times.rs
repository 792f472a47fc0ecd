//! Deadlines and budgets on real sockets.

use std::time::{Duration, Instant};

use hapax::retry::Budget;
use hapax_client::{Client, SendError, Stopped};
use hapax_testkit::{
    assert_matches,
    http::{HttpReceiver, HttpReply},
};

use crate::stage::{post, replying, settings, silence};

#[tokio::test]
async fn an_operation_ends_at_its_deadline_whatever_the_server_does() {
    let receiver = replying(silence()).await;
    let mut settings = settings();
    settings.policy.backoff.total = Duration::from_millis(400);
    let client = Client::new(settings).unwrap();
    let began = Instant::now();
    let sent = client.send(post(&receiver)).await;
    assert_matches!(
        sent,
        Err(SendError::NoResponse {
            stopped: Stopped::Late,
            ..
        })
    );
    assert!(began.elapsed() >= Duration::from_millis(400));
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_spent_budget_fails_fast_with_the_last_answer() {
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(503).body("busy"));
    let mut settings = settings();
    settings.policy.budget = Budget {
        per_second: 0,
        ..Budget::strict()
    };
    let client = Client::new(settings).unwrap();
    let mut retries = 0;
    for _ in 0..100 {
        let answer = client.send(post(&receiver)).await.unwrap();
        assert_eq!(
            (answer.stopped, &answer.body[..]),
            (Stopped::BudgetExhausted, &b"busy"[..])
        );
        retries += answer.attempts.len() - 1;
    }
    // One retry at the start, and what 99 first attempts add; the first one found the budget full.
    assert_eq!(retries, 10);
    assert_eq!(receiver.received().len(), 110);
}

#[tokio::test]
async fn one_destination_that_is_down_does_not_spend_the_budget_of_another() {
    let (down, well) = (HttpReceiver::start().await, HttpReceiver::start().await);
    down.reply(HttpReply::status(503));
    let mut settings = settings();
    settings.policy.budget = Budget {
        per_second: 0,
        ..Budget::strict()
    };
    let client = Client::new(settings).unwrap();
    for _ in 0..3 {
        client.send(post(&down)).await.unwrap();
    }
    well.reply_next(HttpReply::status(503));
    let answer = client.send(post(&well)).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.attempts.len()), (200, 2));
}
