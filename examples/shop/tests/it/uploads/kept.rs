//! Tests of valid uploads: what is stored, and which tenant may read it.

use std::fs;

use hapax_testkit::wait::eventually;
use http::Method;
use serde_json::Value;

use super::{
    picture::{jpeg, png, sides},
    sent::{check_once, done, files, form, path, post, status, taken, upload},
};
use crate::shop::{PATIENCE, Shop, Store, check_replays, on_both_stores, problem};

on_both_stores! {
    an_upload_is_kept_under_its_content_and_gets_two_thumbnails,
    a_jpeg_gets_jpegs_and_a_small_picture_is_not_enlarged,
    a_retry_with_another_boundary_is_the_same_upload_and_another_file_is_none,
    an_upload_is_visible_to_its_tenant_only_and_a_missing_one_is_not_found,
    without_a_relay_an_upload_waits_for_one,
    the_same_picture_uploaded_twice_is_two_uploads_and_one_file,
    a_file_that_is_gone_is_asked_for_again,
}

async fn an_upload_is_kept_under_its_content_and_gets_two_thumbnails(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let file = png(1000, 500);
    let name = "../..\\holiday; \u{fc}ber.png";
    let answer = upload(&shop, "k", name, &file).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let said = answer.json().unwrap();
    assert_eq!(answer.header("location"), Some(path(&said).as_str()));
    assert!(said["id"].as_str().unwrap().starts_with("upl_"));
    let members: [(&str, Value); 6] = [
        ("name", name.into()),
        ("bytes", file.len().into()),
        ("content_type", "image/png".into()),
        ("width", 1000.into()),
        ("height", 500.into()),
        ("state", "pending".into()),
    ];
    for (member, expected) in members {
        assert_eq!(said[member], expected, "{said}");
    }
    let kept = shop.file("uploads").join(said["sha256"].as_str().unwrap());
    assert_eq!(fs::read(kept).unwrap(), file);

    let known = done(&shop, &said).await;
    assert_eq!(known["state"], "ready", "{known}");
    assert_eq!(known["name"], name);
    let listed = known["thumbnails"].as_array().unwrap();
    assert_eq!(listed.len(), 2);
    for (listed, (size, width, height)) in listed.iter().zip([(128, 128, 64), (512, 512, 256)]) {
        assert_eq!(listed["size"], size);
        let thumbnail = shop.get(listed["path"].as_str().unwrap()).await;
        assert_eq!(thumbnail.header("content-type"), Some("image/png"));
        assert_eq!(listed["bytes"], thumbnail.body.len());
        assert_eq!(sides(&thumbnail.body, "image/png"), (width, height));
    }
    check_once(&shop.home(), &said["sha256"]).await;
    let events = shop.received("file.uploaded", 1).await;
    assert_eq!(events.len(), 1);
}

async fn a_jpeg_gets_jpegs_and_a_small_picture_is_not_enlarged(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let said = taken(&shop, "k", &jpeg(200, 300)).await;
    assert_eq!(
        said["content_type"], "image/jpeg",
        "the content type is that of the file, not the declared one"
    );
    let known = done(&shop, &said).await;
    assert_eq!(known["state"], "ready", "{known}");
    for (size, expected) in [(128, (85, 128)), (512, (200, 300))] {
        let thumbnail = shop
            .get(&format!("{}/thumbnails/{size}", path(&said)))
            .await;
        assert_eq!(sides(&thumbnail.body, "image/jpeg"), expected);
        let tag = thumbnail.header("etag").unwrap();
        let headers = [
            ("authorization", "Bearer demo-alice"),
            ("if-none-match", tag),
        ];
        let again = shop
            .send(
                Method::GET,
                &format!("{}/thumbnails/{size}", path(&said)),
                &headers,
                "",
            )
            .await;
        assert_eq!((again.status, again.body.len()), (304, 0));
    }
}

async fn a_retry_with_another_boundary_is_the_same_upload_and_another_file_is_none(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let file = png(20, 20);
    let first = upload(&shop, "k", "a.png", &file).await;
    let again = upload(&shop, "k", "a.png", &file).await;
    check_replays(&again, &first);
    for (name, file) in [("b.png", file.clone()), ("a.png", png(20, 21))] {
        let other = upload(&shop, "k", name, &file).await;
        problem(&other, 409, "CONFLICT.idempotency.payload_mismatch");
    }
    let said = first.json().unwrap();
    done(&shop, &said).await;
    check_once(&shop.home(), &said["sha256"]).await;
}

async fn an_upload_is_visible_to_its_tenant_only_and_a_missing_one_is_not_found(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let said = taken(&shop, "k", &png(20, 20)).await;
    assert_eq!(done(&shop, &said).await["state"], "ready");
    let own = path(&said);
    for size in ["128", "512"] {
        let path = format!("{own}/thumbnails/{size}");
        assert_eq!(shop.get(&path).await.status, 200);
        problem(&shop.get_as("demo-bob", &path).await, 404, "NOT_FOUND");
    }
    problem(&shop.get_as("demo-bob", &own).await, 404, "NOT_FOUND");
    for path in [
        format!("{own}/thumbnails/64"),
        format!("{own}/thumbnails/0128"),
        format!("{own}/thumbnails/large"),
        "/uploads/upl_0".to_owned(),
        "/uploads/upl_0/thumbnails/128".to_owned(),
        "/uploads/..".to_owned(),
    ] {
        assert_eq!(shop.get(&path).await.status, 404, "{path}");
    }
    assert_eq!(shop.get(&format!("{own}?x=1")).await.status, 400);
}

async fn without_a_relay_an_upload_waits_for_one(on: Store) {
    let shop = Shop::start(on, &["--no-relay"]).await;
    let said = taken(&shop, "k", &png(20, 20)).await;
    let known = status(&shop, &said).await;
    assert_eq!(
        (&known["state"], &known["thumbnails"]),
        (&"pending".into(), &serde_json::json!([]))
    );
    let early = shop.get(&format!("{}/thumbnails/128", path(&said))).await;
    problem(&early, 404, "NOT_FOUND");
    assert_eq!(early.header("retry-after"), Some("1"));
    let home = shop.home();
    shop.stop().await;
    let shop = Shop::start_in(home, &[]);
    assert_eq!(done(&shop, &said).await["state"], "ready");
    check_once(&shop.home(), &said["sha256"]).await;
}

async fn the_same_picture_uploaded_twice_is_two_uploads_and_one_file(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let file = png(20, 20);
    let first = taken(&shop, "1", &file).await;
    let second = taken(&shop, "2", &file).await;
    assert_ne!(first["id"], second["id"]);
    for upload in [first, second] {
        assert_eq!(done(&shop, &upload).await["state"], "ready");
    }
    assert_eq!(files(&shop.home()).len(), 1);
}

async fn a_file_that_is_gone_is_asked_for_again(on: Store) {
    let shop = Shop::start(on, &["--no-relay"]).await;
    let sent = post(
        shop.url("/uploads"),
        "k",
        form("a.png", "image/png", &png(20, 20)),
    );
    let said = sent.await.unwrap().json().unwrap();
    let kept = shop.file("uploads").join(said["sha256"].as_str().unwrap());
    let file = fs::read(&kept).unwrap();
    fs::remove_file(&kept).unwrap();
    let home = shop.home();
    shop.stop().await;
    let shop = Shop::start_in(home, &[]);
    let failed = "hapax_relay_attempts_total{destination=\"thumbnails\"";
    eventually(PATIENCE, async || shop.metric(failed).await > 0.0).await;
    assert_eq!(status(&shop, &said).await["state"], "pending");
    fs::write(&kept, &file).unwrap();
    assert_eq!(done(&shop, &said).await["state"], "ready");
}
