//! Tests of the cleanup: it deletes the files that crashes left, and no other files.

use std::{
    fs::{self, File},
    time::{Duration, SystemTime},
};

use hapax_testkit::wait::eventually;

use super::{
    picture::png,
    sent::{done, files, taken},
};
use crate::shop::{Home, PATIENCE, Shop, Store, on_both_stores};

on_both_stores! {
    unreferenced_files_are_swept_at_the_start_and_no_others,
    an_upload_takes_a_file_that_was_left_and_it_is_never_swept,
}

async fn unreferenced_files_are_swept_at_the_start_and_no_others(on: Store) {
    let home = Home::fresh(on).await;
    let shop = Shop::start_in(home.clone(), &[]);
    let said = taken(&shop, "k", &png(20, 20)).await;
    let named = said["sha256"].as_str().unwrap();
    assert_eq!(done(&shop, &said).await["state"], "ready");
    shop.stop().await;
    let (left, fresh) = ("a".repeat(64), "b".repeat(64));
    for name in [&left, &fresh, "old.part", "new.part", "notes.txt"] {
        fs::write(home.path().join("uploads").join(name), "x").unwrap();
    }
    for name in [&left, "old.part", "notes.txt", named] {
        age(&home, name);
    }
    let _shop = Shop::start_in(home.clone(), &[]);
    let kept = [named, &fresh, "new.part", "notes.txt"];
    let kept = kept.into_iter().map(str::to_owned).collect();
    eventually(PATIENCE, async || files(&home) == kept).await;
}

async fn an_upload_takes_a_file_that_was_left_and_it_is_never_swept(on: Store) {
    let file = png(20, 20);
    // A shop died long ago between the file and its row. Another shop is used to find out the
    // file's name.
    let elsewhere = Shop::start(Store::Sqlite, &["--no-relay"]).await;
    let said = taken(&elsewhere, "k", &file).await;
    let name = said["sha256"].as_str().unwrap();
    let shop = Shop::start(on, &["--no-relay"]).await;
    fs::write(shop.file("uploads").join(name), &file).unwrap();
    age(&shop.home(), name);
    let said = taken(&shop, "k", &file).await;
    assert_eq!(said["sha256"], name);
    let touched = fs::metadata(shop.file("uploads").join(name)).unwrap();
    let age = touched.modified().unwrap().elapsed().unwrap();
    assert!(
        age < Duration::from_mins(10),
        "the file must look new until its row exists: {age:?}"
    );
    // A file with this name and another length has other content, so it is replaced.
    fs::write(shop.file("uploads").join(name), "x").unwrap();
    taken(&shop, "again", &file).await;
    assert_eq!(fs::read(shop.file("uploads").join(name)).unwrap(), file);
}

/// Sets the modification time of a file to two hours ago.
#[expect(
    clippy::disallowed_methods,
    reason = "the shop compares a file's age with the system time"
)]
fn age(home: &Home, name: &str) {
    let file = File::open(home.path().join("uploads").join(name)).unwrap();
    let then = SystemTime::now() - Duration::from_hours(2);
    file.set_modified(then).unwrap();
}
