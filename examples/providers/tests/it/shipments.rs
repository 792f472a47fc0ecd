//! A shipment is created and cancelled once, and nothing is shipped to the country `ZZ`.

use serde_json::{Value, json};

use crate::provider::Provider;

#[tokio::test]
async fn a_shipment_is_made_once_and_cancelled_once() {
    let provider = Provider::shipping();
    let shipped = provider.told(201, "/shipments", "s", parcel("FR")).await;
    assert!(shipped["id"].as_str().unwrap().starts_with("shp_"));
    let again = provider.told(201, "/shipments", "s", parcel("FR")).await;
    assert_eq!(again, shipped);
    let cancel = format!("/shipments/{}/cancel", shipped["id"].as_str().unwrap());
    let cancelled = provider.told(201, &cancel, "x", json!({})).await;
    assert_eq!(
        (&cancelled["kind"], &cancelled["shipment"]),
        (&json!("cancellation"), &shipped["id"])
    );
    let twice = provider.told(409, &cancel, "y", json!({})).await;
    assert_eq!(twice["code"], "cancelled");
    let unknown = provider
        .told(404, "/shipments/shp_0/cancel", "z", json!({}))
        .await;
    assert_eq!(unknown["code"], "not_found");
    let found = provider.get("/operations/x").await.unwrap();
    assert_eq!(found.json().unwrap(), cancelled);
}

#[tokio::test]
async fn nothing_is_shipped_to_nowhere() {
    let provider = Provider::shipping();
    let refused = provider.told(422, "/shipments", "s", parcel("ZZ")).await;
    assert_eq!(refused["code"], "undeliverable");
    let found = provider.get("/operations/s").await.unwrap().json().unwrap();
    assert_eq!(found["code"], "undeliverable");
    provider.misbehave("ship", "applied_then_lost", 1).await;
    assert!(
        provider
            .post("/shipments", "t", parcel("FR"))
            .await
            .is_none()
    );
    assert_eq!(provider.entries().await.len(), 2);
}

fn parcel(country: &str) -> Value {
    let address = json!({
        "name": "Ann", "line1": "1 Road", "city": "Lyon", "postal_code": "69001",
        "country": country,
    });
    json!({ "address": address, "items": [{ "sku": "sku_tea", "quantity": 2 }] })
}
