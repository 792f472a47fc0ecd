//! Tests of the shop's API with generated requests from its OpenAPI description.

use hapax_testkit::prober::Prober;

use crate::shop::{Shop, Store};

/// Errors that are not the shop's fault: a provider fails or is too slow, or a write takes longer
/// than the client's timeout.
const NO_FAULTS: &str = "[[operations]]
include-path-regex = \"^/(payments|refunds|checkouts)$\"
checks.not_a_server_error.expected-statuses = [\"2xx\", \"3xx\", \"4xx\", \"502\", \"504\"]

[[operations]]
include-path-regex = \"^/(orders|customers|signups|uploads)\"
checks.not_a_server_error.expected-statuses = [\"2xx\", \"3xx\", \"4xx\", \"504\"]
";

#[tokio::test]
async fn nothing_that_is_asked_of_the_shop_is_a_fault_or_answered_as_nobody_said() {
    let shop = Shop::start(Store::Sqlite, &[]).await;
    probe(&shop).finds_nothing(NO_FAULTS).await;
    shop.stop().await;
}

#[tokio::test]
async fn nor_is_anything_on_postgresql() {
    let shop = Shop::start(Store::Postgres, &[]).await;
    // Malformed requests never reach the store, so only valid ones are generated here.
    let probe = probe(&shop)
        .argument("--phases")
        .argument("examples,fuzzing");
    probe.finds_nothing(NO_FAULTS).await;
    shop.stop().await;
}

fn probe(shop: &Shop) -> Prober {
    Prober::of(env!("CARGO_TARGET_TMPDIR"), &shop.url("/openapi.json"))
        .header("Authorization", "Bearer demo-alice")
        // Some cards make the provider slow, so the timeout is short.
        .header("X-Request-Timeout", "300")
}
