//! Bad days: a disk that is full.

use std::process::{Command, Stdio};

use crate::shop::{ORDER, Shop, folder, problem};

#[tokio::test]
async fn a_full_disk_is_503_and_a_log_line_and_what_was_acknowledged_stays() {
    let folder = folder();
    // A file may grow to 512 blocks of 512 or 1024 bytes; beyond that a write fails as on a full disk.
    let script = "ulimit -f 512; trap '' XFSZ; exec \"$@\"";
    let mut limited = Command::new("sh");
    limited
        .args([
            "-c",
            script,
            "sh",
            env!("CARGO_BIN_EXE_shop"),
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
        ])
        .arg(folder.path())
        .args(["--log", "json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let shop = Shop::spawn(limited, folder.clone());
    let body = format!(
        r#"{{"customer_id":"a","amount":1,"currency":"EUR","note":"{}"}}"#,
        "x".repeat(500)
    );
    let mut created = Vec::new();
    let refused = loop {
        let key = format!("k-{}", created.len());
        let answer = shop.post("/orders", Some(&key), &body).await;
        match answer.status {
            201 => created.push(answer),
            _ => break answer,
        }
        assert!(created.len() < 5_000, "the disk never filled up");
    };
    problem(&refused, 503, "DEPENDENCY.unavailable");
    assert!(refused.header("retry-after").is_some());
    assert!(
        shop.log().contains("unavailable") || shop.log().contains("full"),
        "{}",
        shop.log()
    );
    assert_eq!(shop.get("/readyz").await.status, 503);
    assert_eq!(shop.get("/healthz").await.status, 200);
    drop(shop);

    let shop = Shop::start_in(folder, &["--no-relay"]);
    for (number, first) in created.iter().enumerate().rev().take(20) {
        let again = shop
            .post("/orders", Some(&format!("k-{number}")), &body)
            .await;
        assert_eq!(again.header("idempotency-status"), Some("replayed"));
        assert_eq!(again.body, first.body);
    }
    let retried = shop
        .post("/orders", Some(&format!("k-{}", created.len())), &body)
        .await;
    assert_eq!(retried.status, 201, "{}", retried.text());
    assert_eq!(shop.post("/orders", Some("after"), ORDER).await.status, 201);
}
