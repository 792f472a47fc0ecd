//! Test that the memory of the shop does not grow with the length of an upload.

use std::fs;

use super::{
    picture::heavy,
    sent::{done, form, post, taken},
};
use crate::shop::{Shop, Store, on_both_stores};

on_both_stores! {
    thirty_mebibytes_pass_through_a_little_memory,
}

const MEBIBYTE: u64 = 1024 * 1024;

async fn thirty_mebibytes_pass_through_a_little_memory(on: Store) {
    let shop = Shop::start(on, &["--no-relay"]).await;
    // The first upload allocates buffers, threads and statements, which do not count as growth.
    taken(&shop, "small", &heavy(2 * 1024 * 1024)).await;
    let file = heavy(30 * 1024 * 1024);
    let before = begin(&shop);
    let sent = (0..3).map(|number| {
        let form = form("a.png", "image/png", &file);
        let url = shop.url("/uploads");
        async move { post(url, &format!("k-{number}"), form).await.unwrap() }
    });
    let answers = futures_util::future::join_all(sent).await;
    let grown = peak(&shop) - before;
    assert!(answers.iter().all(|it| it.status == 201));
    assert!(
        grown < 24 * MEBIBYTE,
        "three uploads of 30 MiB increased the memory by {grown} bytes"
    );
    let home = shop.home();
    shop.stop().await;
    let shop = Shop::start_in(home, &[]);
    assert_eq!(
        done(&shop, &answers[0].json().unwrap()).await["state"],
        "ready"
    );
}

/// Resets the peak, and returns the current memory of a shop in bytes.
pub(crate) fn begin(shop: &Shop) -> u64 {
    fs::write(format!("/proc/{}/clear_refs", shop.id()), "5").unwrap();
    status(shop, "VmRSS:")
}

/// Returns the maximum memory of a shop in bytes since the last reset.
pub(crate) fn peak(shop: &Shop) -> u64 {
    status(shop, "VmHWM:")
}

fn status(shop: &Shop, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", shop.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes = line.unwrap().trim().trim_end_matches(" kB");
    kibibytes.parse::<u64>().unwrap() * 1024
}
