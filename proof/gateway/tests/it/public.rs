//! An application on a public framework, unchanged: Flask with the gateway in front.

use crate::{
    gateway::Gateway,
    upstream::Packaged,
    wire::{exchange, request},
};

#[tokio::test]
async fn flask_creates_one_order_for_a_key() {
    let flask = Packaged::start("upstream/public.py", &[]).await;
    let gateway = Gateway::before(flask.address).await;
    let order = |key: &str| {
        let headers = [
            ("Content-Type", "application/json"),
            ("Idempotency-Key", key),
        ];
        request(
            "POST",
            "/orders",
            &headers,
            &format!(r#"{{"for": "{key}"}}"#),
        )
    };
    let mut bodies = Vec::new();
    for key in ["a", "b", "a", "b", "a"] {
        let answer = exchange(gateway.address(), &order(key)).await.unwrap();
        assert_eq!(answer.status, 201, "{}", answer.text());
        bodies.push(answer.body);
    }
    assert_eq!(bodies[0], bodies[2]);
    assert_eq!(bodies[0], bodies[4]);
    assert_eq!(bodies[1], bodies[3]);
    let list = request("GET", "/orders", &[], "");
    let list = exchange(gateway.address(), &list).await.unwrap().json();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2), "{list}");
}
