//! However long an upload is, the shop's memory holds a few pieces of it.

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
    // What is made once (buffers, threads, statements) is no growth.
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
        "three times 30 MiB grew it by {grown}"
    );
    let home = shop.home();
    shop.stop().await;
    let shop = Shop::start_in(home, &[]);
    assert_eq!(
        done(&shop, &answers[0].json().unwrap()).await["state"],
        "ready"
    );
}

/// Forgets the peak so far, and returns how many bytes of memory a shop has now.
pub(crate) fn begin(shop: &Shop) -> u64 {
    fs::write(format!("/proc/{}/clear_refs", shop.id()), "5").unwrap();
    status(shop, "VmRSS:")
}

/// The most bytes of memory that a shop has had since.
pub(crate) fn peak(shop: &Shop) -> u64 {
    status(shop, "VmHWM:")
}

fn status(shop: &Shop, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", shop.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes = line.unwrap().trim().trim_end_matches(" kB");
    kibibytes.parse::<u64>().unwrap() * 1024
}
