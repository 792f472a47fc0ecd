//! Tests of rejected uploads: they leave no file and no row, and their key is free.

use hapax_testkit::wait::answered;

use super::{
    picture::{claiming, jpeg, png},
    sent::{count, files, form, post, taken, upload},
};
use crate::shop::{PATIENCE, Shop, Store, on_both_stores, problem, refuses};

on_both_stores! {
    what_is_no_picture_is_refused_whatever_it_is_called,
    a_picture_with_too_many_pixels_is_refused_by_its_header,
    a_form_that_is_none_is_refused_by_name,
    a_body_that_is_too_long_is_refused,
}

async fn what_is_no_picture_is_refused_whatever_it_is_called(on: Store) {
    let shop = Shop::start(on, &["--no-relay"]).await;
    let good = png(20, 20);
    let mut swapped = good.clone();
    swapped[1..4].copy_from_slice(b"GNP");
    for file in [
        &b""[..],
        b"GIF89a\x01\0\x01\0",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"#!/bin/sh\n",
        &swapped,
        &good[..20],
        &jpeg(20, 20)[..24],
        &claiming(0, 20),
        &claiming(20, 0),
    ] {
        let form = form("holiday.png", "image/png", file);
        let answer = post(shop.url("/uploads"), "k", form).await.unwrap();
        let problem = problem(&answer, 415, "VALIDATION.upload.type");
        assert_eq!(problem["member"], "file");
    }
    check_nothing(&shop).await;
    taken(&shop, "k", &good).await;
}

async fn a_picture_with_too_many_pixels_is_refused_by_its_header(on: Store) {
    let shop = Shop::start(on, &["--no-relay"]).await;
    for (width, height) in [(40_000, 1001), (65_535, 65_535), (1, 40_000_001)] {
        let answer = upload(&shop, "k", "a.png", &claiming(width, height)).await;
        problem(&answer, 413, "VALIDATION.upload.dimensions");
    }
    check_nothing(&shop).await;
    taken(&shop, "k", &claiming(40_000, 1000)).await;
}

async fn a_form_that_is_none_is_refused_by_name(on: Store) {
    let shop = Shop::start(on, &["--no-relay"]).await;
    let send = async |content_type: &str, body: &str| {
        let form = (content_type.to_owned(), body.as_bytes().to_vec());
        post(shop.url("/uploads"), "k", form).await.unwrap()
    };
    let part = |disposition: &str| {
        format!("--b\r\ncontent-disposition: form-data; {disposition}\r\n\r\nx\r\n")
    };
    let multipart = "multipart/form-data; boundary=b";
    let file = part("name=\"file\"; filename=\"a.png\"");
    for body in [
        "--b--\r\n".to_owned(),
        part("name=\"file\"") + "--b--\r\n",
        part("name=\"other\"; filename=\"a.png\"") + "--b--\r\n",
        file.clone() + &file + "--b--\r\n",
        file.clone() + &part("name=\"note\"") + "--b--\r\n",
        part("name=\"file\"; filename=\"\"") + "--b--\r\n",
        part("name=\"file\"; filename=\"a\tb.png\"") + "--b--\r\n",
        part(&format!("name=\"file\"; filename=\"{}\"", "x".repeat(256))) + "--b--\r\n",
    ] {
        refuses(&send(multipart, &body).await, "file");
    }
    for body in ["", "nonsense", file.as_str()] {
        problem(&send(multipart, body).await, 400, "VALIDATION.multipart");
    }
    let answer = send("application/json", "{}").await;
    problem(&answer, 415, "VALIDATION.content_type");
    let bare = shop.post("/uploads", None, "{}").await;
    problem(&bare, 400, "VALIDATION.idempotency_key.missing");
    let good = form("a.png", "image/png", &png(20, 20));
    let asked = post(shop.url("/uploads?x=1"), "k", good).await.unwrap();
    assert_eq!(asked.status, 400);
    check_nothing(&shop).await;
}

async fn a_body_that_is_too_long_is_refused(on: Store) {
    let shop = Shop::start(on, &["--no-relay"]).await;
    let mut file = png(20, 20);
    file.resize(32 * 1024 * 1024, 0);
    // The server closes the connection after the response. A client that is still sending may not
    // read the response, so the request is repeated.
    let refused = answered(PATIENCE, async {
        loop {
            let form = form("a.png", "application/octet-stream", &file);
            if let Ok(answer) = post(shop.url("/uploads"), "k", form).await {
                break answer;
            }
        }
    });
    problem(&refused.await, 413, "VALIDATION.body.too_large");
    check_nothing(&shop).await;
}

async fn check_nothing(shop: &Shop) {
    assert!(files(&shop.home()).is_empty(), "{:?}", files(&shop.home()));
    for table in ["shop_upload", "hapax.outbox_event", "hapax.idempotency_key"] {
        assert_eq!(count(&shop.home(), table, "1 = 1").await, 0, "{table}");
    }
}
