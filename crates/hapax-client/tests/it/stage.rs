//! A client with short waits, and faults of its connections.

use std::time::Duration;

use hapax::retry::{Backoff, Budget};
use hapax_client::{Client, Policy, Request, Settings};
pub(crate) use hapax_testkit::clock::system_clock as clock;
use hapax_testkit::{
    clock::seeded_random,
    http::{End, HttpReceiver, HttpReply},
};

/// A policy with waits of a few milliseconds and an unlimited budget.
pub(crate) fn quick() -> Policy {
    let backoff = Backoff {
        base: Duration::from_millis(1),
        cap: Duration::from_millis(5),
        ..Backoff::default()
    };
    Policy {
        backoff,
        budget: Budget::unbounded(),
        ..Policy::default()
    }
}

pub(crate) fn settings() -> Settings {
    let mut settings = Settings::new(clock(), seeded_random(42));
    settings.policy = quick();
    settings
}

pub(crate) fn client() -> Client {
    Client::new(settings()).unwrap()
}

pub(crate) fn post(receiver: &HttpReceiver) -> Request {
    Request::post(&receiver.url("/orders"))
        .unwrap()
        .json(r#"{"amount":500}"#)
}

/// No response: the connection is reset.
pub(crate) fn reset() -> HttpReply {
    HttpReply::raw("", End::Reset)
}

/// A response of 100 bytes of which three arrive before the connection is reset.
pub(crate) fn broken_off() -> HttpReply {
    let begun = "HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\n{\"a";
    HttpReply::raw(begun, End::Reset)
}

/// No response: the connection stays open.
pub(crate) fn silence() -> HttpReply {
    HttpReply::raw("", End::Stall)
}

/// A receiver that treats every request like this.
pub(crate) async fn replying(reply: HttpReply) -> HttpReceiver {
    let receiver = HttpReceiver::start().await;
    receiver.reply(reply);
    receiver
}
