//! Test of one upload that is sent twenty times at once, each time with another encoding.

use hapax_testkit::http::HttpResponse;
use tokio::task::JoinSet;

use super::{
    picture::png,
    sent::{check_once, done, form, post},
};
use crate::shop::{Shop, Store, lasting, on_both_stores};

on_both_stores! {
    twenty_duplicates_of_one_upload_are_one_file_one_row_and_one_job,
}

async fn twenty_duplicates_of_one_upload_are_one_file_one_row_and_one_job(on: Store) {
    let shop = Shop::start(on, &["--wait", "20s"]).await;
    let answers = at_once(&[&shop], &png(1500, 1000)).await;
    let first = lasting(&answers[0]);
    assert_eq!(first.0, 201, "{}", answers[0].text());
    assert!(answers.iter().all(|answer| lasting(answer) == first));
    let stored = |answer: &&HttpResponse| answer.header("idempotency-status") == Some("stored");
    assert_eq!(answers.iter().filter(stored).count(), 1);
    let said = answers[0].json().unwrap();
    assert_eq!(done(&shop, &said).await["state"], "ready");
    check_once(&shop.home(), &said["sha256"]).await;
    let events = shop.received("file.uploaded", 1).await;
    assert_eq!((events.len(), &events[0]["effects"]), (1, &1.into()));
}

/// Sends one file twenty times under one key, to these shops in turn, with a new boundary each
/// time.
pub(super) async fn at_once(shops: &[&Shop], file: &[u8]) -> Vec<HttpResponse> {
    let mut sent = JoinSet::new();
    for number in 0..20 {
        let url = shops[number % shops.len()].url("/uploads");
        let form = form("a.png", "image/png", file);
        sent.spawn(async move { post(url, "same", form).await.unwrap() });
    }
    sent.join_all().await
}
