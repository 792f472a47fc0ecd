//! The shop's API, probed by what its own description says.

use hapax_testkit::prober::Prober;

use crate::shop::{Shop, Store};

/// A provider that fails, or is waited for too long, is no fault of the shop; nor is a write that
/// takes longer than its client has.
const NO_FAULTS: &str = "[[operations]]
include-path-regex = \"^/(payments|refunds|checkouts)$\"
checks.not_a_server_error.expected-statuses = [\"2xx\", \"3xx\", \"4xx\", \"502\", \"504\"]

[[operations]]
include-path-regex = \"^/(orders|signups|uploads)\"
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
    // What is no request at all never comes to a store.
    let probe = probe(&shop)
        .argument("--phases")
        .argument("examples,fuzzing");
    probe.finds_nothing(NO_FAULTS).await;
    shop.stop().await;
}

fn probe(shop: &Shop) -> Prober {
    Prober::of(env!("CARGO_TARGET_TMPDIR"), &shop.url("/openapi.json"))
        .header("Authorization", "Bearer demo-alice")
        // Some cards keep the provider waiting, and nobody here has the time.
        .header("X-Request-Timeout", "300")
}
