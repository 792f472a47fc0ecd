//! `Retry-After` and the remaining time in the requests.

use std::time::{Duration, Instant};

use hapax_client::{Client, Stopped};
use hapax_testkit::http::{HttpReceiver, HttpReply};

use crate::stage::{client, post, settings};

async fn waited(reply: HttpReply) -> (Duration, u64) {
    let receiver = HttpReceiver::start().await;
    receiver.reply_next(reply);
    let began = Instant::now();
    let answer = client().send(post(&receiver)).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.attempts.len()), (200, 2));
    (began.elapsed(), answer.attempts[1].delay_ms)
}

#[tokio::test]
async fn seconds_are_a_minimum() {
    let (took, delay_ms) = waited(HttpReply::status(503).header("retry-after", "1")).await;
    assert!(took >= Duration::from_secs(1), "{took:?}");
    assert!((1_000..1_005).contains(&delay_ms), "{delay_ms}");
}

#[tokio::test]
async fn a_date_is_measured_against_the_answers_own_date() {
    // The clock of this server is years slow.
    let reply = HttpReply::status(429)
        .header("date", "Tue, 14 Nov 2023 22:13:20 GMT")
        .header("retry-after", "Tue, 14 Nov 2023 22:13:21 GMT");
    let (took, delay_ms) = waited(reply).await;
    assert!(took >= Duration::from_secs(1), "{took:?}");
    assert!((1_000..1_005).contains(&delay_ms), "{delay_ms}");
}

#[tokio::test]
async fn a_hint_past_the_deadline_ends_the_operation_and_is_handed_over() {
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(503).header("retry-after", "11"));
    let began = Instant::now();
    let answer = client().send(post(&receiver)).await.unwrap();
    let asked = Duration::from_secs(11);
    assert_eq!(answer.stopped, Stopped::TooLate(asked));
    assert_eq!(
        (answer.status.as_u16(), answer.retry_after),
        (503, Some(asked))
    );
    assert_eq!(receiver.received().len(), 1);
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn every_attempt_says_how_many_milliseconds_are_left() {
    let receiver = HttpReceiver::start().await;
    receiver.reply_next(HttpReply::status(503).after(Duration::from_millis(50)));
    let mut settings = settings();
    settings.policy.backoff.total = Duration::from_secs(3);
    Client::new(settings)
        .unwrap()
        .send(post(&receiver))
        .await
        .unwrap();
    let arrived = receiver.received();
    let left = |index: usize| -> u64 {
        arrived[index]
            .header("x-request-timeout")
            .unwrap()
            .parse()
            .unwrap()
    };
    assert!((2_000..=3_000).contains(&left(0)), "{}", left(0));
    assert!(left(1) <= left(0) - 50, "{} {}", left(0), left(1));
}
