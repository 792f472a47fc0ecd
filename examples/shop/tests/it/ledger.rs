//! Tests of the ledger's pagination.

use crate::shop::{Shop, Store, on_both_stores};

on_both_stores! {
    entries_come_in_order_and_by_page,
}

async fn entries_come_in_order_and_by_page(on: Store) {
    let shop = Shop::start(on, &[]).await;
    for key in ["1", "2", "3"] {
        let body = r#"{"amount":900,"currency":"EUR","card":"tok_ok"}"#;
        assert_eq!(shop.post("/payments", Some(key), body).await.status, 201);
    }
    let all = shop.get("/ledger").await.json().unwrap();
    assert_eq!(all["entries"].as_array().unwrap().len(), 3);
    assert!(all["next"].is_null());
    let page = shop.get("/ledger?limit=2").await.json().unwrap();
    let next = page["next"].as_str().unwrap();
    let rest = shop
        .get(&format!("/ledger?after={next}"))
        .await
        .json()
        .unwrap();
    assert_eq!(rest["entries"][0], all["entries"][2]);
}
