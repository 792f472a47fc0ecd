//! Test of two instances with one PostgreSQL database and one data directory: one file, one row,
//! one job.

use super::{
    picture::png,
    sent::{check_once, done},
    storm::at_once,
};
use crate::shop::{Home, Shop, Store, lasting};

#[tokio::test]
async fn twenty_duplicates_at_two_instances_are_one_file_one_row_and_one_job() {
    let home = Home::fresh(Store::Postgres).await;
    // The demo is disabled, because its files can only be used by one instance.
    let flags = ["--no-demo", "--token", "demo-alice=alice", "--wait", "20s"];
    let one = Shop::start_in(home.clone(), &flags);
    let other = Shop::start_in(home.clone(), &flags);
    let answers = at_once(&[&one, &other], &png(1500, 1000)).await;
    let first = lasting(&answers[0]);
    assert_eq!(first.0, 201, "{}", answers[0].text());
    assert!(answers.iter().all(|answer| lasting(answer) == first));
    let said = answers[0].json().unwrap();
    for shop in [&one, &other] {
        assert_eq!(done(shop, &said).await["state"], "ready");
    }
    check_once(&home, &said["sha256"]).await;
}

#[tokio::test]
async fn an_instance_makes_the_thumbnails_of_an_upload_that_the_other_took_and_died() {
    let home = Home::fresh(Store::Postgres).await;
    let flags = ["--no-demo", "--token", "demo-alice=alice"];
    let mut one = Shop::start_in(home.clone(), &[&flags[..], &["--no-relay"]].concat());
    let said = super::sent::taken(&one, "k", &png(300, 200)).await;
    one.signal("KILL");
    one.ended().await;
    let other = Shop::start_in(home.clone(), &flags);
    assert_eq!(done(&other, &said).await["state"], "ready");
    check_once(&home, &said["sha256"]).await;
}
