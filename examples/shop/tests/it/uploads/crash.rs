//! Crash tests of uploads: nothing is lost, and nothing exists twice.

use std::{fs, os::unix::process::ExitStatusExt as _};

use hapax_testkit::wait::eventually;

use super::{
    picture::png,
    sent::{check_once, count, done, files, form, post, status, taken},
};
use crate::shop::{Home, PATIENCE, Shop, Store, command, on_both_stores};

on_both_stores! {
    a_death_between_the_file_and_its_row_leaves_a_file_that_the_retry_takes,
    a_death_after_the_upload_is_committed_loses_no_thumbnail,
    a_death_before_the_thumbnails_are_committed_makes_them_again,
    a_death_after_the_thumbnails_are_committed_makes_none_again,
}

async fn a_death_between_the_file_and_its_row_leaves_a_file_that_the_retry_takes(on: Store) {
    let home = Home::fresh(on).await;
    let mut shop = doomed(&home, "uploads.stored:1");
    let file = png(300, 200);
    let send = async |shop: &Shop| {
        let form = form("a.png", "image/png", &file);
        post(shop.url("/uploads"), "k", form).await
    };
    send(&shop).await.unwrap_err();
    died(&mut shop).await;
    let left = files(&home);
    assert_eq!(
        left.len(),
        1,
        "expected one file without an upload, got {left:?}"
    );
    assert_eq!(count(&home, "hapax.outbox_event", "1 = 1").await, 0);
    assert_eq!(count(&home, "shop_upload", "1 = 1").await, 0);

    let shop = Shop::start_in(home, &[]);
    let answer = send(&shop).await.unwrap();
    assert_eq!(answer.header("idempotency-status"), Some("stored"));
    let said = answer.json().unwrap();
    assert!(left.contains(said["sha256"].as_str().unwrap()));
    assert_eq!(done(&shop, &said).await["state"], "ready");
    check_once(&shop.home(), &said["sha256"]).await;
}

async fn a_death_after_the_upload_is_committed_loses_no_thumbnail(on: Store) {
    let home = Home::fresh(on).await;
    let mut shop = doomed(&home, "thumbnails.before:1");
    let form = form("a.png", "image/png", &png(300, 200));
    // The response may arrive before the shop is killed, or not.
    let _answer = post(shop.url("/uploads"), "k", form.clone()).await;
    died(&mut shop).await;
    let shop = Shop::start_in(home, &[]);
    let answer = post(shop.url("/uploads"), "k", form).await.unwrap();
    assert_eq!(answer.header("idempotency-status"), Some("replayed"));
    let said = answer.json().unwrap();
    assert_eq!(done(&shop, &said).await["state"], "ready");
    check_once(&shop.home(), &said["sha256"]).await;
}

async fn a_death_before_the_thumbnails_are_committed_makes_them_again(on: Store) {
    let (home, said) = uploaded(on).await;
    let mut shop = doomed(&home, "thumbnails.before:1");
    died(&mut shop).await;
    assert_eq!(count(&home, "shop_thumbnail", "1 = 1").await, 0);
    assert_eq!(count(&home, "shop_upload", "state = 'pending'").await, 1);
    let shop = Shop::start_in(home, &[]);
    assert_eq!(done(&shop, &said).await["state"], "ready");
    check_once(&shop.home(), &said["sha256"]).await;
}

async fn a_death_after_the_thumbnails_are_committed_makes_none_again(on: Store) {
    let (home, said) = uploaded(on).await;
    let mut shop = doomed(&home, "thumbnails.after:1");
    died(&mut shop).await;
    check_once(&home, &said["sha256"]).await;
    // Without the file, a second run of the job would fail, and the event would be retried for
    // days.
    let file = home
        .path()
        .join("uploads")
        .join(said["sha256"].as_str().unwrap());
    let content = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let shop = Shop::start_in(home.clone(), &[]);
    assert_eq!(status(&shop, &said).await["state"], "ready");
    let open = "destination = 'thumbnails' AND state <> 'delivered'";
    eventually(PATIENCE, async || {
        count(&home, "hapax.delivery", open).await == 0
    })
    .await;
    let duplicates = "hapax_inbox_messages_total{consumer=\"thumbnails\",outcome=\"duplicate\"";
    eventually(PATIENCE, async || shop.metric(duplicates).await > 0.5).await;
    fs::write(&file, content).unwrap();
    check_once(&home, &said["sha256"]).await;
}

/// Uploads a picture to a shop without a relay, and stops the shop.
async fn uploaded(on: Store) -> (Home, serde_json::Value) {
    let shop = Shop::start(on, &["--no-relay"]).await;
    let said = taken(&shop, "k", &png(300, 200)).await;
    let home = shop.home();
    shop.stop().await;
    (home, said)
}

/// A shop that is killed when it reaches this failpoint.
fn doomed(home: &Home, place: &str) -> Shop {
    let mut deadly = command(home, &[]);
    deadly.env("HAPAX_FAILPOINT", place);
    Shop::spawn(deadly, home.clone())
}

async fn died(shop: &mut Shop) {
    let (status, _) = shop.ended().await;
    assert_eq!(status.signal(), Some(9));
}
