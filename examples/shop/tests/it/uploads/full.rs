//! Tests of uploads if the disk for request bodies or for the files is full: the upload is rejected,
//! and nothing is lost.

use super::{
    picture::heavy,
    sent::{form, post},
};
use crate::{
    failing::{check_counted, limit_files, patient},
    shop::{Home, Shop, Store, problem},
};

const MEBIBYTE: usize = 1024 * 1024;

#[tokio::test]
async fn a_body_for_which_the_disk_has_no_room_is_503_and_its_retry_is_taken_once() {
    let home = Home::fresh(Store::Postgres).await;
    let shop = Shop::spawn(patient(&home), home.clone());
    let send = async |key: &str, file: &[u8]| {
        let form = form("a.png", "image/png", file);
        post(shop.url("/uploads"), key, form).await.unwrap()
    };
    let (long, short) = (heavy(5 * MEBIBYTE), heavy(MEBIBYTE / 2));
    let limit = (2 * MEBIBYTE).to_string() + ":unlimited";
    limit_files(&shop, &limit);
    for _ in 0..3 {
        let refused = send("long", &long).await;
        let problem = problem(&refused, 503, "DEPENDENCY.unavailable");
        assert_eq!(refused.header("retry-after"), Some("1"));
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("disk"), "{detail}");
    }
    // A small body is kept in memory and needs no disk space.
    assert_eq!(send("short", &short).await.status, 201);
    limit_files(&shop, "unlimited:unlimited");
    for status in ["stored", "replayed"] {
        let taken = send("long", &long).await;
        assert_eq!(taken.status, 201, "{}", taken.text());
        assert_eq!(taken.header("idempotency-status"), Some(status));
    }
    assert_eq!(home.number("SELECT count(*) FROM shop_upload").await, 2);
    shop.stop().await;
}

#[tokio::test]
async fn a_file_for_which_the_disk_has_no_room_is_a_failure_of_the_store() {
    let home = Home::fresh(Store::Postgres).await;
    let shop = Shop::spawn(patient(&home), home.clone());
    let send = async || {
        let form = form("a.png", "image/png", &heavy(MEBIBYTE / 2));
        post(shop.url("/uploads"), "k", form).await.unwrap()
    };
    // The body fits into memory, and the file does not fit onto the disk.
    let limit = (MEBIBYTE / 4).to_string() + ":unlimited";
    limit_files(&shop, &limit);
    let refused = send().await;
    problem(&refused, 503, "DEPENDENCY.unavailable");
    assert_eq!(refused.header("retry-after"), Some("1"));
    check_counted(&shop, "POST /uploads", "store_error").await;
    limit_files(&shop, "unlimited:unlimited");
    assert_eq!(send().await.header("idempotency-status"), Some("stored"));
    shop.stop().await;
}
