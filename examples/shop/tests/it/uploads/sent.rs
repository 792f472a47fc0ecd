//! Fixture: sends forms with a file, and reads the state of uploads.

use std::{
    collections::BTreeSet,
    fs,
    sync::atomic::{AtomicU64, Ordering},
};

use hapax_testkit::{
    http::{HttpClient, HttpResponse},
    wait::eventually,
};
use http::Method;
use serde_json::Value;

use crate::shop::{Home, PATIENCE, Shop};

/// The maximum time for a picture. Decoders are slow in a debug build.
const DECODING: std::time::Duration = PATIENCE.saturating_mul(3);

/// A form with one file, with a new boundary each time.
pub(super) fn form(name: &str, content_type: &str, file: &[u8]) -> (String, Vec<u8>) {
    static FORMS: AtomicU64 = AtomicU64::new(0);
    let boundary = format!("----boundary-{}", FORMS.fetch_add(1, Ordering::Relaxed));
    let mut body = format!(
        "--{boundary}\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
         content-type: {content_type}\r\n\r\n"
    )
    .into_bytes();
    body.extend(file);
    body.extend(format!("\r\n--{boundary}--\r\n").bytes());
    (format!("multipart/form-data; boundary={boundary}"), body)
}

/// Sends a body to `/uploads` as alice, and returns the result.
pub(super) async fn post(
    url: String,
    key: &str,
    (content_type, body): (String, Vec<u8>),
) -> Result<HttpResponse, String> {
    let headers = [
        ("authorization", "Bearer demo-alice"),
        ("content-type", content_type.as_str()),
        ("idempotency-key", key),
    ];
    let client = HttpClient::new();
    let sent = client.send(Method::POST, &url, &headers, body.into());
    sent.await.map_err(|error| error.to_string())
}

/// Uploads a file as alice.
pub(super) async fn upload(shop: &Shop, key: &str, name: &str, file: &[u8]) -> HttpResponse {
    let form = form(name, "application/octet-stream", file);
    post(shop.url("/uploads"), key, form).await.unwrap()
}

/// Uploads a file that must be accepted, and returns the body of the response.
pub(super) async fn taken(shop: &Shop, key: &str, file: &[u8]) -> Value {
    let answer = upload(shop, key, "a.png", file).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json().unwrap()
}

/// The current state of an upload.
pub(super) async fn status(shop: &Shop, upload: &Value) -> Value {
    let answer = shop.get(&path(upload)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json().unwrap()
}

/// Waits until the job has finished, and returns the state of the upload.
pub(super) async fn done(shop: &Shop, upload: &Value) -> Value {
    let mut known = Value::Null;
    eventually(DECODING, async || {
        known = status(shop, upload).await;
        known["state"] != "pending"
    })
    .await;
    known
}

/// The path of an upload.
pub(super) fn path(upload: &Value) -> String {
    format!("/uploads/{}", upload["id"].as_str().unwrap())
}

/// The files in the folder of uploads, without its lock.
pub(super) fn files(home: &Home) -> BTreeSet<String> {
    let entries = fs::read_dir(home.path().join("uploads")).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != ".lock")
        .collect()
}

/// Counts rows directly in the database.
pub(crate) async fn count(home: &Home, table: &str, condition: &str) -> i64 {
    let mut sql = format!("SELECT count(*) FROM {table} WHERE {condition}");
    if home.is_in_a_file() {
        sql = sql.replace("hapax.", "hapax_");
    }
    home.number(&sql).await
}

/// Checks that there is one file, one row, one event, one finished job and one pair of thumbnails.
pub(super) async fn check_once(home: &Home, sha256: &Value) {
    assert_eq!(
        files(home),
        BTreeSet::from([sha256.as_str().unwrap().to_owned()])
    );
    for (table, condition, rows) in [
        ("shop_upload", "state = 'ready'", 1),
        ("shop_upload", "state <> 'ready'", 0),
        ("shop_thumbnail", "1 = 1", 2),
        ("hapax.outbox_event", "type = 'file.uploaded'", 1),
        ("hapax.inbox_message", "consumer = 'thumbnails'", 1),
    ] {
        assert_eq!(
            count(home, table, condition).await,
            rows,
            "{table} {condition}"
        );
    }
}
