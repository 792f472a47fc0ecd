//! Tests of a full disk and an unavailable database server, and of the recovery from both.

use std::process::{Command, Stdio};

use hapax_testkit::{postgres::Cluster, wait::eventually};

use crate::shop::{Home, ORDER, PATIENCE, PAYMENT, Shop, Store, command, lasting, problem};

#[tokio::test]
async fn a_full_disk_is_503_and_a_log_line_until_there_is_room_again() {
    let home = Home::fresh(Store::Sqlite).await;
    let shop = Shop::spawn(patient(&home), home.clone());
    let first = shop.post("/orders", Some("before"), ORDER).await;

    limit_files(&shop, "1024:unlimited");
    let refused = shop.post("/orders", Some("k"), ORDER).await;
    problem(&refused, 503, "DEPENDENCY.unavailable");
    assert!(refused.header("retry-after").is_some());
    assert!(shop.log().contains("ERROR"), "{}", shop.log());
    assert_eq!(shop.post("/payments", Some("p"), PAYMENT).await.status, 503);
    assert_eq!(shop.get("/readyz").await.status, 503);
    assert_eq!(shop.get("/healthz").await.status, 200);
    let again = shop.post("/orders", Some("before"), ORDER).await;
    assert_eq!(
        lasting(&again),
        lasting(&first),
        "stored responses must still be replayed"
    );

    limit_files(&shop, "unlimited:unlimited");
    eventually(PATIENCE, async || shop.get("/readyz").await.status == 200).await;
    let retried = shop.post("/orders", Some("k"), ORDER).await;
    assert_eq!(retried.header("idempotency-status"), Some("stored"));
    let orders = shop.get("/orders").await.json().unwrap();
    assert_eq!(orders["items"].as_array().unwrap().len(), 2);
    assert_eq!(shop.received("order.created", 2).await.len(), 2);
    shop.stop().await;

    let shop = Shop::start_in(home, &[]);
    let again = shop.post("/orders", Some("before"), ORDER).await;
    assert_eq!(lasting(&again), lasting(&first));
}

#[tokio::test]
async fn a_server_that_is_away_is_503_until_it_is_back() {
    let mut cluster = Cluster::start().await;
    let home = Home::on(&cluster).await;
    let shop = Shop::start_in(home, &[]);
    let first = shop.post("/orders", Some("before"), ORDER).await;
    assert_eq!(first.status, 201, "{}", first.text());
    shop.received("order.created", 1).await;

    cluster.stop_immediate().await;
    for path in ["/orders", "/payments"] {
        let body = if path == "/orders" { ORDER } else { PAYMENT };
        let refused = shop.post(path, Some("k"), body).await;
        problem(&refused, 503, "DEPENDENCY.unavailable");
        assert!(refused.header("retry-after").is_some());
    }
    eventually(PATIENCE, async || shop.get("/readyz").await.status == 503).await;
    assert_eq!(shop.get("/healthz").await.status, 200);
    let again = shop.post("/orders", Some("before"), ORDER).await;
    assert_eq!(
        lasting(&again),
        lasting(&first),
        "responses in memory must still be replayed"
    );

    cluster.start_again().await;
    eventually(PATIENCE, async || shop.get("/readyz").await.status == 200).await;
    for path in ["/orders", "/payments"] {
        let body = if path == "/orders" { ORDER } else { PAYMENT };
        let retried = shop.post(path, Some("k"), body).await;
        assert_eq!(retried.header("idempotency-status"), Some("stored"));
    }
    assert_eq!(shop.received("order.created", 2).await.len(), 2);
    assert_eq!(shop.received("payment.succeeded", 1).await.len(), 1);
    shop.stop().await;
}

/// A shop that gets an error when it writes beyond its file size limit, as on a full disk. The
/// signal `SIGXFSZ` is ignored.
pub(crate) fn patient(home: &Home) -> Command {
    let shop = command(home, &[]);
    let mut patient = Command::new("sh");
    patient
        .args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"])
        .arg(shop.get_program())
        .args(shop.get_args())
        .stdin(Stdio::null());
    patient
}

/// Sets the maximum size of the files that a shop writes.
pub(crate) fn limit_files(shop: &Shop, bytes: &str) {
    let (id, limit) = (shop.id().to_string(), format!("--fsize={bytes}"));
    let set = Command::new("prlimit")
        .args(["--pid", &id, &limit])
        .status()
        .unwrap();
    assert!(set.success());
}
