//! The examples of the packages: what their README shows.

use crate::{
    answers::check_problem,
    kind::EXAMPLES,
    shop::{Shop, body},
};

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_replay_each_others_responses() {
    let shop = Shop::open(&EXAMPLES).await;
    for (place, other) in [(0, 1), (1, 0)] {
        let key = format!("try-{place}");
        let first = shop.order(place, &key, &body("socks", 500)).await;
        assert_eq!(first.status, 201, "{}", first.text());
        for node in [place, other] {
            let again = shop.order(node, &key, &body("socks", 500)).await;
            assert_eq!(again.header("idempotency-status"), Some("replayed"));
            assert_eq!((again.status, &again.body), (201, &first.body));
            let mismatch = shop.order(node, &key, &body("socks", 900)).await;
            check_problem(&mismatch, 409, "CONFLICT.idempotency.payload_mismatch");
        }
        let refused = shop
            .order(place, &format!("out-{place}"), &body("sold out", 1))
            .await;
        check_problem(&refused, 409, "CONFLICT.state");
        assert_eq!(refused.header("idempotency-status"), Some("stored"));
    }
    assert_eq!(shop.count("SELECT count(*) FROM shop_order").await, 2);
    assert_eq!(
        shop.count("SELECT count(*) FROM hapax.outbox_event").await,
        2
    );
}
