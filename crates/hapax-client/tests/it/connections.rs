//! Operations whose connections fail.

use std::time::Duration;

use hapax_client::{Client, Policy, Request, SendError, Stopped};
use hapax_testkit::{
    assert_matches,
    http::{HttpReceiver, HttpReply},
    port::free_port,
    wait::eventually,
};

use crate::stage::{broken_off, client, post, quick, replying, reset, settings, silence};

fn request(url: &str) -> Request {
    Request::post(url).unwrap().json("{}")
}

#[track_caller]
fn no_answer(error: SendError) -> (Stopped, usize) {
    match error {
        SendError::NoResponse {
            stopped, attempts, ..
        } => (stopped, attempts.len()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_reset_before_and_in_the_middle_of_an_answer_is_survived() {
    let receiver = HttpReceiver::start().await;
    receiver.reply_next(reset());
    receiver.reply_next(broken_off());
    let answer = client().send(post(&receiver)).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.attempts.len()), (200, 3));
    assert_eq!(
        answer.attempts[1].status, None,
        "a response that broke off does not count"
    );
    assert_eq!(receiver.received().len(), 3);
}

#[tokio::test]
async fn a_post_without_a_key_is_not_sent_again_once_bytes_of_it_were() {
    for reply in [reset(), broken_off()] {
        let receiver = replying(reply).await;
        let sent = client().send(post(&receiver).without_key()).await;
        let (stopped, attempts) = no_answer(sent.unwrap_err());
        assert_eq!((stopped, attempts), (Stopped::Unrepeatable, 1));
        assert_eq!(receiver.received().len(), 1);
    }
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(503));
    let answer = client().send(post(&receiver).without_key()).await.unwrap();
    assert_eq!(answer.stopped, Stopped::Unrepeatable);
    assert_eq!(
        (answer.status.as_u16(), receiver.received().len()),
        (503, 1)
    );
    assert_eq!(receiver.received()[0].header("idempotency-key"), None);
}

#[tokio::test]
async fn nobody_listening_is_before_any_byte_and_so_also_a_post_without_a_key_is_sent_again() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    let sent = client().send(request(&url).without_key()).await;
    assert_eq!(no_answer(sent.unwrap_err()), (Stopped::Exhausted, 5));
}

#[tokio::test]
async fn a_server_that_comes_back_gets_the_request_that_waited_for_it() {
    // A port that the system gives to no other connection meanwhile.
    let down = HttpReceiver::start_at(([127, 0, 0, 1], free_port()).into()).await;
    let down = down.unwrap();
    let (address, url) = (down.address(), down.url("/orders"));
    drop(down);
    eventually(Duration::from_secs(5), async || {
        tokio::net::TcpStream::connect(address).await.is_err()
    })
    .await;
    let mut policy = quick();
    policy.backoff.attempts_max = 100_000;
    let mut settings = settings();
    settings.policy = policy;
    let client = Client::new(settings).unwrap();
    let sending = tokio::spawn(async move { client.send(request(&url)).await });
    let again = HttpReceiver::start_at(address).await.unwrap();
    let answer = sending.await.unwrap().unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(again.received().len(), 1);
}

#[tokio::test]
async fn a_silent_server_costs_one_attempts_time_and_not_the_operations() {
    let receiver = HttpReceiver::start().await;
    receiver.reply_next(silence());
    let attempt_max = Some(Duration::from_secs(2));
    let mut settings = settings();
    settings.policy = Policy {
        attempt_max,
        ..quick()
    };
    let answer = Client::new(settings).unwrap().send(post(&receiver)).await;
    let answer = answer.unwrap();
    assert_eq!((answer.status.as_u16(), answer.attempts.len()), (200, 2));
    assert_eq!(answer.attempts[0].notes, "no response within 2000 ms");
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_not_asked_for_again() {
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(200).large_body(1 << 20));
    let mut settings = settings();
    settings.received_bytes_max = 1 << 10;
    let sent = Client::new(settings).unwrap().send(post(&receiver)).await;
    assert_matches!(sent, Err(SendError::TooLarge { max: 1024, .. }));
    assert_eq!(receiver.received().len(), 1);
}
