//! Keys in a journal, which survive the client.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::BoxFuture;
use hapax::{key::IdempotencyKey, sink::BoxError};
use hapax_client::{Begun, Client, FileJournal, Intent, Journal, SendError};
use hapax_testkit::{
    assert_matches,
    clock::{ManualClock, seeded_random},
    http::{HttpReceiver, HttpReply},
};

use crate::stage::{clock, post, settings};

/// A client as another process would create it.
fn client(journal: impl Journal, seed: u64) -> Client {
    let mut settings = settings();
    settings.random = seeded_random(seed);
    settings.journal = Some(Arc::new(journal));
    Client::new(settings).unwrap()
}

fn kept(folder: &Path, seed: u64) -> Client {
    client(FileJournal::new(folder.join("journal"), clock()), seed)
}

fn keys(receiver: &HttpReceiver) -> Vec<String> {
    let key = |it: hapax_testkit::http::Received| it.header("idempotency-key").unwrap().to_owned();
    receiver.received().into_iter().map(key).collect()
}

#[tokio::test]
async fn a_client_that_gave_up_or_died_goes_on_under_the_same_key() {
    let (receiver, folder) = (HttpReceiver::start().await, tempfile::tempdir().unwrap());
    receiver.reply(HttpReply::status(503));
    let first = kept(folder.path(), 1).send(post(&receiver)).await.unwrap();
    assert!(!first.is_resumed);
    receiver.reply(HttpReply::closed());
    assert!(kept(folder.path(), 2).send(post(&receiver)).await.is_err());
    receiver.reply(HttpReply::status(201));
    let last = kept(folder.path(), 3).send(post(&receiver)).await.unwrap();
    assert!(last.is_resumed);
    let keys = keys(&receiver);
    assert!(
        keys.len() > 10 && keys.iter().all(|key| *key == keys[0]),
        "{keys:?}"
    );
    let next = kept(folder.path(), 4).send(post(&receiver)).await.unwrap();
    assert!(
        !next.is_resumed && next.key != last.key,
        "the key was finished"
    );
}

#[tokio::test]
async fn another_request_has_another_key_and_so_has_the_same_by_another_name() {
    let (receiver, folder) = (HttpReceiver::start().await, tempfile::tempdir().unwrap());
    receiver.reply(HttpReply::status(503));
    let client = kept(folder.path(), 1);
    let plain = client.send(post(&receiver)).await.unwrap().key;
    let other = client.send(post(&receiver).body("{}")).await.unwrap().key;
    let named = client
        .send(post(&receiver).named("order 7"))
        .await
        .unwrap()
        .key;
    assert!(plain != other && plain != named && other != named);
    let again = client.send(post(&receiver).named("order 7")).await.unwrap();
    assert_eq!((again.key, again.is_resumed), (named, true));
}

#[tokio::test]
async fn an_answer_that_says_nothing_about_a_lost_one_does_not_strike_the_key_out() {
    let (receiver, folder) = (HttpReceiver::start().await, tempfile::tempdir().unwrap());
    let client = kept(folder.path(), 1);
    // The first attempt may have had an effect. The token expires before the second.
    receiver.reply_next(HttpReply::closed());
    receiver.reply_next(HttpReply::status(401));
    let refused = client.send(post(&receiver)).await.unwrap();
    assert_eq!(refused.status, 401);
    let again = client.send(post(&receiver)).await.unwrap();
    assert_eq!((again.key, again.is_resumed), (refused.key, true));
    // Without a lost attempt, a 401 means that the request had no effect.
    receiver.reply_next(HttpReply::status(401));
    let refused = client.send(post(&receiver)).await.unwrap();
    let next = client.send(post(&receiver)).await.unwrap();
    assert!(!next.is_resumed && next.key != refused.key);
}

/// A proxy may have given up on a server that executes the request nevertheless.
#[tokio::test]
async fn a_servers_error_that_is_final_does_not_strike_the_key_out() {
    for status in [507, 520, 524] {
        let (receiver, folder) = (HttpReceiver::start().await, tempfile::tempdir().unwrap());
        let client = kept(folder.path(), 1);
        receiver.reply_next(HttpReply::status(status));
        let lost = client.send(post(&receiver)).await.unwrap();
        assert_eq!((lost.status.as_u16(), lost.attempts.len()), (status, 1));
        receiver.reply(HttpReply::status(201));
        let again = client.send(post(&receiver)).await.unwrap();
        assert_eq!((again.key, again.is_resumed), (lost.key, true));
    }
}

#[tokio::test]
async fn a_key_that_was_given_does_not_replace_one_that_is_unfinished() {
    let (receiver, folder) = (HttpReceiver::start().await, tempfile::tempdir().unwrap());
    receiver.reply(HttpReply::status(503));
    let client = kept(folder.path(), 1);
    client.send(post(&receiver)).await.unwrap();
    let sent = receiver.received().len();
    let key = IdempotencyKey::new("mine").unwrap();
    let refused = client.send(post(&receiver).key(key)).await;
    assert_matches!(refused, Err(SendError::OtherKey));
    assert_eq!(receiver.received().len(), sent, "nothing was sent");
}

#[tokio::test]
async fn what_cannot_be_written_down_is_not_sent() {
    let receiver = HttpReceiver::start().await;
    let nowhere = client(FileJournal::new("/nowhere/at/all", clock()), 1);
    let failed = nowhere.send(post(&receiver)).await;
    assert_matches!(failed, Err(SendError::Journal(_)));
    assert!(receiver.received().is_empty());
}

/// A journal that records how many requests had arrived at each call.
#[derive(Clone, Debug)]
struct Witness(Arc<HttpReceiver>, Arc<Mutex<Vec<(&'static str, usize)>>>);

impl Witness {
    fn note(&self, what: &'static str) {
        let arrived = self.0.received().len();
        self.1.lock().unwrap().push((what, arrived));
    }
}

impl Journal for Witness {
    fn begin<'a>(
        &'a self,
        _: &'a Intent,
        key: IdempotencyKey,
    ) -> BoxFuture<'a, Result<Begun, BoxError>> {
        self.note("begin");
        Box::pin(async { Ok(Begun::now(key)) })
    }

    fn finish<'a>(
        &'a self,
        _: &'a Intent,
        _: &'a IdempotencyKey,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        self.note("finish");
        Box::pin(async { Ok(()) })
    }

    fn withdraw<'a>(
        &'a self,
        _: &'a Intent,
        _: &'a IdempotencyKey,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        self.note("withdraw");
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test]
async fn the_key_is_written_down_before_the_first_byte_and_struck_out_after_the_answer() {
    let receiver = Arc::new(HttpReceiver::start().await);
    receiver.reply_next(HttpReply::status(503));
    let witness = Witness(Arc::clone(&receiver), Arc::default());
    client(witness.clone(), 1)
        .send(post(&receiver))
        .await
        .unwrap();
    assert_eq!(*witness.1.lock().unwrap(), [("begin", 0), ("finish", 2)]);
}

#[tokio::test]
async fn a_key_that_is_older_than_a_service_remembers_is_not_sent() {
    let (receiver, folder) = (HttpReceiver::start().await, tempfile::tempdir().unwrap());
    let manual = ManualClock::new();
    let kept = |seed, within| {
        let mut settings = settings();
        (settings.clock, settings.random) = (manual.clock(), seeded_random(seed));
        settings.resume_within = within;
        let journal = FileJournal::new(folder.path().join("journal"), manual.clock());
        settings.journal = Some(Arc::new(journal));
        Client::new(settings).unwrap()
    };
    let day = Duration::from_hours(24);
    receiver.reply(HttpReply::status(503));
    let first = kept(1, day).send(post(&receiver)).await.unwrap();
    manual.advance(Duration::from_secs(24 * 3_600 - 1));
    let again = kept(2, day).send(post(&receiver)).await.unwrap();
    assert_eq!((&again.key, again.is_resumed), (&first.key, true));
    // The operation may only take the rest of the day.
    let last = receiver.received().pop().unwrap();
    let left: u64 = last.header("x-request-timeout").unwrap().parse().unwrap();
    assert!(left <= 1_000, "{left} ms");
    manual.advance(Duration::from_secs(1));
    let sent = receiver.received().len();
    let refused = kept(3, day).send(post(&receiver)).await.unwrap_err();
    let SendError::Stale { key, age } = &refused else {
        panic!("{refused:?}");
    };
    assert_eq!((Some(key), *age), (first.key.as_ref(), Some(day)));
    // After the clock was set back by hours, the age is not known.
    let began = hapax::Timestamp::from_millis(manual.now().as_millis() - 30 * 3_600_000);
    manual.set(began);
    let refused = kept(4, day).send(post(&receiver)).await.unwrap_err();
    assert_matches!(refused, SendError::Stale { age: None, .. });
    assert_eq!(receiver.received().len(), sent, "nothing was sent");
    // A caller may allow more time if the service keeps keys longer, or start again under a new
    // key.
    manual.advance(Duration::from_hours(31));
    let again = kept(5, 2 * day).send(post(&receiver)).await.unwrap();
    assert_eq!(again.key, first.key);
    receiver.reply(HttpReply::status(201));
    let anew = kept(6, day).send(post(&receiver).anew()).await.unwrap();
    assert!(!anew.is_resumed && anew.key != first.key);
    let next = kept(7, day).send(post(&receiver)).await.unwrap();
    assert!(!next.is_resumed && next.key != anew.key);
}
